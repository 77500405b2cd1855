//! Asks the kernel for the events of a set, without sleeping.

use std::ffi::c_int;

use seekwire_transport::Errno;
use seekwire_transport::sys::{Fd, call, poll as kernel};

use super::events::Events;

/// epoll_wait that neither sleeps nor is a cancellation point.
pub(super) fn ask_kernel(epfd: c_int, events: &mut Events, room: usize) -> Result<usize, Errno> {
    let mask = std::ptr::null::<libc::sigset_t>();
    // SAFETY: `events` has at least `room` places, by the contract of `Events`; a null mask is
    // allowed.
    unsafe {
        let room = room.min(events.room()).min(c_int::MAX as usize);
        let place = events.tail().expose_provenance();
        call(libc::SYS_epoll_pwait, [epfd as usize, place, room, 0, mask.expose_provenance(), 8])
    }
}

/// True if the kernel's ready list is not empty. Leaves the list unchanged.
pub(super) fn has_events(epfd: c_int) -> bool {
    let read = kernel::Events { read: true, ..kernel::Events::default() };
    kernel::look(Fd::new(epfd), read).is_ok_and(|events| events.read || events.dead)
}

/// True if the events just reported should move behind others in the kernel's list, after a wait
/// that had no room left. A wait with room for a single event finds the others at its next query,
/// which saves a system call for programs with a single connection.
pub(super) fn has_more(epfd: c_int, reported: &Events) -> bool {
    reported.len() > 1 && has_events(epfd)
}
