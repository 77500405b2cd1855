//! A rest that this process has found, in its epoll sets.
//!
//! The kernel does not know of the rest, so a set looks at it as it looks at a ring. No bytes are
//! added to it, and only this process rings for it: for sleepers on a set while the socket is added
//! to it, or has to be reported once more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use seekwire_transport::Errno;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::doorbell::Doorbell;

use super::state::Connection;
use crate::fork;

#[derive(Debug, Default)]
pub(super) struct Found {
    /// Present once a set has it.
    doorbell: OnceLock<Doorbell>,
    /// Number of sleepers that want to read.
    armed: AtomicU32,
}

impl Connection {
    /// Lets epoll sets watch the rest that this process has found.
    ///
    /// # Errors
    /// ENOMEM if no descriptor is free.
    pub fn watch_rest(&self) -> Result<(), Errno> {
        if let Some(found) = self.found.get().filter(|found| found.doorbell.get().is_none()) {
            let _inside = fork::enter();
            let _ = found.doorbell.set(Doorbell::new().map_err(|_| Errno::NOMEM)?);
        }
        Ok(())
    }

    /// Whether epoll sets watch, or have watched, a rest that this process has found.
    #[must_use]
    pub fn rest_is_watched(&self) -> bool {
        self.found_doorbell().is_some()
    }

    pub(super) fn found_doorbell(&self) -> Option<Fd> {
        self.found.get()?.doorbell.get().map(Doorbell::fd)
    }

    pub(super) fn arm_found(&self) {
        if let Some(found) = self.found.get() {
            found.armed.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(super) fn disarm_found(&self) {
        if let Some(found) = self.found.get() {
            // The child of a fork in a signal handler has forgotten it already.
            let less = |armed: u32| armed.checked_sub(1);
            let _ = found.armed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        }
    }

    /// Resets the state, in the child of a fork.
    pub(super) fn forget_found(&self) {
        if let Some(found) = self.found.get() {
            found.armed.store(0, Ordering::SeqCst);
        }
    }

    pub(super) fn ring_found(&self) {
        if let Some(doorbell) = self.found.get().and_then(|found| found.doorbell.get()) {
            doorbell.ring();
        }
    }

    pub(super) fn quiet_found(&self) {
        let Some(found) = self.found.get() else { return };
        if let Some(doorbell) = found.doorbell.get() {
            doorbell.quiet();
            // It may have rung for others.
            if found.armed.load(Ordering::SeqCst) > 0 && self.has_rest() {
                doorbell.ring();
            }
        }
    }
}
