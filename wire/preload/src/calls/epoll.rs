//! epoll_create, epoll_create1, epoll_ctl, epoll_wait, epoll_pwait and epoll_pwait2.

use std::ffi::c_int;
use std::ptr;

use libc::{epoll_event, sigset_t, timespec as Timespec};
use seekwire_endpoint::Reason;
use seekwire_transport::Errno;
use seekwire_transport::sys::signal::HeldBack;

use super::interpose::interpose;
use crate::buffers::is_possible;
use crate::epoll::{self, Change, wait};
use crate::fallback::to_tcp;
use crate::ffi::{fail, guarded};
use crate::hazard::outside;
use crate::signals::while_asleep;
use crate::table::{self, SetRef, SocketRef, TableEntry};
use crate::timeout::{Timeout, timespec};
use crate::{cancel, deferred, log, pointers, real, relay, start, track};

fn created(epfd: c_int) -> c_int {
    if epfd >= 0 && start::is_tracking() {
        guarded(|| track::track_set(epfd));
    }
    epfd
}

/// Like [`wait`], but limited to the accessible part of the list. Fails in a signal handler that has
/// interrupted a thread with locks of the library, as epoll_ctl does: one may be that of the set.
fn wait_into(
    set: &SetRef,
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    mut left: Timeout,
    sleep: impl Fn(&mut Timeout, Option<&HeldBack>) -> c_int,
) -> c_int {
    let Some(wanted) =
        usize::try_from(max).ok().map(|max| max.saturating_mul(size_of::<epoll_event>()))
    else {
        return sleep(&mut left, None);
    };
    // linux/eventpoll.c, EP_MAX_EVENTS: the kernel's maximum.
    if wanted == 0 || wanted > c_int::MAX as usize || !is_possible(events.cast(), wanted) {
        return sleep(&mut left, None);
    }
    if deferred::is_interrupted() {
        return fail(Errno::AGAIN);
    }
    let room = pointers::writable(events.cast(), wanted) / size_of::<epoll_event>();
    if room > 0 {
        return cancel::point(|| wait(set, epfd, events, room as c_int, left, sleep));
    }
    // The kernel notices the bad pointer when it has an event to report.
    let mut event = epoll_event { events: 0, u64: 0 };
    match cancel::point(|| wait(set, epfd, &raw mut event, 1, left, sleep)) {
        1.. => fail(Errno::FAULT),
        result => result,
    }
}

/// Makes a kernel call, which may be exactly the one that the application asked for.
fn own_if(is_own: bool, call: impl FnOnce() -> c_int) -> c_int {
    if is_own { outside(call) } else { call() }
}

/// A set that came from elsewhere now contains the socket: events of the ring cannot be delivered
/// there.
fn joins_from_elsewhere(socket: &SocketRef, fd: c_int) -> Result<(), Errno> {
    if socket.connection.is_seeking() {
        log::warn!(
            fd,
            "a seeking socket cannot be added to an epoll set that this program did not make"
        );
        return Err(Errno::PERM);
    }
    if relay::has_found(socket) {
        log::warn!(
            fd,
            "this socket was inherited with unread bytes; receive them before adding it to this epoll set"
        );
        return Err(Errno::PERM);
    }
    if socket.is_listening() { Ok(()) } else { to_tcp(socket, Reason::Bypassed).map(drop) }
}

/// Lets the sets watch a spill that this program found when it began, because the kernel does not
/// know about it.
fn watch_found_spill(entry: &TableEntry) -> Result<(), Errno> {
    match entry {
        TableEntry::Socket(socket) if relay::has_found(socket) => socket.connection.watch_spill(),
        _ => Ok(()),
    }
}

interpose! {
    /// epoll_create(2)
    fn epoll_create(size: c_int) -> c_int = Some(()) => |_any, kernel| created(kernel());
    /// epoll_create1(2)
    fn epoll_create1(flags: c_int) -> c_int = Some(()) => |_any, kernel| created(kernel());
    /// epoll_ctl(2)
    fn epoll_ctl(
        epfd: c_int,
        op: c_int,
        fd: c_int,
        event: *mut epoll_event,
    ) -> c_int = table::lookup(fd).filter(|_| op == libc::EPOLL_CTL_DEL || pointers::can_read(event, 1)) => |entry, kernel| {
        if op == libc::EPOLL_CTL_ADD
            && let Err(error) = watch_found_spill(&entry)
        {
            return fail(error);
        }
        let outer = table::set(epfd);
        if outer.is_some() && deferred::is_interrupted() {
            return fail(Errno::AGAIN);
        }
        match (entry, outer) {
            (TableEntry::Socket(socket), Some(set)) => {
                // SAFETY: it can be read, unless something is taken out.
                let change = unsafe { Change::new(&set, epfd, op, &socket, fd, event) };
                if epoll::is_alone(&set, epfd) { epoll::control(&change, kernel) } else { epoll::control_left(&change, kernel) }
            }
            (TableEntry::Socket(socket), None) => {
                let result = kernel();
                if result == 0 && op == libc::EPOLL_CTL_ADD
                    && let Err(error) = joins_from_elsewhere(&socket, fd)
                {
                    let nothing = ptr::null_mut();
                    // SAFETY: the caller's own numbers.
                    unsafe { real::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, nothing) };
                    return fail(error);
                }
                result
            }
            (TableEntry::Uring(_), _) => kernel(),
            (TableEntry::Set(inner), outer) => {
                if op == libc::EPOLL_CTL_ADD {
                    guarded(|| inner.set_watched());
                }
                let result = kernel();
                if result == 0 && let Some(outer) = outer {
                    // SAFETY: it can be read, unless something is taken out.
                    let asked = (op != libc::EPOLL_CTL_DEL).then(|| unsafe { event.read_unaligned() });
                    guarded(|| epoll::nest(&outer, fd, &inner, asked));
                }
                result
            }
        }
    };
    /// epoll_wait(2)
    fn epoll_wait(
        epfd: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: c_int,
    ) -> c_int = table::set(epfd) => |set, _kernel| {
        wait_into(&set, epfd, events, max, Timeout::from_milliseconds(timeout), |left, signals| {
            let left = left.left_milliseconds();
            if signals.is_none() {
                // SAFETY: the caller's own arguments.
                return outside(|| unsafe { real::epoll_wait(epfd, events, max, left) });
            }
            let mask = while_asleep(signals, ptr::null());
            // SAFETY: the caller's own arguments, and a live mask.
            unsafe { real::epoll_pwait(epfd, events, max, left, mask) }
        })
    };
    /// epoll_pwait(2)
    fn epoll_pwait(
        epfd: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: c_int,
        mask: *const sigset_t,
    ) -> c_int = table::set(epfd).filter(|_| pointers::is_mask(mask)) => |set, _kernel| {
        wait_into(&set, epfd, events, max, Timeout::from_milliseconds(timeout), |left, signals| {
            let (mask, left) = (while_asleep(signals, mask), left.left_milliseconds());
            // SAFETY: the caller's own arguments, or a live mask.
            own_if(signals.is_none(), || unsafe { real::epoll_pwait(epfd, events, max, left, mask) })
        })
    };
    /// epoll_pwait2(2)
    fn epoll_pwait2(
        epfd: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: *const Timespec,
        mask: *const sigset_t,
    ) -> c_int = table::set(epfd).filter(|_| pointers::is_mask(mask)) => |set, kernel| {
        if !timeout.is_null() && !pointers::can_read(timeout, 1) {
            return kernel();
        }
        // SAFETY: null, or can be read.
        let left = match unsafe { timeout.as_ref() } {
            None => Some(Timeout::ENDLESS),
            Some(limit) => Timeout::from_parts(limit.tv_sec, limit.tv_nsec),
        };
        let Some(left) = left else { return kernel() };
        wait_into(&set, epfd, events, max, left, |left, signals| {
            let mask = while_asleep(signals, mask);
            let left = left.left().map(timespec);
            let left = left.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: the caller's own arguments, and a live timeout.
            own_if(signals.is_none(), || unsafe { real::epoll_pwait2(epfd, events, max, left, mask) })
        })
    };
}
