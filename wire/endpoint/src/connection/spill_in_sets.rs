//! A spill that this process has found, in its epoll sets.
//!
//! The kernel does not know of the spill, so a set looks at it as it looks at a ring. No bytes are
//! added to it, and only this process rings for it: for sleepers on a set while the socket is added
//! to it, or has to be reported once more.

use std::sync::atomic::Ordering;

use seekwire_transport::Errno;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::doorbell::Doorbell;

use super::state::Connection;
use crate::fork;

impl Connection {
    /// Lets epoll sets watch the spill that this process has found.
    ///
    /// # Errors
    /// ENOMEM if no descriptor is free.
    pub fn watch_spill(&self) -> Result<(), Errno> {
        if let Some(found) = self.found_spill.get().filter(|found| found.doorbell.get().is_none()) {
            let _inside = fork::enter();
            let _ = found.doorbell.set(Doorbell::new().map_err(|_| Errno::NOMEM)?);
        }
        Ok(())
    }

    /// Whether epoll sets watch, or have watched, a spill that this process has found.
    #[must_use]
    pub fn spill_is_watched(&self) -> bool {
        self.spill_doorbell().is_some()
    }

    pub(super) fn spill_doorbell(&self) -> Option<Fd> {
        self.found_spill.get()?.doorbell.get().map(Doorbell::fd)
    }

    pub(super) fn arm_spill(&self) {
        if let Some(found) = self.found_spill.get() {
            found.armed.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(super) fn disarm_spill(&self) {
        if let Some(found) = self.found_spill.get() {
            // The child of a fork in a signal handler has forgotten it already.
            let less = |armed: u32| armed.checked_sub(1);
            let _ = found.armed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        }
    }

    /// Resets the state, in the child of a fork.
    pub(super) fn forget_spill_waiters(&self) {
        if let Some(found) = self.found_spill.get() {
            found.armed.store(0, Ordering::SeqCst);
        }
    }

    pub(super) fn ring_spill(&self) {
        if let Some(doorbell) = self.found_spill.get().and_then(|found| found.doorbell.get()) {
            doorbell.ring();
        }
    }

    pub(super) fn quiet_spill(&self) {
        let Some(found) = self.found_spill.get() else { return };
        if let Some(doorbell) = found.doorbell.get() {
            doorbell.quiet();
            // It may have rung for others.
            if found.armed.load(Ordering::SeqCst) > 0 && self.has_spill() {
                doorbell.ring();
            }
        }
    }
}
