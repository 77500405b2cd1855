//! poll(2) without sleeping, for the library's own questions.

use std::ffi::c_short;
use std::ptr;

use libc::{pollfd, sigset_t};
use seekwire_transport::Errno;
use seekwire_transport::sys::{Fd, call};

use crate::ffi::{errno, keeping_errno, set_errno};

/// The kernel's state of a socket, in events that poll and epoll have in common.
pub(crate) fn state(fd: Fd, events: c_short) -> u32 {
    let mut asked = [pollfd { fd: fd.raw(), events, revents: 0 }];
    if keeping_errno(|| look(&mut asked)) { asked[0].revents as u32 } else { 0 }
}

/// poll that neither sleeps nor is a cancellation point. Returns false if the kernel returned an
/// error, with errno set.
pub(crate) fn look(asked: &mut [pollfd]) -> bool {
    let before = errno();
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mask = ptr::null::<sigset_t>();
    // SAFETY: the list and the time are live; a null mask is allowed.
    let result = unsafe {
        let [list, none, mask] = [
            asked.as_mut_ptr().expose_provenance(),
            (&raw const none).expose_provenance(),
            mask.expose_provenance(),
        ];
        call(libc::SYS_ppoll, [list, asked.len(), none, mask, 8, 0])
    };
    set_errno(result.map_or_else(Errno::raw_os_error, |_| before));
    result.is_ok()
}
