//! Every method of receiving out of the middle at its limits: waits, full memory, and the end of the
//! stream.

use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::time::Duration;

use crate::common::Pattern;
use crate::common::carrier::Carrier;
use crate::common::seek::Seek;
use crate::seek::{Kind, MEMORY, Pair, TAKE, kinds};
use seekwire_transport::Errno;
use seekwire_transport::layout::Geometry;
use seekwire_transport::seek::{At, SeekMethod};
use seekwire_transport::sys::poll::{self, Deadline, Events};
use seekwire_transport::sys::{Fd, socket};

fn read_exactly(seek: &dyn Seek, pattern: &Pattern, offset: usize, len: usize, position: usize) {
    let mut buf = vec![0; len];
    let at = At::Offset(offset as u64);
    let n = seek.seek(at, &mut [IoSliceMut::new(&mut buf)], TAKE, &|| Ok(never_reached())).unwrap();
    assert_eq!(n, len);
    assert!(pattern.bytes(position as u64, len) == buf);
}

/// Long enough never to be reached unless a wake-up was lost.
fn never_reached() -> Deadline {
    Deadline::after(Some(Duration::from_secs(60)))
}

fn send_all(sender: &(dyn Carrier + Sync), mut bytes: &[u8]) {
    let write = Events::WRITE;
    while !bytes.is_empty() {
        match sender.send(&[IoSlice::new(bytes)]) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::AGAIN) => sender.wait(write, never_reached()).unwrap(),
            // The receiver has seen enough.
            Err(_) => return,
        }
    }
}

/// A range that is further after the head than the kernel or the ring would ever store: the bytes
/// before it move into library memory, and the sender goes on.
#[test]
fn a_range_beyond_the_receive_buffer_arrives() {
    for kind in kinds() {
        let pair = Pair::new(kind);
        let (sender, receiver) = pair.ends(kind, MEMORY);
        let (pattern, seek, total) = (Pattern::new(1), receiver.seek(), 24 << 20);
        std::thread::scope(|scope| {
            let bytes = pattern.bytes(0, total);
            scope.spawn(move || send_all(sender, &bytes));
            read_exactly(seek, &pattern, total - 1000, 1000, total - 1000);
            read_exactly(seek, &pattern, 5000, 100_000, 5000);
            let mut rest = pattern.bytes(0, total - 1000);
            rest.drain(5000..105_000);
            let mut buf = vec![0; rest.len()];
            let mut received = 0;
            while received < rest.len() {
                match seek.try_recv(&mut [IoSliceMut::new(&mut buf[received..])], false) {
                    Ok(n) => received += n,
                    Err(Errno::AGAIN) => seek.wait(At::Offset(0), 1, never_reached()).unwrap(),
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(buf == rest);
        });
    }
}

/// Without memory to move them to, the bytes before the range obstruct it: that is an error, not a
/// hang.
#[test]
fn a_range_that_cannot_arrive_is_an_error() {
    for kind in kinds() {
        let pair = Pair::new(kind);
        let (sender, receiver) = pair.ends(kind, 0);
        let seek = receiver.seek();
        std::thread::scope(|scope| {
            scope.spawn(move || send_all(sender, &vec![7; 64 << 20]));
            let mut buf = [0; 10];
            let far = At::Offset(60 << 20);
            let result =
                seek.seek(far, &mut [IoSliceMut::new(&mut buf)], TAKE, &|| Ok(never_reached()));
            assert_eq!(result, Err(Errno::NOBUFS), "{kind:?}");
            // Nothing was lost: the head is still there.
            let received = seek.try_recv(&mut [IoSliceMut::new(&mut buf)], false);
            assert_eq!(received, Ok(10), "{kind:?}, {:?}", seek.extent());
            assert_eq!(buf, [7; 10]);
            match &pair {
                Pair::Tcp { sender, .. } => sender.shutdown(std::net::Shutdown::Both).unwrap(),
                Pair::Ring(pair) => {
                    pair.1.queue.set_closed();
                    pair.1.peer_doorbell.ring();
                }
            }
        });
    }
}

/// The hole frees its space in the buffer: a sender that found none goes on.
#[test]
fn what_was_taken_from_the_middle_is_room_for_the_sender() {
    let geometry = Geometry::new(64, 4096, 8).unwrap();
    let kind = Kind::Ring(geometry);
    let pair = Pair::new(kind);
    let (sender, receiver) = pair.ends(kind, 0);
    let seek = receiver.seek();
    let fill =
        |byte| (0..).take_while(|_| sender.send(&[IoSlice::new(&[byte; 4096])]).is_ok()).count();
    assert_eq!(fill(1), 8);
    let mut buf = vec![0; 4096];
    for taken in [3u64, 5] {
        let n = seek.try_seek(At::Offset(taken * 4096), &mut [IoSliceMut::new(&mut buf)], TAKE);
        assert_eq!(n, Ok(4096));
    }
    assert_eq!(fill(2), 2, "the two segments came back while the head stayed where it was");
    let mut rest = vec![0; 8 * 4096];
    assert_eq!(seek.try_recv(&mut [IoSliceMut::new(&mut rest)], false), Ok(8 * 4096));
    assert!(
        rest[..6 * 4096].iter().all(|byte| *byte == 1)
            && rest[6 * 4096..].iter().all(|byte| *byte == 2)
    );
    assert_eq!(fill(3), 8);
}

#[test]
fn several_wait_for_different_ranges_at_once() {
    const LEN: usize = 30_000;
    for kind in kinds() {
        for round in 0..10 {
            let pair = Pair::new(kind);
            let (sender, receiver) = pair.ends(kind, MEMORY);
            let (pattern, seek) = (Pattern::new(round), &receiver);
            std::thread::scope(|scope| {
                for n in (1..6).rev() {
                    let pattern = &pattern;
                    scope.spawn(move || {
                        let mut buf = vec![0; LEN];
                        let at = At::Position((n * LEN) as u64);
                        let bufs = &mut [IoSliceMut::new(&mut buf)];
                        assert_eq!(
                            seek.seek().seek(at, bufs, TAKE, &|| Ok(never_reached())),
                            Ok(LEN)
                        );
                        assert!(pattern.bytes((n * LEN) as u64, LEN) == buf);
                    });
                }
                for n in 0..6 {
                    send_all(sender, &pattern.bytes((n * LEN) as u64, LEN));
                }
            });
            assert_eq!(receiver.seek().extent().unwrap().holes.len(), 1);
        }
    }
}

#[test]
fn a_wait_ends_when_its_time_is_over_or_the_stream() {
    for kind in kinds() {
        let pair = Pair::new(kind);
        let (sender, receiver) = pair.ends(kind, MEMORY);
        let until = Deadline::after(Some(Duration::from_millis(1)));
        let mut buf = [0; 4];
        let bufs = &mut [IoSliceMut::new(&mut buf)];
        let result = receiver.seek().seek(At::Offset(10), bufs, TAKE, &|| Ok(until));
        assert_eq!(result, Err(Errno::TIMEDOUT), "{kind:?}");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                send_all(sender, b"0123456789AB");
                sender.shutdown().unwrap();
            });
            let result = receiver.seek().seek(At::Offset(10), bufs, TAKE, &|| Ok(never_reached()));
            assert_eq!(result, Ok(2), "{kind:?}: short where the stream ends");
        });
    }
}

/// No more memory, and all that is needed to reach the range waits in the kernel's: an older kernel
/// cannot look at it.
#[test]
fn a_range_behind_what_memory_holds_is_an_error() {
    let kind = Kind::Tcp(SeekMethod::Drain);
    let pair = Pair::new(kind);
    let (sender, receiver) = pair.ends(kind, 4096);
    let seek = receiver.seek();
    send_all(sender, &[7; 20_000]);
    let mut buf = [0; 10];
    let until = Deadline::after(Some(Duration::from_secs(10)));
    for attempts in [1, 2] {
        let result =
            seek.seek(At::Offset(10_000), &mut [IoSliceMut::new(&mut buf)], TAKE, &|| Ok(until));
        assert_eq!(result, Err(Errno::NOBUFS), "attempt {attempts}");
    }
    assert_eq!(
        seek.try_recv(&mut [IoSliceMut::new(&mut [0; 8000])], true),
        Ok(4096),
        "what can be looked at"
    );
    assert_eq!(seek.try_recv(&mut [IoSliceMut::new(&mut [0; 8000])], false), Ok(8000));
    assert_eq!(seek.try_recv(&mut [IoSliceMut::new(&mut [0; 12_000])], false), Ok(12_000));
    assert_eq!(seek.try_recv(&mut [IoSliceMut::new(&mut [0; 1])], false), Err(Errno::AGAIN));
}

/// Skips unwanted bytes, without any wanted ones after them, on every kind of stream.
#[test]
fn what_nobody_wants_is_taken_alone() {
    for kind in kinds() {
        let pair = Pair::new(kind);
        let (sender, receiver) = pair.ends(kind, 1 << 20);
        let seek = receiver.seek();
        send_all(sender, b"ab");
        let skip = TAKE.partial(true).skip(1);
        while seek.extent().unwrap().arrived < 2 {
            std::thread::yield_now();
        }
        assert_eq!(seek.try_seek(At::Offset(0), &mut [], skip), Ok(0), "{kind:?}");
        let mut buf = [0; 2];
        assert_eq!(seek.try_recv(&mut [IoSliceMut::new(&mut buf)], false), Ok(1), "{kind:?}");
        assert_eq!(buf[0], b'b', "{kind:?}");
    }
}

/// A sender so slow that it might have stopped, and no memory to find that out with.
#[test]
fn a_slow_sender_is_not_a_lack_of_memory() {
    const SLOW: Duration = Duration::from_millis(25);
    const PIECES: usize = 6;
    for kind in kinds().into_iter().filter(|kind| !matches!(kind, Kind::Tcp(SeekMethod::Drain))) {
        let pair = Pair::new(kind);
        let (sender, receiver) = pair.ends(kind, 0);
        let seek = receiver.seek();
        let pattern = Pattern::new(0);
        let bytes = pattern.bytes(0, 100 * PIECES);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for piece in bytes.chunks(100) {
                    std::thread::sleep(SLOW);
                    send_all(sender, piece);
                }
            });
            // After the first long sleep, the others check for bytes that have come.
            for at in (10..bytes.len() - 190).step_by(200) {
                let mut buf = [0; 190];
                let bufs = &mut [IoSliceMut::new(&mut buf)];
                let result =
                    seek.seek(At::Position(at as u64), bufs, TAKE, &|| Ok(never_reached()));
                assert_eq!(result, Ok(190), "{kind:?}, {at}");
                assert!(buf == bytes[at..at + 190], "{kind:?}, {at}");
            }
        });
    }
}

/// There is no memory for another byte, and none to come.
#[test]
fn the_end_is_found_when_memory_is_full() {
    for kind in kinds() {
        for memory in [0, 4096] {
            let pair = Pair::new(kind);
            let (sender, receiver) = pair.ends(kind, memory);
            let seek = receiver.seek();
            send_all(sender, &vec![7; memory]);
            seek.make_room().unwrap();
            let mut buf = [0; 200];
            let before = memory.saturating_sub(96);
            let at = At::Position(before as u64);
            let early = seek.try_seek(at, &mut [IoSliceMut::new(&mut buf)], TAKE);
            // An older kernel cannot look at bytes after those for which there is no room.
            let never = memory > 0 && matches!(kind, Kind::Tcp(SeekMethod::Drain));
            assert_eq!(
                early,
                Err(if never { Errno::NOBUFS } else { Errno::AGAIN }),
                "{kind:?}, {memory}"
            );
            sender.shutdown().unwrap();
            if let Pair::Tcp { receiver, .. } = &pair {
                let hangup = Events { hangup: true, ..Events::default() };
                while !poll::look(Fd::from(receiver), hangup).unwrap().hangup {
                    std::thread::yield_now();
                }
            }
            let late = seek.try_seek(at, &mut [IoSliceMut::new(&mut buf)], TAKE);
            assert_eq!(late, Ok(memory - before), "{kind:?}, {memory}");
            let end =
                seek.seek(At::Position(5000), &mut [IoSliceMut::new(&mut buf)], TAKE, &|| {
                    Ok(never_reached())
                });
            assert_eq!(end, Ok(0), "{kind:?}, {memory}");
        }
    }
}

/// A reset that comes after bytes in library memory is still an error, not the end of the stream.
#[test]
fn a_reset_is_not_taken_for_the_end() {
    for kind in kinds().into_iter().filter(|kind| matches!(kind, Kind::Tcp(_))) {
        let pair = Pair::new(kind);
        let (sender, receiver) = pair.ends(kind, MEMORY);
        let seek = receiver.seek();
        send_all(sender, &[7; 100]);
        seek.make_room().unwrap();
        if let Pair::Tcp { sender, .. } = &pair {
            socket::reset(Fd::from(sender));
        }
        let mut buf = [0; 200];
        assert_eq!(seek.try_recv(&mut [IoSliceMut::new(&mut buf)], false), Ok(100));
        let after = seek.try_recv(&mut [IoSliceMut::new(&mut buf)], false);
        assert_eq!(after, Err(Errno::CONNRESET), "{kind:?}");
    }
}

/// Yields until a thread is asleep, or has ended.
fn until_asleep(thread: &Path) {
    let stat = Path::new("/proc").join(thread).join("stat");
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") S")) {
        std::thread::yield_now();
    }
}

/// One thread sleeps for a range that is far from complete when another one begins to wait for
/// earlier bytes.
#[test]
fn a_waiter_for_more_does_not_hold_up_one_for_less() {
    for kind in kinds() {
        let pair = Pair::new(kind);
        let (sender, receiver) = pair.ends(kind, MEMORY);
        let receiver = &receiver;
        std::thread::scope(|scope| {
            let (ids, started) = std::sync::mpsc::channel();
            let take = |at, len| {
                let ids = ids.clone();
                move || {
                    let mut buf = vec![0; len];
                    ids.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
                    let bufs = &mut [IoSliceMut::new(&mut buf)];
                    receiver.seek().seek(At::Position(at), bufs, TAKE, &|| Ok(never_reached()))
                }
            };
            let more = scope.spawn(take(100, 10_000));
            until_asleep(&started.recv().unwrap());
            let less = scope.spawn(take(0, 50));
            until_asleep(&started.recv().unwrap());
            let least = scope.spawn(take(50, 1));
            until_asleep(&started.recv().unwrap());
            send_all(sender, &[1; 51]);
            assert_eq!(least.join().unwrap(), Ok(1), "{kind:?}");
            assert_eq!(less.join().unwrap(), Ok(50), "{kind:?}");
            send_all(sender, &[1; 10_049]);
            assert_eq!(more.join().unwrap(), Ok(10_000), "{kind:?}");
        });
    }
}
