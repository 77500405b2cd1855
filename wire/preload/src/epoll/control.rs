//! epoll_ctl on a tracked socket.

use std::ffi::c_int;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use seekwire_endpoint::readiness::EXCLUSIVE;
use seekwire_transport::Errno;

use super::registrations::{self, keep_or_leave, show};
use super::tag::{self, Op};
use crate::ffi::{fail, status};
use crate::lock::Guard;
use crate::registration::Registration;
use crate::table::{SetRef, SocketRef};

/// The application's request to a set.
pub(crate) struct Change<'a> {
    pub(super) set: &'a SetRef,
    pub(super) epfd: c_int,
    /// EPOLL_CTL_ADD and so on.
    pub(super) op: c_int,
    pub(super) socket: &'a SocketRef,
    /// The number that the application uses for the socket.
    pub(super) fd: c_int,
    /// The events and the data, or `None` for a removal.
    pub(super) asked: Option<epoll_event>,
}

impl<'a> Change<'a> {
    /// `op` on `socket`, with the number `fd`.
    ///
    /// # Safety
    ///
    /// `event` must be null or valid, but for EPOLL_CTL_DEL.
    pub(crate) unsafe fn new(
        set: &'a SetRef,
        epfd: c_int,
        op: c_int,
        socket: &'a SocketRef,
        fd: c_int,
        event: *const epoll_event,
    ) -> Change<'a> {
        // SAFETY: as the caller promises; where it need not be valid, it is not read.
        let asked = (op != EPOLL_CTL_DEL).then(|| unsafe { event.as_ref() }.copied()).flatten();
        Change { set, epfd, op, socket, fd, asked }
    }

    /// True if the request is about `registration`.
    pub(super) fn means(&self, registration: &Registration) -> bool {
        registration.fd == self.fd && self.set.is(&registration.set)
    }

    /// The socket enters the set, or enters it again.
    pub(super) fn register(&self, registrations: &mut Vec<Registration>, asked: epoll_event) {
        let (set, is_seen) = registrations::place_for(self.set, self.fd);
        registrations.push(Registration::new(set, is_seen, self.fd, asked));
        registrations::note(self.socket, registrations);
    }
}

/// Changes a set of this process. `kernel` makes the application's own call.
pub(crate) fn control(change: &Change<'_>, kernel: impl Fn() -> c_int) -> c_int {
    if change.op == EPOLL_CTL_MOD && change.asked.is_some_and(is_exclusive) {
        return fail(Errno::INVAL);
    }
    let mut registrations = change.socket.registrations().lock();
    let mut position = registrations.iter().position(|registration| change.means(registration));
    // To the application, a parked socket is not in the set.
    if let Some(at) = position
        && let Some(watch) = registrations[at].parked
    {
        match change.op {
            EPOLL_CTL_ADD => {
                if let Some(result) = unpark(change, &mut registrations[at], watch) {
                    return result;
                }
                registrations.swap_remove(at);
                position = None;
            }
            _ => return fail(Errno::NOENT),
        }
    }
    match (change.op, change.asked, position) {
        (EPOLL_CTL_ADD, Some(asked), None) => add(change, registrations, asked, kernel),
        (EPOLL_CTL_ADD, _, Some(at)) if registrations[at].stand_in.is_some() => fail(Errno::EXIST),
        (EPOLL_CTL_MOD, Some(asked), Some(at)) => {
            modify(change, &mut registrations[at], asked, kernel)
        }
        (EPOLL_CTL_DEL, _, Some(at)) => delete(change, &mut registrations, at, kernel),
        _ => kernel(),
    }
}

/// Puts a parked socket back. `None`: it has left the set for good, and has to be added like any
/// other.
fn unpark(change: &Change<'_>, registration: &mut Registration, watch: u32) -> Option<c_int> {
    let mut state = change.set.state.lock();
    let asked = change.asked.filter(|&asked| !is_exclusive(asked));
    let Some(asked) = asked.filter(|_| state.is_parked(watch, change.fd)) else {
        state.unpark(watch, change.fd, change.epfd);
        return None;
    };
    if let Err(error) = state.change(watch, change.epfd, asked.events, asked.u64) {
        return Some(fail(error));
    }
    (registration.events, registration.data) = (asked.events, asked.u64);
    (registration.watch, registration.parked) = (Some(watch), None);
    if change.set.has_sleepers(&state) {
        state.arm_for_sleepers(change.epfd);
    }
    Some(0)
}

/// EPOLL_CTL_ADD of a socket that is not in the set.
fn add(
    change: &Change<'_>,
    mut registrations: Guard<'_, Vec<Registration>>,
    asked: epoll_event,
    kernel: impl Fn() -> c_int,
) -> c_int {
    let result = kernel();
    if result == 0 {
        change.register(&mut registrations, asked);
        if change.socket.to_show() != 0 {
            let shown = show(change.socket, &mut registrations);
            drop(registrations);
            keep_or_leave(change.socket, shown);
        }
    }
    result
}

/// EPOLL_CTL_MOD: changes the watch, or without one the kernel's registration.
fn modify(
    change: &Change<'_>,
    registration: &mut Registration,
    asked: epoll_event,
    kernel: impl Fn() -> c_int,
) -> c_int {
    if registration.events & EXCLUSIVE != 0 {
        return fail(Errno::INVAL);
    }
    let Some(watch) = registration.watch else {
        let result = match registration.stand_in_number() {
            Some(number) => {
                status(tag::control(change.epfd, Op::Modify, number, asked.events, asked.u64))
            }
            None => kernel(),
        };
        if result == 0 {
            (registration.events, registration.data) = (asked.events, asked.u64);
        }
        return result;
    };
    let mut state = change.set.state.lock();
    if let Err(error) = state.change(watch, change.epfd, asked.events, asked.u64) {
        return fail(error);
    }
    (registration.events, registration.data) = (asked.events, asked.u64);
    if change.set.has_sleepers(&state) {
        state.arm_for_sleepers(change.epfd);
    }
    0
}

/// EPOLL_CTL_DEL: parks the socket if the kernel need not know.
fn delete(
    change: &Change<'_>,
    registrations: &mut Vec<Registration>,
    at: usize,
    kernel: impl Fn() -> c_int,
) -> c_int {
    let registration = &mut registrations[at];
    if let Some(watch) = registration.watch
        && registration.stand_in.is_none()
        && change.set.is_own()
        && change.set.state.lock().park(watch)
    {
        (registration.watch, registration.parked) = (None, Some(watch));
        return 0;
    }
    let registration = registrations.swap_remove(at);
    registrations::note(change.socket, registrations);
    if let Some(watch) = registration.watch {
        change.set.state.lock().remove(watch, Some(change.epfd));
    }
    match registration.stand_in_number() {
        Some(number) => status(tag::control(change.epfd, Op::Delete, number, 0, 0)),
        None => kernel(),
    }
}

fn is_exclusive(asked: epoll_event) -> bool {
    asked.events & EXCLUSIVE != 0
}
