//! Room on the ring, as the sender sees it.

use seekwire_protocol::record::MAX_CELLS;

use super::pair::{QueueMemory, QueuePair};
use crate::layout::{self, Geometry};
use crate::mem::PeerMemory;
use crate::sync::Ordering;

/// Number of free descriptors that suffice for a record of any kind: a record that does not fit
/// into the rest of the lap wastes that rest, the header after it must be free to be cleared, and
/// there is the end.
const ANY_RECORD: usize = 2 * MAX_CELLS + END_RECORD;

/// Free descriptors that only the last record may use, the end of the stream or the switch to TCP,
/// so that it always fits.
pub(super) const END_RECORD: usize = 1;

/// Number of descriptors that may be in use while there is room for any record.
pub(super) fn most_used(geometry: Geometry) -> usize {
    geometry.cells().saturating_sub(ANY_RECORD)
}

impl<O: QueueMemory, P: PeerMemory> QueuePair<O, P> {
    /// Whether the sender has room for another record of any kind. A hint if taken without the
    /// lock.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        let position = self.get(layout::TX_POSITION);
        let consumed = self.peer.load(layout::CONSUMED, Ordering::Acquire);
        let segments = self
            .get(layout::ALLOTTED)
            .wrapping_sub(self.peer.load(layout::RETURNED, Ordering::Acquire));
        position.wrapping_sub(consumed) <= most_used(self.geometry) as u64
            && segments < self.geometry.segments() as u64
    }

    /// As [`Self::has_room`], without regard to segments that the application has reserved.
    #[must_use]
    pub fn has_unreserved_room(&self) -> bool {
        let used = self.get(layout::TX_POSITION).wrapping_sub(self.consumed_mark());
        let out = self
            .get(layout::ALLOTTED)
            .wrapping_sub(self.peer.load(layout::RETURNED, Ordering::Acquire));
        used <= most_used(self.geometry) as u64
            && out.saturating_sub(self.get(layout::RESERVED_COUNT))
                < self.geometry.segments() as u64
    }

    /// Whether the receiver cannot see some of these bytes before all of them are published: they
    /// make one record, or the ring has room for all. A hint if taken without the lock.
    #[inline]
    #[must_use]
    pub fn fits(&self, bytes: usize) -> bool {
        bytes <= self.geometry.segment_size() || (self.tx_on_ring() && self.has_room_for(bytes))
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        let used = self.get(layout::TX_POSITION).wrapping_sub(self.consumed_mark());
        let out = self
            .get(layout::ALLOTTED)
            .wrapping_sub(self.peer.load(layout::RETURNED, Ordering::Acquire));
        let records = bytes.div_ceil(self.geometry.segment_size()) as u64;
        used.saturating_add(records) <= most_used(self.geometry) as u64
            && out.saturating_add(records) <= self.geometry.segments() as u64
    }

    /// Whether half of the ring is free, and half of the segments that the application has not
    /// reserved. A hint if taken without the lock.
    #[must_use]
    pub fn has_ample_room(&self) -> bool {
        let used = self.get(layout::TX_POSITION).wrapping_sub(self.consumed_mark());
        let out = self
            .get(layout::ALLOTTED)
            .wrapping_sub(self.peer.load(layout::RETURNED, Ordering::Acquire));
        used <= (self.geometry.cells() / 2) as u64
            && out.saturating_sub(self.get(layout::RESERVED_COUNT))
                <= (self.geometry.segments() / 2) as u64
    }

    /// Changes whenever the peer has taken a record off the ring.
    #[inline]
    #[must_use]
    pub fn consumed_mark(&self) -> u64 {
        self.peer.load(layout::CONSUMED, Ordering::Acquire)
    }
}
