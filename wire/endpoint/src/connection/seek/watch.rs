//! The state of a seeking connection that poll, select, epoll and FIONREAD report.

use std::sync::atomic::Ordering;

use seekwire_transport::Errno;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::doorbell::{Doorbell, Doorbells};

use super::state::Seeking;
use crate::connection::state::Connection;

impl Connection {
    /// Bytes that a receive would return at once; holes do not count.
    pub(in crate::connection) fn unread_seeking(&self) -> Result<usize, Errno> {
        let unread =
            self.look_with_engine(self.seeking(), |engine, source| engine.unread(source))?;
        Ok(usize::try_from(unread).unwrap_or(usize::MAX))
    }

    /// Whether the next byte is in library memory. Bytes that were taken at the head of the
    /// kernel's queue are discarded, so that the kernel's answer on the rest is right.
    pub(in crate::connection) fn has_drained(&self) -> bool {
        let Some(seeking) = self.seeking.get() else { return false };
        self.begin_to_watch(seeking);
        self.look_with_engine(seeking, |engine, _| Ok(engine.has_drained())).unwrap_or(false)
    }

    /// Makes the kernel wake for every byte from now on. Sleeping seeks have raised SO_RCVLOWAT:
    /// they look again, and lower it.
    fn begin_to_watch(&self, seeking: &Seeking) {
        if !seeking.is_watched.load(Ordering::Relaxed)
            && !seeking.is_watched.swap(true, Ordering::SeqCst)
        {
            if let Ok(mut guard) = self.lock(seeking) {
                if let Some(state) = guard.as_mut() {
                    state.waits.wake_all(self.fd());
                }
            }
        }
    }

    /// The doorbell of a seeking connection for callers that watch several connections: readable
    /// while the next byte is in library memory, or the ring's doorbell is rung.
    pub(in crate::connection) fn seek_doorbell(&self) -> Option<Fd> {
        let seeking = self.seeking.get()?;
        if seeking.watch.get().is_none() {
            let (doorbells, doorbell) = (Doorbells::new().ok()?, Doorbell::new().ok()?);
            doorbells.add(&doorbell).ok()?;
            let _ = seeking.watch.set((doorbells, doorbell));
        }
        self.begin_to_watch(seeking);
        self.watch_ring();
        seeking.watch.get().map(|(doorbells, _)| doorbells.fd())
    }

    /// Wakes callers that watch several connections once more, if the next byte is in library
    /// memory.
    pub(in crate::connection) fn ring_seek_doorbell(&self) {
        if let Some(seeking) = self.seeking.get() {
            if let Some((_, doorbell)) = seeking.watch.get() {
                if let Ok(state) = self.lock(seeking) {
                    if state.as_ref().is_some_and(|state| state.shown) {
                        doorbell.ring();
                    }
                }
            }
        }
    }

    /// From now on callers that watch several connections are woken by the ring, if there is one.
    pub(in crate::connection) fn watch_ring(&self) {
        if let Some(seeking) = self.seeking.get() {
            if let (Some((doorbells, _)), Some(data_path)) = (seeking.watch.get(), self.attached())
            {
                if !seeking.is_ring_watched.load(Ordering::Relaxed)
                    && doorbells.add(&data_path.ring.doorbell).is_ok()
                {
                    seeking.is_ring_watched.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}
