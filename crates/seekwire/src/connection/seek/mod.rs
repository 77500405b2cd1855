//! Receiving out of order on a connection, whichever carrier moves its bytes.
//!
//! From the first seek on the connection is *sought*: all receives go through one engine
//! ([`transport::seek::Engine`]), which knows what was taken and what was moved to library memory. Its source is the
//! connection as it is at that moment: the kernel's socket, or the ring, or the one until the other begins.
//! A connection that is never sought pays one load for this.
//!
//! What is kept here is not shared with a child that is forked: the process that receives first after a fork goes on,
//! the other one is refused (EBUSY).

mod lend;
mod source;
mod waiting;

use std::cell::Cell;
use std::io::IoSliceMut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use transport::Errno;
use transport::iov::Scatter;
use transport::mem::Common;
use transport::queue::Violation;
use transport::seek::{
    At, Engine, Extent, KernelWaits, Loans, PeekCursor, SeekFlags, SeekGuard, SeekLock, Sleepers, Source,
    Way, until_there,
};
use transport::sys::bell::{Bell, Bells};
use transport::sys::poll::Deadline;
use transport::sys::{Fd, socket, thread};

use super::{Connection, RecvFlags, timeout};
use crate::Config;
pub use lend::Piece;
pub(crate) use lend::Pieces;
use source::{Inflow, LazyPlace, Place};

/// What a sought connection has besides.
#[derive(Debug)]
pub(super) struct Seeking {
    /// Made when no receive of the time before is under way any more.
    state: SeekLock<Option<State>>,
    /// Rung when the last such receive is over.
    door: OnceLock<Bell>,
    /// Changes when bytes have left the source: those that somebody waits for may be in library memory.
    moves: AtomicU32,
    /// For those who watch several connections, once one asked: the second is rung while the next byte is in library
    /// memory, the ring's is added when there is one.
    watch: OnceLock<(Bells, Bell)>,
    is_ring_watched: AtomicBool,
    /// Which process goes on after a fork: its number, in memory that all of them share.
    claim: OnceLock<Common>,
    /// Another thread was at work when this process was forked: what it left is half done.
    is_torn: AtomicBool,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    cursor: PeekCursor,
    loans: Loans,
    waits: KernelWaits,
    sleepers: Sleepers,
    /// Whether the bell is rung.
    shown: bool,
    /// What the peer did, if that was impossible.
    violation: Option<Violation>,
}

impl Connection {
    /// Whether bytes were ever received out of order: then every receive goes through [`Connection::recv`], also in
    /// the plain phase.
    #[inline]
    #[must_use]
    pub fn is_sought(&self) -> bool {
        self.seeking.get().is_some()
    }

    /// How bytes are taken out of the middle of what comes by TCP; `None` before the first seek.
    #[must_use]
    pub fn seek_way(&self) -> Option<Way> {
        let state = self.seeking.get()?.state.lock().ok()?;
        state.as_ref().map(|state| state.cursor.way())
    }

    /// Takes bytes out of the middle of the stream: those that begin at `at`, as many as `bufs` have room for, all or
    /// none; fewer only where the stream ends, 0 behind its end, or if `flags` say so. Waits for them unless
    /// the socket does not block or `dont_wait`.
    ///
    /// # Errors
    /// EAGAIN when they have not all arrived in time; ENXIO when some were taken before; ENOBUFS when they can only
    /// come after something is taken out, or when there would be too many holes; EINVAL when there can be no such
    /// position; EBUSY when another process goes on with the connection; EINTR, ECANCELED; those of recv(2).
    pub fn seek(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        at: At,
        flags: SeekFlags,
        dont_wait: bool,
    ) -> Result<usize, Errno> {
        self.seek_until(bufs, at, flags, dont_wait, &|| Ok(self.receive_deadline()))
    }

    /// As [`Connection::seek`]; `until` is asked for before it waits.
    fn seek_until(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        at: At,
        flags: SeekFlags,
        dont_wait: bool,
        until: &dyn Fn() -> Result<Deadline, Errno>,
    ) -> Result<usize, Errno> {
        let seeking = self.seeking();
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        let begun = Cell::new(None);
        let interrupts = self.interrupts();
        let asks_kernel = Cell::new(dont_wait || self.is_nonblocking());
        until_there(
            bufs,
            |scatter| {
                self.with_engine(seeking, asks_kernel.get(), |engine, source| {
                    let attempt = match begun.get() {
                        Some(attempt) => attempt,
                        None => engine.begin(at, len, flags)?,
                    };
                    begun.set(Some(attempt));
                    engine.attempt(source, attempt, scatter)
                })
            },
            |until| match begun.get() {
                _ if dont_wait || self.is_nonblocking() => Err(Errno::AGAIN),
                _ if self.receive_shut.load(Ordering::Relaxed) => Err(Errno::AGAIN),
                None => self.wait_at_door(seeking, until),
                Some(attempt) => {
                    asks_kernel.set(self.wait_for(seeking, &attempt, until, interrupts)?);
                    Ok(())
                }
            },
            until,
        )
    }

    /// Sleeps until the `len` bytes that begin at `at` may have arrived, or cannot come any more.
    ///
    /// # Errors
    /// EAGAIN when the time is over; as [`Connection::seek`].
    pub fn wait_seek(&self, at: At, len: u64, until: Deadline) -> Result<(), Errno> {
        let seeking = self.seeking();
        let flags = SeekFlags { peek: true, partial: false };
        let interrupts = self.interrupts();
        let attempt = self.with_engine(seeking, false, |engine, _| engine.begin(at, len, flags));
        match attempt {
            Err(Errno::AGAIN) => self.wait_at_door(seeking, until),
            Err(error) => Err(error),
            Ok(attempt) => self.wait_for(seeking, &attempt, until, interrupts).map(drop),
        }
    }

    /// What can be received, and what was taken.
    ///
    /// # Errors
    /// EBUSY as [`Connection::seek`]; those of ioctl(2).
    pub fn extent(&self) -> Result<Extent, Errno> {
        self.with_engine(self.seeking(), true, |engine, source| {
            engine.discard_taken(source)?;
            engine.extent(source)
        })
    }

    /// Moves what has arrived into library memory, so that the peer can go on sending.
    ///
    /// # Errors
    /// ENOBUFS when no more memory may be used; as [`Connection::extent`].
    pub fn make_room(&self) -> Result<(), Errno> {
        self.with_engine(self.seeking(), true, |engine, source| engine.drain(source)).map(drop)
    }

    // ---- receiving in order ---------------------------------------------------------------------

    /// [`Connection::recv`] of a sought connection.
    pub(super) fn recv_sought(&self, bufs: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<usize, Errno> {
        let seeking = self.seeking();
        let mut scatter = Scatter::new(bufs);
        self.recv_sought_into(seeking, &mut scatter, flags)
    }

    /// Goes on with a receive that began before the first seek.
    #[cold]
    pub(super) fn go_on_sought(
        &self,
        scatter: &mut Scatter<'_, '_>,
        flags: RecvFlags,
    ) -> Result<usize, Errno> {
        self.recv_sought_into(self.seeking(), scatter, flags)
    }

    fn recv_sought_into(
        &self,
        seeking: &Seeking,
        scatter: &mut Scatter<'_, '_>,
        flags: RecvFlags,
    ) -> Result<usize, Errno> {
        let interrupts = self.interrupts();
        let mut asks_kernel = flags.dont_wait || self.is_nonblocking();
        let enough = self.enough(scatter.remaining() + scatter.filled(), flags);
        let mut until = None;
        loop {
            if scatter.remaining() == 0 {
                return Ok(scatter.filled());
            }
            let before = scatter.filled();
            let tried = self.with_engine(seeking, asks_kernel, |engine, source| {
                let n = match flags {
                    RecvFlags { peek: true, .. } => engine.peek(source, scatter)?,
                    RecvFlags { truncate: true, .. } => discard(engine, source, scatter)?,
                    _ => engine.recv(source, scatter)?,
                };
                // What a further receive needs: a byte more at the head, or, looked at, at the end of what was seen.
                let more =
                    if flags.peek { At::Position(engine.extent(source)?.arrived) } else { At::Offset(0) };
                Ok((n, engine.begin(more, 1, SeekFlags { peek: true, partial: true })?))
            });
            let stop = |error, filled: usize| {
                if filled == 0 {
                    return Err(error);
                }
                // The kernel says it once: the next call does.
                self.keep_for_next(seeking, error);
                Ok(filled)
            };
            let (n, attempt) = match tried {
                Ok((n, _)) if scatter.filled() >= enough || n == 0 => return Ok(scatter.filled()),
                Ok((n, attempt)) => (n, Some(attempt)),
                Err(Errno::AGAIN) => (0, None),
                Err(error) => return stop(error, before),
            };
            if self.receive_shut.load(Ordering::Relaxed) {
                return Ok(scatter.filled());
            }
            if flags.dont_wait || self.is_nonblocking() {
                return stop(Errno::AGAIN, scatter.filled());
            }
            let until = *until.get_or_insert_with(|| self.receive_deadline());
            let slept = self.wait_for_more(seeking, attempt, until, interrupts);
            match slept {
                Ok(ready) => asks_kernel |= ready,
                Err(error) => return stop(error, scatter.filled()),
            }
            if flags.peek {
                scatter.rewind(n);
            }
        }
    }

    fn keep_for_next(&self, seeking: &Seeking, error: Errno) {
        let _ = self.with_engine(seeking, false, |engine, _| {
            engine.keep(error);
            Ok(())
        });
    }

    fn receive_deadline(&self) -> Deadline {
        Deadline::after(timeout(&self.recv_timeout))
    }

    // ---- what there is ------------------------------------------------------------------------

    /// Bytes that a receive would give at once; holes do not count.
    pub(super) fn unread_sought(&self) -> Result<usize, Errno> {
        let unread = self.with_engine(self.seeking(), true, |engine, source| {
            engine.discard_taken(source)?;
            engine.unread(source)
        })?;
        Ok(usize::try_from(unread).unwrap_or(usize::MAX))
    }

    /// Whether the next byte is in library memory. What was taken at the head of the kernel's queue is thrown away,
    /// so that the kernel's word on the rest counts.
    pub(super) fn has_drained(&self) -> bool {
        let Some(seeking) = self.seeking.get() else { return false };
        self.with_engine(seeking, false, |engine, source| {
            engine.discard_taken(source)?;
            Ok(engine.has_drained())
        })
        .unwrap_or(false)
    }

    /// For those who watch several connections, of a sought one: readable while the next byte is in library memory, or
    /// the ring's bell is rung.
    pub(super) fn seek_bell(&self) -> Option<Fd> {
        let seeking = self.seeking.get()?;
        if seeking.watch.get().is_none() {
            let (bells, bell) = (Bells::new().ok()?, Bell::new().ok()?);
            bells.add(&bell).ok()?;
            if seeking.watch.set((bells, bell)).is_ok() {
                // Those who sleep now have lowered what the kernel tells the others: they look again.
                let _ = self.with_place(seeking, false, |state, _, _| {
                    state.waits.wake_all(self.fd());
                    Ok(())
                });
            }
        }
        self.watch_ring();
        seeking.watch.get().map(|(bells, _)| bells.fd())
    }

    /// From now on those who watch several connections hear of the ring, if there is one.
    pub(super) fn watch_ring(&self) {
        if let Some(seeking) = self.seeking.get()
            && let (Some((bells, _)), Some(link)) = (seeking.watch.get(), self.attached())
            && !seeking.is_ring_watched.load(Ordering::Relaxed)
            && bells.add(&link.ring.bell).is_ok()
        {
            seeking.is_ring_watched.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a holder who does not know of holes can go on with the socket; if so, it may. Nobody makes a hole as
    /// long as what is returned is held.
    pub(super) fn hand_over_sought(&self) -> Result<Option<impl Sized + '_>, Errno> {
        let Some(seeking) = self.seeking.get() else { return Ok(None) };
        let mut guard = self.lock(seeking)?;
        let state = guard.as_mut().ok_or(Errno::IO)?;
        self.with_state(seeking, state, false, |state, place, front| {
            if state.engine.has_drained() || !state.engine.is_in_order() || state.loans.count() > 0 {
                return Err(Errno::BUSY);
            }
            let State { engine, cursor, loans, violation, .. } = state;
            let mut source =
                Inflow { connection: self, place, cursor, loans, front, asks_kernel: false, violation };
            engine.discard_taken(&mut source)?;
            let _ = socket::forget_peek_offset(self.fd());
            Ok(())
        })?;
        Ok(Some(guard))
    }

    /// The last holder closes: what was taken is no longer unread, and what is in library memory is.
    pub(super) fn close_sought(&self) {
        if let Some(seeking) = self.seeking.get() {
            let unread = self.with_engine(seeking, false, |engine, source| {
                engine.discard_taken(source)?;
                Ok(engine.has_drained())
            });
            if unread == Ok(true) {
                socket::reset_on_close(self.fd());
            }
        }
    }

    // ---- fork -----------------------------------------------------------------------------------

    pub(super) fn before_fork_sought(&self) {
        if let Some(seeking) = self.seeking.get() {
            let Ok(claim) = Common::with_forks(size_of::<u64>()) else { return };
            match seeking.claim.get() {
                // Whoever had it goes on if it wants to.
                Some(claim) => {
                    let me = u64::from(thread::process_id());
                    let _ = claim.word(0).compare_exchange(me, 0, Ordering::AcqRel, Ordering::Relaxed);
                }
                None => drop(seeking.claim.set(claim)),
            }
        }
    }

    pub(super) fn after_fork_child_sought(&self) {
        let Some(seeking) = self.seeking.get() else { return };
        if seeking.state.is_held() {
            seeking.is_torn.store(true, Ordering::Relaxed);
        } else if let Ok(mut guard) = seeking.state.lock()
            && let Some(state) = guard.as_mut()
        {
            // They sleep in the parent: nobody here may count on them to wake anybody.
            state.sleepers.forget();
            state.waits.forget();
        }
    }

    // ---- the engine ---------------------------------------------------------------------------

    fn seeking(&self) -> &Seeking {
        let seeking = self.seeking.get_or_init(|| {
            crate::tuning::apply();
            Box::new(Seeking {
                state: SeekLock::new(None),
                door: OnceLock::new(),
                moves: AtomicU32::new(0),
                watch: OnceLock::new(),
                is_ring_watched: AtomicBool::new(false),
                claim: OnceLock::new(),
                is_torn: AtomicBool::new(false),
            })
        });
        self.gate.close_to_receivers();
        seeking
    }

    /// The state, if this process may go on with it and nobody receives past it any more.
    fn lock<'s>(&self, seeking: &'s Seeking) -> Result<SeekGuard<'s, Option<State>>, Errno> {
        if let Some(claim) = seeking.claim.get() {
            let me = u64::from(thread::process_id());
            let before = claim.word(0).compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire);
            if before.is_err_and(|holder| holder != me) || seeking.is_torn.load(Ordering::Relaxed) {
                tracing::warn!(
                    "fd {}: another process goes on with a connection that has holes",
                    self.fd().raw()
                );
                return Err(Errno::BUSY);
            }
        }
        let mut guard = seeking.state.lock()?;
        if guard.is_none() {
            // On an attached connection the half's lock keeps receives of the time before away.
            let rx = self.attached().map(|link| self.rx(link)).transpose()?;
            if rx.is_none() && self.gate.has_receivers() {
                return Err(Errno::AGAIN);
            }
            let totals = self.totals();
            *guard = Some(State {
                engine: Engine::new(totals.rx_tcp + totals.rx_ring, Config::get().seek_memory),
                cursor: PeekCursor::new(self.fd()),
                loans: Loans::default(),
                waits: KernelWaits::default(),
                sleepers: Sleepers::default(),
                shown: false,
                violation: None,
            });
        }
        Ok(guard)
    }

    fn with_engine<R>(
        &self,
        seeking: &Seeking,
        asks_kernel: bool,
        call: impl FnOnce(&mut Engine, &mut Inflow<'_, '_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.with_place(seeking, false, |state, place, front| {
            let State { engine, cursor, loans, violation, .. } = state;
            let mut source = Inflow { connection: self, place, cursor, loans, front, asks_kernel, violation };
            call(engine, &mut source)
        })
    }

    /// Calls with the state locked, and with that which the next bytes come from; then tells those who wait what has
    /// changed.
    fn with_place<'c, R>(
        &'c self,
        seeking: &Seeking,
        before_sleep: bool,
        call: impl FnOnce(&mut State, &LazyPlace<'c>, u64) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let mut guard = self.lock(seeking)?;
        let state = guard.as_mut().ok_or(Errno::IO)?;
        self.with_state(seeking, state, before_sleep, call)
    }

    fn with_state<'c, R>(
        &'c self,
        seeking: &Seeking,
        state: &mut State,
        before_sleep: bool,
        call: impl FnOnce(&mut State, &LazyPlace<'c>, u64) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let place = LazyPlace::new(self);
        let front = state.engine.front();
        let result = call(state, &place, front);
        let place = place.taken();
        let now = state.engine.front();
        if now != front {
            seeking.moves.fetch_add(1, Ordering::Release);
            state.sleepers.wake(now);
            state.waits.moved(self.fd(), now);
            if let Some(Place::Attached(link, _)) = &place
                && link.ring.queue.waiters().0
            {
                link.ring.bell.ring();
            }
        }
        if let Some((_, bell)) = seeking.watch.get()
            && state.engine.has_drained() != state.shown
        {
            state.shown = !state.shown;
            if state.shown { bell.ring() } else { bell.quiet() }
        }
        if let Some(place) = place {
            self.leave(place, before_sleep);
        }
        match (state.violation.take(), self.attached()) {
            (Some(violation), Some(link)) => Err(self.violated(link, violation)),
            _ => result,
        }
    }
}

/// MSG_TRUNC: what would have been received goes nowhere.
fn discard(
    engine: &mut Engine,
    source: &mut impl Source,
    scatter: &mut Scatter<'_, '_>,
) -> Result<usize, Errno> {
    let mut nowhere = [0; 16 << 10];
    let len = scatter.remaining().min(nowhere.len());
    let n = engine.recv(source, &mut Scatter::new(&mut [IoSliceMut::new(&mut nowhere[..len])]))?;
    scatter.skip(n);
    Ok(n)
}
