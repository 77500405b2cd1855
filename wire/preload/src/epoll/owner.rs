//! Determines which of the processes that may use a set owns it.

use std::ffi::c_int;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use seekwire_endpoint::readiness::READ;
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::thread;

use super::set::EpollSet;
use super::set_records::Sharing;
use super::state::SetState;
use super::tag::{self, Op, Tag};
use super::watch::SocketHandle;
use crate::process;

/// How many times, 1 ms apart, to check whether a sleeping process has woken up.
const LOOKS: u32 = 1000;

/// The owner of a set.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(super) enum Owner {
    /// This process.
    Own,
    /// This process, from now on.
    Inherited,
    /// Several processes, so only the kernel reports events.
    Kernel,
}

impl<S: SocketHandle> EpollSet<S> {
    /// The caller holds the lock of the state.
    pub(crate) fn before_fork(&self) {
        self.sharing.get_or_init(|| {
            // SAFETY: this thread holds the lock, and keeps holding it.
            let mut state = ManuallyDrop::new(unsafe { self.state.adopt() });
            let sharing = Arc::new(Sharing::new(state.places(), state.sleepers)?);
            state.share(&sharing);
            Some(sharing)
        });
    }

    /// Called when a thread is about to sleep on the set; returns how soon it must check again, if
    /// it must.
    pub(super) fn falls_asleep(&self, state: &mut SetState<S>) -> Option<Duration> {
        let recheck_after = state.recheck_after();
        state.sleepers += 1;
        state.watchful += usize::from(recheck_after.is_some());
        if let Some(Some(sharing)) = self.sharing.get() {
            sharing.asleep().fetch_add(1, Ordering::SeqCst);
        }
        recheck_after
    }

    pub(super) fn is_awake(&self, state: &mut SetState<S>, was_watchful: bool) {
        // A child that a handler forked during this very sleep starts from 0.
        state.sleepers = state.sleepers.saturating_sub(1);
        state.watchful = state.watchful.saturating_sub(usize::from(was_watchful));
        if let Some(Some(sharing)) = self.sharing.get() {
            let fewer = |now: u64| now.checked_sub(1);
            let _ = sharing.asleep().fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer);
        }
    }

    /// True if this process owns the set, to its own knowledge.
    pub(super) fn is_own(&self) -> bool {
        self.sharing.get().is_none_or(|sharing| {
            sharing.as_ref().is_some_and(|sharing| {
                sharing.several().load(Ordering::SeqCst) == 0
                    && sharing.user().load(Ordering::SeqCst) == process::id()
            })
        })
    }

    /// Called when this process has closed its last number of the set.
    pub(super) fn give_up(&self) {
        if let Some(Some(sharing)) = self.sharing.get() {
            let _ = sharing.user().compare_exchange(
                process::id(),
                0,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
        }
    }

    pub(super) fn claim(&self, epfd: c_int) -> Owner {
        let Some(sharing) = self.sharing.get() else { return Owner::Own };
        let Some(sharing) = sharing else { return Owner::Kernel };
        if sharing.several().load(Ordering::SeqCst) != 0 {
            return Owner::Kernel;
        }
        let (own, user) = (process::id(), sharing.user().load(Ordering::SeqCst));
        if user == own {
            return Owner::Own;
        }
        if (user == 0 || !thread::process_is_alive(user as u32))
            && sharing
                .user()
                .compare_exchange(user, own, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        {
            sharing.asleep().store(0, Ordering::SeqCst);
            return Owner::Inherited;
        }
        sharing.several().store(1, Ordering::SeqCst);
        if sharing.asleep().load(Ordering::SeqCst) > 0 {
            let _ = wake(sharing, epfd);
        }
        Owner::Kernel
    }
}

/// Wakes the threads that sleep on the set, until their process knows that others use it: its
/// registrations mean nothing to those.
fn wake(sharing: &Sharing, epfd: c_int) -> io::Result<()> {
    let alarm = Alarm::new()?;
    alarm.ring_in(epfd)?;
    for _ in 0..LOOKS {
        let user = sharing.user().load(Ordering::SeqCst);
        if sharing.is_noted().load(Ordering::SeqCst) != 0
            || sharing.asleep().load(Ordering::SeqCst) == 0
            || !thread::process_is_alive(user as u32)
        {
            break;
        }
        thread::nap(Duration::from_millis(1));
    }
    alarm.leave(epfd);
    Ok(())
}

/// Ends every sleep on the sets in which it rings, while it exists.
pub(crate) struct Alarm(PrivateFd);

impl Alarm {
    pub(crate) fn new() -> io::Result<Alarm> {
        Ok(Alarm(PrivateFd::new(eventfd(1, EventfdFlags::CLOEXEC)?)?))
    }

    pub(crate) fn ring_in(&self, epfd: c_int) -> io::Result<()> {
        Ok(tag::control(epfd, Op::Add, self.0.fd().raw(), READ, Tag::NOTHING.encode()?)?)
    }

    /// Ignores that the set is gone.
    pub(crate) fn leave(&self, epfd: c_int) {
        let _ = tag::control(epfd, Op::Delete, self.0.fd().raw(), 0, 0);
    }
}
