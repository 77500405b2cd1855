//! Sets that several processes have after a fork.
//!
//! The kernel reports an event to the first waiter, but each process keeps its own state of the
//! connections in a set. So one process owns the set: first the one that forked, until it closes
//! the set or ends; then the first one that uses it. If another process uses it at the same time,
//! its connections go back to TCP for good, and only the kernel reports their events.

use std::cell::Cell;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use libc::epoll_event;
use seekwire_endpoint::{Connection, Until};
use seekwire_transport::sys::fd::PrivateFd;

use super::fdinfo::{self, InKernel};
use super::owner::Owner;
use super::set_records::Note;
use super::tag::{self, Op, Subject, Tag};
use super::typed::Set;
use super::{kernel_sets, registrations};
use crate::deferred;
use crate::ffi::{guarded, keeping_errno};
use crate::process;
use crate::registration::Registration;
use crate::table::{self, SetRef};

/// Every user of a set has to call this: returns whether connections in it may be on the ring.
pub(crate) fn is_alone(set: &SetRef, epfd: c_int) -> bool {
    if set.is_own() {
        return true;
    }
    // In a signal handler that has interrupted a thread with locks.
    if deferred::is_interrupted() {
        return false;
    }
    keeping_errno(|| {
        match guarded(|| set.claim(epfd)).unwrap_or(Owner::Kernel) {
            Owner::Own => return true,
            Owner::Inherited => return guarded(|| inherit(set, epfd)).is_some(),
            Owner::Kernel => {}
        }
        guarded(|| leave_to_kernel(set, epfd));
        false
    })
}

/// From now on this process watches the connections that the previous owner has left in the set.
#[cold]
fn inherit(set: &SetRef, epfd: c_int) {
    let concerned = lay_bare(set, epfd, true);
    for socket in concerned.into_iter().filter_map(table::socket) {
        registrations::update(&socket);
    }
}

/// Takes every connection in the set back to TCP, and removes the library's registrations.
#[cold]
fn leave_to_kernel(set: &SetRef, epfd: c_int) {
    {
        // A fork finds both flags set, or neither.
        let _state = set.state.lock();
        if set.is_left.swap(true, Ordering::AcqRel) {
            return;
        }
        set.is_leaving.store(true, Ordering::Release);
    }
    // One limit for all connections of the set together: peers that are waiting answer at once, and
    // the others are asked all the same.
    let until = Until::after(Some(Connection::ANSWER_LIMIT));
    let concerned = lay_bare(set, epfd, false);
    if let Some(Some(sharing)) = set.sharing.get()
        && sharing.user().load(Ordering::SeqCst) == process::id()
    {
        sharing.is_noted().store(1, Ordering::SeqCst);
    }
    for socket in concerned.into_iter().filter_map(table::socket) {
        kernel_sets::leave(set, &socket, until);
    }
    set.is_leaving.store(false, Ordering::Release);
}

/// Restores the kernel's set as the application asked, for numbers that this process has, and
/// removes the library's registrations. Returns numbers of the sockets that are or were in it;
/// their registrations are correct afterwards. If the process `is_successor`, a registration with a
/// number that it does not have is replaced by one with a number that it has.
fn lay_bare(set: &SetRef, epfd: c_int, is_successor: bool) -> Vec<c_int> {
    let noted = |tag| set.sharing.get()?.as_ref()?.noted(tag);
    let in_kernel: Vec<_> = fdinfo::registrations(epfd)
        .into_iter()
        .map(|entry| (entry, Tag::decode(entry.event.u64)))
        .filter(|(_, tag)| tag.is_none_or(|tag| tag.subject == Subject::Socket))
        .map(|(entry, tag)| KernelRegistration {
            entry,
            tag,
            note: tag.and_then(noted),
            is_found: Cell::new(false),
        })
        .collect();
    // Other processes may have added files of their own with the same number.
    let find = |fd| in_kernel.iter().find(|place| place.entry.number == fd && place.is_of(fd));
    let mut concerned = Vec::new();
    for fd in table::numbers() {
        let Some(socket) = table::socket(fd).filter(|socket| !socket.is_listening()) else {
            continue;
        };
        let mut registrations = socket.registrations().lock();
        let (mut is_concerned, mut is_known) = (false, false);
        registrations.retain_mut(|registration| {
            if !set.is(&registration.set) {
                return true;
            }
            is_concerned = true;
            let own = take_out(set, epfd, registration);
            let event =
                find(registration.number()).and_then(|place| place.lay_bare(epfd, Some(own)));
            if let Some(event) = event {
                (registration.events, registration.data) = (event.events, event.u64);
                is_known |= registration.fd == fd;
            }
            event.is_some()
        });
        // Another process has added it.
        if !is_known
            && let Some(place) = find(fd)
            && let Some(event) = place.lay_bare(epfd, None)
        {
            let (place_of_set, is_seen) = registrations::place_for(set, fd);
            registrations.push(Registration::new(place_of_set, is_seen, fd, event));
            is_concerned = true;
        }
        registrations::note(&socket, &registrations);
        if is_concerned {
            concerned.push(fd);
        }
    }
    for place in in_kernel.iter().filter(|place| !place.is_found.get()) {
        if let Some(tag) = place.tag.filter(|_| is_successor) {
            set.state.lock().retire(tag);
        }
        let Some(note) = place.note.filter(|note| !note.parked) else { continue };
        let Some(socket) = table::numbers().find(|&fd| place.is_of(fd)).and_then(table::socket)
        else {
            continue;
        };
        let event = epoll_event { events: note.events, u64: note.data };
        let mut registrations = socket.registrations().lock();
        let (place_of_set, is_seen) = registrations::place_for(set, socket.number());
        let mut registration = Registration::new(place_of_set, is_seen, place.entry.number, event);
        if is_successor {
            let Ok(stand_in) = PrivateFd::duplicate(socket.connection.fd()) else { continue };
            let number = stand_in.fd().raw();
            let add = |(events, data)| tag::control(epfd, Op::Add, number, events, data);
            if note.in_kernel().and_then(add).is_err() {
                continue;
            }
            registration.stand_in = Some(stand_in);
            // Events of the old registration, which this process cannot remove, are not reported.
            if let (Some(Some(sharing)), Some(tag)) = (set.sharing.get(), place.tag) {
                sharing.strike(tag.watch, tag.generation);
            }
        }
        registrations.push(registration);
        registrations::note(&socket, &registrations);
        concerned.push(socket.number());
    }
    concerned
}

/// Removes the watch of a registration; returns this process's knowledge about it.
fn take_out(set: &Set, epfd: c_int, registration: &mut Registration) -> Note {
    let mut state = set.state.lock();
    let parked = registration.parked.take();
    let is_parked = parked.is_some();
    let parked = parked.filter(|&watch| state.is_parked(watch, registration.fd));
    let watch = registration.watch.take().or(parked);
    let note = watch.and_then(|watch| state.at(watch)).map(|watch| watch.note());
    if let Some(watch) = watch {
        state.remove(watch, Some(epfd));
    }
    let (events, data) = (registration.events, registration.data);
    note.unwrap_or(Note { events, data, generation: 0, parked: is_parked, fired: false })
}

/// A registration in the kernel's set.
struct KernelRegistration {
    entry: InKernel,
    tag: Option<Tag>,
    /// The note of the process that has added it.
    note: Option<Note>,
    /// True if it belongs to a number of this process.
    is_found: Cell<bool>,
}

impl KernelRegistration {
    fn is_of(&self, fd: c_int) -> bool {
        // SAFETY: a number of the application; one that is closed in the meantime gives EBADF, or
        // another inode.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::fs::fstat(fd).is_ok_and(|status| status.st_ino == self.entry.inode)
    }

    /// Restores it as the application asked, according to the note or else to this process's
    /// knowledge (`own`). `None` if the application has removed it, or this process does not have
    /// its socket.
    fn lay_bare(&self, epfd: c_int, own: Option<Note>) -> Option<epoll_event> {
        self.is_found.set(true);
        if self.tag.is_none() {
            return Some(self.entry.event);
        }
        let is_fired = self.tag == Some(Tag::FIRED);
        let Some(mut note) = self.note.or(own) else {
            return is_fired.then_some(self.entry.event);
        };
        note.fired |= is_fired;
        let number = self.entry.number;
        if note.parked {
            let _ = tag::control(epfd, Op::Delete, number, 0, 0);
            return None;
        }
        let (events, data) = note.in_kernel().ok()?;
        tag::control(epfd, Op::Modify, number, events, data).ok()?;
        Some(epoll_event { events: note.events, u64: note.data })
    }
}
