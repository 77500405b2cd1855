//! Every method of receiving out of the middle, against a simple model: the stream as the sender
//! wrote it and one flag per byte. Every byte that comes out is compared.

use std::io::{IoSlice, IoSliceMut};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::carrier::{Carrier, Tcp};
use crate::common::seek::{Seek, SeekRing};
use crate::common::{Pattern, report, ring_pair};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use seekwire_transport::Errno;
use seekwire_transport::layout::Geometry;
use seekwire_transport::ring::Ring;
use seekwire_transport::seek::{At, SeekMethod, SeekOptions, SeekTcp, SegmentLoan, cost};
use seekwire_transport::sys::Fd;

pub(crate) const MEMORY: usize = 64 << 20;
pub(crate) const TAKE: SeekOptions = SeekOptions::TAKE;
/// Twice as much fits into every kernel's first receive buffer, in pieces of any size.
const IN_FLIGHT: usize = 40_000;

/// One method to receive, with the end that sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Tcp(SeekMethod),
    Ring(Geometry),
}

pub(crate) fn kinds() -> Vec<Kind> {
    if let Ok(name) = std::env::var(ONLY) {
        let method =
            name.parse().unwrap_or_else(|()| panic!("{ONLY}={name}: there is no such way"));
        assert!(methods().contains(&method), "this kernel does not offer {name}");
        return vec![Kind::Tcp(method)];
    }
    let new = |cells, size, segments| Geometry::new(cells, size, segments).unwrap();
    let rings = [new(64, 4096, 8), new(128, 12288, 16), Geometry::default()];
    methods().into_iter().map(Kind::Tcp).chain(rings.map(Kind::Ring)).collect()
}

/// Names the only method to be tested.
const ONLY: &str = "SEEKWIRE_TEST_WAY";

/// The methods that this kernel has; an older one has no SO_PEEK_OFF, and few have the module.
fn methods() -> Vec<SeekMethod> {
    let offers = |method: &SeekMethod| match Pair::new(Kind::Tcp(*method)) {
        Pair::Tcp { receiver, .. } => SeekTcp::by(*method, Fd::from(&receiver), 0, 0).is_ok(),
        Pair::Ring(_) => unreachable!("a pair is of its kind"),
    };
    SeekMethod::ALL.into_iter().filter(offers).collect()
}

pub(crate) enum Receiver<'a> {
    Tcp(SeekTcp),
    Ring(SeekRing<'a>),
}

impl Receiver<'_> {
    pub(crate) fn seek(&self) -> &dyn Seek {
        match self {
            Self::Tcp(seek) => seek,
            Self::Ring(seek) => seek,
        }
    }
}

pub(crate) enum Pair {
    Tcp { sender: TcpStream, receiver: TcpStream, carrier: Tcp },
    Ring(Box<(Ring, Ring)>),
}

impl Pair {
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Tcp(_) => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                sender.set_nodelay(true).unwrap();
                Self::Tcp {
                    carrier: Tcp(Fd::from(&sender)),
                    sender,
                    receiver: listener.accept().unwrap().0,
                }
            }
            Kind::Ring(geometry) => {
                let pair = ring_pair(geometry, geometry);
                // The receiver sends nothing, but enters the ring as every end does.
                Self::Ring(Box::new(pair))
            }
        }
    }

    pub(crate) fn ends(&self, kind: Kind, memory: usize) -> (&(dyn Carrier + Sync), Receiver<'_>) {
        match (self, kind) {
            (Self::Tcp { receiver, carrier, .. }, Kind::Tcp(method)) => {
                let seek = SeekTcp::by(method, Fd::from(receiver), 0, memory).unwrap();
                (carrier, Receiver::Tcp(seek))
            }
            (Self::Ring(pair), _) => (&pair.0, Receiver::Ring(SeekRing::new(&pair.1, memory))),
            _ => unreachable!("a pair is of its kind"),
        }
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Send(usize),
    Seek { offset: usize, len: usize, options: SeekOptions, pieces: usize, absolute: bool },
    Receive { len: usize, peek: bool },
    Lend { offset: usize, len: usize },
    ReturnLoan,
    MakeRoom,
    End,
}

fn operation() -> impl Strategy<Value = Operation> {
    let size = || prop_oneof![4 => 1usize..100, 3 => 100usize..5000, 1 => 5000usize..30_000];
    let offset = || prop_oneof![1 => Just(0usize), 3 => 1usize..300, 3 => 300usize..30_000];
    let rarely = || prop::bool::weighted(0.05);
    let skip = || prop_oneof![3 => Just(0u64), 1 => 1u64..100, 1 => 100u64..5000];
    prop_oneof![
        60 => size().prop_map(Operation::Send),
        70 => (offset(), prop_oneof![9 => size(), 1 => Just(0)], skip(), any::<(bool, bool, bool)>(), 1usize..4, rarely())
            .prop_map(|(offset, len, skip, (peek, partial, absolute), pieces, bulk)| Operation::Seek {
                offset,
                len,
                options: SeekOptions::TAKE
                    .peek(peek && len < 1000)
                    .partial(partial)
                    .skip(skip)
                    .bulk(bulk),
                pieces,
                absolute,
            }),
        40 => (size(), any::<bool>()).prop_map(|(len, peek)| Operation::Receive { len, peek }),
        15 => (offset(), size()).prop_map(|(offset, len)| Operation::Lend { offset, len }),
        15 => Just(Operation::ReturnLoan),
        4 => Just(Operation::MakeRoom),
        1 => Just(Operation::End),
    ]
}

static OPERATIONS: AtomicU64 = AtomicU64::new(0);

struct Model<'a> {
    sender: &'a (dyn Carrier + Sync),
    receiver: &'a Receiver<'a>,
    pattern: Pattern,
    /// One flag per byte sent: whether it was received or taken.
    gone: Vec<bool>,
    ended: bool,
    loans: Vec<(SegmentLoan, usize)>,
}

impl Model<'_> {
    fn head(&self) -> usize {
        self.gone.iter().position(|gone| !gone).unwrap_or(self.gone.len())
    }

    fn is_right(&self, bytes: &[u8], at: usize) -> bool {
        self.pattern.bytes(at as u64, bytes.len()) == bytes
    }

    fn step(&mut self, operation: &Operation) {
        OPERATIONS.fetch_add(1, Ordering::Relaxed);
        let seek = self.receiver.seek();
        let head = self.head();
        match *operation {
            Operation::Send(len) => {
                let live = self.gone.len()
                    - self.gone.iter().rposition(|gone| *gone).map_or(0, |at| at + 1);
                if self.ended
                    || live + len > IN_FLIGHT
                    || self.gone.len() + len - head > 2 * IN_FLIGHT
                {
                    return;
                }
                let bytes = self.pattern.bytes(self.gone.len() as u64, len);
                let sent = match self.sender.send(&[IoSlice::new(&bytes)]) {
                    Err(Errno::AGAIN) => 0,
                    sent => sent.unwrap(),
                };
                self.gone.resize(self.gone.len() + sent, false);
                self.arrive();
            }
            Operation::Seek { offset, len, options, pieces, absolute } => {
                let at = match absolute {
                    true => At::Position((head + offset) as u64),
                    false => At::Offset(offset as u64),
                };
                let mut buf = vec![0; len];
                let mut bufs: Vec<IoSliceMut<'_>> =
                    buf.chunks_mut(len.div_ceil(pieces).max(1)).map(IoSliceMut::new).collect();
                let result = seek.try_seek(at, &mut bufs, options);
                let begin = head + offset;
                let start = begin + options.skip as usize;
                let hole = (begin..(start + len).min(self.gone.len())).find(|at| self.gone[*at]);
                let end = match hole {
                    Some(hole) if options.partial && hole > start => hole,
                    _ => start + len,
                };
                if hole.is_some_and(|hole| hole < end) {
                    assert_eq!(result, Err(Errno::NXIO));
                    return;
                }
                let there = end.min(self.gone.len()).saturating_sub(start);
                let is_there = if len == 0 { start <= self.gone.len() } else { there > 0 };
                if !self.ended && (!is_there || (there < end - start && !options.partial)) {
                    // An empty range is never missing.
                    let nothing = len == 0 && options.skip == 0;
                    assert_eq!(result, if nothing { Ok(0) } else { Err(Errno::AGAIN) });
                    return;
                }
                assert_eq!(result, Ok(there));
                assert!(self.is_right(&buf[..there], start.min(end)));
                if !options.peek && is_there {
                    self.gone[begin..start + there].fill(true);
                }
            }
            Operation::Receive { len, peek } => {
                let mut buf = vec![0; len];
                let result = seek.try_recv(&mut [IoSliceMut::new(&mut buf)], peek);
                let live: Vec<usize> =
                    (head..self.gone.len()).filter(|at| !self.gone[*at]).take(len).collect();
                if live.is_empty() {
                    assert_eq!(result, if self.ended { Ok(0) } else { Err(Errno::AGAIN) });
                    return;
                }
                assert_eq!(result, Ok(live.len()), "peek: {peek}");
                for (byte, at) in buf.iter().zip(&live) {
                    assert!(self.is_right(&[*byte], *at));
                    self.gone[*at] |= !peek;
                }
            }
            Operation::Lend { offset, len } => {
                let Receiver::Ring(ring) = self.receiver else { return };
                let mut loans = Vec::new();
                let lent = ring.try_lend(At::Offset(offset as u64), len as u64, &mut loans);
                let start = head + offset;
                if self.gone.get(start).copied().unwrap_or(false) {
                    assert_eq!(lent, Err(Errno::NXIO));
                    return;
                }
                let lent = lent.unwrap();
                assert_eq!(lent, loans.iter().map(|loan| loan.len).sum::<usize>());
                let mut at = start;
                for loan in loans {
                    assert!(self.gone[at..at + loan.len].iter().all(|gone| !gone));
                    self.gone[at..at + loan.len].fill(true);
                    self.loans.push((loan, at));
                    at += loan.len;
                }
            }
            Operation::ReturnLoan => {
                let Receiver::Ring(ring) = self.receiver else { return };
                if let Some((loan, at)) = self.loans.pop() {
                    let bytes: Vec<u8> =
                        ring.bytes(&loan).iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
                    assert!(self.is_right(&bytes, at), "the lent bytes have changed");
                    ring.return_loan(loan).unwrap();
                    assert_eq!(ring.return_loan(loan), Err(Errno::INVAL));
                }
            }
            Operation::MakeRoom => seek.make_room().unwrap(),
            Operation::End => {
                if !std::mem::replace(&mut self.ended, true) {
                    self.sender.shutdown().unwrap();
                    let end = At::Position(self.gone.len() as u64);
                    let look = SeekOptions::PEEK;
                    while seek.try_seek(end, &mut [IoSliceMut::new(&mut [0])], look)
                        == Err(Errno::AGAIN)
                    {
                        std::thread::yield_now();
                    }
                }
            }
        }
        self.check();
    }

    /// Loopback delivers within the sender's system call, except for bytes that wait for an
    /// acknowledgement.
    fn arrive(&self) {
        while (self.receiver.seek().extent().unwrap().arrived as usize) < self.gone.len() {
            std::thread::yield_now();
        }
    }

    fn check(&self) {
        let extent = self.receiver.seek().extent().unwrap();
        assert_eq!((extent.head, extent.arrived), (self.head() as u64, self.gone.len() as u64));
        let mut gone = vec![false; self.gone.len()];
        gone[..extent.head as usize].fill(true);
        for hole in &extent.holes {
            gone[hole.start as usize..hole.end as usize].fill(true);
        }
        assert_eq!(gone, self.gone);
    }

    /// Returns the loans, takes the rest, and proves that the sender has all of its room again.
    fn finish(&mut self, kind: Kind) {
        while !self.loans.is_empty() {
            self.step(&Operation::ReturnLoan);
        }
        while self.head() < self.gone.len() {
            self.step(&Operation::Receive { len: 20_000, peek: false });
        }
        let Kind::Ring(geometry) = kind else { return };
        if self.ended {
            return;
        }
        let room = geometry.segments() * geometry.segment_size();
        let mut bytes = self.pattern.bytes(self.gone.len() as u64, room);
        let mut sent = 0;
        while sent < room {
            match self.sender.send(&[IoSlice::new(&bytes[sent..])]) {
                Ok(n) => sent += n,
                Err(error) => {
                    panic!("{error} after {sent} of {room} bytes: a segment did not come back")
                }
            }
        }
        let n = self.receiver.seek().try_recv(&mut [IoSliceMut::new(&mut bytes)], false).unwrap();
        assert_eq!(n, room);
        assert!(self.is_right(&bytes, self.gone.len()));
    }
}

fn play(kind: Kind, switch: u32, operations: &[Operation], seed: u64) {
    // One for the whole process, so others change it meanwhile: no value may give wrong results.
    cost::set_switch(switch);
    let pair = Pair::new(kind);
    let (sender, receiver) = pair.ends(kind, MEMORY);
    let mut model = Model {
        sender,
        receiver: &receiver,
        pattern: Pattern::new(seed),
        gone: Vec::new(),
        ended: false,
        loans: Vec::new(),
    };
    for operation in operations {
        model.step(operation);
    }
    model.finish(kind);
}

fn agrees(kind: Kind, cases: u32) {
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let before = OPERATIONS.load(Ordering::Relaxed);
    let switches = prop_oneof![Just(0u32), Just(cost::DEFAULT_SWITCH), Just(u32::MAX)];
    let operations = prop::collection::vec(operation(), 1..120);
    let outcome =
        runner.run(&(switches, operations, any::<u64>()), |(switch, operations, seed)| {
            play(kind, switch, &operations, seed);
            Ok(())
        });
    outcome.unwrap();
    let operations = OPERATIONS.load(Ordering::Relaxed) - before;
    report(&format!("{kind:?}: {operations} operations"));
    assert!(operations > 3000);
}

#[test]
fn every_way_agrees_with_the_model() {
    for kind in kinds() {
        agrees(kind, 150);
    }
}

/// The front is in a record whose rest is lent: its segment goes back once.
#[test]
fn a_segment_goes_back_once() {
    let take = |offset, peek| Operation::Seek {
        offset,
        len: 1,
        options: SeekOptions::TAKE.peek(peek),
        pieces: 1,
        absolute: false,
    };
    let operations = [
        Operation::Send(1458),
        Operation::Send(15_580),
        Operation::Lend { offset: 1382, len: 77 },
        take(1, false),
        Operation::Lend { offset: 15_434, len: 1604 },
        Operation::Send(1),
        take(1459, true),
        Operation::ReturnLoan,
    ];
    for kind in kinds() {
        play(kind, 12 << 10, &operations, 1);
    }
}
