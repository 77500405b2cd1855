//! Recounting after a death. Bytes are counted once per call, after they have moved; if a call does
//! not return, the counts are too low.

use seekwire_protocol::record::{Head, Record};

use super::pair::{QueueMemory, QueuePair};
use crate::layout::{self, Geometry};
use crate::mem::PeerMemory;
use crate::sync::Ordering;
use crate::sys::thread::relax;

/// How often the peer's words are read until they are stable. It holds its lock for less than a
/// microsecond; if it is never seen without, the counts stay as they are.
const LOOKS: u32 = 1000;

impl<O: QueueMemory, P: PeerMemory> QueuePair<O, P> {
    /// The published bytes are those that the peer has taken plus those on the ring. For the holder
    /// of the sending half.
    pub(super) fn recount_published(&self) {
        let words = [layout::CONSUMED, layout::RX_OFFSET, layout::CONSUMED_BYTES];
        let Some([consumed, begun, taken]) = self.peer_at_rest(words, layout::RX_LOCK) else {
            return;
        };
        // Recalled bytes are on the ring but do not count.
        if self.get(layout::RECALLED) != 0 {
            return;
        }
        let load = |offset| self.own.word(offset).load(Ordering::Relaxed);
        let there = data_bytes(self.geometry, load, consumed, self.get(layout::TX_POSITION));
        if let Some(there) = there {
            let left = there.saturating_sub(layout::offset_at(begun, consumed) as u64);
            self.set_in_order(layout::PUBLISHED_BYTES, taken.saturating_add(left));
        }
    }

    /// The consumed bytes are those that the peer has published minus those on the ring. For the
    /// holder of the receiving half.
    pub(super) fn recount_consumed(&self) {
        let words = [layout::TX_POSITION, layout::PUBLISHED_BYTES, layout::RECALLED];
        let Some([end, published, recalled]) = self.peer_at_rest(words, layout::TX_LOCK) else {
            return;
        };
        if recalled != 0 {
            return;
        }
        let position = self.get(layout::RX_POSITION);
        let load = |offset| self.peer.load(offset, Ordering::Relaxed);
        if let Some(there) = data_bytes(self.peer_geometry, load, position, end) {
            let left = there.saturating_sub(self.offset_in(position) as u64);
            self.set_in_order(layout::CONSUMED_BYTES, published.saturating_sub(left));
        }
    }

    /// Words that the peer changes only under `lock`, with their values while it is free.
    fn peer_at_rest<const N: usize>(&self, words: [usize; N], lock: usize) -> Option<[u64; N]> {
        let look = || words.map(|word| self.peer.load(word, Ordering::Acquire));
        for _ in 0..LOOKS {
            let seen = look();
            // A reader that saw a holder's change also sees that it holds the lock, or sees all of
            // its changes.
            if self.peer.load(lock, Ordering::Acquire) == 0 && look() == seen {
                return Some(seen);
            }
            relax();
        }
        None
    }
}

/// Bytes of data in the records between two positions of a ring; `None` if the records do not lead
/// from one to the other.
fn data_bytes(g: Geometry, load: impl Fn(usize) -> u64, from: u64, to: u64) -> Option<u64> {
    if to.checked_sub(from)? > g.cells() as u64 {
        return None;
    }
    let (mut position, mut bytes) = (from, 0);
    while position < to {
        let word = load(g.cell_at(position));
        let Head::Record(record) = Record::decode(word, position, g.segment_size()) else {
            return None;
        };
        if let Record::Inline { len } | Record::Segment { len } = record {
            bytes += len as u64;
        }
        position += match record {
            Record::Pad => (g.cells() - g.lap_offset(position)) as u64,
            other => other.cells() as u64,
        };
    }
    (position == to).then_some(bytes)
}
