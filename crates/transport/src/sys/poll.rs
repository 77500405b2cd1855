//! Sleeping on descriptors.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;

use super::fd::Fd;
use super::select;
use crate::Errno;

/// Until when to wait.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Never ends.
    pub const NEVER: Self = Self(None);

    /// From now on this long; `None` for ever.
    #[must_use]
    pub fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|t| Instant::now().checked_add(t)))
    }

    /// Time left; `None` for ever.
    #[must_use]
    pub fn left(self) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// This one, or `most` from now on, whichever comes first.
    #[must_use]
    pub fn at_most(self, most: Duration) -> Self {
        let other = Instant::now() + most;
        Self(Some(self.0.map_or(other, |end| end.min(other))))
    }

    /// Whether it has passed.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}

/// What the kernel says of a socket.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Events {
    /// Something to read: data or the end of the stream.
    pub read: bool,
    /// Room to write.
    pub write: bool,
    /// The peer ended its sending direction, or died.
    pub hangup: bool,
    /// Error, or both directions have ended. Reported whether wanted or not.
    pub dead: bool,
}

/// Sleeps until the bell rings, the socket has one of the wanted events (or dies), or the time is over.
/// Returns whether the bell rang, and the socket's events. Each of the descriptors may be absent (-1).
///
/// # Errors
/// EINTR when a signal handler ran; ETIMEDOUT; those of poll(2).
pub fn wait(bell: Fd, socket: Fd, want: Events, until: Deadline) -> Result<(bool, Events), Errno> {
    let flags = flags(want);
    let mut fds = [
        PollFd::from_borrowed_fd(bell.borrow(), PollFlags::IN),
        PollFd::from_borrowed_fd(socket.borrow(), flags),
    ];
    let watched = match (bell.raw() < 0, socket.raw() < 0) {
        (true, true) => &mut fds[..0],
        (true, false) => &mut fds[1..],
        (false, true) => &mut fds[..1],
        (false, false) => &mut fds[..],
    };
    let timeout = until.left().map(|left| Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    match poll(watched, timeout.as_ref()) {
        Ok(0) => return Err(Errno::TIMEDOUT),
        Err(Errno::INVAL) => return select::wait(bell, socket, want, until),
        result => result?,
    };
    Ok((fds[0].revents().contains(PollFlags::IN), events(fds[1].revents())))
}

/// What the kernel says of a socket right now.
///
/// # Errors
/// Those of poll(2).
pub fn look(socket: Fd, want: Events) -> Result<Events, Errno> {
    let mut fds = [PollFd::from_borrowed_fd(socket.borrow(), flags(want))];
    match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Err(Errno::INVAL) => {
            return match select::wait(Fd::new(-1), socket, want, Deadline::after(Some(Duration::ZERO))) {
                Err(Errno::TIMEDOUT) => Ok(Events::default()),
                result => result.map(|(_, events)| events),
            };
        }
        result => result?,
    };
    Ok(events(fds[0].revents()))
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
