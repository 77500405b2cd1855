//! Holes and library memory when the socket is handed over, closed, or inherited by a forked
//! process.

use std::sync::atomic::Ordering;

use seekwire_transport::Errno;
use seekwire_transport::sys::socket;

use super::claim::Claim;
use super::source::ReceivePathSource;
use super::state::SeekState;
use crate::connection::state::Connection;

impl Connection {
    /// Prepares the socket for a holder that does not know of holes; EBUSY if it could not go on.
    /// Nobody makes a hole while the result is held.
    pub(in crate::connection) fn hand_over_seeking(
        &self,
    ) -> Result<Option<impl Sized + '_>, Errno> {
        let Some(seeking) = self.seeking.get() else { return Ok(None) };
        let mut guard = self.lock(seeking)?;
        let state = guard.as_mut().ok_or(Errno::IO)?;
        self.with_state(seeking, state, false, |state, path, front| {
            state.waits.lower(self.fd());
            if state.engine.has_drained() || !state.engine.is_in_order() || state.loans.count() > 0
            {
                return Err(Errno::BUSY);
            }
            let SeekState { engine, cursor, loans, violation, .. } = state;
            let mut source = ReceivePathSource {
                connection: self,
                path,
                cursor,
                loans,
                front,
                asks_kernel: false,
                violation,
            };
            engine.discard_taken(&mut source)
        })?;
        Ok(Some(guard))
    }

    /// For the last holder's close: bytes that were taken are no longer unread, but those in
    /// library memory are.
    pub(in crate::connection) fn close_seeking(&self) {
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

    pub(in crate::connection) fn before_fork_seeking(&self) {
        let Some(seeking) = self.seeking.get() else { return };
        if let Some(claim) = seeking.claim.get().is_none().then(Claim::new).flatten() {
            drop(seeking.claim.set(claim));
        }
        // A process that goes on from now on has to claim that.
        seeking.is_sole.store(false, Ordering::Relaxed);
    }

    pub(in crate::connection) fn after_fork_child_seeking(&self) {
        let Some(seeking) = self.seeking.get() else { return };
        // The one that was sole is the parent.
        seeking.is_sole.store(false, Ordering::Relaxed);
        seeking.leader_called.store(false, Ordering::Relaxed);
        if seeking.state.is_held() {
            seeking.is_torn.store(true, Ordering::Relaxed);
        } else if let Ok(mut guard) = seeking.state.lock() {
            if let Some(state) = guard.as_mut() {
                // They sleep in the parent: nobody here may rely on them to wake another sleeper.
                state.sleepers.forget();
                state.waits.forget();
            }
        }
    }
}
