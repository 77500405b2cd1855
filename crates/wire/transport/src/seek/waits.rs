//! Threads that sleep for bytes of the kernel's socket.
//!
//! A sleeper asks the kernel to wake it when all that it needs is there, by SO_RCVLOWAT, so that it
//! is woken once and not for every segment. The kernel says "readable" earlier when its memory is
//! nearly full or the window nearly shut (tcp(7), `tcp_epollin_ready`): nothing more comes until
//! something is taken out, and that is how a range that cannot arrive is found out. Whoever moves
//! bytes away from the front of the socket sets the mark anew, and rings for those whose bytes it
//! has moved.
//!
//! The mark goes back to what the application set when the last sleeper wakes. Where nobody else
//! polls the socket that can wait until somebody is told to: the next sleeper then mostly finds the
//! mark that it needs, and each system call saved counts against the copy that a seek saves.

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
    /// SO_RCVLOWAT as the application set it.
    application: Option<u32>,
    /// SO_RCVLOWAT as the socket has it, unless another process may have set it.
    now: Option<u32>,
    /// Nobody but the sleepers polls the socket.
    is_private: bool,
    /// The application's settings of SO_RCVLOWAT are seen: see [`KernelWaits::wanted`].
    is_told: bool,
    pace: Pace,
}

/// How the bytes come. The sender may stand still while the receiver's kernel sees no reason: its
/// small writes have become one segment that does not fit into what is left of the window (RFC
/// 1122, 4.2.3.4), or it waits for an acknowledgement that is delayed (4.2.3.2) while nobody
/// receives. Only receiving what has come makes it go on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Pace {
    /// No sleep is long.
    #[default]
    Flowing,
    /// A sleep was so long that the sender may stand still: the next sleeps are short, and then
    /// what has come is received. The timers for that cost too much while all is well. So this ends
    /// after so many sleeps in a row that did not need them.
    Halting(u8),
    /// Nothing is there to be received: a sleep lasts until something comes.
    Idle,
}

/// A sleep this long may mean that the sender stands still.
const LONG: Duration = Duration::from_millis(20);

/// In [`Pace::Halting`], a sender of which nothing comes for so long is taken to stand still.
const STOPPED_AFTER: Duration = Duration::from_millis(1);

const IN_A_ROW: u8 = 16;

impl Pace {
    /// After a sleep.
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
    /// The bytes have not come in time: those that are there had better be received.
    pub is_late: bool,
}

impl KernelWaits {
    /// Of a socket that nobody else polls.
    #[must_use]
    pub fn private() -> Self {
        Self { is_private: true, ..Self::default() }
    }

    /// From now on others may poll the socket.
    pub fn share(&mut self, fd: Fd) {
        self.is_private = false;
        self.restore(fd);
    }

    /// The application has set SO_RCVLOWAT to `bytes`, and every later change is told here. The
    /// socket is never asked: it may show what a sleeper has set, of this process or another one.
    pub fn wanted(&mut self, bytes: u32) {
        if self.application != Some(bytes) {
            self.application = Some(bytes);
            self.now = None;
        }
        self.is_told = true;
    }

    /// Another process is about to get the socket: puts SO_RCVLOWAT back to the application's
    /// value, even while some sleep.
    pub fn lower(&mut self, fd: Fd) {
        if self.now.is_none() || self.now != self.application {
            self.set(fd, self.application.unwrap_or(1));
        }
    }

    /// If nobody sleeps any more, puts SO_RCVLOWAT back to the application's value.
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
        let is_known = self.is_told || (self.is_private && self.application.is_some());
        if self.sleepers.is_empty() && self.now == self.application && !is_known {
            self.application = socket::receive_low_water(fd).ok().map(|bytes| bytes as u32);
            self.now = self.application;
        }
        let sleep = self.sleepers.begin(end)?;
        self.ask(fd, reach);
        Ok(KernelSleep { sleep, pace: self.pace })
    }

    /// The sleeper is awake. Returns whether the kernel says that all is there that it needs, or
    /// that no more can come.
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

    /// There is no memory for what is there: nobody needs to look before more comes.
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

    /// Those who slept are threads of another process: this one was forked from it.
    pub fn forget(&mut self) {
        if self.sleepers.forget() {
            self.now = None;
        }
    }

    /// Everybody looks again.
    pub fn wake_all(&mut self, fd: Fd) {
        self.moved(fd, Reach::new(u64::MAX, None));
    }

    /// Asks the kernel for what the first of the sleepers needs, or for what the application wants.
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
    /// Position that has to have arrived.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.sleep.position()
    }

    /// Sleeps until the socket has something, or the sleeper is woken. Not to be called with a lock
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
