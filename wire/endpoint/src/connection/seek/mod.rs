//! Receiving out of order on a connection, whichever carrier moves its bytes.
//!
//! From the first seek on the connection is *seeking*: all receives go through one engine
//! ([`seekwire_transport::seek::Engine`]), which tracks the bytes that were taken or moved to
//! library memory. Its source is the connection as it is at that moment: the kernel's socket, or
//! the ring, or one of them until the other begins. A connection that never seeks pays one load for
//! this.
//!
//! This state is not shared with a forked child: the process that receives first after a fork goes
//! on, and the other one is refused (EBUSY).

mod claim;
mod holders;
mod lend;
#[cfg(test)]
pub(super) mod pair;
mod receive;
mod source;
pub(super) mod state;
mod waiting;
mod watch;

use std::cell::Cell;
use std::io::IoSliceMut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use seekwire_transport::Errno;
use seekwire_transport::seek::{
    At, Engine, Extent, KernelCursor, KernelWaits, SeekGuard, SeekLock, SeekMethod, SeekOptions,
    SegmentLoans, Sleepers, until_there,
};
use seekwire_transport::sys::poll::Deadline;
use seekwire_transport::sys::socket;

use super::call_limit::Limit;
use super::state::Connection;
use crate::config::Config;
pub use lend::{LoanPiece, RangeLoan};

use self::source::{LazyReceivePath, ReceivePath, ReceivePathSource};
use self::state::{Purpose, SeekState, Seeking};

impl Connection {
    /// Whether bytes were ever received out of order: then every receive goes through
    /// [`Connection::recv`], also in the plain phase.
    #[inline]
    #[must_use]
    pub fn is_seeking(&self) -> bool {
        self.seeking.get().is_some()
    }

    /// The state of seeks, unless a fork has cut a change in two: then its lock may be held for ever.
    pub(super) fn intact_seeking(&self) -> Option<&Seeking> {
        self.seeking
            .get()
            .map(|seeking| &**seeking)
            .filter(|it| !it.is_torn.load(Ordering::Relaxed))
    }

    /// The way in which bytes are taken out of the middle of TCP; `None` before the first seek.
    #[must_use]
    pub fn seek_method(&self) -> Option<SeekMethod> {
        let state = self.intact_seeking()?.state.lock().ok()?;
        state.as_ref().map(|state| state.cursor.method())
    }

    /// Bytes that were taken and that the receive path has not passed. Zero if the state cannot be
    /// locked: in a signal handler that interrupted a seek.
    pub(super) fn taken_out_of_order(&self) -> u64 {
        let seeking = self.intact_seeking();
        let taken = |seeking: &Seeking| {
            let state = seeking.state.lock().ok()?;
            state.as_ref().map(|state| state.engine.taken_before_their_turn())
        };
        seeking.and_then(taken).unwrap_or(0)
    }

    /// Bytes that were taken out of the kernel's socket after the front.
    pub(super) fn taken_ahead(&self) -> u64 {
        self.seeking.get().map_or(0, |seeking| seeking.taken_ahead.load(Ordering::Relaxed))
    }

    /// Takes bytes out of the middle of the stream: those that begin at `at`, as many as `bufs`
    /// have room for, all or none; fewer only if the stream ends (0 after its end), or if `options`
    /// allow it. Waits for them unless the socket does not block or `dont_wait` is true.
    ///
    /// # Errors
    /// EAGAIN if they have not all arrived in time; ENXIO if some were taken before; ENOBUFS if
    /// they cannot arrive before other bytes are received, or if there would be too many holes;
    /// EINVAL if no such position can exist; EBUSY if another process has gone on with the
    /// connection; EINTR, ECANCELED; those of recv(2).
    pub fn seek(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        mut at: At,
        options: SeekOptions,
        dont_wait: bool,
    ) -> Result<usize, Errno> {
        self.seek_again(bufs, &mut at, options, dont_wait)
    }

    /// As [`Connection::seek`]; `at` becomes the absolute position, so that an interrupted call can
    /// be repeated for the same bytes, wherever the head is by then.
    ///
    /// # Errors
    /// Those of [`Connection::seek`].
    pub fn seek_again(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        at: &mut At,
        options: SeekOptions,
        dont_wait: bool,
    ) -> Result<usize, Errno> {
        self.seek_within(bufs, at, options, dont_wait, &Limit::receive())
    }

    /// As [`Connection::seek`].
    fn seek_within(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        at: &mut At,
        options: SeekOptions,
        dont_wait: bool,
        limit: &Limit,
    ) -> Result<usize, Errno> {
        let seeking = self.seeking();
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        let begun = Cell::new(None);
        let call = self.begin_call();
        let asks_kernel = Cell::new(dont_wait || self.settings.is_nonblocking());
        until_there(
            bufs,
            |scatter| {
                self.with_engine(seeking, asks_kernel.get(), |engine, source| {
                    let attempt = match begun.get() {
                        Some(attempt) => attempt,
                        None => engine.begin(*at, len, options)?,
                    };
                    *at = At::Position(attempt.position());
                    begun.set(Some(attempt));
                    engine.attempt(source, attempt, scatter)
                })
            },
            |until| match begun.get() {
                _ if limit.forbids(self, dont_wait) => Err(Errno::AGAIN),
                _ if self.is_receive_shut() => Err(Errno::AGAIN),
                None => self.wait_at_door(seeking, until, &call),
                Some(attempt) => {
                    asks_kernel.set(self.wait_for(seeking, &attempt, until, &call)?);
                    Ok(())
                }
            },
            &|| Ok(limit.once(self)),
        )
    }

    /// Sleeps until the `len` bytes that begin at `at` may have arrived, or cannot come any more.
    ///
    /// # Errors
    /// EAGAIN at the deadline; as [`Connection::seek`].
    pub fn wait_seek(&self, at: At, len: u64, until: Deadline) -> Result<(), Errno> {
        let seeking = self.seeking();
        let options = SeekOptions::PEEK;
        let call = self.begin_call();
        let attempt = self.with_engine(seeking, false, |engine, _| engine.begin(at, len, options));
        match attempt {
            Err(Errno::AGAIN) => self.wait_at_door(seeking, until, &call),
            Err(error) => Err(error),
            Ok(attempt) => self.wait_for(seeking, &attempt, until, &call).map(drop),
        }
    }

    /// The extent of the bytes that can be received, and of those that were taken.
    ///
    /// # Errors
    /// EBUSY as [`Connection::seek`]; those of ioctl(2).
    pub fn extent(&self) -> Result<Extent, Errno> {
        self.look_with_engine(self.seeking(), |engine, source| engine.extent(source))
    }

    /// Moves the bytes that have arrived into library memory, so that the peer can go on sending.
    ///
    /// # Errors
    /// ENOBUFS if no more memory may be used; as [`Connection::extent`].
    pub fn make_room(&self) -> Result<(), Errno> {
        self.with_engine(self.seeking(), true, |engine, source| engine.drain(source)).map(drop)
    }

    // ---- the engine ---------------------------------------------------------------------------

    /// Allows receiving out of order from now on.
    pub fn begin_to_seek(&self) {
        self.seeking();
    }

    fn seeking(&self) -> &Seeking {
        let seeking = self.seeking.get_or_init(|| {
            crate::seek_threshold::apply();
            Box::new(Seeking {
                state: SeekLock::new(None),
                door: OnceLock::new(),
                moves: AtomicU32::new(0),
                leader_called: AtomicBool::new(false),
                head_drained: AtomicBool::new(false),
                watch: OnceLock::new(),
                is_watched: AtomicBool::new(false),
                taken_ahead: AtomicU64::new(0),
                is_ring_watched: AtomicBool::new(false),
                claim: OnceLock::new(),
                is_sole: AtomicBool::new(false),
                is_torn: AtomicBool::new(false),
            })
        });
        self.gate.close_to_receivers();
        seeking
    }

    /// Locks the state. EBUSY if another process has gone on with the connection; EAGAIN while a
    /// receive that began before the first seek is under way.
    fn lock<'s>(&self, seeking: &'s Seeking) -> Result<SeekGuard<'s, Option<SeekState>>, Errno> {
        if seeking.is_torn.load(Ordering::Relaxed) {
            return Err(self.refuse());
        }
        let mut guard = seeking.state.lock()?;
        if guard.is_none() {
            // On an attached connection, receives that began earlier hold the lock of the half.
            let rx = self.attached().map(|data_path| self.rx(data_path)).transpose()?;
            if let Some(rx) = &rx {
                // Bytes taken out of the middle must not be retransmitted by TCP.
                rx.stop_asking();
            }
            if rx.is_none() && self.gate.has_receivers() {
                return Err(Errno::AGAIN);
            }
            // The application's value: no seek has raised it yet.
            if let Ok(bytes) = socket::receive_low_water(self.fd()) {
                self.set_recv_low_water(bytes);
            }
            let totals = self.totals_in_order();
            *guard = Some(SeekState {
                engine: Engine::new(totals.rx_tcp + totals.rx_ring, Config::get().seek_memory),
                cursor: KernelCursor::new(self.fd(), Config::get().seek_method),
                loans: SegmentLoans::default(),
                waits: KernelWaits::default(),
                sleepers: Sleepers::default(),
                shown: false,
                violation: None,
                seen_changes: 0,
            });
        }
        Ok(guard)
    }

    /// The error for a process that cannot go on because another one has.
    #[cold]
    fn refuse(&self) -> Errno {
        tracing::warn!(
            "fd {}: another process goes on with a connection that has holes",
            self.fd().raw()
        );
        Errno::BUSY
    }

    fn with_engine<R>(
        &self,
        seeking: &Seeking,
        asks_kernel: bool,
        call: impl FnOnce(&mut Engine, &mut ReceivePathSource<'_, '_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.with_path(seeking, false, |state, path, front| {
            let SeekState { engine, cursor, loans, violation, .. } = state;
            let mut source = ReceivePathSource {
                connection: self,
                path,
                cursor,
                loans,
                front,
                asks_kernel,
                violation,
            };
            call(engine, &mut source)
        })
    }

    /// As [`Self::with_engine`], for a look, which takes nothing from another process.
    fn look_with_engine<R>(
        &self,
        seeking: &Seeking,
        call: impl FnOnce(&mut Engine, &mut ReceivePathSource<'_, '_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        if seeking.is_ours() {
            return self.with_engine(seeking, true, |engine, source| {
                engine.discard_taken(source)?;
                call(engine, source)
            });
        }
        let mut guard = self.lock(seeking)?;
        let state = guard.as_mut().ok_or(Errno::IO)?;
        self.with_state_for(Purpose::Look, seeking, state, false, |state, path, front| {
            let SeekState { engine, cursor, loans, violation, .. } = state;
            let mut source = ReceivePathSource {
                connection: self,
                path,
                cursor,
                loans,
                front,
                asks_kernel: true,
                violation,
            };
            call(engine, &mut source)
        })
    }

    /// Calls `call` with the state locked, the receive path, and the front; then notifies waiters
    /// of the changes.
    fn with_path<'c, R>(
        &'c self,
        seeking: &Seeking,
        before_sleep: bool,
        call: impl FnOnce(&mut SeekState, &LazyReceivePath<'c>, u64) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let mut guard = self.lock(seeking)?;
        let state = guard.as_mut().ok_or(Errno::IO)?;
        self.with_state(seeking, state, before_sleep, call)
    }

    fn with_state<'c, R>(
        &'c self,
        seeking: &Seeking,
        state: &mut SeekState,
        before_sleep: bool,
        call: impl FnOnce(&mut SeekState, &LazyReceivePath<'c>, u64) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.with_state_for(Purpose::Receive, seeking, state, before_sleep, call)
    }

    fn with_state_for<'c, R>(
        &'c self,
        purpose: Purpose,
        seeking: &Seeking,
        state: &mut SeekState,
        before_sleep: bool,
        call: impl FnOnce(&mut SeekState, &LazyReceivePath<'c>, u64) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let claim = match (seeking.claim.get(), purpose) {
            (None, _) => None,
            (Some(claim), Purpose::Look) if claim.is_current(state.seen_changes) => None,
            (Some(_), Purpose::Look) => return Err(self.refuse()),
            (Some(claim), Purpose::Receive) => {
                let held = claim.hold(state.seen_changes).map_err(|_| self.refuse())?;
                Some((held, state.progress()))
            }
        };
        let path = LazyReceivePath::new(self);
        let front = state.engine.front();
        state.waits.wanted(u32::try_from(self.recv_low_water()).unwrap_or(u32::MAX));
        if self.is_shared.load(Ordering::Relaxed) {
            state.cursor.share(self.fd());
        }
        let result = call(state, &path, front);
        let path = path.entered();
        if let Some((held, before)) = claim {
            if state.progress() != before {
                state.seen_changes = held.changed();
                seeking.is_sole.store(true, Ordering::Relaxed);
            }
        }
        let now = state.engine.front();
        let drained = state.engine.has_drained();
        let leaves_holes = state.cursor.leaves_holes();
        if leaves_holes {
            seeking.taken_ahead.store(state.engine.taken_ahead(), Ordering::Relaxed);
        }
        if seeking.head_is_drained() != drained {
            seeking.head_drained.store(drained, Ordering::SeqCst);
        }
        if now != front {
            seeking.call_leader(state);
            state.sleepers.wake(now);
            if let Some(ReceivePath::Attached(data_path, _)) = &path {
                if data_path.ring.queue.has_readers() {
                    data_path.ring.doorbell.ring();
                }
            }
        }
        // A hole no longer counts for SO_RCVLOWAT: waiters for bytes after it need fewer.
        if now != front || leaves_holes {
            state.waits.moved(self.fd(), state.engine.reach(leaves_holes));
        }
        if let Some((_, doorbell)) = seeking.watch.get() {
            if drained != state.shown {
                state.shown = !state.shown;
                if state.shown { doorbell.ring() } else { doorbell.quiet() }
            }
        }
        if let Some(path) = path {
            self.leave(path, before_sleep);
        }
        match (state.violation.take(), self.attached()) {
            (Some(violation), Some(data_path)) => Err(self.violated(data_path, violation)),
            _ => result,
        }
    }
}
