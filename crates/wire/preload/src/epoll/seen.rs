//! On which sets a wait was seen, and which sets are in others.
//!
//! A program may wait by system calls of its own, past the C library. To such a wait, what the
//! library puts into a set means nothing. So the kernel's set stays as the application made it
//! until the library has seen a wait on it, or on one that it is in, or a poll; and a connection in
//! a set on which none was seen does not come to the ring.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use libc::{POLLIN, epoll_event};
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::fd::Placed;
use smallvec::SmallVec;

use super::listed;
use super::registrations::{keep_or_leave, show};
use super::tag::{self, Op};
use super::typed::Set;
use super::watch::{ONE_SHOT, READ};
use crate::ffi::guarded;
use crate::hold;
use crate::look;
use crate::registration::{PlaceOfSet, Registration};
use crate::socket::Socket;
use crate::table::{self, SetRef, SharedSet};

/// How deep sets may be in one another: the kernel's own limit (linux/eventpoll.c, EP_MAX_NESTS).
pub(super) const MOST_LEVELS: u32 = 4;

/// An event that was asked for in one of these ways is reported once.
const TOLD_ONCE: u32 = ONE_SHOT | libc::EPOLLET as u32;

/// In place of a number: that of a socket whose number has changed.
const ANY: c_int = -1;

/// Names `set` for a registration of the socket `fd`, and says whether a wait on it was seen. To be
/// called under the lock of the socket's registrations.
pub(super) fn place_for(set: &SetRef, fd: c_int) -> (PlaceOfSet, bool) {
    let is_seen = set.is_seen() || {
        let mut state = set.state.lock();
        // Under this lock it is decided who of both knows of the other.
        let is_seen = set.is_seen();
        if !is_seen {
            state.early.insert(fd);
        }
        is_seen
    };
    (set.place(), is_seen)
}

/// The number of a registration in a set on which no wait was seen is about to be closed, while
/// others stand for the socket: another number takes its place in the kernel's set. False if that
/// cannot be, as with a shot that is fired: the kernel would report an end after it.
pub(super) fn replace(socket: &Socket, set: &Set, registration: &mut Registration) -> bool {
    if registration.stand_in.is_some() {
        return true;
    }
    let Some(epfd) = set.number() else { return false };
    if listed::fired(epfd, registration).is_some() {
        return false;
    }
    let Ok(stand_in) = Placed::duplicate(socket.connection.fd()) else { return false };
    let (events, data) = (registration.events, registration.data);
    if tag::control(epfd, Op::Add, stand_in.fd().raw(), events, data).is_err() {
        return false;
    }
    let _ = tag::control(epfd, Op::Delete, registration.fd, 0, 0);
    registration.stand_in = Some(stand_in);
    set.state.lock().early.insert(ANY);
    true
}

/// A wait of the library's is about to begin on `set`.
#[inline]
pub(crate) fn note_wait(set: &SetRef) {
    // A handler that has interrupted one who holds the locks leaves it to a later wait.
    if !set.is_seen() && !hold::is_interrupted() {
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
        // Another thread is closing a number, and others stand for the socket.
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

/// A wait on `set` was seen, in which the socket `fd` is; false if it is not.
fn note_seen(set: &SharedSet, fd: c_int) -> bool {
    let Some(socket) = table::socket(fd) else { return false };
    let mut registrations = socket.registrations().lock();
    let mut is_in_set = false;
    for registration in registrations.iter_mut().filter(|it| set.is(&it.set)) {
        registration.is_seen = true;
        is_in_set = true;
    }
    if is_in_set {
        socket.note_registrations(&registrations);
        if socket.to_show() != 0 {
            let shown = show(&socket, &mut registrations);
            drop(registrations);
            keep_or_leave(&socket, shown);
        }
    }
    is_in_set
}

/// A set inside another, as the application put it there.
pub(super) struct Inner {
    place: PlaceOfSet,
    /// The number by which it was added.
    number: c_int,
    event: epoll_event,
}

/// The sets that are in `set`, each with the application's event.
fn inner(set: &Set) -> SmallVec<[(SharedSet, epoll_event); 4]> {
    if !set.has_inner() {
        return SmallVec::new();
    }
    let Some(state) = set.state.lock_in_handler() else { return SmallVec::new() };
    let found = |inner: &Inner| Some((SharedSet::find(&inner.place)?, inner.event));
    state.inner.iter().filter_map(found).collect()
}

/// The application has changed what is in `set`: `asked` of the set `inner`, by the number `fd`;
/// or nothing any more.
pub(crate) fn nest(set: &SetRef, fd: c_int, inner: &SetRef, asked: Option<epoll_event>) {
    {
        let mut state = set.state.lock();
        state.inner.retain(|other| other.number != fd && other.place.strong_count() > 0);
        if let Some(event) = asked {
            state.inner.push(Inner { place: inner.place(), number: fd, event });
            set.has_inner.store(true, Ordering::Release);
        }
    }
    if asked.is_some() && set.is_seen() {
        note_wait(inner);
    }
}

/// As [`Set::silence`], also for the sets inside it.
pub(crate) fn silence(set: &Set) -> bool {
    silence_inner(set, MOST_LEVELS) | set.silence()
}

/// Silences the doorbells in the sets that are in `set`, where they ring for something that is gone
/// by now. True, and the kernel is to be asked again, if there were any.
pub(super) fn silence_inner(set: &Set, levels: u32) -> bool {
    let silence = |set: &SharedSet| (levels > 0 && silence_inner(set, levels - 1)) | set.silence();
    inner(set).iter().fold(false, |any, (set, _)| silence(set) | any)
}

/// Takes the events of sets inside `set` out in which a doorbell has rung for something that is gone
/// by now; returns how many events are left. One that the kernel tells once stays.
pub(super) fn keep_true(set: &Set, events: &mut [epoll_event]) -> usize {
    let count = events.len();
    if count == 0 || !silence_inner(set, MOST_LEVELS) {
        return count;
    }
    let is_void = |event: &epoll_event| {
        let told = event.events;
        let sets = inner(set);
        let mut of_event = sets.iter().filter(|(_, asked)| asked.u64 == event.u64).peekable();
        told & !READ == 0
            && of_event.peek().is_some()
            && of_event.all(|(inner, asked)| {
                let number = inner.number().map(Fd::new);
                let is_quiet = || number.is_some_and(|number| look::state(number, POLLIN) == 0);
                // A connection that goes back to TCP when it is armed rings once more.
                asked.events & TOLD_ONCE == 0 && (is_quiet() || silence(inner) && is_quiet())
            })
    };
    let mut kept = 0;
    for at in 0..count {
        if !is_void(&events[at]) {
            events[kept] = events[at];
            kept += 1;
        }
    }
    kept
}
