//! Sleeps on descriptors by poll(2).

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;

use super::fd::Fd;
use super::socket::unread;
pub use super::wait::{Deadline, Events};
use super::{call, select};
use crate::Errno;

/// Sleeps until the doorbell rings, the socket has one of the wanted events (or dies), or the
/// deadline passes. Returns whether the doorbell rang, and the socket's events. Each of the
/// descriptors may be absent (-1).
///
/// # Errors
/// EINTR if a signal handler ran; ETIMEDOUT; those of poll(2).
pub fn wait(
    doorbell: Fd,
    socket: Fd,
    want: Events,
    until: Deadline,
) -> Result<(bool, Events), Errno> {
    let flags = flags(want);
    let mut fds = [
        PollFd::from_borrowed_fd(doorbell.borrow(), PollFlags::IN),
        PollFd::from_borrowed_fd(socket.borrow(), flags),
    ];
    let watched = match (doorbell.raw() < 0, socket.raw() < 0) {
        (true, true) => &mut fds[..0],
        (true, false) => &mut fds[1..],
        (false, true) => &mut fds[..1],
        (false, false) => &mut fds[..],
    };
    let timeout = until.left().map(|left| Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    match sleep(watched, timeout, until.blocked()) {
        Ok(0) => return Err(Errno::TIMEDOUT),
        Err(Errno::INVAL) => return select::wait(doorbell, socket, want, until),
        result => result?,
    };
    Ok((fds[0].revents().contains(PollFlags::IN), events(fds[1].revents())))
}

fn sleep(
    watched: &mut [PollFd<'_>],
    mut timeout: Option<Timespec>,
    blocked: Option<&u64>,
) -> Result<usize, Errno> {
    let Some(blocked) = blocked else { return poll(watched, timeout.as_ref()) };
    let timeout = timeout.as_mut().map_or(0, |time| (&raw mut *time).expose_provenance());
    let places =
        [watched.as_mut_ptr().expose_provenance(), (&raw const *blocked).expose_provenance()];
    // SAFETY: `PollFd` has the layout of struct pollfd, which the kernel reads and writes; it
    // writes the rest of the time into the copy that is this function's, and reads a set of 8
    // bytes.
    unsafe { call(libc::SYS_ppoll, [places[0], watched.len(), timeout, places[1], 8, 0]) }
}

/// The present events of a socket, as the kernel reports them.
///
/// # Errors
/// Those of poll(2).
pub fn look(socket: Fd, want: Events) -> Result<Events, Errno> {
    let mut fds = [PollFd::from_borrowed_fd(socket.borrow(), flags(want))];
    match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Err(Errno::INVAL) => {
            return match select::wait(
                Fd::new(-1),
                socket,
                want,
                Deadline::after(Some(Duration::ZERO)),
            ) {
                Err(Errno::TIMEDOUT) => Ok(Events::default()),
                result => result.map(|(_, events)| events),
            };
        }
        result => result?,
    };
    Ok(events(fds[0].revents()))
}

/// The events for which a caller sleeps that may go on once it can send, or receive one more byte.
/// No byte comes after the end, which would prevent any sleep.
///
/// # Errors
/// Those of poll(2) and ioctl(2).
pub fn of_progress(socket: Fd) -> Result<Events, Errno> {
    let ended = look(socket, Events { hangup: true, ..Events::default() })?.hangup;
    Ok(Events { read: !ended || unread(socket)? > 0, ..Events::WRITE })
}

/// Whether an urgent byte has come that was not received (tcp(7)).
///
/// # Errors
/// Those of poll(2).
pub fn is_urgent(socket: Fd) -> Result<bool, Errno> {
    let mut fds = [PollFd::from_borrowed_fd(socket.borrow(), PollFlags::PRI)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(fds[0].revents().contains(PollFlags::PRI))
}

fn flags(want: Events) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, want.read);
    flags.set(PollFlags::OUT, want.write);
    flags.set(PollFlags::RDHUP, want.hangup);
    flags
}

fn events(revents: PollFlags) -> Events {
    Events {
        read: revents.contains(PollFlags::IN),
        hangup: revents.contains(PollFlags::RDHUP),
        write: revents.contains(PollFlags::OUT),
        dead: revents.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no such calls")]
    fn a_sleep_on_nothing_lasts_as_long_as_it_may() {
        let begun = Instant::now();
        let moment = Duration::from_millis(1);
        let none = Fd::new(-1);
        let slept = wait(none, none, Events::default(), Deadline::after(Some(moment)));
        assert_eq!(slept, Err(Errno::TIMEDOUT));
        assert!(begun.elapsed() >= moment);
    }
}
