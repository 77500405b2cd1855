//! One epoll set, as seen by its process.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use seekwire_endpoint::Connection;
use seekwire_transport::spin::Spinner;

use super::set_records::Sharing;
use super::state::SetState;
use super::watch::SocketHandle;
use crate::fd_numbers::Numbers;
use crate::lock::{Lock, RawLock};

/// One epoll instance, from its first to its last fd number in this process.
pub(crate) struct EpollSet<S> {
    numbers: Lock<Numbers>,
    /// Another set or a poll watches this one: threads may sleep on it without calling the
    /// library's wait.
    watched: AtomicBool,
    /// The library has seen a wait on it: see [`seen`](super::seen).
    pub(super) seen: AtomicBool,
    /// Other sets are or were inside it.
    pub(super) has_inner: AtomicBool,
    /// Set at the first fork.
    pub(super) sharing: OnceLock<Option<Arc<Sharing>>>,
    /// Several processes use it, and this process has taken its connections out.
    pub(super) is_left: AtomicBool,
    /// A thread is taking them out.
    pub(super) is_leaving: AtomicBool,
    /// Tracks whether spinning has paid recently.
    pub(super) spinner: Spinner,
    pub(super) state: Lock<SetState<S>>,
}

impl<S: SocketHandle> EpollSet<S> {
    /// The set of a new epoll fd.
    pub(crate) fn new(fd: c_int) -> EpollSet<S> {
        EpollSet {
            numbers: Lock::new(Numbers::new(fd)),
            watched: AtomicBool::new(false),
            seen: AtomicBool::new(false),
            has_inner: AtomicBool::new(false),
            sharing: OnceLock::new(),
            is_left: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            spinner: Spinner::default(),
            state: Lock::new(SetState::new()),
        }
    }

    pub(crate) fn numbers(&self) -> &Lock<Numbers> {
        &self.numbers
    }

    /// Removes all watches, because the last number is closed.
    pub(crate) fn clear(&self) {
        self.state.lock().clear();
        self.give_up();
    }

    /// True if a wait on it was seen.
    #[inline]
    pub(crate) fn is_seen(&self) -> bool {
        self.seen.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn has_inner(&self) -> bool {
        self.has_inner.load(Ordering::Acquire)
    }

    pub(crate) fn number(&self) -> Option<c_int> {
        self.numbers.lock().any()
    }

    /// A thread may sleep until the set becomes readable, so connections that enter it must ring.
    pub(crate) fn expect_sleeper(&self) {
        self.watched.store(true, Ordering::SeqCst);
    }

    /// From now on threads may sleep on this set in the kernel, without waiting on it.
    pub(crate) fn set_watched(&self) {
        self.watched.store(true, Ordering::Release);
        if let Some(epfd) = self.number() {
            let mut state = self.state.lock();
            state.is_watched_by_kernel = true;
            state.arm_for_sleepers(epfd);
        }
    }

    /// Prepares for a thread that is about to sleep until the set becomes readable; returns true if
    /// it should not sleep.
    pub(crate) fn arm(&self) -> bool {
        self.number().is_some_and(|epfd| {
            self.state.lock_in_handler().is_none_or(|mut state| {
                state.recheck(epfd);
                state.arm(epfd) || state.is_left_ready()
            })
        })
    }

    /// How long the sleep may be, if an event may come without a doorbell, or another process may
    /// respond to the doorbell.
    pub(crate) fn recheck_after(&self) -> Option<Duration> {
        let Some(mut state) = self.state.lock_in_handler() else {
            return Some(Connection::RECHECK_INTERVAL);
        };
        let of_set = self.sharing.get().is_some() || state.has_left();
        state.recheck_after().or_else(|| of_set.then_some(Connection::RECHECK_INTERVAL))
    }

    /// Checks the uncertain connections that are due, for a poll of the set, which may return before
    /// it [arms](Self::arm).
    pub(crate) fn recheck(&self) {
        let Some(epfd) = self.number() else { return };
        let Some(mut state) = self.state.lock_in_handler() else { return };
        if state.recheck_after().is_some_and(|left| left.is_zero()) {
            state.recheck(epfd);
            // An armed watch that is ready rings, so that the kernel also reports the set.
            if state.sleepers > 0 || state.is_watched_by_kernel {
                state.arm_for_sleepers(epfd);
            } else {
                state.arm_all(epfd);
            }
        }
    }

    /// True if an event is ready that the kernel does not know about.
    pub(crate) fn is_ready(&self) -> bool {
        self.state.lock_in_handler().is_none_or(|state| state.is_ready())
    }

    /// Called when the kernel reports that the set is readable, which may be because of a doorbell
    /// that rang for an event that is gone. Silences it then and returns true; the kernel is to be
    /// asked again.
    pub(crate) fn silence(&self) -> bool {
        let Some(epfd) = self.number() else { return false };
        self.state.lock_in_handler().is_some_and(|mut state| {
            let silenced = state.silence(epfd);
            if silenced && (state.sleepers > 0 || state.is_watched_by_kernel) {
                state.arm_for_sleepers(epfd);
            } else if silenced {
                // The thread that polls the set checks the uncertain connections.
                state.arm_all(epfd);
            }
            silenced
        })
    }

    /// True if the state must have no hot watches when its lock is released.
    pub(super) fn has_sleepers(&self, state: &SetState<S>) -> bool {
        state.sleepers > 0 || self.watched.load(Ordering::Acquire)
    }

    /// The lock that a fork must hold.
    pub(crate) fn state_lock(&self) -> &RawLock {
        self.state.raw()
    }

    pub(crate) fn after_fork_child(&self) {
        if self.is_leaving.swap(false, Ordering::Relaxed) {
            // The thread that was taking connections out does not exist here, so it has to be done
            // again.
            self.is_left.store(false, Ordering::Relaxed);
        }
        self.state.lock().after_fork_child();
    }
}
