//! A holder of the lock dies before every single access to shared memory, one after the other; its
//! successor finds a whole stream. (Real processes die in `killed.rs`; here no instant is left to
//! chance.)

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::heap::{Heap, Shared};
use crate::common::report;
use seekwire_protocol::Carrier;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::iov::{Gather, Scatter};
use seekwire_transport::layout::{Geometry, RX_LOCK, TX_LOCK, TX_POSITION};
use seekwire_transport::lock::{self, Acquired};
use seekwire_transport::mem::OwnMemory;
use seekwire_transport::queue::{self, QueuePair};
use seekwire_transport::sys::futex::Futex;
use seekwire_transport::sys::poll::Deadline;

const LOCKS: [usize; 2] = [TX_LOCK, RX_LOCK];
/// No thread ever has this id: they end at 2^22.
const DEAD: u64 = 0x3fff_ffff;

/// Memory whose user dies after this many more accesses: its later actions have no effect.
#[derive(Clone, Debug)]
struct Mortal {
    memory: Shared,
    /// The copy that the peer sees, if it sees one.
    shown: Option<Shared>,
    left: Arc<AtomicI64>,
    afterlife: Arc<AtomicU64>,
}

struct Death;

impl Mortal {
    fn new(memory: Shared, shown: Option<Shared>) -> Self {
        Self { memory, shown, left: Arc::new(AtomicI64::new(i64::MAX)), afterlife: Arc::default() }
    }

    fn dies_after(&self, accesses: i64) {
        self.left.store(accesses, Ordering::Relaxed);
    }

    fn lives(&self) -> bool {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            0 => resume_unwind(Box::new(Death)),
            left => left > 0,
        }
    }
}

impl OwnMemory for Mortal {
    fn word(&self, offset: usize) -> &AtomicU64 {
        if self.lives() { self.memory.word(offset) } else { &self.afterlife }
    }

    fn shows_copies(&self) -> bool {
        self.shown.is_some()
    }

    fn shown(&self, offset: usize) -> Option<&AtomicU64> {
        let shown = self.shown.as_ref().filter(|_| offset < geometry().shown_bytes())?;
        Some(if self.lives() { shown.word(offset) } else { &self.afterlife })
    }

    fn write(&self, offset: usize, from: &[u8]) {
        if self.lives() {
            let shown = self.shown.as_ref().filter(|_| offset < geometry().shown_bytes());
            shown.unwrap_or(&self.memory).write(offset, from);
        }
    }
}

impl Futex for Mortal {
    fn futex_wait(&self, _: usize, _: u32) -> bool {
        // The time after which a death is suspected has passed.
        false
    }

    fn futex_wake(&self, _: usize) {}
}

type End = QueuePair<Mortal, Shared>;

/// A connection whose TCP is a queue of bytes. The first end of each pair is the one that dies, the
/// second one another holder of the same end.
struct World {
    a: [End; 2],
    b: [End; 2],
    tcp: VecDeque<u8>,
    sent: Vec<u8>,
    received: Vec<u8>,
    next: u8,
}

fn geometry() -> Geometry {
    Geometry::new(64, 4096, 8).unwrap()
}

impl World {
    /// `by_copies`: an end shows its peer a copy of its memory.
    fn new(by_copies: bool) -> Self {
        let memory = || {
            let new = || Shared(Arc::new(Heap::new(geometry())));
            let memory = Mortal::new(new(), by_copies.then(new));
            queue::format(&memory, geometry());
            memory
        };
        let (a, b) = (memory(), memory());
        let end = |own: &Mortal, peer: &Mortal| {
            let own = Mortal::new(own.memory.clone(), own.shown.clone());
            let peer = peer.shown.as_ref().unwrap_or(&peer.memory).clone();
            QueuePair::new(own, geometry(), peer, geometry())
        };
        Self {
            a: [end(&a, &b), end(&a, &b)],
            b: [end(&b, &a), end(&b, &a)],
            tcp: VecDeque::new(),
            sent: Vec::new(),
            received: Vec::new(),
            next: 0,
        }
    }

    /// Sends all of this many bytes.
    fn send(&mut self, holder: usize, len: usize) {
        self.next = self.next.wrapping_add(1);
        let bytes: Vec<u8> = (0..len).map(|at| self.next ^ ((at * 31) >> 3) as u8).collect();
        let tx = self.a[holder].tx();
        if tx.carrier().unwrap() == Carrier::Ring {
            assert_eq!(tx.push(&mut Gather::new(&[IoSlice::new(&bytes)])), Ok(len));
        } else {
            assert!(tx.may_use_tcp());
            self.tcp.extend(&bytes);
            tx.sent_by_tcp(len);
        }
        let _ = tx.announce();
        drop(tx);
        self.sent.extend(bytes);
    }

    /// Receives the bytes that are there, at most this many.
    fn receive(&mut self, holder: usize, most: usize) {
        let before = self.received.len();
        loop {
            let mut bytes = vec![0; most - (self.received.len() - before)];
            let rx = self.b[holder].rx();
            let got = match rx.step().unwrap() {
                RxStep::Ring => {
                    rx.pull(&mut Scatter::new(&mut [IoSliceMut::new(&mut bytes)])).unwrap()
                }
                step @ (RxStep::Tcp(_) | RxStep::TcpUnbounded) => {
                    let bound =
                        if let RxStep::Tcp(bound) = step { bound as usize } else { usize::MAX };
                    let got = bytes.len().min(bound).min(self.tcp.len());
                    bytes.iter_mut().zip(self.tcp.drain(..got)).for_each(|(to, from)| *to = from);
                    rx.received_by_tcp(got);
                    got
                }
                RxStep::RingEmpty => 0,
                other => panic!("{other:?}"),
            };
            let _ = rx.announce();
            self.received.extend(&bytes[..got]);
            if got == 0 {
                break;
            }
        }
    }

    /// The other holders go on for some laps of the ring, and all segments but this many come back.
    fn go_on(&mut self, lost_segments: usize) {
        for round in 0..20 {
            self.send(1, [10, 2000, 700, 4096][round % 4]);
            self.receive(1, 20_000);
        }
        if self.a[1].tx_on_ring() {
            let there = (0..9).take_while(|_| self.a[1].tx().reserve().is_ok()).count();
            assert!(there + lost_segments >= 8, "{there} segments are left");
        }
    }

    /// Everything was received. Both ends know it, and the number of bytes, whichever process died
    /// meanwhile.
    fn is_counted(&self) {
        let (sender, receiver) = (&self.a[1], &self.b[1]);
        assert_eq!((sender.unsent(), receiver.unread()), (0, 0));
        let (ring, taken) = (sender.ring_bytes().0, receiver.ring_bytes().1);
        assert_eq!(ring, taken);
        assert_eq!(ring + sender.tcp_bytes().0, self.sent.len() as u64);
    }
}

/// Whether it died.
fn dies(memory: &Mortal, accesses: i64, life: impl FnOnce()) -> bool {
    memory.dies_after(accesses);
    let died = match catch_unwind(AssertUnwindSafe(life)) {
        Ok(()) => false,
        Err(payload) if payload.is::<Death>() => true,
        Err(payload) => resume_unwind(payload),
    };
    for lock in LOCKS {
        let lock = memory.memory.word(lock);
        if lock.load(Ordering::Relaxed) != 0 {
            lock.store(DEAD, Ordering::Relaxed);
        }
    }
    died
}

type Act<'a> = &'a dyn Fn(&End, &[u8]);

/// A sender acts and dies before each of its accesses in turn. The receiver may then see one of
/// `outcomes` of the `len` bytes that were to be sent.
fn sender_dies(
    name: &str,
    prepare: impl Fn(&mut World),
    len: usize,
    outcomes: &[usize],
    lost_segments: usize,
    act: Act<'_>,
) -> i64 {
    let message: Vec<u8> = (0..len).map(|at| 0x80 | ((at * 7) >> 2) as u8).collect();
    let one = |by_copies: bool| {
        let mut seen = vec![0; outcomes.len()];
        for accesses in 0.. {
            let mut world = World::new(by_copies);
            prepare(&mut world);
            let died = dies(world.a[0].own(), accesses, || act(&world.a[0], &message));
            let before = world.sent.len();
            world.receive(1, 20_000);
            world.go_on(lost_segments);
            let arrived = world.received.len() - world.sent.len();
            let outcome = outcomes.iter().position(|n| *n == arrived);
            let outcome = outcome
                .unwrap_or_else(|| panic!("{name}: {arrived} bytes after {accesses} accesses"));
            seen[outcome] += 1;
            world.sent.splice(before..before, message[..arrived].iter().copied());
            world.is_counted();
            assert!(world.received == world.sent, "{name}: wrong bytes after {accesses} accesses");
            if !died {
                assert_eq!(arrived, len, "{name}");
                assert!(
                    accesses > 5 && seen.iter().all(|count| *count > 0),
                    "{name}: {accesses}, {seen:?}"
                );
                return accesses;
            }
        }
        unreachable!()
    };
    one(false) + one(true)
}

fn push(end: &End, bytes: &[u8]) {
    let tx = end.tx();
    let half = bytes.len() / 2;
    let slices = [IoSlice::new(&bytes[..half]), IoSlice::new(&bytes[half..])];
    assert_eq!(tx.push(&mut Gather::new(&slices)), Ok(bytes.len()));
    let _ = tx.announce();
}

/// On the ring, with all kinds of records before.
fn on_the_ring(world: &mut World) {
    world.a[0].set_ready();
    world.b[0].set_ready();
    for len in [3, 300, 5000, 70] {
        world.send(0, len);
    }
    world.receive(0, 20_000);
}

/// With returned segments that the sender has not seen.
fn segments_returned(world: &mut World) {
    on_the_ring(world);
    for _ in 0..3 {
        world.send(0, 4096);
    }
    world.receive(0, 20_000);
}

/// Near the end of a lap, with unread records.
fn before_the_end_of_a_lap(world: &mut World) {
    on_the_ring(world);
    while world.a[0].own().word(TX_POSITION).load(Ordering::Relaxed) % 64 < 60 {
        world.send(0, 40);
        world.receive(0, 10);
    }
}

#[test]
fn a_sender_may_die_at_any_instant() {
    let mut instants = 0;
    instants += sender_dies("inline", on_the_ring, 40, &[0, 40], 0, &push);
    instants +=
        sender_dies("inline, unread before it", before_the_end_of_a_lap, 40, &[0, 40], 0, &push);
    instants +=
        sender_dies("over the end of a lap", before_the_end_of_a_lap, 900, &[0, 900], 0, &push);
    instants += sender_dies("segment", on_the_ring, 3000, &[0, 3000], 0, &push);
    instants += sender_dies("returned segments", segments_returned, 3000, &[0, 3000], 0, &push);
    instants +=
        sender_dies("several records", segments_returned, 9000, &[0, 4096, 8192, 9000], 0, &push);
    instants += sender_dies("in place", segments_returned, 500, &[0, 500], 1, &|end, bytes| {
        let segment = end.tx().reserve().unwrap();
        end.own().write(geometry().segment_at(segment), bytes);
        end.tx().commit(segment, bytes.len()).unwrap();
    });
    instants += sender_dies("cancelled", segments_returned, 0, &[0], 1, &|end, _| {
        let segment = end.tx().reserve().unwrap();
        end.tx().cancel(segment);
    });
    let on_tcp = |world: &mut World| {
        world.send(0, 100);
        world.receive(0, 50);
        world.a[0].set_ready();
        world.b[0].set_ready();
    };
    instants += sender_dies("to the ring", on_tcp, 40, &[0, 40], 0, &|end, bytes| {
        assert_eq!(end.tx().carrier(), Ok(Carrier::Ring));
        push(end, bytes);
    });
    instants += sender_dies("to TCP", on_the_ring, 40, &[0, 40], 0, &|end, bytes| {
        push(end, bytes);
        end.set_tcp_only();
        assert_eq!(end.tx().carrier(), Ok(Carrier::Tcp));
    });
    report(&format!("deaths: a sender died at {instants} instants"));
}

#[test]
fn the_end_is_said_even_if_the_sender_dies_of_it() {
    for by_copies in [false, true] {
        for accesses in 0.. {
            let mut world = World::new(by_copies);
            on_the_ring(&mut world);
            let died = dies(world.a[0].own(), accesses, || world.a[0].tx().shutdown().unwrap());
            world.a[1].tx().shutdown().unwrap();
            assert_eq!(world.b[1].rx().step(), Ok(RxStep::End), "after {accesses} accesses");
            if !died {
                break;
            }
        }
    }
}

/// A receiver acts and dies before each of its accesses in turn. Some of the bytes that it was
/// taking may be lost with it, from the front; none comes twice, and the following ones are
/// complete.
fn receiver_dies(
    name: &str,
    prepare: impl Fn(&mut World),
    taken: usize,
    act: impl Fn(&End),
) -> i64 {
    let one = |by_copies: bool| {
        for accesses in 0.. {
            let mut world = World::new(by_copies);
            prepare(&mut world);
            let died = dies(world.b[0].own(), accesses, || act(&world.b[0]));
            let before = world.received.len();
            world.receive(1, 50_000);
            world.go_on(0);
            let lost = world.sent.len() - world.received.len();
            assert!(
                lost <= taken && (died || lost == taken),
                "{name}: {lost} bytes lost after {accesses} accesses"
            );
            world.is_counted();
            world.sent.drain(before..before + lost);
            assert!(world.received == world.sent, "{name}: wrong bytes after {accesses} accesses");
            if !died {
                return accesses;
            }
        }
        unreachable!()
    };
    one(false) + one(true)
}

fn pull(end: &End, len: usize) {
    let mut bytes = vec![0; len];
    let rx = end.rx();
    assert_eq!(rx.step(), Ok(RxStep::Ring));
    assert_eq!(rx.pull(&mut Scatter::new(&mut [IoSliceMut::new(&mut bytes)])), Ok(len));
    let _ = rx.announce();
}

#[test]
fn a_receiver_may_die_at_any_instant() {
    let waiting = |lens: &'static [usize], taken: usize| {
        move |world: &mut World| {
            on_the_ring(world);
            lens.iter().for_each(|len| world.send(0, *len));
            world.receive(0, taken);
        }
    };
    let mut instants = 0;
    instants += receiver_dies("inline", waiting(&[40, 50], 0), 40, |end| pull(end, 40));
    instants +=
        receiver_dies("the rest of a record", waiting(&[300, 50], 100), 200, |end| pull(end, 200));
    instants +=
        receiver_dies("part of a record", waiting(&[300, 50], 100), 100, |end| pull(end, 100));
    instants += receiver_dies("segment", waiting(&[4096, 50], 0), 4096, |end| pull(end, 4096));
    instants += receiver_dies("the rest of a segment", waiting(&[4096, 50], 9), 4087, |end| {
        pull(end, 4087)
    });
    let many: &[usize] = &[10, 4096, 700, 20, 4096, 33];
    instants += receiver_dies("several records", waiting(many, 5), 8000, |end| pull(end, 8000));
    instants += receiver_dies("thrown away", waiting(many, 5), 8000, |end| {
        assert_eq!(end.rx().discard(8000), Ok(8000));
    });
    instants += receiver_dies(
        "over the end of a lap",
        |world| {
            before_the_end_of_a_lap(world);
            world.receive(0, 20_000);
            world.send(0, 900);
        },
        900,
        |end| pull(end, 900),
    );
    let switches = |world: &mut World| {
        world.send(0, 100);
        world.a[0].set_ready();
        world.b[0].set_ready();
        world.send(0, 60);
        world.receive(0, 100);
    };
    instants += receiver_dies("to the ring", switches, 60, |end| pull(end, 60));
    report(&format!("deaths: a receiver died at {instants} instants"));
}

#[test]
fn a_holder_in_another_pid_namespace_is_not_taken_for_dead() {
    let own = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
    let memory = Mortal::new(Shared(Arc::new(Heap::new(geometry()))), None);
    let acquired = |namespace: u64| {
        memory.word(TX_LOCK).store(DEAD | namespace << 32, Ordering::SeqCst);
        let at_once = Deadline::after(Some(Duration::ZERO));
        lock::within(at_once, || lock::acquire(&memory, TX_LOCK).map(|(_, acquired)| acquired))
    };
    assert_eq!(acquired(own + 1), None);
    assert_eq!(acquired(own), Some(Acquired::OwnerDied));
    assert_eq!(acquired(0), Some(Acquired::OwnerDied), "unknown");
}
