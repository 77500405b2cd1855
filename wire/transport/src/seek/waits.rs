//! Threads that sleep for bytes of the kernel's socket.
//!
//! A sleeper asks the kernel with SO_RCVLOWAT to wake it when all the bytes that it needs are
//! there, so that it is woken once and not for every segment. The kernel reports "readable" earlier
//! if its memory is nearly full or the window nearly shut (tcp(7), `tcp_epollin_ready`): no more
//! bytes come until some are taken out, and this is how a range that cannot arrive is detected. A
//! thread that moves bytes away from the front of the socket sets the mark anew, and rings for the
//! sleepers whose bytes it has moved.
//!
//! The mark goes back to what the application set when the last sleeper wakes. If nobody else polls
//! the socket, that can wait until a caller is about to wait elsewhere: the next sleeper then
//! mostly finds the mark that it needs, and the cost of each system call counts against the copy
//! that a seek saves.

use std::time::Duration;

use super::engine::Reach;
use super::sleepers::{Sleep, Sleepers};
use crate::Errno;
use crate::sys::poll::{Deadline, Events};
use crate::sys::{Fd, socket};

/// The sleepers of one socket. For one caller at a time.
#[derive(Debug, Default)]
pub struct KernelWaits {
    sleepers: Sleepers,
    /// SO_RCVLOWAT, as the application set it.
    application: Option<u32>,
    /// SO_RCVLOWAT of the socket, unless another process may have set it.
    now: Option<u32>,
    /// Only the sleepers poll the socket.
    is_private: bool,
    /// The application's changes of SO_RCVLOWAT are reported: see [`KernelWaits::wanted`].
    changes_are_reported: bool,
    pace: Pace,
}

/// The pace at which bytes come. The sender may stand still while the receiver's kernel sees no
/// reason: its small writes have become one segment that does not fit into the rest of the window
/// (RFC 1122, 4.2.3.4), or it waits for an acknowledgement that is delayed (4.2.3.2) while nobody
/// receives. Only receiving the bytes that have come makes it go on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Pace {
    /// No sleep is long.
    #[default]
    Flowing,
    /// A sleep was so long that the sender may stand still: the next sleeps are short, and after
    /// each the bytes that have come are received. The timers for that cost too much in normal
    /// operation, so this ends after this many sleeps in a row that did not need them.
    Halting(u8),
    /// There are no bytes to receive: a sleep lasts until some come.
    Idle,
}

/// A sleep this long may mean that the sender stands still.
const LONG: Duration = Duration::from_millis(20);

/// In [`Pace::Halting`], a sender from which nothing comes for this long is taken to stand still.
const STOPPED_AFTER: Duration = Duration::from_millis(1);

const IN_A_ROW: u8 = 16;

impl Pace {
    /// The pace after a sleep.
    fn next(self, slept: Duration, woken: Woken) -> Self {
        match self {
            Self::Flowing if slept < LONG => Self::Flowing,
            Self::Halting(_) if woken.is_late && !woken.has_data => Self::Idle,
            Self::Halting(1) if !woken.is_late => Self::Flowing,
            Self::Halting(left) if !woken.is_late => Self::Halting(left - 1),
            _ => Self::Halting(IN_A_ROW),
        }
    }
}

/// Why a sleep has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Woken {
    /// The socket has something to receive, and has not ended.
    pub has_data: bool,
    /// The bytes have not come in time: those that are there should be received.
    pub is_late: bool,
}

impl KernelWaits {
    /// For a socket that nobody else polls.
    #[must_use]
    pub fn private() -> Self {
        Self { is_private: true, ..Self::default() }
    }

    /// From now on others may poll the socket.
    pub fn share(&mut self, fd: Fd) {
        self.is_private = false;
        self.restore(fd);
    }

    /// The application has set SO_RCVLOWAT to `bytes`; every later change is also reported here.
    /// The socket is never asked: it may show a sleeper's value, of this process or another one.
    pub fn wanted(&mut self, bytes: u32) {
        if self.application != Some(bytes) {
            self.application = Some(bytes);
            self.now = None;
        }
        self.changes_are_reported = true;
    }

    /// Another process is about to get the socket: resets SO_RCVLOWAT to the application's value,
    /// even while there are sleepers.
    pub fn lower(&mut self, fd: Fd) {
        if self.now.is_none() || self.now != self.application {
            self.set(fd, self.application.unwrap_or(1));
        }
    }

    /// Resets SO_RCVLOWAT to the application's value if there are no sleepers.
    pub fn restore(&mut self, fd: Fd) {
        if self.sleepers.is_empty() && self.now != self.application {
            self.ask(fd, Reach::new(0, None));
        }
    }

    /// Enters a sleeper for the bytes before `end`.
    ///
    /// # Errors
    /// Those of eventfd(2).
    pub fn begin(&mut self, fd: Fd, reach: Reach<'_>, end: u64) -> Result<KernelSleep, Errno> {
        let is_known = self.changes_are_reported || (self.is_private && self.application.is_some());
        if self.sleepers.is_empty() && self.now == self.application && !is_known {
            self.application = socket::receive_low_water(fd).ok().map(|bytes| bytes as u32);
            self.now = self.application;
        }
        let sleep = self.sleepers.begin(end)?;
        self.ask(fd, reach);
        Ok(KernelSleep { sleep, pace: self.pace })
    }

    /// Removes a sleeper that is awake. Returns whether the kernel reports that all the bytes it
    /// needs are there, or that no more can come.
    pub fn end(&mut self, fd: Fd, reach: Reach<'_>, sleep: KernelSleep, woken: Woken) -> bool {
        let KernelSleep { sleep, pace } = sleep;
        let was_least =
            self.sleepers.least(reach.front()).is_none_or(|least| least >= sleep.position());
        self.pace = pace.next(sleep.since().elapsed(), woken);
        self.sleepers.end(sleep);
        if !(self.is_private && self.sleepers.is_empty()) {
            self.ask(fd, reach);
        }
        woken.has_data && !woken.is_late && was_least && pace != Pace::Idle
    }

    /// There is no memory for the bytes that are there: no sleeper needs to look before more come.
    pub fn leave_there(&mut self) {
        self.pace = Pace::Idle;
    }

    /// Bytes were taken from the socket.
    pub fn moved(&mut self, fd: Fd, reach: Reach<'_>) {
        if !self.sleepers.is_empty() {
            self.sleepers.wake(reach.front());
            self.ask(fd, reach);
        }
    }

    /// After a fork, in the child: the sleepers are threads of the parent.
    pub fn forget(&mut self) {
        if self.sleepers.forget() {
            self.now = None;
        }
    }

    /// Makes all sleepers look again.
    pub fn wake_all(&mut self, fd: Fd) {
        self.moved(fd, Reach::new(u64::MAX, None));
    }

    /// Sets the mark that the first of the sleepers needs, or the application's.
    fn ask(&mut self, fd: Fd, reach: Reach<'_>) {
        let bytes = match self.sleepers.least(reach.front()) {
            Some(least) if self.pace == Pace::Idle => {
                reach.bytes_before(least).min(socket::unread(fd).unwrap_or(0) as u64 + 1)
            }
            Some(least) => reach.bytes_before(least),
            None => self.application.unwrap_or(1).into(),
        };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if self.now != Some(bytes) {
            self.set(fd, bytes);
        }
    }

    fn set(&mut self, fd: Fd, bytes: u32) {
        // A failure costs wake-ups that come too early.
        if socket::set_receive_low_water(fd, bytes).is_ok() {
            self.now = Some(bytes);
        }
    }
}

/// One sleep for bytes of a socket.
#[derive(Debug)]
pub struct KernelSleep {
    sleep: Sleep,
    pace: Pace,
}

impl KernelSleep {
    /// The position that has to have arrived.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.sleep.position()
    }

    /// Sleeps until the socket has an event, or the sleeper is woken. Not to be called with a lock
    /// held.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR.
    pub fn sleep(&self, fd: Fd, until: Deadline) -> Result<Woken, Errno> {
        let read = Events { read: true, hangup: true, ..Events::default() };
        let end = if matches!(self.pace, Pace::Halting(_)) {
            until.at_most(STOPPED_AFTER)
        } else {
            until
        };
        match self.sleep.sleep(fd, read, end) {
            Err(Errno::TIMEDOUT) if !until.is_over() => {
                Ok(Woken { has_data: socket::unread(fd)? > 0, is_late: true })
            }
            events => {
                let events = events?;
                Ok(Woken {
                    has_data: events.read && !events.hangup && !events.dead,
                    is_late: false,
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_be_stopped_is_looked_after() {
        let (short, long) = (Duration::from_millis(1), Duration::from_millis(40));
        let woken = Woken { has_data: true, is_late: false };
        let late = Woken { is_late: true, ..woken };
        let nothing = Woken { has_data: false, is_late: true };
        assert_eq!(Pace::Flowing.next(short, woken), Pace::Flowing);
        assert_eq!(Pace::Flowing.next(long, woken), Pace::Halting(IN_A_ROW));
        assert_eq!(Pace::Halting(3).next(short, late), Pace::Halting(IN_A_ROW));
        assert_eq!(Pace::Halting(3).next(short, woken), Pace::Halting(2));
        assert_eq!(Pace::Halting(1).next(short, woken), Pace::Flowing);
        assert_eq!(Pace::Halting(3).next(short, nothing), Pace::Idle);
        assert_eq!(
            Pace::Idle.next(long, woken),
            Pace::Halting(IN_A_ROW),
            "there may be more to come"
        );
    }
}
