//! Sets that a fork has left to several processes.
//!
//! The kernel tells of an event to whoever waits first, but each process keeps to itself what it knows of the connections in
//! a set. So one process has the set: the one that forked, until it closes the set or ends; then the first one that uses it.
//! When another one uses it beside, the connections in it go back to TCP for good, of which the kernel alone tells.

use std::ffi::c_int;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libc::epoll_event;
use rustix::event::{EventfdFlags, eventfd};
use seekwire_endpoint::Until;
use seekwire_transport::mem::Common;
use seekwire_transport::sys::fd::Placed;
use seekwire_transport::sys::signal::HeldBack;
use seekwire_transport::sys::thread;

use super::events::Events;
use super::state::State;
use super::tag::{self, Op, Tag};
use super::watch::READ;
use super::{Set, registrations};
use crate::ffi::{guarded, keeping_errno};
use crate::table::{self, SetRef};
use crate::timeout::Timeout;
use crate::{passed, process};

/// For all connections of a set together.
const SET_LIMIT: Duration = Duration::from_secs(5);
/// How often, a millisecond each, it is seen whether a process that slept has woken up.
const LOOKS: u32 = 1000;

/// What the processes that have a set know in common.
pub(super) struct Sharing(Common);

impl Sharing {
    fn new(asleep: usize) -> Option<Self> {
        // Tags must mean the same to all of them.
        tag::base().ok()?;
        let sharing = Self(Common::with_forks(4096).ok()?);
        sharing.asleep().store(asleep as u64, Ordering::SeqCst);
        sharing.user().store(process::id(), Ordering::SeqCst);
        Some(sharing)
    }

    /// The process that has the set; 0: nobody.
    fn user(&self) -> &AtomicU64 {
        self.0.word(0)
    }

    /// Whether several use it; and whether the one that had it knows.
    fn several(&self) -> &AtomicU64 {
        self.0.word(8)
    }

    fn is_noted(&self) -> &AtomicU64 {
        self.0.word(16)
    }

    /// How many threads of the one that has it sleep on it.
    fn asleep(&self) -> &AtomicU64 {
        self.0.word(24)
    }
}

/// To whom a set belongs.
#[derive(Copy, Clone, Eq, PartialEq)]
enum Owner {
    /// To this process.
    Own,
    /// To this process from now on.
    Inherited,
    /// To several.
    Kernel,
}

impl Set {
    /// The caller holds the lock of the state.
    pub(crate) fn before_fork(&self) {
        self.sharing.get_or_init(|| {
            // SAFETY: this thread holds it, and goes on to.
            let state = ManuallyDrop::new(unsafe { self.state.adopt() });
            Sharing::new(state.sleepers)
        });
    }

    /// A thread is about to sleep on the set; true if it is to look again soon.
    pub(super) fn falls_asleep(&self, state: &mut State) -> bool {
        let is_watchful = !state.in_doubt.is_empty();
        state.sleepers += 1;
        state.watchful += usize::from(is_watchful);
        if let Some(Some(sharing)) = self.sharing.get() {
            sharing.asleep().fetch_add(1, Ordering::SeqCst);
        }
        is_watchful
    }

    pub(super) fn is_awake(&self, state: &mut State, was_watchful: bool) {
        // A child that was forked by a handler in this very sleep has begun anew.
        state.sleepers = state.sleepers.saturating_sub(1);
        state.watchful = state.watchful.saturating_sub(usize::from(was_watchful));
        if let Some(Some(sharing)) = self.sharing.get() {
            let fewer = |now: u64| now.checked_sub(1);
            let _ = sharing.asleep().fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer);
        }
    }

    /// Whether this process has the set, as far as is known.
    pub(super) fn is_own(&self) -> bool {
        self.sharing.get().is_none_or(|sharing| {
            sharing.as_ref().is_some_and(|sharing| {
                sharing.several().load(Ordering::SeqCst) == 0
                    && sharing.user().load(Ordering::SeqCst) == process::id()
            })
        })
    }

    /// The last number of this process is closed.
    pub(super) fn give_up(&self) {
        if let Some(Some(sharing)) = self.sharing.get() {
            let _ = sharing.user().compare_exchange(process::id(), 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    fn claim(&self, epfd: c_int) -> Owner {
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
            && sharing.user().compare_exchange(user, own, Ordering::SeqCst, Ordering::SeqCst).is_ok()
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

/// Wakes whoever sleeps on the set, until the one that has it knows that others use it: events of what it has put there mean
/// nothing to those.
fn wake(sharing: &Sharing, epfd: c_int) -> io::Result<()> {
    let alarm = Placed::new(eventfd(1, EventfdFlags::CLOEXEC)?)?;
    tag::control(epfd, Op::Add, alarm.fd().raw(), READ, Tag::NOTHING.encode()?)?;
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
    Ok(tag::control(epfd, Op::Delete, alarm.fd().raw(), 0, 0)?)
}

/// To be asked by whatever uses a set: whether connections in it may be on the ring.
pub(crate) fn is_alone(set: &SetRef, epfd: c_int) -> bool {
    if set.is_own() {
        return true;
    }
    keeping_errno(|| {
        match guarded(|| set.claim(epfd)).unwrap_or(Owner::Kernel) {
            Owner::Own => return true,
            Owner::Inherited => {
                let taken = guarded(|| set.state.lock().tell_all(epfd));
                return taken.is_some();
            }
            Owner::Kernel => {}
        }
        guarded(|| leave_to_kernel(set, epfd));
        false
    })
}

/// Takes every connection in the set back to TCP, and what the library has put there out of it.
#[cold]
fn leave_to_kernel(set: &SetRef, epfd: c_int) {
    if set.is_left.swap(true, Ordering::AcqRel) {
        return;
    }
    let until = Until::after(Some(SET_LIMIT));
    let in_kernel = registrations(epfd);
    let is_tagged =
        |fd| in_kernel.iter().any(|(number, event)| *number == fd && Tag::decode(event.u64).is_some());
    for fd in table::numbers() {
        let Some(socket) = table::socket(fd).filter(|socket| !socket.is_listening()) else { continue };
        let mut registrations = socket.registrations().lock();
        let before = registrations.len();
        registrations.retain(|registration| {
            if !set.is(&registration.set) {
                return true;
            }
            let mut state = set.state.lock();
            if let Some(watch) = registration.parked {
                state.unpark(watch, registration.fd, epfd);
            }
            let Some(index) = registration.watch else { return false };
            if is_tagged(registration.number()) {
                state.give_back(index, epfd, registration);
            }
            state.remove(index, Some(epfd));
            false
        });
        let is_concerned = registrations.len() < before;
        socket.count_registrations(registrations.len());
        drop(registrations);
        if is_concerned {
            // One with holes cannot leave; what comes for it by the ring is seen by its next call.
            let _ = passed::to_tcp_until(&socket, seekwire_endpoint::Reason::Bypassed, until);
        }
    }
    set.watches.store(0, Ordering::Release);
    if let Some(Some(sharing)) = set.sharing.get()
        && sharing.user().load(Ordering::SeqCst) == process::id()
    {
        sharing.is_noted().store(1, Ordering::SeqCst);
    }
}

/// A wait for a set that several processes use: the kernel's, but for what another process has yet to take out of it.
pub(super) fn wait(
    events: *mut epoll_event,
    timeout: &mut Timeout,
    signals: Option<HeldBack>,
    sleep: impl Fn(&mut Timeout, Option<&HeldBack>) -> c_int,
) -> c_int {
    let signals = signals.unwrap_or_else(HeldBack::new);
    loop {
        let result = sleep(timeout, Some(&signals));
        let Ok(count) = usize::try_from(result) else { return result };
        // SAFETY: the kernel has written so many events there.
        let told = unsafe { Events::of_application(events, count) };
        if told > 0 || count == 0 || timeout.is_over() {
            return told as c_int;
        }
    }
}
