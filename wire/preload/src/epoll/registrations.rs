//! The sets that contain a socket, and the library's updates to them.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use libc::epoll_event;
use seekwire_endpoint::{Reason, Until};
use seekwire_transport::Errno;
use seekwire_transport::sys::fd::PrivateFd;

use super::fdinfo;
use super::tag::{self, Op};
use super::typed::Set;
use super::watch::Fired;
use crate::fallback::serve_peers;
use crate::fd_numbers::Last;
use crate::log;
use crate::process;
use crate::registration::{PlaceOfSet, Registration};
use crate::socket::Socket;
use crate::table::{self, SetRef, SharedSet, SocketRef};

/// In place of a number: that of a socket whose number has changed.
const ANY: c_int = -1;

/// Updates all sets that contain `socket` after a change of the connection.
pub(crate) fn update(socket: &SocketRef) {
    let shown = show(socket, &mut socket.registrations().lock());
    keep_or_leave(socket, shown);
}

/// A connection that a set cannot watch leaves the ring, and the kernel gets its unread bytes.
pub(super) fn keep_or_leave(socket: &SocketRef, shown: Result<(), Errno>) {
    if let Err(error) = shown {
        log::warn!(%error, "cannot watch a connection in an epoll set; it goes back to TCP");
        let connection = &socket.connection;
        let until = Until::after(Some(connection.answer_limit()));
        let _ = connection.hand_over(Reason::UnknownOption, until, serve_peers);
    }
}

/// Notes a change of a socket's registrations. Call it under their lock.
pub(super) fn note(socket: &Socket, registrations: &[Registration]) {
    // A closed set keeps no connection from the ring.
    let is_live = |registration: &Registration| {
        SharedSet::find(&registration.set).is_some_and(|set| set.number().is_some())
    };
    socket.note_registrations(registrations, is_live);
}

pub(super) fn show(socket: &SocketRef, registrations: &mut Vec<Registration>) -> Result<(), Errno> {
    let shown = socket.to_show();
    registrations.retain(|registration| registration.set.strong_count() > 0);
    let mut result = Ok(());
    for index in 0..registrations.len() {
        let registration = &registrations[index];
        let Some(set) = SharedSet::find(&registration.set) else { continue };
        let Some(epfd) = set.number() else { continue };
        if set.is_left.load(Ordering::Acquire) {
            // The connections of such a set go back to TCP anyway.
            continue;
        }
        if !set.is_own() {
            result = Err(Errno::BUSY);
            continue;
        }
        if !registration.is_seen {
            // The library has put nothing into it yet: see [`seen`].
            continue;
        }
        let mut state = set.state.lock();
        if let Some(watch) = registration.watch {
            state.refresh(watch, epfd);
        } else if registration.parked.is_none() && !registration.is_bare {
            let sibling = registrations
                .iter()
                .filter(|other| other.set.ptr_eq(&registration.set))
                .find_map(|other| other.watch);
            match state.install(epfd, socket.share(), registration, sibling) {
                Ok(watch) => registrations[index].watch = Some(watch),
                Err(error) => result = Err(error),
            }
        }
        if set.has_sleepers(&state) {
            state.arm_for_sleepers(epfd);
        }
    }
    note(socket, registrations);
    socket.set_shown(shown);
    result
}

/// Called after a send that found no room: watches that were armed without it are armed anew. Not
/// by the doorbell: another waiter could silence that before the set looks.
pub(crate) fn want_room(socket: &SocketRef) {
    for registration in socket.registrations().lock().iter() {
        if let Some(watch) = registration.watch
            && let Some(set) = SharedSet::find(&registration.set).filter(|set| set.is_own())
            && let Some(epfd) = set.number()
        {
            let mut state = set.state.lock();
            state.want_room(watch);
            if set.has_sleepers(&state) {
                state.arm_for_sleepers(epfd);
            }
        }
    }
}

/// The changes to the kernel's set that are allowed when a registration ends.
#[derive(Copy, Clone, Eq, PartialEq)]
enum Reach {
    /// None: another process owns the set, and needs it unchanged.
    Nothing,
    /// Only the doorbell: the socket's number is gone, and may already stand for another file.
    Doorbell,
    All,
}

/// Removes a watch. Its registration continues in the kernel's set as the application asked.
fn give_back(set: &Set, registration: &Registration, index: u32, reach: Reach, fired: Fired) {
    let epfd = set.number().filter(|_| reach != Reach::Nothing);
    let mut state = set.state.lock();
    if let Some(epfd) = epfd.filter(|_| reach == Reach::All)
        && let Some(watch) = state.at(index)
    {
        watch.give_back(epfd, registration, fired);
    }
    state.remove(index, epfd);
}

/// Finally removes a registration that the application has taken out before, because another
/// process might put it back.
fn drop_parked(set: &Set, registration: &Registration, watch: u32, reach: Reach) {
    let epfd = set.number().filter(|_| reach != Reach::Nothing);
    let mut state = set.state.lock();
    if state.is_parked(watch, registration.fd) {
        match epfd {
            Some(epfd) if reach == Reach::All => state.evict(watch, epfd),
            epfd => state.remove(watch, epfd),
        }
    }
}

/// Called when the number `fd` of `socket` is about to be closed; `None` means all numbers.
///
/// The kernel drops registrations only with the last reference to the socket in any process. If
/// other numbers of this process still stand for the socket, a registration that stays continues
/// under a number of the library's own, because the kernel does not change one whose number is
/// closed. Other registrations get the application's data back.
pub(crate) fn forget(socket: &Socket, fd: Option<c_int>, last: Last) {
    let mut registrations = socket.registrations().lock();
    registrations.retain_mut(|registration| {
        if fd.is_some_and(|fd| fd != registration.fd) {
            return true;
        }
        let Some(set) = SharedSet::find(&registration.set) else { return false };
        let own = set.is_own();
        let reach = match (own, last) {
            (false, _) => Reach::Nothing,
            (true, Last::Gone) if registration.stand_in.is_none() => Reach::Doorbell,
            (true, _) => Reach::All,
        };
        if !own {
            set.state.lock().drop_left(registration.number());
        }
        if let Some(watch) = registration.parked {
            drop_parked(&set, registration, watch, reach);
        }
        let lives_on =
            fd.is_some() && last == Last::Closing && own && registration.parked.is_none();
        // Another process keeps it in the set. From now on only the kernel reports its events
        // there.
        let goes_on_elsewhere =
            || own && last != Last::Gone && !socket.connection.ends_with_this_process();
        let Some(watch) = registration.watch else {
            if lives_on && !registration.is_seen && replace(socket, &set, registration) {
                return true;
            }
            if lives_on {
                // Only the kernel reports it from now on.
                let _ = socket.connection.fall_back(Reason::UnknownOption);
            } else if !registration.is_seen
                && socket.connection.is_attached()
                && goes_on_elsewhere()
            {
                let _ = socket.connection.fall_back(Reason::Bypassed);
            }
            return false;
        };
        if lives_on && registration.stand_in.is_some() {
            // Another number already stood for the socket.
            return true;
        }
        if lives_on
            && let Some(epfd) = set.number()
            && let Ok(stand_in) = PrivateFd::duplicate(socket.connection.fd())
            && set.state.lock().replace(watch, epfd, stand_in.fd().raw()).is_ok()
        {
            registration.stand_in = Some(stand_in);
            return true;
        }
        let goes_on = goes_on_elsewhere();
        let fired = match last {
            _ if process::retreats() => Fired::Bare,
            Last::Closing | Last::Gone if !goes_on && !lives_on => Fired::Gone,
            _ => Fired::Kept,
        };
        give_back(&set, registration, watch, reach, fired);
        if goes_on {
            let _ = socket.connection.fall_back(Reason::Bypassed);
        }
        false
    });
    note(socket, &registrations);
}

/// Called when another program is about to get the sets that contain `socket`: restores the
/// kernel's sets as the application asked, until [`cover`]. Sets of other processes stay unchanged.
pub(crate) fn lay_bare(socket: &Socket) {
    let mut registrations = socket.registrations().lock();
    registrations.retain_mut(|registration| {
        let Some(set) = SharedSet::find(&registration.set) else { return false };
        if !set.is_own() {
            return true;
        }
        if let Some(watch) = registration.parked {
            drop_parked(&set, registration, watch, Reach::All);
            return false;
        }
        if let Some(watch) = registration.watch.take() {
            give_back(&set, registration, watch, Reach::All, Fired::Bare);
        }
        // Even if it is not watched yet, because another thread may bring its connection to the
        // ring.
        registration.is_bare = true;
        true
    });
    note(socket, &registrations);
}

/// Called when no other program has come: watches the connection of `socket` in its sets again, if
/// that is useful.
pub(crate) fn cover(socket: &SocketRef) {
    let mut registrations = socket.registrations().lock();
    let mut was_bare = false;
    for registration in registrations.iter_mut() {
        was_bare |= std::mem::take(&mut registration.is_bare);
    }
    if was_bare && socket.to_show() != 0 {
        let shown = show(socket, &mut registrations);
        drop(registrations);
        keep_or_leave(socket, shown);
    }
}

/// The reference to `set` for a registration of the socket `fd`, and whether a wait on the set was
/// seen. Call it under the lock of the socket's registrations.
pub(super) fn place_for(set: &SetRef, fd: c_int) -> (PlaceOfSet, bool) {
    let is_seen = set.is_seen() || {
        let mut state = set.state.lock();
        // This lock decides which of the two learns about the other.
        let is_seen = set.is_seen();
        if !is_seen {
            state.early.insert(fd);
        }
        is_seen
    };
    (set.place(), is_seen)
}

/// Called when the number of a registration is about to be closed while other numbers stand for the
/// socket, in a set on which no wait was seen: another number replaces it in the kernel's set.
/// Returns false if that is impossible, as with a one-shot registration that has fired: the kernel
/// would report an end afterwards.
pub(super) fn replace(socket: &Socket, set: &Set, registration: &mut Registration) -> bool {
    if registration.stand_in.is_some() {
        return true;
    }
    let Some(epfd) = set.number() else { return false };
    if fdinfo::fired(epfd, registration).is_some() {
        return false;
    }
    let Ok(stand_in) = PrivateFd::duplicate(socket.connection.fd()) else { return false };
    let (events, data) = (registration.events, registration.data);
    if tag::control(epfd, Op::Add, stand_in.fd().raw(), events, data).is_err() {
        return false;
    }
    let _ = tag::control(epfd, Op::Delete, registration.fd, 0, 0);
    registration.stand_in = Some(stand_in);
    set.state.lock().early.insert(ANY);
    true
}

/// Registers `socket`, which is in `set` under the number `fd`, because it was added before it was
/// tracked.
fn register_found(set: &SetRef, socket: &SocketRef, fd: c_int, event: epoll_event) {
    let mut registrations = socket.registrations().lock();
    if registrations.iter().any(|registration| registration.fd == fd && set.is(&registration.set)) {
        return;
    }
    let (place_of_set, is_seen) = place_for(set, fd);
    registrations.push(Registration::new(place_of_set, is_seen, fd, event));
    note(socket, &registrations);
}

/// Tells the epoll sets which of these sockets they contain, by number. Untracked sets cannot learn
/// it: a thread may be sleeping on one in the kernel.
pub(crate) fn find(wanted: impl Fn(c_int) -> Option<SocketRef>) {
    for (epfd, object) in table::entries() {
        drop(object);
        let Some(set) = table::set(epfd) else { continue };
        for entry in fdinfo::registrations(epfd) {
            if let Some(socket) = wanted(entry.number) {
                register_found(&set, &socket, entry.number, entry.event);
            }
        }
    }
}
