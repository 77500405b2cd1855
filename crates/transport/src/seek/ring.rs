//! The queue pair as a source, and as a stream of its own.

use std::cell::Cell;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use seekwire_protocol::span::Span;
use seekwire_protocol::switch::RxStep;

use super::cost;
use super::engine::{Attempt, Engine};
use super::lock::SeekLock;
use super::sleepers::Sleepers;
use super::source::{Look, Source};
use super::{At, Extent, Seek, SeekFlags, until_there};
use crate::Errno;
use crate::carrier::Ring;
use crate::iov::Scatter;
use crate::mem::{Own, Peer, PeerMemory};
use crate::queue::{Memory, Part, Rx, Violation};
use crate::sys::Fd;
use crate::sys::poll::{Deadline, Events};

/// Bytes of the peer's segments that were taken and are still looked at.
#[derive(Debug, Default)]
pub struct Loans(Vec<Loan>);

/// One piece of one segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Loan {
    /// Where it lies in the peer's memory, in bytes.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
    segment: u16,
    /// Positions of the bytes of its record.
    record: Span,
}

impl Loan {
    /// Of a part that counts from the position `front` on. `None` for one that lies in the ring itself, which cannot be
    /// lent.
    #[must_use]
    pub fn new(part: Part, front: u64) -> Option<Self> {
        let (segment, record) = part.segment?;
        let record = Span { start: front + record.start, end: front + record.end };
        Some(Self { offset: part.offset, len: part.len, segment, record })
    }
}

impl Loans {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    fn overlap(&self, span: Span) -> bool {
        self.0.iter().any(|loan| loan.record.overlaps(span))
    }

    /// Enters one.
    pub fn add(&mut self, loan: Loan) {
        self.0.push(loan);
    }

    /// Takes one off. Returns the segment to give back if it was the last of its record, and all of that was taken.
    ///
    /// # Errors
    /// EINVAL when there is no such loan.
    pub fn end(&mut self, engine: &Engine, loan: Loan) -> Result<Option<u16>, Errno> {
        let at = self.0.iter().position(|other| *other == loan).ok_or(Errno::INVAL)?;
        self.0.swap_remove(at);
        let is_over = engine.is_behind(loan.record) && !self.overlap(loan.record);
        Ok(is_over.then_some(loan.segment))
    }
}

/// The receiving half as a source, where the next byte comes from the ring.
#[derive(Debug)]
pub struct RingSource<'r, 'q, O: Memory = Own, P = Peer> {
    rx: &'r Rx<'q, O, P>,
    loans: &'r Loans,
    front: u64,
}

impl<'r, 'q, O: Memory, P: PeerMemory> RingSource<'r, 'q, O, P> {
    /// With the engine's front at `front`.
    #[must_use]
    pub fn new(rx: &'r Rx<'q, O, P>, loans: &'r Loans, front: u64) -> Self {
        Self { rx, loans, front }
    }

    fn is_lent(&self, span: Span) -> bool {
        self.loans.overlap(Span { start: self.front + span.start, end: self.front + span.end })
    }

    /// Takes bytes at the front off the ring.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn receive(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Violation> {
        if self.loans.count() == 0 {
            let n = into.at_most(most, |into| self.rx.pull(into))?;
            self.front += n as u64;
            return Ok(n);
        }
        let begin = into.filled();
        self.rx.look(0, most.min(into.remaining() as u64), into)?;
        let n = into.filled() - begin;
        self.pass(n as u64, false)?;
        Ok(n)
    }

    /// As [`Self::receive`], but only what lies in the ring itself: nothing of that is ever lent.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn receive_small(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Violation> {
        let n = into.at_most(most, |into| self.rx.pull_inline(into))?;
        self.front += n as u64;
        Ok(n)
    }

    /// Takes `n` bytes at the front off the ring without looking at them.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn pass(&mut self, n: u64, was_released: bool) -> Result<u64, Violation> {
        let n = self.rx.pass(n, was_released, &|span| self.is_lent(span))?;
        self.front += n;
        Ok(n)
    }

    /// As [`Rx::release`], but what is lent is not given back.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn release(&self, span: Span, is_taken: &dyn Fn(Span) -> bool) -> Result<(), Violation> {
        self.rx.release(span, &|span| is_taken(span) && !self.is_lent(span))
    }
}

/// One end of a queue pair that can be received from out of order, as long as all receives go through here.
#[derive(Debug)]
pub struct SeekRing<'r> {
    ring: &'r Ring,
    state: SeekLock<State>,
    /// Changes when bytes have left the ring: those that somebody waits for may be in library memory.
    moves: AtomicU32,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    loans: Loans,
    sleepers: Sleepers,
}

impl<'r> SeekRing<'r> {
    /// The bytes on the ring begin at position 0. At most `memory` bytes are used for what keeps other bytes away,
    /// and for what is moved in bulk.
    #[must_use]
    pub fn new(ring: &'r Ring, memory: usize) -> Self {
        let state =
            State { engine: Engine::new(0, memory), loans: Loans::default(), sleepers: Sleepers::default() };
        Self { ring, state: SeekLock::new(state), moves: AtomicU32::new(0) }
    }

    fn with_engine<R>(
        &self,
        call: impl FnOnce(&mut Engine, &mut WholeRing<'_, '_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.call(&mut *self.state.lock()?, call)
    }

    /// Calls the engine, and wakes those who sleep for bytes that have left the ring.
    fn call<R>(
        &self,
        state: &mut State,
        call: impl FnOnce(&mut Engine, &mut WholeRing<'_, '_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let State { engine, loans, sleepers } = state;
        let rx = self.ring.queue.try_rx().ok_or(Errno::AGAIN)?;
        let front = engine.front();
        let source = RingSource::new(&rx, loans, front);
        let result = call(engine, &mut WholeRing { ring: self.ring, source });
        if engine.front() != front {
            sleepers.wake(engine.front());
            if sleepers.leader(u64::MAX).is_some() {
                self.wake_leader();
            }
        }
        if rx.should_ring() {
            self.ring.peer_doorbell.ring();
        }
        result
    }

    fn wake_leader(&self) {
        self.moves.fetch_add(1, Ordering::Release);
        self.ring.doorbell.ring();
    }

    /// Lends `len` bytes that begin at `at`: they count as taken, and stay where they are until
    /// [`SeekRing::take_back`]. At most those up to the first ones that lie in the ring itself; 0 means that all of
    /// them do, or that the stream ends.
    ///
    /// # Errors
    /// As [`Seek::try_seek`].
    pub fn try_lend(&self, at: At, len: u64, into: &mut Vec<Loan>) -> Result<usize, Errno> {
        let mut state = self.state.lock()?;
        let State { engine, loans, .. } = &mut *state;
        let rx = self.ring.queue.try_rx().ok_or(Errno::AGAIN)?;
        let attempt = engine.begin(at, len, SeekFlags { partial: true, ..SeekFlags::PEEK })?;
        let lent = engine.lend(&attempt, |ahead, len, front| {
            let mut parts = Vec::new();
            // Before the switch to the ring nothing on it counts.
            if rx.step().map_err(reset)? == RxStep::Ring {
                rx.parts(ahead, len, |part| parts.push(part)).map_err(reset)?;
            }
            let begin = into.len();
            into.extend(parts.into_iter().map_while(|part| Loan::new(part, front)));
            into[begin..].iter().for_each(|loan| loans.add(*loan));
            Ok(into[begin..].iter().map(|loan| loan.len as u64).sum())
        })?;
        let mut whole = WholeRing { ring: self.ring, source: RingSource::new(&rx, loans, engine.front()) };
        engine.discard_taken(&mut whole)?;
        if rx.should_ring() {
            self.ring.peer_doorbell.ring();
        }
        Ok(lent as usize)
    }

    /// The bytes of a loan, which belong to another process: it can change them at any time.
    #[must_use]
    pub fn bytes(&self, loan: &Loan) -> &[AtomicU8] {
        self.ring.queue.peer().bytes(loan.offset, loan.len)
    }

    /// The bytes of a loan are needed no more.
    ///
    /// # Errors
    /// EINVAL when it is none.
    pub fn take_back(&self, loan: Loan) -> Result<(), Errno> {
        let mut state = self.state.lock()?;
        let State { engine, loans, .. } = &mut *state;
        let rx = self.ring.queue.try_rx().ok_or(Errno::AGAIN)?;
        // A segment in which the front stands goes back when it is passed, or by its last loan: by one of them.
        let mut whole = WholeRing { ring: self.ring, source: RingSource::new(&rx, loans, engine.front()) };
        engine.discard_taken(&mut whole)?;
        if let Some(segment) = loans.end(engine, loan)? {
            rx.give_back_lent(segment);
        }
        if rx.should_ring() {
            self.ring.peer_doorbell.ring();
        }
        Ok(())
    }

    fn wait_for(&self, attempt: &Attempt, until: Deadline) -> Result<(), Errno> {
        let q = &self.ring.queue;
        let mut state = self.state.lock()?;
        let lent = state.loans.count();
        // Before the ring is looked at: what is published afterwards is news.
        let mark = q.published_mark();
        // Whether the peer says that there is no more to wait for, though it is not on the ring.
        let mut is_said = false;
        let is_there = self.call(&mut state, |engine, source| {
            engine.discard_taken(source)?;
            is_said = q.peer_has_published(q.published_with(engine.needs(attempt)));
            let (then, arrived) = source.ahead()?;
            let is_there = then == Look::Ended || engine.needs(attempt) <= arrived;
            if !is_there && q.peer_is_full() {
                if engine.drain(source)? {
                    return Ok(true);
                }
                // Nothing lies on the ring that could make room: what is lent, or set aside by the peer.
                if lent > 0 {
                    return Err(Errno::NOBUFS);
                }
            }
            if source.source.rx.should_ring_before_sleep() {
                source.ring.peer_doorbell.ring();
            }
            Ok(is_there)
        })?;
        if is_there {
            return Ok(());
        }
        let (front, end) = (state.engine.front(), state.engine.needed_end(attempt));
        if let Some(is_far) = state.sleepers.leader(end) {
            let sleep = state.sleepers.begin(end)?;
            if is_far {
                self.wake_leader();
            }
            drop(state);
            let slept = sleep.sleep(Fd::new(-1), Events::default(), until);
            self.state.lock()?.sleepers.end(sleep);
            return slept.map(drop);
        }
        let wakes_at = state.sleepers.lead(if is_said { front } else { end }, front);
        let published = if is_said { 0 } else { q.published_with(wakes_at - front) };
        let moves = self.moves.load(Ordering::Acquire);
        drop(state);
        let ready = || {
            (published > 0 && q.peer_has_published(published))
                || (published == 0 && q.published_mark() != mark)
                || self.moves.load(Ordering::Acquire) != moves
                || q.peer_has_closed()
        };
        let read = Events { read: true, ..Events::default() };
        let slept = self.ring.sleep_for(read, published, Fd::new(-1), Events::default(), until, ready);
        let mut state = self.state.lock()?;
        state.sleepers.end_lead();
        slept.map(drop)
    }
}

/// The ring where every byte of the stream travels on it.
struct WholeRing<'r, 'q> {
    ring: &'r Ring,
    source: RingSource<'r, 'q>,
}

impl WholeRing<'_, '_> {
    /// Whether the next byte is there: false at the end of the stream.
    fn is_at_data(&self) -> Result<bool, Errno> {
        // Asked before the ring is: what the peer published before it closed is still to be read.
        let closed = self.ring.queue.peer_has_closed();
        match self.source.rx.step().map_err(reset)? {
            RxStep::Ring => Ok(true),
            RxStep::End => Ok(false),
            RxStep::TcpUnbounded | RxStep::RingEmpty if closed => Ok(false),
            _ => Err(Errno::AGAIN),
        }
    }

    /// How many bytes are there, and what comes behind them.
    fn ahead(&self) -> Result<(Look, u64), Errno> {
        let closed = self.ring.queue.peer_has_closed();
        match self.is_at_data() {
            Ok(true) => match self.source.rx.arrived().map_err(reset)? {
                (Look::Missing, bytes) if closed => Ok((Look::Ended, bytes)),
                ahead => Ok(ahead),
            },
            Ok(false) => Ok((Look::Ended, 0)),
            Err(Errno::AGAIN) => Ok((Look::Missing, 0)),
            Err(error) => Err(error),
        }
    }
}

impl Source for WholeRing<'_, '_> {
    fn receive(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Errno> {
        if self.is_at_data()? { self.source.receive(into, most).map_err(reset) } else { Ok(0) }
    }

    fn begins_small(&mut self) -> Result<bool, Errno> {
        match self.is_at_data() {
            Ok(true) => self.source.rx.begins_inline().map_err(reset),
            Ok(false) | Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn receive_small(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Errno> {
        self.source.receive_small(into, most).map_err(reset)
    }

    fn look(&mut self, ahead: u64, most: u64, into: &mut Scatter<'_, '_>) -> Result<Look, Errno> {
        let closed = self.ring.queue.peer_has_closed();
        match self.is_at_data() {
            Ok(true) => match self.source.rx.look(ahead, most, into).map_err(reset)? {
                Look::Missing if closed => Ok(Look::Ended),
                look => Ok(look),
            },
            Ok(false) => Ok(Look::Ended),
            Err(Errno::AGAIN) => Ok(Look::Missing),
            Err(error) => Err(error),
        }
    }

    fn discard(&mut self, n: u64) -> Result<u64, Errno> {
        self.source.pass(n, true).map_err(reset)
    }

    fn release(&mut self, span: Span, is_taken: &dyn Fn(Span) -> bool) -> Result<(), Errno> {
        self.source.release(span, is_taken).map_err(reset)
    }

    fn arrived(&mut self) -> Result<u64, Errno> {
        Ok(self.ahead()?.1)
    }

    fn bulk_below(&self) -> u32 {
        cost::switch_on_ring()
    }

    fn discards_cheaply(&self) -> bool {
        true
    }
}

fn reset(_: Violation) -> Errno {
    Errno::CONNRESET
}

impl Seek for SeekRing<'_> {
    fn try_seek(&self, at: At, into: &mut [IoSliceMut<'_>], flags: SeekFlags) -> Result<usize, Errno> {
        let mut scatter = Scatter::new(into);
        self.with_engine(|engine, source| {
            let attempt = engine.begin(at, scatter.remaining() as u64, flags)?;
            engine.attempt(source, attempt, &mut scatter)
        })
    }

    fn seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        flags: SeekFlags,
        until: &dyn Fn() -> Result<Deadline, Errno>,
    ) -> Result<usize, Errno> {
        let len = into.iter().map(|buf| buf.len() as u64).sum();
        let begun = Cell::new(None);
        until_there(
            into,
            |scatter| {
                self.with_engine(|engine, source| {
                    let attempt = match begun.get() {
                        Some(attempt) => attempt,
                        None => engine.begin(at, len, flags)?,
                    };
                    begun.set(Some(attempt));
                    engine.attempt(source, attempt, scatter)
                })
            },
            |deadline| begun.get().map_or(Ok(()), |attempt| self.wait_for(&attempt, deadline)),
            until,
        )
    }

    fn try_recv(&self, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        let mut scatter = Scatter::new(into);
        self.with_engine(|engine, source| match peek {
            true => engine.peek(source, &mut scatter),
            false => engine.recv(source, &mut scatter),
        })
    }

    fn wait(&self, at: At, len: u64, until: Deadline) -> Result<(), Errno> {
        let flags = SeekFlags::PEEK;
        let attempt = self.state.lock()?.engine.begin(at, len, flags)?;
        self.wait_for(&attempt, until)
    }

    fn make_room(&self) -> Result<(), Errno> {
        self.with_engine(|engine, source| engine.drain(source)).map(drop)
    }

    fn extent(&self) -> Result<Extent, Errno> {
        self.with_engine(|engine, source| engine.extent(source))
    }
}
