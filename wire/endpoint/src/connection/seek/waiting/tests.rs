use std::io::IoSliceMut;
use std::path::{Path, PathBuf};
use std::time::Duration;

use seekwire_protocol::Reason;

use super::*;
use crate::connection::data_path::DataPath;
use crate::connection::seek::pair::{LONG, Pair, send};
use crate::connection::types::{Interest, RecvFlags};

const READ: Events = Events { read: true, write: false, hangup: false, dead: false };
const HEAD: Interest = Interest { read: true, write: false };
/// How often a waiter leaves the doorbell rung for others before it sleeps although it is rung.
const MANY: u32 = 100;

fn receive(to: &Connection, len: usize) {
    let flags = RecvFlags { wait_all: true, ..RecvFlags::default() };
    assert_eq!(to.recv(&mut [IoSliceMut::new(&mut vec![0; len])], flags), Ok(len));
}

fn thread() -> PathBuf {
    Path::new("/proc").join(std::fs::read_link("/proc/thread-self").unwrap())
}

fn until_asleep(thread: &Path) {
    while !std::fs::read_to_string(thread.join("stat")).unwrap().contains(") S") {
        std::thread::yield_now();
    }
}

/// Requires that a thread gets to a sleep without needless wake-ups: a thread that naps wakes 50
/// times in each window.
fn sleeps(thread: &Path) {
    let switches = || {
        let status = std::fs::read_to_string(thread.join("status")).unwrap();
        let number = |line: &str| line.rsplit('\t').next().unwrap().parse::<u64>().unwrap();
        status.lines().filter(|line| line.contains("ctxt_switches")).map(number).sum::<u64>()
    };
    let is_still = || {
        until_asleep(thread);
        let begin = switches();
        std::thread::sleep(Duration::from_millis(50));
        switches() - begin < 10
    };
    assert!((0..100).any(|_| is_still()), "awake again and again");
}

fn is_rung(data_path: &DataPath) -> bool {
    poll::look(data_path.ring.doorbell.fd(), READ).unwrap().read
}

/// Requires that `thread`, woken again and again, leaves the doorbell rung, and then sleeps
/// beside it.
fn is_left_rung(data_path: &DataPath, thread: &Path) {
    while data_path.ring.doorbell.times_left() < MANY {
        assert!(is_rung(data_path), "silenced for a waiter that has not woken up");
        std::thread::yield_now();
    }
    sleeps(thread);
    assert!(is_rung(data_path), "silenced for a waiter that has not woken up");
}

#[test]
fn who_watches_the_head_is_not_kept_asleep_by_a_seeker() {
    let pair = Pair::attached();
    let (to, data_path) = (&pair.to, pair.to.attached().unwrap());
    std::thread::scope(|scope| {
        let (ids, started) = std::sync::mpsc::channel();
        let seeker = scope.spawn(move || {
            ids.send(thread()).unwrap();
            let mut buf = [0; 10];
            to.seek(&mut [IoSliceMut::new(&mut buf)], At::Offset(100_000), SeekOptions::TAKE, false)
        });
        let seeker_thread = started.recv().unwrap();
        until_asleep(&seeker_thread);
        // A caller that sleeps in Connection::wait and does not get a processor.
        to.waiters.watchers.fetch_add(1, Ordering::SeqCst);
        data_path.ring.arm(READ);
        send(&pair.from, &[1; 10]);
        to.make_room().unwrap();
        is_left_rung(data_path, &seeker_thread);
        assert_eq!(to.wait(HEAD, Deadline::after(Some(LONG))), Ok(()));
        to.waiters.watchers.fetch_sub(1, Ordering::SeqCst);
        data_path.ring.disarm(READ);
        send(&pair.from, &[1; 110_000]);
        assert_eq!(seeker.join().unwrap(), Ok(10));
    });
}

#[test]
fn a_seeker_is_not_kept_asleep_by_who_watches_the_head() {
    let pair = Pair::attached();
    let (to, data_path) = (&pair.to, pair.to.attached().unwrap());
    let seeking = to.seeking();
    send(&pair.from, &[1; 10]);
    // A caller that sleeps for bytes in the middle and does not get a processor.
    let lead =
        |state: &mut SeekState, _: &LazyReceivePath<'_>, front| Ok(state.sleepers.lead(100, front));
    assert_eq!(to.with_path(seeking, false, lead), Ok(100));
    data_path.ring.arm(READ);
    receive(to, 10);
    std::thread::scope(|scope| {
        let (ids, started) = std::sync::mpsc::channel();
        let watcher = scope.spawn(move || {
            ids.send(thread()).unwrap();
            to.wait(HEAD, Deadline::after(Some(LONG)))
        });
        is_left_rung(data_path, &started.recv().unwrap());
        let end = |state: &mut SeekState, _: &LazyReceivePath<'_>, _| {
            seeking.leader_called.store(false, Ordering::SeqCst);
            state.sleepers.end_lead();
            Ok(())
        };
        to.with_path(seeking, false, end).unwrap();
        data_path.ring.disarm(READ);
        send(&pair.from, &[1; 10]);
        assert_eq!(watcher.join().unwrap(), Ok(()));
    });
}

#[test]
fn who_peeks_for_more_than_has_come_by_tcp_sleeps() {
    let pair = Pair::attached();
    pair.from.fall_back(Reason::Forced).unwrap();
    send(&pair.from, &[1; 10]);
    let to = &pair.to;
    std::thread::scope(|scope| {
        let (ids, started) = std::sync::mpsc::channel();
        let peeks = scope.spawn(move || {
            ids.send(thread()).unwrap();
            let flags = RecvFlags { peek: true, wait_all: true, ..RecvFlags::default() };
            to.recv(&mut [IoSliceMut::new(&mut [0; 20])], flags)
        });
        sleeps(&started.recv().unwrap());
        send(&pair.from, &[1; 10]);
        assert_eq!(peeks.join().unwrap(), Ok(20));
    });
}

#[test]
fn who_is_woken_for_every_byte_before_the_range_takes_each() {
    const BEFORE: usize = 1500;
    const LARGE: usize = 100_000;
    let pair = Pair::attached();
    pair.from.fall_back(Reason::Forced).unwrap();
    let to = &pair.to;
    std::thread::scope(|scope| {
        let seeker = scope.spawn(move || {
            let mut buf = vec![0; LARGE];
            let at = At::Offset(BEFORE as u64);
            let got = to.seek(&mut [IoSliceMut::new(&mut buf)], at, SeekOptions::TAKE, false);
            (got, buf)
        });
        for sent in 1..=BEFORE {
            send(&pair.from, &[0]);
            while to.totals().rx_tcp < sent as u64 && !seeker.is_finished() {
                std::thread::yield_now();
            }
        }
        send(&pair.from, &[1; LARGE]);
        assert_eq!(seeker.join().unwrap(), (Ok(LARGE), vec![1; LARGE]));
    });
}

#[test]
fn who_slept_before_the_first_seek_hears_of_it() {
    let pair = Pair::attached();
    let to = &pair.to;
    std::thread::scope(|scope| {
        let (ids, started) = std::sync::mpsc::channel();
        let watch = ids.clone();
        let watcher = scope.spawn(move || {
            watch.send(thread()).unwrap();
            to.wait(HEAD, Deadline::after(Some(LONG)))
        });
        until_asleep(&started.recv().unwrap());
        let seeker = scope.spawn(move || {
            ids.send(thread()).unwrap();
            let mut buf = [0; 10];
            to.seek(&mut [IoSliceMut::new(&mut buf)], At::Offset(100_000), SeekOptions::TAKE, false)
        });
        until_asleep(&started.recv().unwrap());
        while to.waiters.watchers.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        send(&pair.from, &[1; 100_010]);
        assert_eq!(watcher.join().unwrap(), Ok(()));
        assert_eq!(seeker.join().unwrap(), Ok(10));
    });
}

#[test]
fn the_mark_of_a_sleeper_is_not_the_applications() {
    let pair = Pair::plain();
    let to = &pair.to;
    std::thread::scope(|scope| {
        let (ids, started) = std::sync::mpsc::channel();
        let seeker = scope.spawn(move || {
            ids.send(thread()).unwrap();
            to.seek(&mut [IoSliceMut::new(&mut [0; 3000])], At::Offset(0), SeekOptions::TAKE, false)
        });
        until_asleep(&started.recv().unwrap());
        while to.data_path.get().is_none() {
            pair.hurry();
        }
        assert!(!to.is_attached(), "somebody sleeps in the kernel");
        pair.send(&[1; 3000]);
        assert_eq!(seeker.join().unwrap(), Ok(3000));
    });
    while !(pair.from.is_attached() && to.is_attached()) {
        pair.hurry();
    }
    assert_eq!(socket::receive_low_water(to.fd()), Ok(1));
    pair.send(&[1; 10]);
    for peek in [true, false] {
        // The bytes that have come are enough, and a second look does not wait for more.
        let flags = RecvFlags { peek, ..RecvFlags::default() };
        assert_eq!(to.enough(20, flags), 1);
        assert_eq!(to.recv(&mut [IoSliceMut::new(&mut [0; 20])], flags), Ok(10));
    }
}

#[test]
fn who_interrupted_a_receive_does_not_wait_for_it() {
    let pair = Pair::attached();
    let (to, data_path) = (&pair.to, pair.to.attached().unwrap());
    // As in a signal handler of the thread that receives.
    let seek =
        || to.seek(&mut [IoSliceMut::new(&mut [0; 10])], At::Offset(0), SeekOptions::TAKE, false);
    let receive = || to.recv(&mut [IoSliceMut::new(&mut [0; 10])], RecvFlags::default());
    let rx = to.rx(data_path).unwrap();
    assert_eq!(seek(), Err(Errno::AGAIN));
    assert_eq!(receive(), Err(Errno::AGAIN));
    drop(rx);
    let interrupted = to.with_path(to.seeking(), false, |_, _, _| {
        assert_eq!(seek(), Err(Errno::AGAIN));
        assert_eq!(receive(), Err(Errno::AGAIN));
        Ok(())
    });
    assert_eq!(interrupted, Ok(()));
    send(&pair.from, &[1; 10]);
    assert_eq!(seek(), Ok(10));
}
