//! Waiting for more than the next record: a receiver that needs a number of bytes is not woken for
//! each message before, as with SO_RCVLOWAT for TCP.
//!
//! The receiver writes the number of bytes next to its arm number. After publishing, the sender
//! rings only if it has published that many, or can publish no more.

use seekwire_protocol::Carrier;

use super::pair::{QueueMemory, QueuePair};
use super::room::most_used;
use crate::layout;
use crate::mem::PeerMemory;
use crate::sync::Ordering;

impl<O: QueueMemory, P: PeerMemory> QueuePair<O, P> {
    /// Whether the peer shows that it has no room for another record: then more comes only after
    /// bytes are taken off the ring.
    #[must_use]
    pub fn peer_is_full(&self) -> bool {
        let g = self.peer_geometry;
        let load = |word| self.peer.load(word, Ordering::Relaxed);
        let used = load(layout::TX_POSITION).wrapping_sub(self.get(layout::RX_POSITION));
        let segments = load(layout::ALLOTTED).wrapping_sub(self.get(layout::RETURNED));
        used > most_used(g) as u64 || segments >= g.segments() as u64
    }

    /// Total bytes that the peer has published when there are `bytes` more than those that were
    /// taken off the ring in order.
    #[must_use]
    pub fn published_with(&self, bytes: u64) -> u64 {
        self.get(layout::CONSUMED_BYTES).saturating_add(bytes)
    }

    /// Whether the peer has published this many bytes in all and holds none of them back, or cannot
    /// be expected to: the ring is full, the peer has ended, or goes on by TCP.
    #[must_use]
    pub fn peer_has_published(&self, bytes: u64) -> bool {
        self.released_bytes() >= bytes
            || self.peer_is_full()
            || self.peer_is_shut()
            || (self.rx_on_ring()
                && self.peer.load(layout::TX_CARRIER, Ordering::Acquire) != Carrier::Ring as u64)
    }

    /// As [`Self::arm_data`], for a waiter that need not wake before the peer has published this
    /// many bytes in all, or has no room for more, or ends; 0 for any bytes at all. True if another
    /// thread has armed at the same time and data is there: the peer may not have rung for that
    /// thread, so the caller does.
    pub fn arm_data_for(&self, published: u64) -> bool {
        self.own.word(layout::DATA_WAITERS).fetch_add(1, Ordering::SeqCst);
        self.rearm_data_for(published)
    }

    /// A new arm number, as for [`Self::arm_data_for`].
    pub fn rearm_data_for(&self, published: u64) -> bool {
        let waiters = || self.own.word(layout::DATA_WAITERS).load(Ordering::SeqCst);
        if published > 0 && waiters() == 1 {
            self.set(layout::WANT_PUBLISHED, published);
            self.arm_for_data();
            // Another thread may have armed in between, for any bytes at all.
            return waiters() != 1 && self.rearm_data();
        }
        self.rearm_data();
        false
    }
}
