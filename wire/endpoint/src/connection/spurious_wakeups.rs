//! Peers, and other processes of the same end, that prevent sleep although nothing can be moved: a
//! call that waits still ends at its deadline.

use std::io::{IoSlice, IoSliceMut};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use seekwire_protocol::Role;
use seekwire_protocol::record::Record;
use seekwire_transport::layout::{
    CONTROL, PUBLISHED, RX_LOCK, TX_POSITION, UNBOUNDED_READ, control,
};
use seekwire_transport::mem::OwnMemory;
use seekwire_transport::seek::{At, SeekOptions};
use seekwire_transport::sys::poll::Deadline;
use seekwire_transport::sys::{Fd, thread};

use super::state::Connection;
use super::types::{Interest, RecvFlags, SendFlags};
use seekwire_transport::Errno;
use std::sync::atomic::Ordering;

const SHORT: Duration = Duration::from_millis(20);

/// The peer wants TCP, and for the moment has withdrawn a standing request for a recall.
const TCP_ONLY_AND_STANDING: u64 = control::TCP_ONLY | control::STANDING;

/// Two attached ends whose calls wait for a short time.
fn attached() -> ([TcpStream; 2], Connection, Connection) {
    let (sockets, from, to) = connected();
    attach(&from, &to);
    (sockets, from, to)
}

fn connected() -> ([TcpStream; 2], Connection, Connection) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    b.set_read_timeout(Some(SHORT)).unwrap();
    b.set_write_timeout(Some(SHORT)).unwrap();
    let (from, to) = (
        Connection::new(Fd::from(&a), Role::Connected),
        Connection::new(Fd::from(&b), Role::Accepted),
    );
    ([a, b], from, to)
}

fn attach(from: &Connection, to: &Connection) {
    while !(from.is_attached() && to.is_attached()) {
        to.hurry();
        from.hurry();
    }
}

fn set(liar: &Connection, offset: usize, value: u64) {
    liar.attached().unwrap().ring.queue.own().word(offset).store(value, Ordering::SeqCst);
}

fn get(liar: &Connection, offset: usize) -> u64 {
    liar.attached().unwrap().ring.queue.own().word(offset).load(Ordering::SeqCst)
}

/// Announces bytes by TCP that never come.
fn promises_bytes(liar: &Connection) {
    assert_eq!(liar.next_carrier(), Ok(seekwire_protocol::Carrier::Ring));
    let geometry = liar.attached().unwrap().ring.queue.geometry();
    let cell = |position| geometry.cell_at(position);
    let position = get(liar, TX_POSITION);
    for (position, record) in (position..).zip([Record::Tcp, Record::RingAt]) {
        set(liar, cell(position + 1), 0);
        set(liar, cell(position) + 8, 1 << 40);
        set(liar, cell(position), record.encode(position));
    }
    set(liar, TX_POSITION, position + 2);
    set(liar, PUBLISHED, position + 2);
}

fn wants_attention(liar: &Connection) {
    set(liar, CONTROL, get(liar, CONTROL) | TCP_ONLY_AND_STANDING);
}

fn stays_inside(liar: &Connection) {
    set(liar, UNBOUNDED_READ, 1);
    set(liar, CONTROL, get(liar, CONTROL) | control::TCP_ONLY);
}

#[test]
fn the_time_of_a_call_ends_whatever_the_peer_says() {
    for lie in [promises_bytes, wants_attention, stays_inside] {
        let (_sockets, from, to) = attached();
        // Creates a ring to go back from.
        let flags = SendFlags { no_signal: true, ..SendFlags::default() };
        let mut some = vec![1; 100_000];
        assert_eq!(to.send(&[IoSlice::new(&some)], flags), Ok(some.len()));
        lie(&from);
        for (peek, wait_all) in [(false, false), (false, true), (true, false), (true, true)] {
            let flags = RecvFlags { peek, wait_all, ..RecvFlags::default() };
            assert_eq!(to.recv(&mut [IoSliceMut::new(&mut [0; 10])], flags), Err(Errno::AGAIN));
        }
        let read = Interest { read: true, ..Interest::default() };
        assert_eq!(to.wait(read, Deadline::after(Some(SHORT))), Err(Errno::TIMEDOUT));
        while let Ok(sent) =
            to.send(&[IoSlice::new(&some)], flags).map_err(|error| assert_eq!(error, Errno::AGAIN))
        {
            assert!(sent > 0);
        }
        let result =
            to.seek(&mut [IoSliceMut::new(&mut some)], At::Offset(10), SeekOptions::TAKE, false);
        assert_eq!(result, Err(Errno::AGAIN));
        assert_eq!(
            to.recv(&mut [IoSliceMut::new(&mut [0; 10])], RecvFlags::default()),
            Err(Errno::AGAIN)
        );
    }
}

#[test]
fn the_time_of_a_send_ends_though_others_have_yet_to_receive() {
    for size in [100, 100_000] {
        let (_sockets, from, to) = attached();
        let flags = SendFlags { no_signal: true, ..SendFlags::default() };
        // An epoll set on which nobody waits now.
        let read = Interest { read: true, ..Interest::default() };
        let armed = to.arm(read);
        assert!(!to.readiness().read);
        assert_eq!(from.send(&[IoSlice::new(b"unread")], flags), Ok(6));
        let bytes = vec![1; size];
        while to
            .send(&[IoSlice::new(&bytes)], flags)
            .map_err(|error| assert_eq!(error, Errno::AGAIN))
            .is_ok()
        {}
        to.disarm(armed);
    }
}

/// An epoll set that watches a seeking connection sleeps while that attaches.
#[test]
fn who_is_armed_before_the_peer_rings_is_not_counted_among_those_it_rings_for() {
    let (_sockets, from, to) = connected();
    let read = Interest { read: true, ..Interest::default() };
    to.begin_to_seek();
    let plain = to.arm(read);
    attach(&from, &to);
    assert!(plain.lacks_ring(&to));
    let armed = to.arm(read);
    assert!(!armed.lacks_ring(&to));
    let readers = || to.attached().unwrap().ring.queue.number_of_readers();
    to.disarm(plain);
    assert_eq!(readers(), 1);
    to.disarm(armed);
    assert_eq!(readers(), 0);
    let mut armed = to.arm(Interest::WRITE);
    to.rearm(&mut armed, read);
    to.rearm(&mut armed, read);
    assert_eq!(readers(), 1);
    to.disarm(armed);
    assert_eq!(readers(), 0);
}

/// A receive is under way: a thread that lives holds its half.
fn holds_half(peer: &Connection, holds: bool) {
    set(peer, RX_LOCK, if holds { thread::process_id().into() } else { 0 });
}

#[test]
fn a_read_whose_thread_has_died_holds_nobody_up() {
    let (_sockets, from, to) = attached();
    let flags = SendFlags { no_signal: true, ..SendFlags::default() };
    assert_eq!(to.send(&[IoSlice::new(b"by the ring")], flags), Ok(11));
    stays_inside(&from);
    // No thread ever has this id: they end at 2^22.
    set(&from, RX_LOCK, 0x3fff_ffff);
    assert_eq!(to.send(&[IoSlice::new(b"by TCP")], flags), Ok(6));
}

#[test]
fn a_peer_that_stays_inside_a_read_for_a_minute_is_reset() {
    let (_sockets, from, to) = attached();
    let flags = SendFlags { no_signal: true, ..SendFlags::default() };
    assert_eq!(to.send(&[IoSlice::new(b"by the ring")], flags), Ok(11));
    holds_half(&from, true);
    stays_inside(&from);
    let send = || to.send(&[IoSlice::new(b"by TCP")], flags);
    assert_eq!(send(), Err(Errno::AGAIN));
    let since = &to.attached().unwrap().progress.held_up_since;
    let later = |seconds: u64| {
        let before = since.load(Ordering::Relaxed);
        assert!(before > 1, "nobody has looked at the clock");
        since.store(before.saturating_sub(seconds * 1_000_000_000).max(1), Ordering::Relaxed);
    };
    later(30);
    assert_eq!(send(), Err(Errno::AGAIN));
    later(31);
    assert_eq!(send(), Err(Errno::CONNRESET));
    holds_half(&from, false);
    // The time begins anew for a receiver that was inside only for a moment.
    let (_sockets, from, to) = attached();
    assert_eq!(to.send(&[IoSlice::new(b"by the ring")], flags), Ok(11));
    holds_half(&from, true);
    stays_inside(&from);
    assert_eq!(to.send(&[IoSlice::new(b"by TCP")], flags), Err(Errno::AGAIN));
    holds_half(&from, false);
    set(&from, UNBOUNDED_READ, 0);
    assert_eq!(to.send(&[IoSlice::new(b"by TCP")], flags), Ok(6));
    assert_eq!(to.attached().unwrap().progress.held_up_since.load(Ordering::Relaxed), 0);
}

#[test]
fn the_time_inside_a_read_begins_anew_once_the_sender_was_on_the_ring() {
    let (_sockets, from, to) = attached();
    let flags = SendFlags { no_signal: true, ..SendFlags::default() };
    let data_path = to.attached().unwrap();
    let is_held_up = || {
        holds_half(&from, true);
        set(&from, UNBOUNDED_READ, 1);
        to.overflow(data_path).unwrap();
        to.send(&[IoSlice::new(b"by TCP")], flags)
    };
    assert_eq!(to.send(&[IoSlice::new(b"by the ring")], flags), Ok(11));
    assert_eq!(is_held_up(), Err(Errno::AGAIN));
    assert!(to.is_held_up());
    let since = &data_path.progress.held_up_since;
    let before = since.load(Ordering::Relaxed);
    since.store(before.saturating_sub(61_000_000_000).max(1), Ordering::Relaxed);
    // All bytes on the ring: the next send goes there again.
    holds_half(&from, false);
    let flags_to_receive = RecvFlags { dont_wait: true, ..RecvFlags::default() };
    assert_eq!(from.recv(&mut [IoSliceMut::new(&mut [0; 11])], flags_to_receive), Ok(11));
    assert_eq!(to.send(&[IoSlice::new(b"by the ring")], flags), Ok(11));
    assert!(!to.was_held_up());
    assert_eq!(is_held_up(), Err(Errno::AGAIN));
    // A caller that has seen the read end needs no send to know.
    holds_half(&from, false);
    set(&from, UNBOUNDED_READ, 0);
    assert!(to.was_held_up() && !to.is_held_up() && !to.was_held_up());
}
