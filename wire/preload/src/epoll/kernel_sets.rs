//! Sets that several processes use, and whose events only the kernel reports.
//!
//! Connections go back to TCP when they enter such a set, and their unread bytes are sent again.
//! The peer does that in its next call, which may come late, and a connection that seeks has bytes
//! in this process's memory. So every wait checks for itself until no bytes are left that the
//! kernel does not know about.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use seekwire_endpoint::{Connection, Reason, Until};
use seekwire_transport::Errno;
use seekwire_transport::sys::signal::HeldBack;

use super::control::Change;
use super::events::Events;
use super::fdinfo;
use super::kernel_query::ask_kernel;
use super::registrations;
use super::tag::{self, Op, Tag};
use super::typed::{Set, SetState, Watch};
use crate::fallback::to_tcp_until;
use crate::ffi::{fail, guarded_raw, keeping_errno, status};
use crate::socket::Socket;
use crate::table::{SetRef, SocketRef};
use crate::timeout::Timeout;
use crate::unload;

/// Takes a connection in `set` back to TCP.
pub(super) fn leave(set: &SetRef, socket: &SocketRef, until: Until) {
    // Everyone who has the set can receive bytes left on the ring, even before bytes that came by
    // TCP: nobody has to wait for a peer that makes no call. A connection with holes cannot leave.
    let _ = to_tcp_until(socket, Reason::Bypassed, until.at_most(Connection::ANSWER_LIMIT));
    let mut registrations = socket.registrations().lock();
    registrations.retain(|registration| {
        if !set.is(&registration.set) {
            return true;
        }
        let mut state = set.state.lock();
        state.drop_left(registration.number());
        let is_left = socket.is_left();
        if is_left {
            let mut watch = Watch::new(socket.share(), registration, 0, 0);
            if set.number().is_some_and(|epfd| fdinfo::fired(epfd, registration).is_some()) {
                watch.fire();
            }
            state.left_to_kernel.push(watch);
        }
        // The kernel does not know the number that the application uses for it.
        is_left || registration.stand_in.is_some()
    });
    registrations::note(socket, &registrations);
}

/// epoll_ctl on a tracked socket. `kernel` makes the application's own call.
pub(crate) fn control(change: &Change<'_>, kernel: impl Fn() -> c_int) -> c_int {
    let mut registrations = change.socket.registrations().lock();
    let position = registrations.iter().position(|registration| change.means(registration));
    let stand_in = position.and_then(|at| registrations[at].stand_in_number());
    let result = match stand_in {
        Some(number) => change_stand_in(change, number, kernel),
        None => kernel(),
    };
    if result != 0 || change.socket.is_listening() {
        return result;
    }
    match (change.op, change.asked, position) {
        (EPOLL_CTL_MOD, Some(asked), Some(at)) => {
            (registrations[at].events, registrations[at].data) = (asked.events, asked.u64);
        }
        (EPOLL_CTL_ADD, Some(asked), _) => {
            registrations.retain(|registration| !change.means(registration));
            change.register(&mut registrations, asked);
        }
        (EPOLL_CTL_DEL, _, Some(at)) => {
            change.set.state.lock().drop_left(registrations[at].number());
            registrations.swap_remove(at);
            registrations::note(change.socket, &registrations);
        }
        _ => return result,
    }
    drop(registrations);
    if change.op != EPOLL_CTL_DEL {
        keeping_errno(|| leave(change.set, change.socket, Until::NEVER));
    }
    result
}

/// Makes the call with the number that stands in for the application's.
fn change_stand_in(change: &Change<'_>, number: c_int, kernel: impl Fn() -> c_int) -> c_int {
    match (change.op, change.asked) {
        (EPOLL_CTL_ADD, _) => fail(Errno::EXIST),
        (EPOLL_CTL_MOD, Some(asked)) => {
            status(tag::control(change.epfd, Op::Modify, number, asked.events, asked.u64))
        }
        (EPOLL_CTL_DEL, _) => status(tag::control(change.epfd, Op::Delete, number, 0, 0)),
        _ => kernel(),
    }
}

impl SetState {
    /// Reports events that the kernel does not know about.
    fn report_left(&mut self, epfd: c_int, into: &mut Events) {
        for watch in &mut self.left_to_kernel {
            let same = into.find(watch.data, into.len(), 0);
            if same.is_none() && into.room() == 0 {
                continue;
            }
            let life = watch.life;
            let events = watch.take(same.is_some());
            match same {
                Some(at) => into.merge(at, events),
                None if events != 0 => into.push(epoll_event { events, u64: watch.data }),
                None => continue,
            }
            watch.fire();
            if watch.life != life && is_of(watch.fd, &watch.socket) {
                // The kernel must not fire the one-shot registration again.
                let _ = tag::fire(epfd, watch.fd);
            }
        }
    }

    /// Reports the kernel's events: `count` of them at the tail of `into`.
    fn report_kernels(&self, count: usize, into: &mut Events) {
        let (tail, before) = (into.tail(), into.len());
        for at in 0..count {
            // SAFETY: the kernel has written this many events there, and `into` does not overtake
            // the reader.
            let event = unsafe { tail.add(at).read() };
            let event = match Tag::decode(event.u64) {
                None => Some(event),
                // Another process has not taken it out of the set yet.
                Some(tag) => self.as_noted(tag, event.events),
            };
            let Some(event) = event else { continue };
            match into.find(event.u64, before, 0) {
                Some(same) => into.merge(same, event.events),
                None => into.push(event),
            }
        }
    }
}

/// True if the number belongs to this process and stands for the socket: another process may have
/// added it to the set.
fn is_of(number: c_int, socket: &Socket) -> bool {
    // SAFETY: a number that is closed in the meantime gives EBADF, or another inode.
    let [number, own] =
        [number, socket.connection.fd().raw()].map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
    let inode = |fd| rustix::fs::fstat(fd).map(|status| status.st_ino);
    inode(number).is_ok_and(|of_number| inode(own) == Ok(of_number))
}

/// A wait on such a set. No doorbell announces bytes that another thread leaves there in the
/// meantime, so it checks periodically.
pub(super) fn wait(
    set: &Set,
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: &mut Timeout,
    signals: Option<HeldBack>,
    sleep: impl Fn(&mut Timeout, Option<&HeldBack>) -> c_int,
) -> c_int {
    let signals = signals.unwrap_or_else(HeldBack::new);
    // SAFETY: the application passes room for `max` events.
    let room = || unsafe { Events::new(events, max as usize) };
    loop {
        if unload::has_begun() {
            return go_on(*timeout, Some(signals), sleep);
        }
        let look = || {
            let mut into = room();
            look(set, epfd, &mut into);
            into.len()
        };
        let reported = guarded_raw(look).unwrap_or(0);
        if reported > 0 {
            return reported as c_int;
        }
        let result =
            sleep(&mut timeout.at_most(Some(Connection::RECHECK_INTERVAL)), Some(&signals));
        let Ok(count) = usize::try_from(result) else { return result };
        let report = || {
            let mut into = room();
            let mut state = set.state.lock();
            state.report_kernels(count, &mut into);
            state.report_left(epfd, &mut into);
            into.len()
        };
        let reported = guarded_raw(report).unwrap_or(0);
        if reported > 0 || timeout.is_over() {
            return reported as c_int;
        }
        // If the kernel has an event that is reported to nobody, there is no sleep that delivers
        // the signals.
        if let Err(error) = signals.let_in() {
            return fail(error);
        }
    }
}

/// Continues the wait without the library.
pub(super) fn go_on(
    mut timeout: Timeout,
    signals: Option<HeldBack>,
    sleep: impl Fn(&mut Timeout, Option<&HeldBack>) -> c_int,
) -> c_int {
    if let Some(signals) = signals
        && let Err(error) = signals.let_in()
    {
        return fail(error);
    }
    sleep(&mut timeout, None)
}

/// Reports ready connections if the kernel does not know about all of them. If there is no room for
/// both kinds, they take turns to come first.
fn look(set: &Set, epfd: c_int, into: &mut Events) {
    let mut state = set.state.lock();
    if !state.has_left() {
        return;
    }
    state.is_left_first = !state.is_left_first;
    let is_first = state.is_left_first;
    if is_first {
        state.report_left(epfd, into);
    }
    drop(state);
    let count = if into.room() > 0 { ask_kernel(epfd, into, into.room()).unwrap_or(0) } else { 0 };
    let mut state = set.state.lock();
    state.report_kernels(count, into);
    if !is_first {
        state.report_left(epfd, into);
    }
}
