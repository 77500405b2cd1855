//! poll, ppoll and their checked variants.

use std::ffi::c_int;
use std::{ptr, slice};

use libc::{nfds_t, pollfd, sigset_t, size_t, timespec};

use seekwire_transport::sys::limit;

use super::interpose::interpose;
use crate::hazard::outside;
use crate::poll::{PollAnswer, wait};
use crate::timeout::{Timeout, timespec as as_timespec};
use crate::{cancel, pointers, real, table};

/// The application's list, if the library needs to look at it.
fn list<'a>(fds: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    let count = usize::try_from(count)
        .ok()
        .filter(|&count| 0 < count && count <= isize::MAX as usize / size_of::<pollfd>())?;
    // The kernel rejects more entries than the limit on descriptors, whether any is ready or not.
    // For short lists the check is not worth a call.
    if count > 16 && count as u64 > limit::descriptor_limit().0 {
        return None;
    }
    // The kernel copies the list, so it may be anywhere in accessible memory. The kernel rejects a
    // list that is not writable.
    if table::is_unused() || !pointers::can_write(fds, count) {
        return None;
    }
    // SAFETY: the memory is accessible; the application passes `count` entries, which nothing else
    // uses during the call.
    Some(unsafe { slice::from_raw_parts_mut(fds, count) })
}

/// A checked variant also passes the size of the list in bytes.
fn fits(count: nfds_t, size: size_t) -> bool {
    size / size_of::<pollfd>() >= count as usize
}

fn wait_milliseconds(list: &mut [pollfd], timeout: c_int, kernel: impl Fn() -> c_int) -> c_int {
    let left = Timeout::from_milliseconds(timeout);
    match cancel::point(|| wait(list, left, ptr::null(), false, kernel)) {
        PollAnswer::Kernel(result) | PollAnswer::Poll { result, .. } => result,
        PollAnswer::Left(mut left) => {
            let (fds, count) = (list.as_mut_ptr(), list.len() as nfds_t);
            // SAFETY: a live list.
            outside(|| unsafe { real::poll(fds, count, left.left_milliseconds()) })
        }
    }
}

fn wait_exactly(
    list: &mut [pollfd],
    timeout: *const timespec,
    mask: *const sigset_t,
    kernel: impl Fn() -> c_int,
) -> c_int {
    // SAFETY: valid or null, as ppoll demands.
    let left = match unsafe { timeout.as_ref() } {
        None => Some(Timeout::ENDLESS),
        Some(limit) => Timeout::from_parts(limit.tv_sec, limit.tv_nsec),
    };
    let Some(left) = left.filter(|_| pointers::is_mask(mask)) else { return kernel() };
    match cancel::point(|| wait(list, left, mask, false, kernel)) {
        PollAnswer::Kernel(result) | PollAnswer::Poll { result, .. } => result,
        PollAnswer::Left(mut left) => {
            let (fds, count) = (list.as_mut_ptr(), list.len() as nfds_t);
            let left = left.left().map(as_timespec);
            let left = left.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: a live list, a live timeout or none, and the application's own mask.
            outside(|| unsafe { real::ppoll(fds, count, left, mask) })
        }
    }
}

interpose! {
    /// poll(2)
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = list(fds, count) => |list, kernel| {
        wait_milliseconds(list, timeout, kernel)
    };
    /// ppoll(2)
    fn ppoll(
        fds: *mut pollfd,
        count: nfds_t,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int = list(fds, count) => |list, kernel| {
        wait_exactly(list, timeout, mask, kernel)
    };
    /// poll(2) in programs built with _FORTIFY_SOURCE
    fn __poll_chk(
        fds: *mut pollfd,
        count: nfds_t,
        timeout: c_int,
        size: size_t,
    ) -> c_int = list(fds, count).filter(|_| fits(count, size)) => |list, kernel| {
        wait_milliseconds(list, timeout, kernel)
    };
    /// ppoll(2) in programs built with _FORTIFY_SOURCE
    fn __ppoll_chk(
        fds: *mut pollfd,
        count: nfds_t,
        timeout: *const timespec,
        mask: *const sigset_t,
        size: size_t,
    ) -> c_int = list(fds, count).filter(|_| fits(count, size)) => |list, kernel| {
        wait_exactly(list, timeout, mask, kernel)
    };
}
