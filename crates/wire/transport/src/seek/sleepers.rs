//! Threads that sleep until certain bytes have arrived. Each has a doorbell of its own: if several
//! shared one, the first to wake would silence it for the others.

use std::sync::Arc;
use std::time::Instant;

use crate::Errno;
use crate::sys::Fd;
use crate::sys::doorbell::Doorbell;
use crate::sys::poll::{self, Deadline, Events};

/// Doorbells that are kept for the next time.
const SPARE: usize = 2;

/// Those who sleep for one stream. For one caller at a time.
#[derive(Debug, Default)]
pub struct Sleepers {
    /// The leader: one sleeper that sleeps on the ring's doorbell, until the bytes before this
    /// position have come. When it wakes, it wakes the others.
    leader: Option<u64>,
    asleep: Vec<Sleeper>,
    spare: Vec<Arc<Doorbell>>,
}

#[derive(Debug)]
struct Sleeper {
    /// Position that has to have arrived.
    end: u64,
    doorbell: Arc<Doorbell>,
    rung: bool,
}

/// When the leader wakes, to a sleeper who needs some bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Leader {
    /// As soon as these bytes have come, or before.
    InTime,
    /// When bytes behind them have come, too: the leader has to look again.
    Late,
}

/// One sleep, on a doorbell of its own.
#[derive(Debug)]
pub struct Sleep {
    end: u64,
    doorbell: Arc<Doorbell>,
    since: Instant,
}

impl Sleepers {
    /// Enters one for the bytes before `end`.
    ///
    /// # Errors
    /// Those of eventfd(2).
    pub fn begin(&mut self, end: u64) -> Result<Sleep, Errno> {
        let doorbell = match self.spare.pop() {
            Some(doorbell) => doorbell,
            None => {
                let doorbell = Doorbell::new()
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))?;
                Arc::new(doorbell)
            }
        };
        self.asleep.push(Sleeper { end, doorbell: Arc::clone(&doorbell), rung: false });
        Ok(Sleep { end, doorbell, since: Instant::now() })
    }

    /// It is awake.
    pub fn end(&mut self, sleep: Sleep) {
        let at = self.asleep.iter().position(|other| Arc::ptr_eq(&other.doorbell, &sleep.doorbell));
        if at.is_some_and(|at| self.asleep.swap_remove(at).rung) {
            sleep.doorbell.quiet();
        }
        if self.spare.len() < SPARE {
            self.spare.push(sleep.doorbell);
        }
    }

    /// Wakes those who wait for bytes before `end`.
    pub fn wake(&mut self, end: u64) {
        for sleeper in self.asleep.iter_mut().filter(|sleeper| sleeper.end <= end && !sleeper.rung)
        {
            sleeper.rung = true;
            sleeper.doorbell.ring();
        }
    }

    /// The lowest position behind `front` that a sleeper waits for.
    #[must_use]
    pub fn least(&self, front: u64) -> Option<u64> {
        self.asleep.iter().map(|sleeper| sleeper.end).filter(|end| *end > front).min()
    }

    /// Whether there is a leader; and if so, when it wakes, to a sleeper who needs the bytes before
    /// `end`.
    #[must_use]
    pub fn leader(&self, end: u64) -> Option<Leader> {
        self.leader.map(|led| if end < led { Leader::Late } else { Leader::InTime })
    }

    /// The caller becomes the leader: it is about to sleep on the ring's doorbell for the bytes
    /// before `end`, with the front at `front`. Returns the position that it has to wake for:
    /// another sleeper may need less.
    pub fn lead(&mut self, end: u64, front: u64) -> u64 {
        let end = self.least(front).map_or(end, |least| least.min(end));
        self.leader = Some(end);
        end
    }

    /// The leader is awake: one of the others takes over.
    pub fn end_lead(&mut self) {
        self.leader = None;
        self.wake(u64::MAX);
    }

    /// Those who slept are threads of another process: this one was forked from it. Returns whether
    /// there were any.
    pub fn forget(&mut self) -> bool {
        // Their doorbells are shared with them.
        let others = std::mem::take(self);
        others.leader.is_some() || !others.asleep.is_empty()
    }

    /// Whether nobody sleeps.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.asleep.is_empty()
    }
}

impl Sleep {
    /// Position that has to have arrived.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.end
    }

    /// When it was entered.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Sleeps until it is woken, or something happens to the socket, if there is one: what is
    /// wanted of it is `of_socket`, and what came is returned. Not to be called with a lock held.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR.
    pub fn sleep(&self, socket: Fd, of_socket: Events, until: Deadline) -> Result<Events, Errno> {
        poll::wait(self.doorbell.fd(), socket, of_socket, until).map(|(_, events)| events)
    }
}
