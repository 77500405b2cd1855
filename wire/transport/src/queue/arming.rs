//! Arming: asking the peer to ring before this end sleeps.

use super::pair::{QueueMemory, QueuePair};
use super::room::most_used;
use crate::layout;
use crate::mem::PeerMemory;
use crate::sync::Ordering;

impl<O: QueueMemory, P: PeerMemory> QueuePair<O, P> {
    /// Asks the peer to ring when it publishes. Returns whether something is there already. Each
    /// call is undone by one of [`Self::disarm_data`].
    pub fn arm_data(&self) -> bool {
        self.own.word(layout::DATA_WAITERS).fetch_add(1, Ordering::SeqCst);
        self.rearm_data()
    }

    /// A new arm number for a waiter that goes back to sleep.
    pub fn rearm_data(&self) -> bool {
        self.set(layout::WANT_PUBLISHED, 0);
        self.arm_for_data();
        self.has_record()
    }

    pub(super) fn arm_for_data(&self) {
        let number = self.own.word(layout::DATA_SEQUENCE).fetch_add(1, Ordering::Relaxed) + 1;
        // SYNC POINT "data", waiter: arm, fence, look at the ring; see `Tx::announce`.
        self.own.store_fenced(layout::ARM_DATA, number);
    }

    /// The waiter has woken; the last one takes the arm away.
    pub fn disarm_data(&self) {
        self.disarm(layout::ARM_DATA, layout::DATA_WAITERS);
    }

    /// Asks the peer to ring when half of the missing room is free again. Returns whether there is
    /// room already. Each call is undone by one of [`Self::disarm_space`].
    pub fn arm_space(&self) -> bool {
        self.own.word(layout::SPACE_WAITERS).fetch_add(1, Ordering::Relaxed);
        self.rearm_space()
    }

    /// A new arm number for a waiter that goes back to sleep.
    pub fn rearm_space(&self) -> bool {
        // Waking for every freed segment would cost a context switch each; waking for half a ring
        // keeps the receiver busy meanwhile.
        let used = (self.geometry.cells() / 2).min(most_used(self.geometry));
        let cells = self.get(layout::TX_POSITION).saturating_sub(used as u64);
        // Reserved segments do not come back from the receiver.
        let missing = self.get(layout::RESERVED_COUNT).max(self.geometry.segments() as u64 / 2);
        let segments = self.get(layout::ALLOTTED).saturating_sub(missing);
        self.set(layout::WANT_CONSUMED, cells);
        self.set(layout::WANT_RETURNED, segments);
        let number = self.own.word(layout::SPACE_SEQUENCE).fetch_add(1, Ordering::Relaxed) + 1;
        // SYNC POINT "space", waiter: arm, fence, look for room; see `Rx::announce`.
        self.own.store_fenced(layout::ARM_SPACE, number);
        self.has_room()
    }

    /// The waiter has woken; the last one takes the arm away.
    pub fn disarm_space(&self) {
        self.disarm(layout::ARM_SPACE, layout::SPACE_WAITERS);
    }

    fn disarm(&self, arm: usize, waiters: usize) {
        // Another waiter may arm meanwhile, and must stay armed. A waiter is counted before it
        // arms: either its number is seen here, and then it is counted among the others, or the
        // number has changed.
        let number = self.own.word(arm).load(Ordering::Acquire);
        if self.own.word(waiters).fetch_sub(1, Ordering::Relaxed) == 1 {
            self.own.store_if(arm, number, 0);
        }
    }

    /// The doorbell was silenced by a waiter that is armed for data, for space, or both. The peer has
    /// perhaps rung for the last number of each kind, and would not ring for it again: new numbers,
    /// for the other waiters.
    pub fn rearm_others(&self, data: bool, space: bool) {
        if self.number_of_readers() > u64::from(data) {
            self.rearm_data();
        }
        if self.get(layout::SPACE_WAITERS) > u64::from(space) {
            self.rearm_space();
        }
    }

    /// A ring did not reach the peer: makes the next publication or release ring again.
    pub fn ring_again(&self) {
        self.set(layout::RUNG_DATA, 0);
        self.set(layout::RUNG_SPACE, 0);
    }

    /// Whether threads of this end wait for data.
    #[must_use]
    pub fn has_readers(&self) -> bool {
        self.number_of_readers() > 0
    }

    /// Whether threads of this end wait for space.
    #[must_use]
    pub fn has_writers(&self) -> bool {
        self.get(layout::SPACE_WAITERS) > 0
    }

    /// How many times this end is armed for data.
    #[must_use]
    pub fn number_of_readers(&self) -> u64 {
        self.get(layout::DATA_WAITERS)
    }

    /// How many times this end is armed now.
    #[must_use]
    pub fn number_of_waiters(&self) -> u64 {
        self.get(layout::DATA_WAITERS) + self.get(layout::SPACE_WAITERS)
    }
}
