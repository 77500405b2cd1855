//! The sets on which a wait was seen, and sets inside other sets.
//!
//! A program may wait with system calls of its own, bypassing the C library. Such a wait cannot
//! interpret the library's entries in a set. So the kernel's set stays as the application made it
//! until the library has seen a wait on it or on a set that contains it, or a poll. A connection in
//! a set without such a wait does not come to the ring.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use libc::{POLLIN, epoll_event};
use seekwire_endpoint::readiness::{ONE_SHOT, READ};
use seekwire_transport::sys::Fd;
use smallvec::SmallVec;

use super::registrations::{self, keep_or_leave, show};
use super::typed::Set;
use crate::deferred;
use crate::ffi::guarded;
use crate::look;
use crate::registration::InnerSet;
use crate::table::{self, SetRef, SharedSet};

/// Maximum nesting depth of sets: the kernel's own limit (linux/eventpoll.c, EP_MAX_NESTS).
pub(super) const MOST_LEVELS: u32 = 4;

/// Flags with which an event is reported once.
const REPORTED_ONCE: u32 = ONE_SHOT | libc::EPOLLET as u32;

/// Called when a wait of the library is about to begin on `set`.
#[inline]
pub(crate) fn note_wait(set: &SetRef) {
    // A signal handler that interrupted a lock holder leaves this to a later wait.
    if !set.is_seen() && !deferred::is_interrupted() {
        guarded(|| notice(&set.share(), MOST_LEVELS));
    }
}

#[cold]
fn notice(set: &SharedSet, levels: u32) {
    let early = {
        let mut state = set.state.lock();
        set.seen.store(true, Ordering::Release);
        std::mem::take(&mut state.early)
    };
    let missed = early.into_iter().filter(|&fd| !note_seen(set, fd)).count();
    if missed > 0 {
        // Another thread is closing a number while other numbers stand for the socket.
        table::numbers().for_each(|fd| {
            note_seen(set, fd);
        });
    }
    if levels > 0 {
        for (inner, _) in inner(set).iter().filter(|(inner, _)| !inner.is_seen()) {
            notice(inner, levels - 1);
        }
    }
}

/// Notes that a wait was seen on `set`, which contains the socket `fd`; returns false if it does
/// not.
fn note_seen(set: &SharedSet, fd: c_int) -> bool {
    let Some(socket) = table::socket(fd) else { return false };
    let mut registrations = socket.registrations().lock();
    let mut is_in_set = false;
    for registration in registrations.iter_mut().filter(|it| set.is(&it.set)) {
        registration.is_seen = true;
        is_in_set = true;
    }
    if is_in_set {
        registrations::note(&socket, &registrations);
        if socket.to_show() != 0 {
            let shown = show(&socket, &mut registrations);
            drop(registrations);
            keep_or_leave(&socket, shown);
        }
    }
    is_in_set
}

/// The sets inside `set`, each with the application's event.
fn inner(set: &Set) -> SmallVec<[(SharedSet, epoll_event); 4]> {
    if !set.has_inner() {
        return SmallVec::new();
    }
    let Some(state) = set.state.lock_in_handler() else { return SmallVec::new() };
    let existing = |inner: &InnerSet| Some((SharedSet::find(&inner.place)?, inner.event));
    state.inner.iter().filter_map(existing).collect()
}

/// Notes that the application has changed `set`: `asked` of the set `inner` under the number `fd`,
/// or its removal.
pub(crate) fn nest(set: &SetRef, fd: c_int, inner: &SetRef, asked: Option<epoll_event>) {
    {
        let mut state = set.state.lock();
        state.inner.retain(|other| other.number != fd && other.place.strong_count() > 0);
        if let Some(event) = asked {
            state.inner.push(InnerSet { place: inner.place(), number: fd, event });
            set.has_inner.store(true, Ordering::Release);
        }
    }
    if asked.is_some() && set.is_seen() {
        note_wait(inner);
    }
}

/// Like [`Set::silence`], also for the sets inside it.
pub(crate) fn silence(set: &Set) -> bool {
    silence_inner(set, MOST_LEVELS) | set.silence()
}

/// Silences doorbells in the sets inside `set` that ring for an event that is gone. Returns true if
/// there were any; then ask the kernel again.
pub(super) fn silence_inner(set: &Set, levels: u32) -> bool {
    let silence = |set: &SharedSet| (levels > 0 && silence_inner(set, levels - 1)) | set.silence();
    inner(set).iter().fold(false, |any, (set, _)| silence(set) | any)
}

/// Removes events of sets inside `set` in which a doorbell rang for an event that is gone; returns
/// the number of remaining events. Events that the kernel reports only once stay.
pub(super) fn keep_true(set: &Set, events: &mut [epoll_event]) -> usize {
    let count = events.len();
    if count == 0 || !silence_inner(set, MOST_LEVELS) {
        return count;
    }
    let is_spurious = |event: &epoll_event| {
        let reported = event.events;
        let sets = inner(set);
        let mut of_event = sets.iter().filter(|(_, asked)| asked.u64 == event.u64).peekable();
        reported & !READ == 0
            && of_event.peek().is_some()
            && of_event.all(|(inner, asked)| {
                let number = inner.number().map(Fd::new);
                let is_quiet = || number.is_some_and(|number| look::state(number, POLLIN) == 0);
                // When a connection goes back to TCP while armed, its doorbell rings once more.
                asked.events & REPORTED_ONCE == 0 && (is_quiet() || silence(inner) && is_quiet())
            })
    };
    let mut kept = 0;
    for at in 0..count {
        if !is_spurious(&events[at]) {
            events[kept] = events[at];
            kept += 1;
        }
    }
    kept
}
