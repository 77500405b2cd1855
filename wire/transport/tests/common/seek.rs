//! A stream that can be received out of order, in two ways: from the kernel's socket, and from a
//! ring on which every byte travels.

use std::cell::Cell;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use seekwire_protocol::span::Span;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::Errno;
use seekwire_transport::iov::Scatter;
use seekwire_transport::queue::Violation;
use seekwire_transport::ring::{Receiving, Ring, Wait};
use seekwire_transport::seek::{
    At, Attempt, Engine, Extent, Leader, LookAhead, RingSource, SeekLock, SeekOptions, SeekTcp,
    SegmentLoan, SegmentLoans, Sleepers, Source, cost, until_there,
};
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::poll::{Deadline, Events};

/// A stream that can be received out of order. Any thread may call any method.
pub(crate) trait Seek {
    /// Takes the bytes that begin at `at`, as many as `into` has room for, all or none; fewer only
    /// if the stream ends (0 after its end), or if `options` allow it. Returns the number of bytes
    /// that it put into `into`.
    ///
    /// # Errors
    /// EAGAIN if they have not all arrived; ENXIO if some were taken before; ENOBUFS if there would
    /// be too many holes; EINVAL if no such position can exist; those of recv(2).
    fn try_seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
    ) -> Result<usize, Errno>;

    /// As [`Seek::try_seek`], but waits; calls `until` before it does. Makes room for the bytes if
    /// they cannot arrive otherwise.
    ///
    /// # Errors
    /// Those of [`Seek::try_seek`] except EAGAIN; those of [`Seek::wait`].
    fn seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
        until: &dyn Fn() -> Result<Deadline, Errno>,
    ) -> Result<usize, Errno>;

    /// Fills `into` with the bytes at the head, holes skipped; 0 is the end of the stream. With
    /// `peek` they stay.
    ///
    /// # Errors
    /// EAGAIN if there are none yet; those of recv(2).
    fn try_recv(&self, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno>;

    /// Sleeps until the `len` bytes that begin at `at` may have arrived, or cannot come any more;
    /// may return early. Makes room for them if they cannot arrive otherwise.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR; ENOBUFS if they cannot arrive before other bytes are received; as
    /// [`Seek::try_seek`].
    fn wait(&self, at: At, len: u64, until: Deadline) -> Result<(), Errno>;

    /// Moves the bytes that have arrived into memory of this process, so that more can come.
    ///
    /// # Errors
    /// ENOBUFS if no more memory may be used; those of recv(2).
    fn make_room(&self) -> Result<(), Errno>;

    /// The extent of the bytes that can be received.
    ///
    /// # Errors
    /// Those of ioctl(2).
    fn extent(&self) -> Result<Extent, Errno>;
}

impl Seek for SeekTcp {
    fn try_seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
    ) -> Result<usize, Errno> {
        self.try_seek(at, into, options)
    }

    fn seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
        until: &dyn Fn() -> Result<Deadline, Errno>,
    ) -> Result<usize, Errno> {
        self.seek(at, into, options, until)
    }

    fn try_recv(&self, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        self.try_recv(into, peek)
    }

    fn wait(&self, at: At, len: u64, until: Deadline) -> Result<(), Errno> {
        self.wait(at, len, until)
    }

    fn make_room(&self) -> Result<(), Errno> {
        self.make_room()
    }

    fn extent(&self) -> Result<Extent, Errno> {
        self.extent()
    }
}

/// One end of a queue pair that can be received from out of order, provided that all receives go
/// through here.
#[derive(Debug)]
pub(crate) struct SeekRing<'r> {
    ring: &'r Ring,
    state: SeekLock<State>,
    /// Changes when bytes have left the ring: bytes that a caller waits for may be in library
    /// memory.
    moves: AtomicU32,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    loans: SegmentLoans,
    sleepers: Sleepers,
}

impl<'r> SeekRing<'r> {
    /// The bytes on the ring begin at position 0. At most `memory` bytes are used for bytes that
    /// obstruct others, and for those moved in bulk.
    #[must_use]
    pub(crate) fn new(ring: &'r Ring, memory: usize) -> Self {
        let state = State {
            engine: Engine::new(0, memory),
            loans: SegmentLoans::default(),
            sleepers: Sleepers::default(),
        };
        Self { ring, state: SeekLock::new(state), moves: AtomicU32::new(0) }
    }

    fn with_engine<R>(
        &self,
        call: impl FnOnce(&mut Engine, &mut WholeRing<'_, '_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.call(&mut *self.state.lock()?, call)
    }

    /// Calls the engine, and wakes sleepers for bytes that have left the ring.
    fn call<R>(
        &self,
        state: &mut State,
        call: impl FnOnce(&mut Engine, &mut WholeRing<'_, '_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let State { engine, loans, sleepers } = state;
        let rx = self.ring.receiving().ok_or(Errno::AGAIN)?;
        let front = engine.front();
        let source = RingSource::new(&rx, loans, front);
        let result = call(engine, &mut WholeRing { ring: self.ring, rx: &rx, source });
        if engine.front() != front {
            sleepers.wake(engine.front());
            if sleepers.leader(u64::MAX).is_some() {
                self.wake_leader();
            }
        }
        result
    }

    fn wake_leader(&self) {
        self.moves.fetch_add(1, Ordering::Release);
        self.ring.doorbell.ring();
    }

    /// Lends `len` bytes that begin at `at`: they count as taken, and stay where they are until
    /// [`SeekRing::return_loan`]. At most those up to the first ones that lie in the ring itself; 0
    /// means that all of them do, or that the stream ends.
    ///
    /// # Errors
    /// As [`Seek::try_seek`].
    pub(crate) fn try_lend(
        &self,
        at: At,
        len: u64,
        into: &mut Vec<SegmentLoan>,
    ) -> Result<usize, Errno> {
        let mut state = self.state.lock()?;
        let State { engine, loans, .. } = &mut *state;
        let rx = self.ring.receiving().ok_or(Errno::AGAIN)?;
        let attempt = engine.begin(at, len, SeekOptions::PEEK.partial(true))?;
        let lent = engine.lend(&attempt, |ahead, len, front| {
            let mut parts = Vec::new();
            // Before the switch to the ring, nothing on it counts.
            if rx.step().map_err(reset)? == RxStep::Ring {
                rx.parts(ahead, len, |part| parts.push(part)).map_err(reset)?;
            }
            let begin = into.len();
            into.extend(parts.into_iter().map_while(|part| SegmentLoan::new(part, front)));
            into[begin..].iter().for_each(|loan| loans.add(*loan));
            Ok(into[begin..].iter().map(|loan| loan.len as u64).sum())
        })?;
        let mut whole = WholeRing {
            ring: self.ring,
            rx: &rx,
            source: RingSource::new(&rx, loans, engine.front()),
        };
        engine.discard_taken(&mut whole)?;
        Ok(lent as usize)
    }

    /// The bytes of a loan. They belong to another process, which can change them at any time.
    #[must_use]
    pub(crate) fn bytes(&self, loan: &SegmentLoan) -> &[AtomicU8] {
        self.ring.queue.peer().bytes(loan.offset, loan.len)
    }

    /// Returns a loan, whose bytes are no longer needed.
    ///
    /// # Errors
    /// EINVAL if it is not a loan.
    pub(crate) fn return_loan(&self, loan: SegmentLoan) -> Result<(), Errno> {
        let mut state = self.state.lock()?;
        let State { engine, loans, .. } = &mut *state;
        let rx = self.ring.receiving().ok_or(Errno::AGAIN)?;
        // The segment with the front is freed when the front passes it, or by its last loan: by one
        // of the two.
        let mut whole = WholeRing {
            ring: self.ring,
            rx: &rx,
            source: RingSource::new(&rx, loans, engine.front()),
        };
        engine.discard_taken(&mut whole)?;
        if let Some(segment) = loans.end(engine, loan)? {
            rx.return_lent_segment(segment);
        }
        Ok(())
    }

    fn wait_for(&self, attempt: &Attempt, until: Deadline) -> Result<(), Errno> {
        let q = &self.ring.queue;
        let mut state = self.state.lock()?;
        let lent = state.loans.count();
        // The mark is taken before the look at the ring: anything published afterwards is news.
        let mark = q.published_mark();
        // Whether the peer claims that there is no more to wait for, though it is not on the ring.
        let mut is_said = false;
        let is_there = self.call(&mut state, |engine, source| {
            engine.discard_taken(source)?;
            is_said = q.peer_has_published(q.published_with(engine.needs(attempt)));
            let (then, arrived) = source.ahead()?;
            let is_there = then == LookAhead::Ended || engine.needs(attempt) <= arrived;
            if !is_there && q.peer_is_full() {
                if engine.drain(source)? {
                    return Ok(true);
                }
                // Nothing on the ring can be moved to make room: it holds loans, or segments that
                // the peer has reserved.
                if lent > 0 {
                    return Err(Errno::NOBUFS);
                }
            }
            source.rx.before_sleep();
            Ok(is_there)
        })?;
        if is_there {
            return Ok(());
        }
        let (front, end) = (state.engine.front(), state.engine.needed_end(attempt));
        if let Some(leader) = state.sleepers.leader(end) {
            let sleep = state.sleepers.begin(end)?;
            if leader == Leader::Late {
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
        let alone =
            Wait { published, of_socket: Events::default(), ..Wait::for_data(Fd::new(-1), until) };
        let slept = self.ring.sleep(&alone, ready, || false);
        let mut state = self.state.lock()?;
        state.sleepers.end_lead();
        slept.map(drop)
    }
}

/// The ring of a stream of which every byte travels on it.
struct WholeRing<'r, 'q> {
    ring: &'r Ring,
    rx: &'r Receiving<'q>,
    source: RingSource<'r, 'q>,
}

impl WholeRing<'_, '_> {
    /// Whether the next byte is there: false at the end of the stream.
    fn is_at_data(&self) -> Result<bool, Errno> {
        // Asked before the ring: bytes that the peer published before it closed still have to be
        // read.
        let closed = self.ring.queue.peer_has_closed();
        match self.rx.step().map_err(reset)? {
            RxStep::Ring => Ok(true),
            RxStep::End => Ok(false),
            RxStep::TcpUnbounded | RxStep::RingEmpty if closed => Ok(false),
            _ => Err(Errno::AGAIN),
        }
    }

    /// The number of bytes that are there, and what follows them.
    fn ahead(&self) -> Result<(LookAhead, u64), Errno> {
        let closed = self.ring.queue.peer_has_closed();
        match self.is_at_data() {
            Ok(true) => match self.rx.arrived().map_err(reset)? {
                (LookAhead::Missing, bytes) if closed => Ok((LookAhead::Ended, bytes)),
                ahead => Ok(ahead),
            },
            Ok(false) => Ok((LookAhead::Ended, 0)),
            Err(Errno::AGAIN) => Ok((LookAhead::Missing, 0)),
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
            Ok(true) => self.rx.begins_inline().map_err(reset),
            Ok(false) | Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn receive_small(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Errno> {
        self.source.receive_small(into, most).map_err(reset)
    }

    fn look(
        &mut self,
        ahead: u64,
        most: u64,
        into: &mut Scatter<'_, '_>,
    ) -> Result<LookAhead, Errno> {
        let closed = self.ring.queue.peer_has_closed();
        match self.is_at_data() {
            Ok(true) => match self.rx.look(ahead, most, into).map_err(reset)? {
                LookAhead::Missing if closed => Ok(LookAhead::Ended),
                look => Ok(look),
            },
            Ok(false) => Ok(LookAhead::Ended),
            Err(Errno::AGAIN) => Ok(LookAhead::Missing),
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
    fn try_seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
    ) -> Result<usize, Errno> {
        let mut scatter = Scatter::new(into);
        self.with_engine(|engine, source| {
            let attempt = engine.begin(at, scatter.remaining() as u64, options)?;
            engine.attempt(source, attempt, &mut scatter)
        })
    }

    fn seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
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
                        None => engine.begin(at, len, options)?,
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
        let options = SeekOptions::PEEK;
        let attempt = self.state.lock()?.engine.begin(at, len, options)?;
        self.wait_for(&attempt, until)
    }

    fn make_room(&self) -> Result<(), Errno> {
        self.with_engine(|engine, source| engine.drain(source)).map(drop)
    }

    fn extent(&self) -> Result<Extent, Errno> {
        self.with_engine(|engine, source| engine.extent(source))
    }
}
