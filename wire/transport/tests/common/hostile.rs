//! An honest end against a peer that writes anything anywhere in its own memory, between operations
//! and in the middle of them. Played by a property test and by a fuzz target.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;
use std::time::Duration;

use seekwire_protocol::span::Span;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::Errno;
use seekwire_transport::iov::{Gather, Scatter};
use seekwire_transport::layout::{
    ARM_DATA, ARM_SPACE, CONSUMED, CONSUMED_BYTES, CONSUMED_SEEN, CONTROL, FREE_COUNT, FREE_FIRST,
    Geometry, HELD_BYTES, HELD_FROM, HELD_UNTIL, KNOWN_HOLD, PROCESSOR, PUBLISHED, PUBLISHED_BYTES,
    RECALL_FROM, RECALLED, RETURNED, TX_LOCK, TX_POSITION, UNBOUNDED_READ, WANT_CONSUMED,
    WANT_RETURNED,
};
use seekwire_transport::mem::{Own, OwnMemory, Peer, PeerMemory};
use seekwire_transport::queue::{self, PublishError, QueuePair, Rx, Violation};
use seekwire_transport::seek::{
    At, Engine, LookAhead, RingSource, SeekOptions, SegmentLoan, SegmentLoans, Source,
};
use seekwire_transport::sys::host;

use super::places::Place;
use super::{joined, linked, memory};

/// One step of the honest end, of a well-behaved peer, or of a hostile one. Numbers are taken
/// modulo their sensible range.
#[derive(Clone, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Operation {
    Send(Vec<u16>),
    Recv(u16),
    Peek(u16),
    Discard(u16),
    HeadBytes,
    Step,
    Counts,
    Arm,
    Disarm,
    Reserve,
    Commit(u16),
    Cancel,
    Shutdown,
    TcpOnly,
    UnboundedRead,
    /// Receive through an engine from now on: in order, out of the middle, in place.
    SeekRecv {
        len: u16,
        peek: bool,
    },
    Seek {
        offset: u16,
        skip: u16,
        len: u16,
        peek: bool,
        partial: bool,
        bulk: bool,
    },
    Lend {
        offset: u16,
        len: u16,
    },
    ReturnLoan(u8),
    Drain,
    Extent,
    /// Direct calls of the queue, with arguments that no engine passes.
    Look {
        ahead: u32,
        len: u16,
    },
    Release {
        ahead: u32,
        len: u16,
    },
    Pass {
        len: u16,
        was_released: bool,
        is_lent: bool,
    },
    /// Retransmit by TCP what the peer requests, or request that of it.
    Recall,
    AskRecall,
    /// The peer does what an honest one would do.
    PeerSends(u16),
    PeerReceives(u16),
    /// The peer writes a word: anywhere, or where it is known to be read.
    Word(u32, u64),
    Known(u8, u64),
    /// It writes a plausible header where the honest end looks next, or some descriptors later.
    Header(u8, u8, u32),
    /// It claims to have returned this many more segments, this one first.
    Returned(u8, u64),
    /// It holds back the records from this many descriptors on, for this many milliseconds.
    Holds(u8, u16),
    /// Words that it will have written by the time of the honest end's next looks: (number of looks
    /// later, word).
    During(Vec<(u8, u64)>),
}

/// Words of the layout that the honest end reads.
const KNOWN: [usize; 17] = [
    PUBLISHED,
    PUBLISHED_BYTES,
    CONSUMED,
    RETURNED,
    CONSUMED_BYTES,
    CONTROL,
    ARM_DATA,
    UNBOUNDED_READ,
    PROCESSOR,
    ARM_SPACE,
    WANT_CONSUMED,
    WANT_RETURNED,
    RECALL_FROM,
    RECALLED,
    HELD_FROM,
    HELD_BYTES,
    KNOWN_HOLD,
];

/// More looks at the peer's memory than any operation has reason for.
const MOST_LOOKS: u64 = 300_000;

/// The peer's memory, in which words change while they are read.
struct ChangingMemory {
    memory: Peer,
    looks: Cell<u64>,
    lies: RefCell<VecDeque<(u8, u64)>>,
}

impl PeerMemory for ChangingMemory {
    fn load(&self, offset: usize, order: Ordering) -> u64 {
        self.looks.set(self.looks.get() + 1);
        assert!(self.looks.get() < MOST_LOOKS, "endless");
        let mut lies = self.lies.borrow_mut();
        match lies.front_mut() {
            Some((0, lie)) => {
                let lie = *lie;
                lies.pop_front();
                lie
            }
            Some((later, _)) => {
                *later -= 1;
                self.memory.load(offset, order)
            }
            None => self.memory.load(offset, order),
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        self.memory.read(offset, into);
    }
}

struct World {
    honest: QueuePair<Own, ChangingMemory>,
    hostile: QueuePair<Own, Peer>,
    geometry: Geometry,
    peer_geometry: Geometry,
    /// The region in which the hostile end can also overwrite what the honest one shows, at the
    /// front.
    place: Option<Place>,
    reserved: Vec<usize>,
    armed: u32,
    peer_position: u64,
    violations: u64,
    engine: Engine,
    loans: SegmentLoans,
    lent: Vec<SegmentLoan>,
}

/// Little library memory, so that it is used up.
const MEMORY: usize = 20_000;

/// The ring as the only source of an engine.
struct WholeRing<'r, 'q> {
    rx: &'r Rx<'q, Own, ChangingMemory>,
    ring: RingSource<'r, 'q, Own, ChangingMemory>,
}

impl WholeRing<'_, '_> {
    fn is_at_data(&self) -> Result<bool, Errno> {
        match self.rx.step().map_err(reset)? {
            RxStep::Ring => Ok(true),
            RxStep::End => Ok(false),
            _ => Err(Errno::AGAIN),
        }
    }
}

fn reset(_: Violation) -> Errno {
    Errno::CONNRESET
}

impl Source for WholeRing<'_, '_> {
    fn receive(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Errno> {
        if self.is_at_data()? { self.ring.receive(into, most).map_err(reset) } else { Ok(0) }
    }

    fn begins_small(&mut self) -> Result<bool, Errno> {
        match self.is_at_data() {
            Ok(true) => self.rx.begins_inline().map_err(reset),
            Ok(false) | Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn receive_small(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Errno> {
        self.ring.receive_small(into, most).map_err(reset)
    }

    fn look(
        &mut self,
        ahead: u64,
        most: u64,
        into: &mut Scatter<'_, '_>,
    ) -> Result<LookAhead, Errno> {
        match self.is_at_data() {
            Ok(true) => self.rx.look(ahead, most, into).map_err(reset),
            Ok(false) => Ok(LookAhead::Ended),
            Err(Errno::AGAIN) => Ok(LookAhead::Missing),
            Err(error) => Err(error),
        }
    }

    fn discard(&mut self, n: u64) -> Result<u64, Errno> {
        self.ring.pass(n, true).map_err(reset)
    }

    fn release(&mut self, span: Span, is_taken: &dyn Fn(Span) -> bool) -> Result<(), Errno> {
        self.ring.release(span, is_taken).map_err(reset)
    }

    fn arrived(&mut self) -> Result<u64, Errno> {
        Ok(self.rx.arrived().map_err(reset)?.1)
    }

    fn bulk_below(&self) -> u32 {
        200
    }

    fn discards_cheaply(&self) -> bool {
        true
    }
}

/// Plays the operations, on one machine or on two, and returns how often the honest end noticed a
/// violation. Panics if the honest end breaks.
pub(crate) fn play(ends: (Geometry, Geometry), by_link: bool, operations: &[Operation]) -> u64 {
    let (geometry, peer_geometry) = ends;
    let (own, memory, hostile, place) = if by_link {
        let ([(own, memory), (peer, seen)], place) = linked(geometry, peer_geometry);
        assert_eq!(queue::shown_geometry(&memory, memory.len()), Ok(peer_geometry));
        (own, memory, QueuePair::new(peer, peer_geometry, seen, geometry), Some(place))
    } else {
        let ((own, own_fd), (peer, peer_fd)) = (memory(geometry), memory(peer_geometry));
        let hostile = joined(peer, peer_geometry, &own_fd);
        let memory = Peer::attach(std::os::fd::AsFd::as_fd(&peer_fd), Geometry::MAX_BYTES).unwrap();
        assert_eq!(queue::peer_geometry(&memory, memory.len()), Ok(peer_geometry));
        (own, memory, hostile, None)
    };
    let changing = ChangingMemory { memory, looks: Cell::new(0), lies: RefCell::default() };
    let honest = QueuePair::new(own, geometry, changing, peer_geometry);
    honest.set_ready();
    hostile.set_ready();
    let mut world = World {
        honest,
        hostile,
        geometry,
        peer_geometry,
        place,
        reserved: Vec::new(),
        armed: 0,
        peer_position: 0,
        violations: 0,
        engine: Engine::new(0, MEMORY),
        loans: SegmentLoans::default(),
        lent: Vec::new(),
    };
    for operation in operations {
        world.honest.peer().looks.set(0);
        world.step(operation);
        world.check_own();
    }
    world.violations
}

impl World {
    /// Checks that the private words of the honest end still make sense.
    fn check_own(&self) {
        let word = |offset: usize| self.honest.own().word(offset).load(Ordering::Relaxed);
        let segments = self.geometry.segments();
        let entry = |place: u64| word(self.geometry.free_at(place));
        let first = word(FREE_FIRST);
        let free: Vec<u64> = (first..first + word(FREE_COUNT)).map(entry).collect();
        assert!(free.len() + self.reserved.len() <= segments, "{} segments are free", free.len());
        let mut seen = vec![false; segments];
        for segment in free.into_iter().map(|s| s as usize).chain(self.reserved.iter().copied()) {
            assert!(
                !std::mem::replace(&mut seen[segment], true),
                "segment {segment} is free twice"
            );
        }
        let used = word(TX_POSITION).checked_sub(word(CONSUMED_SEEN));
        assert!(
            used.is_some_and(|used| used < self.geometry.cells() as u64),
            "{used:?} descriptors in use"
        );
    }

    fn noted<T>(&mut self, result: Result<T, Violation>) -> Option<T> {
        self.violations += u64::from(result.is_err());
        result.ok()
    }

    fn noted_full<T>(&mut self, result: Result<T, PublishError>) -> Option<T> {
        self.violations += u64::from(matches!(result, Err(PublishError::Violation(_))));
        result.ok()
    }

    fn step(&mut self, operation: &Operation) {
        match operation {
            Operation::Send(lens) => self.send(lens),
            Operation::Recv(len) => self.receive(*len, |rx, into| rx.pull(into)),
            Operation::Peek(len) => self.receive(*len, |rx, into| rx.peek(into)),
            Operation::Discard(len) => self.receive(*len, |rx, into| rx.discard(into.remaining())),
            Operation::HeadBytes => {
                let head = self.honest.rx().head_bytes();
                if let Some(head) = self.noted(head).flatten() {
                    assert!(head.len > 0);
                    let _ = self.honest.peer().memory.bytes(head.offset, head.len);
                }
            }
            Operation::Step => {
                let step = self.honest.rx().step();
                self.noted(step);
            }
            Operation::Counts => {
                let q = &self.honest;
                let most = self.peer_geometry.bytes();
                assert!(q.unread() <= most, "more unread than there is memory");
                let _ =
                    (q.unsent(), q.has_record(), q.has_room(), q.is_tcp_only(), q.peer_is_ready());
                let _ = (q.peer_has_closed(), q.peer_processor(), q.published_mark(), q.carriers());
                let _ = (q.peer_is_full(), q.peer_has_published(q.published_with(1)));
                let _ = q.data_mark();
                let most = Duration::from_millis(200);
                assert!(q.note_hold().is_none_or(|left| left <= most), "held back for too long");
            }
            Operation::SeekRecv { len, peek } => self.with_engine(|engine, ring| {
                let mut bytes = vec![0; usize::from(*len)];
                let mut bufs = [IoSliceMut::new(&mut bytes)];
                let mut into = Scatter::new(&mut bufs);
                let before = engine.head();
                let n = if *peek {
                    engine.peek(ring, &mut into)
                } else {
                    engine.recv(ring, &mut into)
                }?;
                assert!(n == into.filled() && n <= usize::from(*len));
                assert!(*peek || engine.head() >= before + n as u64);
                Ok(())
            }),
            Operation::Seek { offset, skip, len, peek, partial, bulk } => {
                self.with_engine(|engine, ring| {
                    let mut bytes = vec![0; usize::from(*len)];
                    let mut bufs = [IoSliceMut::new(&mut bytes)];
                    let options = SeekOptions::TAKE
                        .peek(*peek)
                        .partial(*partial)
                        .skip(u64::from(*skip))
                        .bulk(*bulk);
                    let attempt =
                        engine.begin(At::Offset((*offset).into()), (*len).into(), options)?;
                    let n = engine.attempt(ring, attempt, &mut Scatter::new(&mut bufs))?;
                    assert!(n <= usize::from(*len));
                    Ok(())
                })
            }
            Operation::Lend { offset, len } => self.lend((*offset).into(), (*len).into()),
            Operation::ReturnLoan(which) => {
                if !self.lent.is_empty() {
                    let loan = self.lent.swap_remove(usize::from(*which) % self.lent.len());
                    let segment = self.loans.end(&self.engine, loan).expect("it was lent");
                    if let Some(segment) = segment {
                        self.honest.rx().return_lent_segment(segment);
                    }
                }
            }
            Operation::Drain => self.with_engine(|engine, ring| engine.drain(ring).map(drop)),
            Operation::Extent => {
                let most = self.peer_geometry.bytes();
                self.with_engine(|engine, ring| {
                    let extent = engine.extent(ring)?;
                    assert!(
                        extent
                            .holes
                            .iter()
                            .all(|hole| hole.start > extent.head && !hole.is_empty())
                    );
                    let unread = engine.unread(ring)?;
                    assert!(unread <= (MEMORY + most) as u64, "{unread} unread bytes");
                    Ok(())
                })
            }
            Operation::Look { ahead, len } => {
                let mut parts = Vec::new();
                let seen =
                    self.honest.rx().parts((*ahead).into(), (*len).into(), |part| parts.push(part));
                self.noted(seen);
                for part in parts {
                    assert!(part.len > 0);
                    let _ = self.honest.peer().memory.bytes(part.offset, part.len);
                }
                self.receive(*len, |rx, into| {
                    rx.look((*ahead).into(), (*len).into(), into)?;
                    Ok(into.filled())
                });
            }
            Operation::Release { ahead, len } => {
                let start = u64::from(*ahead);
                let span = Span { start, end: start + u64::from(*len) };
                let released = self.honest.rx().release(span, &|span| span.start % 3 > 0);
                self.noted(released);
            }
            Operation::Pass { len, was_released, is_lent } => {
                let passed = self.honest.rx().pass((*len).into(), *was_released, &|_| *is_lent);
                assert!(self.noted(passed).is_none_or(|n| n <= u64::from(*len)));
            }
            Operation::Arm => {
                let _ = self.honest.arm_data() | self.honest.arm_space();
                self.armed += 1;
            }
            Operation::Disarm if self.armed > 0 => {
                self.armed -= 1;
                self.honest.disarm_data();
                self.honest.disarm_space();
            }
            Operation::Reserve => {
                let reserved = self.honest.tx().reserve();
                let reserved = self.noted_full(reserved);
                if let Some(segment) = reserved {
                    assert!(!self.reserved.contains(&segment), "reserved twice");
                    match self.honest.own().claim(segment) {
                        Some(mut claim) => claim[0] = 1,
                        None => assert!(self.place.is_some(), "lent out"),
                    }
                    self.reserved.push(segment);
                }
            }
            Operation::Commit(len) => {
                if let Some(segment) = self.reserved.pop() {
                    let len = 1 + usize::from(*len) % self.geometry.segment_size();
                    let committed = self.honest.tx().commit(segment, len);
                    if self.noted_full(committed).is_none() {
                        self.reserved.push(segment);
                    }
                }
            }
            Operation::Cancel => {
                if let Some(segment) = self.reserved.pop() {
                    self.honest.tx().cancel(segment);
                }
            }
            Operation::Shutdown => {
                let shut = self.honest.tx().shutdown();
                assert_ne!(shut, Err(PublishError::NoRoom), "the end has always room");
                self.noted_full(shut);
            }
            Operation::TcpOnly => self.honest.set_tcp_only(),
            Operation::UnboundedRead => {
                let rx = self.honest.rx();
                let _ = rx.begin_unbounded_read();
                rx.end_unbounded_read();
            }
            Operation::Recall => {
                let tx = self.honest.tx();
                let mut piece = Vec::new();
                let recalled = tx.recall().and_then(|()| tx.to_retransmit(&mut piece));
                assert!(piece.len() <= self.geometry.segment_size());
                // Like a kernel with room for half of it.
                tx.retransmitted(piece.len().div_ceil(2));
                drop(tx);
                self.noted(recalled);
            }
            Operation::AskRecall => {
                let rx = self.honest.rx();
                rx.ask_recall();
                let taken = rx.answer();
                let withdrawn = rx.withdraw();
                drop(rx);
                self.noted(taken);
                self.noted(withdrawn);
            }
            Operation::PeerSends(len) => {
                self.behave();
                let tx = self.hostile.tx();
                let bytes = vec![5; usize::from(*len)];
                if tx.carrier().is_ok() {
                    let _ = tx.push(&mut Gather::new(&[IoSlice::new(&bytes)]));
                    let _ = tx.announce();
                }
            }
            Operation::PeerReceives(len) => {
                self.behave();
                let mut bytes = vec![0; usize::from(*len)];
                let rx = self.hostile.rx();
                if rx.step().is_ok() {
                    let _ = rx.pull(&mut Scatter::new(&mut [IoSliceMut::new(&mut bytes)]));
                    let _ = rx.announce();
                }
            }
            Operation::Word(offset, value) => {
                if let Some(place) = &self.place {
                    let offset = *offset as usize % self.geometry.shown_bytes() / 8 * 8;
                    place.word(offset).store(*value, Ordering::Relaxed);
                }
                // Not the peer's private words: its own code trusts those, and is not under test.
                let offset = *offset as usize % self.peer_geometry.bytes() / 8 * 8;
                if !(TX_LOCK..self.peer_geometry.return_at(0, self.geometry)).contains(&offset) {
                    self.write(offset, *value);
                }
            }
            Operation::Known(which, value) => {
                let offset = KNOWN[usize::from(*which) % KNOWN.len()];
                if let Some(place) = &self.place {
                    place.word(offset).store(*value, Ordering::Relaxed);
                }
                self.write(offset, *value);
            }
            Operation::Header(kind, after, len) => {
                let position = self.peer_position + u64::from(*after % 4);
                let word = u64::from(*len & 0xff_ffff) << 40
                    | u64::from(*kind % 9) << 32
                    | position & 0xffff_ffff;
                self.write(self.peer_geometry.cell_at(position), word);
                self.peer_position = position + 1;
            }
            Operation::Returned(more, segment) => {
                let count = self.hostile.own().word(RETURNED).load(Ordering::Relaxed);
                self.write(self.peer_geometry.return_at(count, self.geometry), *segment);
                self.write(RETURNED, count.wrapping_add((*more).into()));
                let consumed = self.hostile.own().word(CONSUMED).load(Ordering::Relaxed);
                self.write(CONSUMED, consumed.wrapping_add((*more).into()));
            }
            Operation::Holds(after, milliseconds) => {
                let position = self.peer_position.wrapping_sub(4).wrapping_add((*after).into());
                let lasts = Duration::from_millis((*milliseconds).into());
                self.write(HELD_UNTIL, host::nanoseconds() + lasts.as_nanos() as u64);
                self.write(HELD_FROM, position.wrapping_add(1));
            }
            Operation::During(lies) => {
                *self.honest.peer().lies.borrow_mut() = lies.iter().take(64).copied().collect();
            }
            Operation::Disarm => {}
        }
    }

    /// One call of an engine.
    fn with_engine(
        &mut self,
        call: impl FnOnce(&mut Engine, &mut WholeRing<'_, '_>) -> Result<(), Errno>,
    ) {
        let rx = self.honest.rx();
        let ring = RingSource::new(&rx, &self.loans, self.engine.front());
        let result = call(&mut self.engine, &mut WholeRing { rx: &rx, ring });
        let _ = rx.announce_before_sleep();
        drop(rx);
        match result {
            Ok(()) | Err(Errno::AGAIN | Errno::NXIO | Errno::NOBUFS) => {}
            // Bytes that were taken have vanished from the ring.
            Err(Errno::CONNRESET | Errno::IO) => self.violations += 1,
            Err(error) => panic!("{error}"),
        }
        // Headers are forged near where the honest end looks.
        self.peer_position = self.honest.own().word(CONSUMED).load(Ordering::Relaxed);
    }

    fn lend(&mut self, offset: u64, len: u64) {
        let rx = self.honest.rx();
        let (loans, lent) = (&mut self.loans, &mut self.lent);
        let begin = lent.len();
        let what_is_there = SeekOptions::PEEK.partial(true);
        let attempt = self.engine.begin(At::Offset(offset), len, what_is_there);
        let result = attempt.and_then(|attempt| {
            self.engine.lend(&attempt, |ahead, len, front| {
                let mut parts = Vec::new();
                if rx.step().map_err(reset)? == RxStep::Ring {
                    rx.parts(ahead, len, |part| parts.push(part)).map_err(reset)?;
                }
                lent.extend(parts.into_iter().map_while(|part| SegmentLoan::new(part, front)));
                lent[begin..].iter().for_each(|loan| loans.add(*loan));
                Ok(lent[begin..].iter().map(|loan| loan.len as u64).sum())
            })
        });
        drop(rx);
        assert!(result.is_ok_and(|n| n <= len) || lent.len() == begin);
        for loan in &lent[begin..] {
            let _ = self.honest.peer().memory.bytes(loan.offset, loan.len);
        }
        self.with_engine(|engine, ring| engine.discard_taken(ring));
    }

    /// The code of an honest end trusts its own words, and is about to be run on the peer's.
    fn behave(&self) {
        for offset in KNOWN {
            let value = self.hostile.own().word(offset).load(Ordering::Relaxed);
            self.write(offset, value & ((1 << 40) - 1));
        }
    }

    fn write(&self, offset: usize, value: u64) {
        self.hostile.own().store(offset, value, Ordering::SeqCst);
    }

    fn send(&mut self, lens: &[u16]) {
        let bytes: Vec<Vec<u8>> =
            lens.iter().take(4).map(|len| vec![3; usize::from(*len)]).collect();
        let slices: Vec<IoSlice<'_>> = bytes.iter().map(|bytes| IoSlice::new(bytes)).collect();
        let tx = self.honest.tx();
        let result = tx.carrier().and_then(|_| Ok(tx.push(&mut Gather::new(&slices))?));
        let _ = (tx.announce(), tx.may_use_tcp());
        drop(tx);
        self.noted_full(result);
    }

    fn receive(
        &mut self,
        len: u16,
        take: impl FnOnce(
            &queue::Rx<'_, Own, ChangingMemory>,
            &mut Scatter<'_, '_>,
        ) -> Result<usize, Violation>,
    ) {
        let mut bytes = vec![0; usize::from(len)];
        let rx = self.honest.rx();
        let result = rx
            .step()
            .and_then(|_| take(&rx, &mut Scatter::new(&mut [IoSliceMut::new(&mut bytes)])));
        let _ = rx.announce();
        drop(rx);
        if let Some(n) = self.noted(result) {
            assert!(n <= usize::from(len), "more than there was room for");
        }
        // Headers are forged near where the honest end looks.
        self.peer_position = self.honest.own().word(CONSUMED).load(Ordering::Relaxed);
    }
}
