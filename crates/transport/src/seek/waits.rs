//! Who sleeps for which bytes of the kernel's socket.
//!
//! A sleeper asks the kernel to wake it when all that it needs is there, by SO_RCVLOWAT, so that it is woken once and
//! not for every segment. The kernel says "readable" earlier when its memory is nearly full or the window nearly shut
//! (tcp(7), `tcp_epollin_ready`): nothing more comes until something is taken out, and that is how a range that cannot
//! arrive is found out. Whoever moves bytes away from the front of the socket sets the mark anew, and rings for those
//! whose bytes it has moved.

use std::sync::Arc;

use crate::Errno;
use crate::sys::bell::Bell;
use crate::sys::poll::{self, Deadline, Events};
use crate::sys::{Fd, socket};

/// The sleepers of one stream. For one caller at a time.
#[derive(Debug, Default)]
pub struct KernelWaits {
    sleepers: Vec<Sleeper>,
    spare: Vec<Arc<Bell>>,
    /// SO_RCVLOWAT as the application set it.
    low_water: Option<u32>,
}

#[derive(Debug)]
struct Sleeper {
    /// Position that has to have arrived.
    end: u64,
    bell: Arc<Bell>,
    rung: bool,
}

/// Of one sleeper.
#[derive(Debug)]
pub struct Wait {
    end: u64,
    bell: Arc<Bell>,
}

/// Bells that are kept for the next time.
const SPARE: usize = 2;

impl KernelWaits {
    /// Enters a sleeper for the bytes before `end`, with the socket's front at `front`.
    ///
    /// # Errors
    /// Those of eventfd(2).
    pub fn begin(&mut self, fd: Fd, front: u64, end: u64) -> Result<Wait, Errno> {
        let bell = match self.spare.pop() {
            Some(bell) => bell,
            None => {
                let bell =
                    Bell::new().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))?;
                Arc::new(bell)
            }
        };
        if self.sleepers.is_empty() {
            self.low_water = socket::receive_low_water(fd).ok().map(|bytes| bytes as u32);
        }
        self.sleepers.push(Sleeper { end, bell: Arc::clone(&bell), rung: false });
        self.set_low_water(fd, front);
        Ok(Wait { end, bell })
    }

    /// The sleeper is awake. Returns whether the kernel was asked for just what it needs.
    pub fn end(&mut self, fd: Fd, front: u64, wait: Wait) -> bool {
        let was_least = self.sleepers.iter().all(|other| other.end >= wait.end);
        if let Some(at) = self.sleepers.iter().position(|other| Arc::ptr_eq(&other.bell, &wait.bell)) {
            if self.sleepers.swap_remove(at).rung {
                wait.bell.quiet();
            }
        }
        if self.spare.len() < SPARE {
            self.spare.push(wait.bell);
        }
        self.set_low_water(fd, front);
        was_least
    }

    /// Bytes were taken from the socket, whose front is now at `front`.
    pub fn moved(&mut self, fd: Fd, front: u64) {
        if self.sleepers.is_empty() {
            return;
        }
        for sleeper in self.sleepers.iter_mut().filter(|sleeper| sleeper.end <= front && !sleeper.rung) {
            sleeper.rung = true;
            sleeper.bell.ring();
        }
        self.set_low_water(fd, front);
    }

    fn set_low_water(&self, fd: Fd, front: u64) {
        let needs =
            self.sleepers.iter().filter(|sleeper| sleeper.end > front).map(|sleeper| sleeper.end - front);
        let bytes = match needs.min() {
            Some(need) => u32::try_from(need).unwrap_or(u32::MAX),
            None => self.low_water.unwrap_or(1),
        };
        // A failure costs wake-ups that come too early.
        let _ = socket::set_receive_low_water(fd, bytes);
    }
}

impl Wait {
    /// Sleeps. Returns whether the socket, which has not ended, has something; not to be called with a lock held.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR.
    pub fn sleep(&self, fd: Fd, until: Deadline) -> Result<bool, Errno> {
        let read = Events { read: true, hangup: true, ..Events::default() };
        let (_, events) = poll::wait(self.bell.fd(), fd, read, until)?;
        Ok(events.read && !events.hangup && !events.dead)
    }
}
