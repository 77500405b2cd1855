//! Threads that sleep until certain bytes have arrived. Each has a doorbell of its own: if several
//! shared one, the first to wake would silence it for the others.

use std::sync::Arc;
use std::time::Instant;

use crate::Errno;
use crate::sys::Fd;
use crate::sys::doorbell::Doorbell;
use crate::sys::poll::{self, Deadline, Events};

/// Doorbells that are kept for reuse.
const SPARE: usize = 2;

/// The sleepers for one stream. For one caller at a time.
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
    /// The position that has to have arrived.
    end: u64,
    doorbell: Arc<Doorbell>,
    rung: bool,
}

/// When the leader wakes, relative to the bytes that a sleeper needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Leader {
    /// As soon as these bytes have come, or earlier.
    InTime,
    /// After bytes that follow them have come as well: the leader has to look again.
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
    /// Enters a sleeper for the bytes before `end`.
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

    /// Removes a sleeper that is awake.
    pub fn end(&mut self, sleep: Sleep) {
        let at = self.asleep.iter().position(|other| Arc::ptr_eq(&other.doorbell, &sleep.doorbell));
        if at.is_some_and(|at| self.asleep.swap_remove(at).rung) {
            sleep.doorbell.quiet();
        }
        if self.spare.len() < SPARE {
            self.spare.push(sleep.doorbell);
        }
    }

    /// Wakes the sleepers for bytes before `end`.
    pub fn wake(&mut self, end: u64) {
        for sleeper in self.asleep.iter_mut().filter(|sleeper| sleeper.end <= end && !sleeper.rung)
        {
            sleeper.rung = true;
            sleeper.doorbell.ring();
        }
    }

    /// The lowest position after `front` that a sleeper waits for.
    #[must_use]
    pub fn least(&self, front: u64) -> Option<u64> {
        self.asleep.iter().map(|sleeper| sleeper.end).filter(|end| *end > front).min()
    }

    /// Whether there is a leader, and if so, when it wakes for a sleeper that needs the bytes
    /// before `end`.
    #[must_use]
    pub fn leader(&self, end: u64) -> Option<Leader> {
        self.leader.map(|led| if end < led { Leader::Late } else { Leader::InTime })
    }

    /// The caller becomes the leader: it is about to sleep on the ring's doorbell for the bytes
    /// before `end`, with the front at `front`. Returns the position for which it has to wake:
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

    /// After a fork, in the child: the sleepers are threads of the parent. Returns whether there
    /// were any.
    pub fn forget(&mut self) -> bool {
        // The parent shares their doorbells.
        let others = std::mem::take(self);
        others.leader.is_some() || !others.asleep.is_empty()
    }

    /// Whether there are no sleepers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.asleep.is_empty()
    }
}

impl Sleep {
    /// The position that has to have arrived.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.end
    }

    /// The time at which it was entered.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Sleeps until it is woken, or the socket, if there is one, has an event of `of_socket`;
    /// returns the socket's events. Not to be called with a lock held.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR.
    pub fn sleep(&self, socket: Fd, of_socket: Events, until: Deadline) -> Result<Events, Errno> {
        poll::wait(self.doorbell.fd(), socket, of_socket, until).map(|(_, events)| events)
    }
}
