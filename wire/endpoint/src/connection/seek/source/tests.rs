use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::rc::Rc;

use seekwire_transport::Errno;
use seekwire_transport::seek::{At, SeekOptions};
use seekwire_transport::sys::poll::{self, Events};
use seekwire_transport::sys::socket;

use crate::connection::next_source::peer;
use crate::connection::seek::pair::{Pair, send};
use crate::connection::{RecvFlags, SendFlags};

/// Looks of this end in one call, between which the peer may act.
const LOOKS: usize = 8;

#[test]
fn an_end_that_comes_with_the_last_bytes_comes_after_them() {
    for (published, ended) in (0..LOOKS).flat_map(|at| (at..LOOKS).map(move |end| (at, end))) {
        for before in [Before::Nothing, Before::Taken, Before::Seen] {
            for seeks in [false, true] {
                all_bytes_come(published, ended, before, seeks);
            }
        }
    }
}

/// The bytes that the peer has sent before, by the ring.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    /// The next byte may come by either carrier.
    Nothing,
    Taken,
    Seen,
}

/// The peer sends before look number `published` and ends the stream before look number `ended`.
fn all_bytes_come(published: usize, ended: usize, before: Before, seeks: bool) {
    let pair = Rc::new(Pair::attached());
    let sent =
        if before == Before::Nothing { Err(seekwire_transport::Errno::AGAIN) } else { Ok(5) };
    if sent.is_ok() {
        send(&pair.from, &[1; 5]);
    }
    let options = if before == Before::Seen { SeekOptions::PEEK } else { SeekOptions::TAKE };
    assert_eq!(
        pair.to.seek(&mut [IoSliceMut::new(&mut [0; 5])], At::Offset(0), options, true),
        sent
    );
    let whole = if before == Before::Seen { 15 } else { 10 };
    let looks = RefCell::new(0);
    let from = Rc::clone(&pair);
    peer::acts(Some(Rc::new(move || {
        let look = looks.replace_with(|looks| *looks + 1);
        if look == published {
            send(&from.from, &[1; 10]);
        }
        if look == ended {
            from.from.shutdown(Shutdown::Write).unwrap();
        }
    })));
    let mut got = 0;
    loop {
        let mut buf = [0; 20];
        let bufs = &mut [IoSliceMut::new(&mut buf)];
        let result = match seeks {
            true => pair.to.seek(bufs, At::Offset(0), SeekOptions::TAKE, true),
            false => pair.to.recv(bufs, RecvFlags { dont_wait: true, ..RecvFlags::default() }),
        };
        match result {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) => assert_eq!(error, seekwire_transport::Errno::AGAIN),
        }
    }
    peer::acts(None);
    assert_eq!(got, whole, "published at {published}, ended at {ended}, {before:?}, seeks {seeks}");
}

/// Such as that of a peer that was killed.
#[test]
fn an_end_that_is_not_on_the_ring_comes_after_the_last_bytes() {
    for is_held in [false, true] {
        let pair = Pair::attached();
        let flags = SendFlags { no_signal: true, more: is_held, ..SendFlags::default() };
        // In segments, where a seek looks at them.
        send(&pair.from, &[1; 5000]);
        assert_eq!(pair.from.send(&[IoSlice::new(&[1; 5000])], flags), Ok(5000));
        socket::shutdown(pair.from.fd(), Shutdown::Write).unwrap();
        let seek = |offset| {
            let mut buf = [0; 20_000];
            let bufs = &mut [IoSliceMut::new(&mut buf)];
            pair.to.seek(bufs, At::Offset(offset), SeekOptions::PEEK, true)
        };
        let all = [Ok(10_000), Ok(9998), Ok(0)];
        assert_eq!([0, 2, 10_000].map(seek), all, "held: {is_held}");
    }
}

#[test]
fn a_reset_that_comes_with_the_last_bytes_is_told_after_them() {
    for seeks in [false, true] {
        for at in 0..LOOKS {
            reset_after_bytes(at, seeks);
        }
    }
}

/// The peer sends and resets the connection before look number `at`.
fn reset_after_bytes(at: usize, seeks: bool) {
    let pair = Rc::new(Pair::attached());
    send(&pair.from, &[1; 5]);
    let dont_wait = RecvFlags { dont_wait: true, ..RecvFlags::default() };
    assert_eq!(pair.to.recv(&mut [IoSliceMut::new(&mut [0; 5])], dont_wait), Ok(5));
    if seeks {
        pair.to.begin_to_seek();
    }
    let looks = RefCell::new(0);
    let from = Rc::clone(&pair);
    peer::acts(Some(Rc::new(move || {
        if looks.replace_with(|looks| *looks + 1) == at {
            send(&from.from, &[1; 10]);
            socket::reset(from.from.fd());
        }
    })));
    let mut got = 0;
    let end = loop {
        match pair.to.recv(&mut [IoSliceMut::new(&mut [0; 20])], dont_wait) {
            Ok(n) if n > 0 => got += n,
            Err(Errno::AGAIN) => {}
            end => break end,
        }
    };
    peer::acts(None);
    assert_eq!((got, end), (10, Err(Errno::CONNRESET)), "before look {at}, seeks {seeks}");
}

/// The kernel reports an error once, and not before the bytes that came with it are received.
#[test]
fn a_peek_leaves_the_error_behind_what_it_sees() {
    let all = [false, true].map(|ring| [false, true].map(|drained| (ring, drained)));
    for (ring, drained) in all.into_iter().flatten() {
        for asks in [false, true] {
            let pair = if ring { Pair::attached() } else { Pair::plain() };
            pair.to.begin_to_seek();
            pair.send(&[1; 10]);
            if drained {
                pair.to.make_room().unwrap();
            }
            socket::reset(pair.from.fd());
            while !poll::look(pair.to.fd(), Events::default()).unwrap().dead {
                std::thread::yield_now();
            }
            let recv = |peek| {
                let flags = RecvFlags { peek, dont_wait: true, ..RecvFlags::default() };
                pair.to.recv(&mut [IoSliceMut::new(&mut [0; 20])], flags)
            };
            let case = format!("ring {ring}, drained {drained}, asks {asks}");
            assert_eq!([recv(true), recv(true)], [Ok(10); 2], "{case}");
            if asks {
                assert_eq!(pair.to.take_error(), Some(Errno::CONNRESET), "{case}");
            }
            let end = if asks { Ok(0) } else { Err(Errno::CONNRESET) };
            assert_eq!([recv(false), recv(false)], [Ok(10), end], "{case}");
        }
    }
}

#[test]
fn bytes_that_are_taken_out_of_order_count_as_received() {
    const HEAD: usize = 60_000;
    const PART: usize = 100_000;
    for pair in [Pair::plain(), Pair::attached()] {
        let received = || {
            let totals = pair.to.totals();
            (totals.rx_tcp + totals.rx_ring) as usize
        };
        let before = received();
        pair.send(&[1; HEAD + PART]);
        let mut bytes = vec![0; PART];
        let mut bufs = [IoSliceMut::new(&mut bytes)];
        let at = At::Offset(HEAD as u64);
        assert_eq!(pair.to.seek(&mut bufs, at, SeekOptions::TAKE, false), Ok(PART));
        // Bytes of the head may have been moved to library memory.
        assert!(received() - before >= PART, "{}", received() - before);
        let flags = RecvFlags { wait_all: true, ..RecvFlags::default() };
        let mut head = vec![0; HEAD];
        let n = pair.to.recv(&mut [IoSliceMut::new(&mut head)], flags);
        assert_eq!((n, received() - before), (Ok(HEAD), HEAD + PART));
        // The next byte follows the hole.
        pair.send(&[2; 10]);
        let n = pair.to.recv(&mut [IoSliceMut::new(&mut head[..10])], flags);
        assert_eq!((n, received() - before), (Ok(10), HEAD + PART + 10));
    }
}

#[test]
fn bytes_in_library_memory_are_unread_when_the_last_holder_closes() {
    for has_forked in [false, true] {
        let pair = Pair::plain();
        pair.to.begin_to_seek();
        pair.send(&[1; 10]);
        pair.to.make_room().unwrap();
        if has_forked {
            pair.to.before_fork();
            pair.to.fork_failed();
        }
        pair.to.close();
        assert!(socket::resets_on_close(pair.to.fd()), "forked: {has_forked}");
    }
}
