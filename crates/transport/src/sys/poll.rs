//! Sleeping on descriptors.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;

use super::fd::Fd;
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

    /// Whether it has passed.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }

    /// Whether there is an end at all.
    #[must_use]
    pub fn is_bounded(self) -> bool {
        self.0.is_some()
    }
}

/// What the kernel says of a socket.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Events {
    /// Something to read: data or the end of the stream.
    pub read: bool,
    /// Room to write.
    pub write: bool,
    /// Error or hang-up.
    pub dead: bool,
}

/// Sleeps until the bell rings, the socket has one of the wanted events (or dies), or the time is over.
/// Returns whether the bell rang, and the socket's events. Either descriptor may be absent (-1).
///
/// # Errors
/// EINTR when a signal handler ran; ETIMEDOUT; those of poll(2).
pub fn wait(bell: Fd, socket: Fd, want: Events, until: Deadline) -> Result<(bool, Events), Errno> {
    let mut flags = PollFlags::RDHUP;
    flags.set(PollFlags::IN, want.read);
    flags.set(PollFlags::OUT, want.write);
    if !want.read {
        // A peer that shut its direction down stays so: a writer has nothing to learn from it.
        flags.remove(PollFlags::RDHUP);
    }
    let mut fds = [
        PollFd::from_borrowed_fd(bell.borrow(), PollFlags::IN),
        PollFd::from_borrowed_fd(socket.borrow(), flags),
    ];
    let watched = match (bell.raw() < 0, socket.raw() < 0) {
        (true, _) => &mut fds[1..],
        (_, true) => &mut fds[..1],
        _ => &mut fds[..],
    };
    let timeout = until.left().map(|left| Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    if poll(watched, timeout.as_ref())? == 0 {
        return Err(Errno::TIMEDOUT);
    }
    Ok((fds[0].revents().contains(PollFlags::IN), events(fds[1].revents())))
}

/// What the kernel says of a socket right now.
///
/// # Errors
/// Those of poll(2).
pub fn look(socket: Fd, want: Events) -> Result<Events, Errno> {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, want.read);
    flags.set(PollFlags::OUT, want.write);
    let mut fds = [PollFd::from_borrowed_fd(socket.borrow(), flags)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(events(fds[0].revents()))
}

fn events(revents: PollFlags) -> Events {
    Events {
        read: revents.intersects(PollFlags::IN | PollFlags::RDHUP),
        write: revents.contains(PollFlags::OUT),
        dead: revents.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL),
    }
}
