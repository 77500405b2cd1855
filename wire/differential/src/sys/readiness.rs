//! poll, select and epoll.

use std::mem::zeroed;

use super::{SyscallResult, outcome};
use crate::program::PollWay;

/// Milliseconds as the calls take them; negative: no limit.
fn timespec(timeout: i32) -> libc::timespec {
    libc::timespec {
        tv_sec: (timeout / 1000).into(),
        tv_nsec: i64::from(timeout % 1000) * 1_000_000,
    }
}

/// Waits for descriptors; returns what each is ready for, in the bits of poll.
pub(crate) fn poll(
    entries: &[(i32, i16)],
    timeout: i32,
    way: PollWay,
) -> (SyscallResult, Vec<i16>) {
    if matches!(way, PollWay::Select | PollWay::Pselect) {
        return select(entries, timeout, way);
    }
    let mut polled: Vec<libc::pollfd> = entries
        .iter()
        .map(|(fd, events)| libc::pollfd { fd: *fd, events: *events, revents: 0 })
        .collect();
    let count = polled.len() as libc::nfds_t;
    let time = timespec(timeout);
    let limit = if timeout < 0 { std::ptr::null() } else { &raw const time };
    // SAFETY: the number of entries is given; the time lives as long as the call.
    let done = outcome(|| unsafe {
        match way {
            PollWay::Ppoll => libc::ppoll(polled.as_mut_ptr(), count, limit, std::ptr::null()),
            _ => libc::poll(polled.as_mut_ptr(), count, timeout),
        }
        .into()
    });
    (done, polled.iter().map(|entry| entry.revents).collect())
}

fn select(entries: &[(i32, i16)], timeout: i32, way: PollWay) -> (SyscallResult, Vec<i16>) {
    const KINDS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    // SAFETY: fd_set is integers only, for which zero is valid.
    let mut sets: [libc::fd_set; 3] = unsafe { zeroed() };
    let usable = |fd: i32| (0..libc::FD_SETSIZE as i32).contains(&fd);
    for (fd, events) in entries.iter().filter(|(fd, _)| usable(*fd)) {
        for (set, kind) in sets.iter_mut().zip(KINDS) {
            if events & kind != 0 {
                // SAFETY: the number is below FD_SETSIZE.
                unsafe { libc::FD_SET(*fd, set) };
            }
        }
    }
    let highest = entries.iter().map(|(fd, _)| *fd).filter(|fd| usable(*fd)).max().unwrap_or(-1);
    let [read, write, except] = &mut sets;
    let time = timespec(timeout);
    let mut value = libc::timeval { tv_sec: time.tv_sec, tv_usec: time.tv_nsec / 1000 };
    // SAFETY: sets and times live as long as the call.
    let done = outcome(|| unsafe {
        if way == PollWay::Select {
            let limit = if timeout < 0 { std::ptr::null_mut() } else { &raw mut value };
            libc::select(highest + 1, read, write, except, limit)
        } else {
            let limit = if timeout < 0 { std::ptr::null() } else { &raw const time };
            libc::pselect(highest + 1, read, write, except, limit, std::ptr::null())
        }
        .into()
    });
    let ready = |fd: i32, events: i16| {
        let bits = sets.iter().zip(KINDS).filter(|(set, kind)| {
            // SAFETY: the number is below FD_SETSIZE.
            done.0 > 0 && events & kind != 0 && usable(fd) && unsafe { libc::FD_ISSET(fd, *set) }
        });
        bits.fold(0, |all, (_, kind)| all | kind)
    };
    (done, entries.iter().map(|(fd, events)| ready(*fd, *events)).collect())
}

pub(crate) fn epoll_create() -> SyscallResult {
    // SAFETY: no memory is passed.
    outcome(|| unsafe { libc::epoll_create1(0) }.into())
}

pub(crate) fn epoll_control(
    epoll: i32,
    operation: i32,
    fd: i32,
    events: u32,
    data: u64,
) -> SyscallResult {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: the event lives as long as the call.
    outcome(|| unsafe { libc::epoll_ctl(epoll, operation, fd, &raw mut event) }.into())
}

/// Waits for events; returns the data and the events of each ready descriptor.
pub(crate) fn epoll_wait(
    epoll: i32,
    room: usize,
    timeout: i32,
) -> (SyscallResult, Vec<(u64, u32)>) {
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; room];
    let done = outcome(|| {
        // SAFETY: the number of events that there is room for is given.
        unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), room as i32, timeout) }.into()
    });
    let count = usize::try_from(done.0).unwrap_or(0);
    (done, events[..count].iter().map(|event| (event.u64, event.events)).collect())
}
