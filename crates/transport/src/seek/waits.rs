//! Who sleeps for which bytes of the kernel's socket.
//!
//! A sleeper asks the kernel to wake it when all that it needs is there, by SO_RCVLOWAT, so that it is woken once and
//! not for every segment. The kernel says "readable" earlier when its memory is nearly full or the window nearly shut
//! (tcp(7), `tcp_epollin_ready`): nothing more comes until something is taken out, and that is how a range that cannot
//! arrive is found out. Whoever moves bytes away from the front of the socket sets the mark anew, and rings for those
//! whose bytes it has moved.
//!
//! The mark goes back to what the application set when the last sleeper wakes. Where nobody else polls the socket that
//! can wait until somebody is told to: the next sleeper then mostly finds the mark that it needs, and each system call
//! saved counts against the copy that a seek saves.

use std::time::Duration;

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
    /// Nobody else polls the socket.
    is_private: bool,
    /// A sleep has taken so long that the peer may have waited for an acknowledgement.
    acknowledges: bool,
}

/// The kernel puts acknowledgements off until something is received or sent, up to 40 ms (RFC 1122, 4.2.3.2). A sender with
/// a small buffer waits for them, while a receiver that waits for what lies far ahead receives nothing. Once a sleep has
/// taken this long, it has them sent before it sleeps.
const PUT_OFF: Duration = Duration::from_millis(20);

impl KernelWaits {
    /// Of a socket that nobody else polls.
    #[must_use]
    pub fn private() -> Self {
        Self { is_private: true, ..Self::default() }
    }

    /// From now on others may poll the socket.
    pub fn share(&mut self, fd: Fd) {
        self.is_private = false;
        self.settle(fd);
    }

    /// Nobody sleeps any more: whoever polls the socket finds it as the application wants it.
    pub fn settle(&mut self, fd: Fd) {
        if self.sleepers.is_empty() && self.now != self.application {
            self.ask(fd, 0);
        }
    }

    /// Enters a sleeper for the bytes before `end`, with the socket's front at `front`.
    ///
    /// # Errors
    /// Those of eventfd(2).
    pub fn begin(&mut self, fd: Fd, front: u64, end: u64) -> Result<Sleep, Errno> {
        let is_known = self.is_private && self.application.is_some();
        if self.sleepers.is_empty() && self.now == self.application && !is_known {
            self.application = socket::receive_low_water(fd).ok().map(|bytes| bytes as u32);
            self.now = self.application;
        }
        let sleep = self.sleepers.begin(end)?;
        self.ask(fd, front);
        if self.acknowledges {
            socket::acknowledge_now(fd);
        }
        Ok(sleep)
    }

    /// The sleeper is awake. Returns whether the kernel was asked for just what it needs.
    pub fn end(&mut self, fd: Fd, front: u64, sleep: Sleep) -> bool {
        let was_least = self.sleepers.least(front).is_none_or(|least| least >= sleep.position());
        self.acknowledges |= sleep.since().elapsed() >= PUT_OFF;
        self.sleepers.end(sleep);
        if !(self.is_private && self.sleepers.is_empty()) {
            self.ask(fd, front);
        }
        was_least
    }

    /// Bytes were taken from the socket, whose front is now at `front`.
    pub fn moved(&mut self, fd: Fd, front: u64) {
        if !self.sleepers.is_empty() {
            self.sleepers.wake(front);
            self.ask(fd, front);
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
        self.moved(fd, u64::MAX);
    }

    /// Asks the kernel for what the first of the sleepers needs, or for what the application wants.
    fn ask(&mut self, fd: Fd, front: u64) {
        let bytes = match self.sleepers.least(front) {
            Some(least) => u32::try_from(least - front).unwrap_or(u32::MAX),
            None => self.application.unwrap_or(1),
        };
        // A failure costs wake-ups that come too early.
        if self.now != Some(bytes) && socket::set_receive_low_water(fd, bytes).is_ok() {
            self.now = Some(bytes);
        }
    }
}

/// Sleeps until the socket has something, or the sleeper is woken. Returns whether it has, and has not ended.
///
/// # Errors
/// ETIMEDOUT, EINTR.
pub fn sleep_on_socket(sleep: &Sleep, fd: Fd, until: Deadline) -> Result<bool, Errno> {
    let read = Events { read: true, hangup: true, ..Events::default() };
    let events = sleep.sleep(fd, read, until)?;
    Ok(events.read && !events.hangup && !events.dead)
}
