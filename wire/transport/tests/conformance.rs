//! The promises of every carrier, tested on kernel TCP, and on the ring in several geometries,
//! within one machine and in a region of two.

use std::io::{IoSlice, IoSliceMut};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::carrier::{Carrier, Tcp};
use crate::common::{Pattern, Random, geometries, linked_pair, places, report, ring_pair};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use seekwire_transport::Errno;
use seekwire_transport::layout::Geometry;
use seekwire_transport::ring::Ring;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::poll::{self, Deadline, Events};

type Both<'a> = [&'a (dyn Carrier + Sync); 2];

const READ: Events = Events { read: true, write: false, hangup: false, dead: false };
const WRITE: Events = Events { read: false, write: true, hangup: false, dead: false };

/// Long enough never to be reached unless a wake-up was lost.
fn never_reached() -> Deadline {
    Deadline::after(Some(Duration::from_secs(60)))
}

struct TcpPair(TcpStream, TcpStream);

impl TcpPair {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (b, _) = listener.accept().unwrap();
        a.set_nodelay(true).unwrap();
        b.set_nodelay(true).unwrap();
        Self(a, b)
    }

    fn carriers(&self) -> (Tcp, Tcp) {
        (Tcp(Fd::from(&self.0)), Tcp(Fd::from(&self.1)))
    }
}

// ---- one thread, against a model --------------------------------------------------------------

#[derive(Clone, Debug)]
enum Operation {
    Send(usize, Vec<usize>),
    Recv(usize, Vec<usize>),
    Peek(usize, Vec<usize>),
    Unread(usize),
    Wait(usize),
    Shutdown(usize),
}

fn length() -> impl Strategy<Value = usize> {
    let borders = [
        0, 1, 7, 8, 55, 56, 57, 64, 119, 120, 121, 1015, 1016, 1017, 4095, 4096, 4097, 8192, 12289,
    ];
    prop_oneof![
        6 => proptest::sample::select(borders.to_vec()),
        3 => 0usize..200,
        2 => 0usize..6000,
        1 => 0usize..60_000,
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let end = || 0usize..2;
    let lengths = || proptest::collection::vec(length(), 0..5);
    prop_oneof![
        30 => (end(), lengths()).prop_map(|(end, lens)| Operation::Send(end, lens)),
        30 => (end(), lengths()).prop_map(|(end, lens)| Operation::Recv(end, lens)),
        8 => (end(), lengths()).prop_map(|(end, lens)| Operation::Peek(end, lens)),
        8 => end().prop_map(Operation::Unread),
        8 => end().prop_map(Operation::Wait),
        1 => end().prop_map(Operation::Shutdown),
    ]
}

/// One direction, by its sending end.
#[derive(Default)]
struct Direction {
    sent: u64,
    received: u64,
    shut: bool,
}

impl Direction {
    fn in_flight(&self) -> usize {
        (self.sent - self.received) as usize
    }
}

struct Model<'a> {
    ends: Both<'a>,
    /// Sent bytes are there at once and in full; the kernel may deliver them later.
    exact: bool,
    directions: [Direction; 2],
    patterns: [Pattern; 2],
}

static OPERATIONS: AtomicU64 = AtomicU64::new(0);

impl Model<'_> {
    fn step(&mut self, operation: &Operation) {
        OPERATIONS.fetch_add(1, Ordering::Relaxed);
        match operation {
            Operation::Send(end, lens) => self.send(*end, lens),
            Operation::Recv(end, lens) => {
                self.receive(*end, lens, false);
            }
            Operation::Peek(end, lens) => {
                self.receive(*end, lens, true);
            }
            Operation::Unread(end) => self.unread(*end),
            Operation::Wait(end) => self.wait(*end),
            Operation::Shutdown(end) => {
                let again = std::mem::replace(&mut self.directions[*end].shut, true);
                match self.ends[*end].shutdown() {
                    Ok(()) => {}
                    // The kernel's answer if both directions have ended.
                    Err(Errno::NOTCONN) if again => {}
                    other => panic!("shutdown: {other:?}"),
                }
            }
        }
    }

    fn send(&mut self, end: usize, lens: &[usize]) {
        let direction = &mut self.directions[end];
        let total: usize = lens.iter().sum();
        let bytes = self.patterns[end].bytes(direction.sent, total);
        let mut rest = &bytes[..];
        let slices: Vec<IoSlice<'_>> = lens
            .iter()
            .map(|len| {
                let (head, tail) = rest.split_at(*len);
                rest = tail;
                IoSlice::new(head)
            })
            .collect();
        match self.ends[end].send(&slices) {
            Err(Errno::PIPE) => assert!(direction.shut, "EPIPE before shutdown"),
            _ if direction.shut => panic!("sent after shutdown"),
            Err(Errno::AGAIN) => {
                assert!(total > 0 && direction.in_flight() > 0, "full without anything in it")
            }
            Ok(n) => {
                assert!(n <= total && (n > 0 || total == 0), "{n} of {total}");
                direction.sent += n as u64;
            }
            Err(error) => panic!("send: {error}"),
        }
    }

    /// Returns the number of bytes that came.
    fn receive(&mut self, end: usize, lens: &[usize], peek: bool) -> usize {
        let carrier = self.ends[end];
        let direction = &mut self.directions[1 - end];
        let room: usize = lens.iter().sum();
        let mut bufs: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
        let there = direction.in_flight();
        let result = loop {
            let mut slices: Vec<IoSliceMut<'_>> =
                bufs.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
            let result = if peek { carrier.peek(&mut slices) } else { carrier.recv(&mut slices) };
            let early = result == Err(Errno::AGAIN) && (there > 0 || direction.shut);
            if self.exact || !early {
                break result;
            }
            carrier.wait(READ, never_reached()).unwrap();
        };
        match result {
            Err(Errno::AGAIN) => {
                assert!(there == 0 && !direction.shut, "EAGAIN with {there} bytes there")
            }
            Ok(n) => {
                assert!(there > 0 || direction.shut, "{n} bytes or an end out of nothing");
                assert!(n <= room.min(there), "{n} of {there} into {room}");
                assert!(n > 0 || room == 0 || there == 0, "the end before {there} bytes");
                assert!(!self.exact || n == room.min(there), "{n} of {there} into {room}");
                let expected = self.patterns[1 - end].bytes(direction.received, n);
                assert!(bufs.concat()[..n] == expected, "wrong bytes at {}", direction.received);
                if !peek {
                    direction.received += n as u64;
                }
                return n;
            }
            Err(error) => panic!("receive: {error}"),
        }
        0
    }

    fn unread(&self, end: usize) {
        let there = self.directions[1 - end].in_flight();
        let unread = self.ends[end].unread().unwrap();
        assert!(unread == there || !self.exact && unread < there, "{unread} unread of {there}");
    }

    fn wait(&self, end: usize) {
        let incoming = &self.directions[1 - end];
        if incoming.in_flight() > 0 || incoming.shut {
            self.ends[end].wait(READ, never_reached()).unwrap();
        }
        let outgoing = &self.directions[end];
        if outgoing.in_flight() == 0 && !outgoing.shut {
            self.ends[end].wait(WRITE, never_reached()).unwrap();
            self.ends[end].wait(Events { read: true, ..WRITE }, never_reached()).unwrap();
        }
    }

    /// Everything that was sent comes out, and then the end.
    fn finish(&mut self) {
        for end in [0, 1] {
            self.step(&Operation::Shutdown(end));
        }
        for end in [0, 1] {
            while self.receive(end, &[100_000], false) > 0 {}
            assert_eq!(self.directions[1 - end].in_flight(), 0);
        }
    }
}

type NewPair = fn(Geometry, Geometry) -> (Ring, Ring);

/// Rings of two processes, and of two machines.
const PAIRS: [(&str, NewPair); 2] = [("ring", ring_pair), ("ring in a region", linked_pair)];

/// Those to be tested at length: only the latter if a region was given for them.
fn pairs() -> &'static [(&'static str, NewPair)] {
    if places::are_given() { &PAIRS[1..] } else { &PAIRS }
}

fn model(name: &str, exact: bool, cases: u32, with_pair: impl Fn(&mut dyn FnMut(Both<'_>))) {
    let before = OPERATIONS.load(Ordering::Relaxed);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let operations = proptest::collection::vec(operation(), 1..200);
    TestRunner::new(config)
        .run(&operations, |operations| {
            with_pair(&mut |ends| {
                let patterns = [Pattern::new(1), Pattern::new(2)];
                let mut model = Model { ends, exact, directions: Default::default(), patterns };
                operations.iter().for_each(|operation| model.step(operation));
                model.finish();
            });
            Ok(())
        })
        .unwrap();
    let ran = OPERATIONS.load(Ordering::Relaxed) - before;
    report(&format!("conformance: {name}: {ran} operations in {cases} sequences"));
    assert!(ran > 2000, "only {ran} operations");
}

#[test]
fn one_thread() {
    model("kernel TCP", false, 100, |run| {
        let pair = TcpPair::new();
        let (a, b) = pair.carriers();
        run([&a, &b]);
    });
    for (kind, pair) in pairs() {
        for (a, b) in geometries() {
            let name = format!("{kind}, {} and {} descriptors", a.cells(), b.cells());
            model(&name, true, 150, |run| {
                let (a, b) = pair(a, b);
                run([&a, &b]);
            });
        }
    }
}

// ---- several threads --------------------------------------------------------------------------

fn send_all(carrier: &dyn Carrier, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match carrier.send(&[IoSlice::new(bytes)]) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::AGAIN) => carrier.wait(WRITE, never_reached()).unwrap(),
            Err(error) => panic!("send: {error}"),
        }
    }
}

/// Waits for the next bytes; 0 at the end.
fn recv_some(carrier: &dyn Carrier, into: &mut [u8]) -> usize {
    loop {
        match carrier.recv(&mut [IoSliceMut::new(into)]) {
            Ok(n) => return n,
            Err(Errno::AGAIN) => carrier.wait(READ, never_reached()).unwrap(),
            Err(error) => panic!("recv: {error}"),
        }
    }
}

fn some_length(random: &mut Random) -> usize {
    match random.below(4) {
        0 => 1 + random.below(56),
        1 => 1 + random.below(1017),
        2 => 1 + random.below(20_000),
        _ => [1, 56, 57, 1016, 1017, 4096, 4097][random.below(7)],
    }
}

fn write_stream(carrier: &dyn Carrier, seed: u64, total: u64) {
    let (pattern, mut random) = (Pattern::new(seed), Random::new(seed));
    let mut sent = 0;
    while sent < total {
        let n = some_length(&mut random).min((total - sent) as usize);
        send_all(carrier, &pattern.bytes(sent, n));
        sent += n as u64;
    }
    carrier.shutdown().unwrap();
}

fn read_stream(carrier: &dyn Carrier, seed: u64, total: u64) {
    let (pattern, mut random) = (Pattern::new(seed), Random::new(seed + 1000));
    let (mut received, mut buf) = (0, vec![0; 20_000]);
    loop {
        let n = recv_some(carrier, &mut buf[..some_length(&mut random)]);
        if n == 0 {
            break;
        }
        assert!(buf[..n] == pattern.bytes(received, n), "wrong bytes at {received}");
        received += n as u64;
    }
    assert_eq!(received, total);
}

/// A reader and a writer on either end, all of them sleeping on what they wait for.
fn both_ways(ends: Both<'_>, total: u64) {
    thread::scope(|scope| {
        for end in [0, 1] {
            scope.spawn(move || write_stream(ends[end], end as u64 + 1, total));
            scope.spawn(move || read_stream(ends[1 - end], end as u64 + 1, total));
        }
    });
}

/// Every answer is waited for: this tests sleeping and waking only.
fn ping_pong(ends: Both<'_>, rounds: u32) {
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..rounds {
                let mut byte = [0];
                assert_eq!(recv_some(ends[1], &mut byte), 1);
                assert_eq!(byte[0], round as u8);
                send_all(ends[1], &byte);
            }
        });
        for round in 0..rounds {
            let mut byte = [round as u8];
            send_all(ends[0], &byte);
            assert_eq!(recv_some(ends[0], &mut byte), 1);
            assert_eq!(byte[0], round as u8);
        }
    });
}

/// Several threads send, several receive, on the same two ends: no byte is lost and none comes
/// twice.
fn crowd(ends: Both<'_>, each: usize) {
    const SENDERS: usize = 3;
    const RECEIVERS: usize = 3;
    let counts = thread::scope(|scope| {
        let receivers: Vec<_> = (0..RECEIVERS)
            .map(|seed| {
                scope.spawn(move || {
                    let (mut counts, mut buf) = ([0; SENDERS], vec![0; 20_000]);
                    let mut random = Random::new(seed as u64 + 77);
                    loop {
                        let n = recv_some(ends[1], &mut buf[..some_length(&mut random)]);
                        if n == 0 {
                            return counts;
                        }
                        buf[..n].iter().for_each(|byte| counts[usize::from(*byte)] += 1);
                    }
                })
            })
            .collect();
        let senders: Vec<_> = (0..SENDERS)
            .map(|id| {
                scope.spawn(move || {
                    let mut random = Random::new(id as u64 + 7);
                    let mut left = each;
                    while left > 0 {
                        let n = some_length(&mut random).min(left);
                        send_all(ends[0], &vec![id as u8; n]);
                        left -= n;
                    }
                })
            })
            .collect();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        ends[0].shutdown().unwrap();
        receivers.into_iter().map(|receiver| receiver.join().unwrap()).collect::<Vec<_>>()
    });
    for id in 0..SENDERS {
        assert_eq!(counts.iter().map(|count| count[id]).sum::<usize>(), each);
    }
}

/// A message that is sent with one call and fits into one or more descriptors is not split, and
/// each thread's messages keep their order.
fn messages_of_several_threads(a: &Ring, b: &Ring) {
    const SENDERS: u64 = 3;
    const EACH: u64 = 2000;
    thread::scope(|scope| {
        for id in 0..SENDERS {
            scope.spawn(move || {
                for number in 0..EACH {
                    let word = (id << 32 | number).to_ne_bytes();
                    let message = word.repeat(1 + (number % 100) as usize);
                    send_all(a, &message);
                }
            });
        }
        let mut next = [0; SENDERS as usize];
        let mut message = vec![0; 800];
        for _ in 0..SENDERS * EACH {
            let mut recv_exact = |from: usize, to: usize| {
                let mut at = from;
                while at < to {
                    at += recv_some(b, &mut message[at..to]);
                }
                u64::from_ne_bytes(message[from..from + 8].try_into().unwrap())
            };
            let word = recv_exact(0, 8);
            let (id, number) = ((word >> 32) as usize, word & 0xffff_ffff);
            assert_eq!(number, next[id], "of sender {id}");
            next[id] += 1;
            for repeat in 1..1 + (number % 100) as usize {
                assert_eq!(recv_exact(repeat * 8, repeat * 8 + 8), word);
            }
        }
    });
}

#[test]
fn threads_on_kernel_tcp() {
    let pair = || TcpPair::new();
    let run = |test: &dyn Fn(Both<'_>)| {
        let pair = pair();
        let (a, b) = pair.carriers();
        test([&a, &b]);
    };
    run(&|ends| both_ways(ends, 8 << 20));
    run(&|ends| ping_pong(ends, 1000));
    run(&|ends| crowd(ends, 1 << 20));
}

#[test]
fn threads_on_the_ring() {
    for (_, pair) in pairs() {
        for (a, b) in geometries() {
            let run = |test: &dyn Fn(Both<'_>)| {
                let (a, b) = pair(a, b);
                test([&a, &b]);
            };
            run(&|ends| both_ways(ends, 8 << 20));
            run(&|ends| ping_pong(ends, 3000));
            run(&|ends| crowd(ends, 1 << 20));
            let (a, b) = pair(a, b);
            messages_of_several_threads(&a, &b);
        }
    }
}

// ---- what only the ring can be asked ----------------------------------------------------------

fn smallest() -> Geometry {
    Geometry::new(64, 4096, 8).unwrap()
}

fn until_a_writer_waits(ring: &Ring) {
    while !ring.queue.has_writers() {
        thread::yield_now();
    }
}

#[test]
fn a_full_ring_says_so_and_still_takes_the_end() {
    for message in [1, 56, 57, 1016, 1017, 4096, 70_000] {
        let (a, b) = ring_pair(smallest(), smallest());
        let pattern = Pattern::new(9);
        let mut sent = 0;
        loop {
            match a.send(&[IoSlice::new(&pattern.bytes(sent, message))]) {
                Ok(n) => sent += n as u64,
                Err(error) => break assert_eq!(error, Errno::AGAIN),
            }
        }
        a.shutdown().unwrap();
        assert_eq!(a.send(&[IoSlice::new(b"x")]), Err(Errno::PIPE));
        assert_eq!(b.unread().unwrap() as u64, sent);
        read_stream(&b, 9, sent);
    }
}

#[test]
fn room_is_announced_when_half_of_it_is_back() {
    let (a, b) = ring_pair(smallest(), smallest());
    let mut sent = 0u64;
    while a.send(&[IoSlice::new(&[7; 50])]).is_ok() {
        sent += 50;
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            a.wait(WRITE, never_reached()).unwrap();
            assert!(a.queue.has_room());
        });
        until_a_writer_waits(&a);
        let mut buf = [0; 50];
        for _ in 0..sent / 50 {
            b.recv(&mut [IoSliceMut::new(&mut buf)]).unwrap();
        }
    });
}

/// One thread waits for data, another for room, on the doorbell of one end. The first to wake must
/// not silence it for the other.
#[test]
fn a_reader_and_a_writer_of_one_end_do_not_take_each_others_wake_ups() {
    for _ in 0..200 {
        let (a, b) = ring_pair(smallest(), smallest());
        while a.send(&[IoSlice::new(&[7; 1000])]).is_ok() {}
        thread::scope(|scope| {
            let reader = scope.spawn(|| recv_some(&a, &mut [0]));
            scope.spawn(|| send_all(&a, &[8; 1000]));
            scope.spawn(|| {
                let mut buf = [0; 1000];
                loop {
                    assert!(recv_some(&b, &mut buf) > 0);
                    if buf[0] == 8 {
                        break;
                    }
                }
                // Only now may the reader wake for good.
                send_all(&b, b"!");
            });
            assert_eq!(reader.join().unwrap(), 1);
        });
    }
}

/// As an epoll set, which has not looked when another waiter silences the doorbell.
#[test]
fn who_silences_the_doorbell_has_the_peer_ring_for_others_again() {
    let is_rung = |ring: &Ring| poll::look(ring.doorbell.fd(), READ).unwrap().read;
    let (a, b) = ring_pair(smallest(), smallest());
    a.arm(READ);
    for _ in 0..3 {
        send_all(&b, b"x");
        assert!(is_rung(&a));
        assert_eq!(recv_some(&a, &mut [0]), 1);
        a.silence(Events::default(), || false);
        assert!(!is_rung(&a));
    }
    // With something left for others, it rings at once.
    send_all(&b, b"x");
    a.silence(Events::default(), || false);
    assert!(is_rung(&a));
    // A waiter that only leaves has silenced nothing.
    a.arm(READ);
    a.doorbell.quiet();
    a.disarm(READ);
    assert!(!is_rung(&a));
}

#[test]
fn what_a_peer_published_before_it_closed_is_read() {
    let (a, b) = ring_pair(smallest(), smallest());
    send_all(&a, b"last words");
    a.queue.set_closed();
    let mut buf = [0; 32];
    assert_eq!(recv_some(&b, &mut buf), 10);
    assert_eq!(recv_some(&b, &mut buf), 0);
    assert_eq!(b.send(&[IoSlice::new(b"x")]), Err(Errno::PIPE));
}

#[test]
fn reserved_segments_are_not_waited_for() {
    let (a, b) = ring_pair(smallest(), smallest());
    let reserved: Vec<usize> = (0..6).map(|_| a.queue.tx().reserve().unwrap()).collect();
    let mut sent = 0;
    while let Ok(n) = a.send(&[IoSlice::new(&[7; 2000])]) {
        sent += n;
    }
    thread::scope(|scope| {
        scope.spawn(|| a.wait(WRITE, never_reached()).unwrap());
        until_a_writer_waits(&a);
        let mut buf = [0; 2000];
        while sent > 0 {
            sent -= recv_some(&b, &mut buf);
        }
    });
    for (number, segment) in reserved.into_iter().enumerate() {
        if number % 2 == 0 {
            a.queue.own().claim(segment).unwrap()[..3].copy_from_slice(b"abc");
            a.queue.tx().commit(segment, 3).unwrap();
        } else {
            a.queue.tx().cancel(segment);
        }
    }
    let mut buf = [0; 16];
    assert_eq!(recv_some(&b, &mut buf), 9);
    assert_eq!(&buf[..9], b"abcabcabc");
    // All eight are there again.
    let all: Vec<_> = (0..9).map_while(|_| a.queue.tx().reserve().ok()).collect();
    assert_eq!(all.len(), 8);
}

/// The peer, which rings for all other room, does not know of this one.
#[test]
fn a_segment_given_back_unused_wakes_who_waits_for_one() {
    let (a, _b) = ring_pair(smallest(), smallest());
    let all: Vec<usize> = (0..8).map(|_| a.queue.tx().reserve().unwrap()).collect();
    thread::scope(|scope| {
        scope.spawn(|| a.wait(WRITE, never_reached()).unwrap());
        until_a_writer_waits(&a);
        a.cancel(all[3]);
    });
    assert_eq!(a.queue.tx().reserve(), Ok(all[3]));
}

/// A signal handler would wait for the call that it interrupted.
#[test]
fn a_half_that_this_thread_has_already_is_not_waited_for() {
    let (a, _b) = ring_pair(smallest(), smallest());
    let (tx, rx) = (a.queue.tx(), a.queue.rx());
    assert!(a.queue.try_tx().is_none() && a.queue.try_rx().is_none());
    assert_eq!(a.send(&[IoSlice::new(b"x")]), Err(Errno::AGAIN));
    drop((tx, rx));
    send_all(&a, b"x");
}
