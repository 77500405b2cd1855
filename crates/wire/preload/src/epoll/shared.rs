//! Sets that a fork has left to several processes.
//!
//! The kernel tells of an event to whoever waits first, but each process keeps to itself what it
//! knows of the connections in a set. So one process has the set: the one that forked, until it
//! closes the set or ends; then the first one that uses it. When another one uses it beside, the
//! connections in it go back to TCP for good, of which the kernel alone tells.

use std::cell::Cell;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use libc::epoll_event;
use seekwire_endpoint::{Connection, Until};
use seekwire_transport::sys::fd::Placed;

use super::listed::{self, InKernel};
use super::owner::Owner;
use super::sharing::Note;
use super::tag::{self, Op, Subject, Tag};
use super::typed::Set;
use super::{left, registrations, seen};
use crate::ffi::{guarded, keeping_errno};
use crate::hold;
use crate::process;
use crate::registration::Registration;
use crate::table::{self, SetRef};

/// To be asked by whatever uses a set: whether connections in it may be on the ring.
pub(crate) fn is_alone(set: &SetRef, epfd: c_int) -> bool {
    if set.is_own() {
        return true;
    }
    // In a signal handler that has interrupted one who holds the locks.
    if hold::is_interrupted() {
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

/// What the one that had the set has left there is watched by this process from now on.
#[cold]
fn inherit(set: &SetRef, epfd: c_int) {
    let concerned = lay_bare(set, epfd, true);
    for socket in concerned.into_iter().filter_map(table::socket) {
        registrations::update(&socket);
    }
}

/// Takes every connection in the set back to TCP, and what the library has put there out of it.
#[cold]
fn leave_to_kernel(set: &SetRef, epfd: c_int) {
    {
        // A fork finds both true, or neither.
        let _state = set.state.lock();
        if set.is_left.swap(true, Ordering::AcqRel) {
            return;
        }
        set.is_leaving.store(true, Ordering::Release);
    }
    // For all connections of the set together: those that wait answer at once, the others are asked
    // all the same.
    let until = Until::after(Some(Connection::ANSWER_LIMIT));
    let concerned = lay_bare(set, epfd, false);
    if let Some(Some(sharing)) = set.sharing.get()
        && sharing.user().load(Ordering::SeqCst) == process::id()
    {
        sharing.is_noted().store(1, Ordering::SeqCst);
    }
    for socket in concerned.into_iter().filter_map(table::socket) {
        left::leave(set, &socket, until);
    }
    set.is_leaving.store(false, Ordering::Release);
}

/// Has the kernel's set as the application asked for it, as far as this process has the numbers;
/// the library's own is taken out. Returns numbers of the sockets that are in it, or were; their
/// registrations are true then. What was put there by a number that this process does not have is
/// told by one that it has, if the process `is_heir`.
fn lay_bare(set: &SetRef, epfd: c_int, is_heir: bool) -> Vec<c_int> {
    let noted = |tag| set.sharing.get()?.as_ref()?.noted(tag);
    let in_kernel: Vec<_> = listed::registrations(epfd)
        .into_iter()
        .map(|entry| (entry, Tag::decode(entry.event.u64)))
        .filter(|(_, tag)| tag.is_none_or(|tag| tag.subject == Subject::Socket))
        .map(|(entry, tag)| Place {
            entry,
            tag,
            note: tag.and_then(noted),
            is_found: Cell::new(false),
        })
        .collect();
    // Other processes may have put files of their own there by the same number.
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
        // Another process has put it there.
        if !is_known
            && let Some(place) = find(fd)
            && let Some(event) = place.lay_bare(epfd, None)
        {
            registrations.push(Registration::new(seen::place_for(set, fd), fd, event));
            is_concerned = true;
        }
        socket.note_registrations(&registrations);
        if is_concerned {
            concerned.push(fd);
        }
    }
    for place in in_kernel.iter().filter(|place| !place.is_found.get()) {
        if let Some(tag) = place.tag.filter(|_| is_heir) {
            set.state.lock().retire(tag);
        }
        let Some(note) = place.note.filter(|note| !note.parked) else { continue };
        let Some(socket) = table::numbers().find(|&fd| place.is_of(fd)).and_then(table::socket)
        else {
            continue;
        };
        let event = epoll_event { events: note.events, u64: note.data };
        let mut registrations = socket.registrations().lock();
        let place_of_set = seen::place_for(set, socket.number());
        let mut registration = Registration::new(place_of_set, place.entry.number, event);
        if is_heir {
            let Ok(stand_in) = Placed::duplicate(socket.connection.fd()) else { continue };
            let number = stand_in.fd().raw();
            let add = |(events, data)| tag::control(epfd, Op::Add, number, events, data);
            if note.in_kernel().and_then(add).is_err() {
                continue;
            }
            registration.stand_in = Some(stand_in);
            // What the kernel says of the other one, which nobody can take out, is not told.
            if let (Some(Some(sharing)), Some(tag)) = (set.sharing.get(), place.tag) {
                sharing.strike(tag.watch, tag.generation);
            }
        }
        registrations.push(registration);
        socket.note_registrations(&registrations);
        concerned.push(socket.number());
    }
    concerned
}

/// Takes the watch of a registration out; returns what this process knows of it.
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

/// What the kernel has in a set.
struct Place {
    entry: InKernel,
    tag: Option<Tag>,
    /// What the one that has put it there wrote down.
    note: Option<Note>,
    /// It is of a number of this process.
    is_found: Cell<bool>,
}

impl Place {
    fn is_of(&self, fd: c_int) -> bool {
        // SAFETY: a number of the application; one that is closed meanwhile gives EBADF, or another
        // inode.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::fs::fstat(fd).is_ok_and(|status| status.st_ino == self.entry.inode)
    }

    /// Has it there as the application asked for it, by what is written down or else by what this
    /// process knows (`own`). `None` if it is not there for the application, or is of a socket that
    /// this process does not have.
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
