//! Whether memory that the other machine can write still has the values that the two ends have
//! stored there.
//!
//! Neither end needs to trust it: each checks the values that it reads there. But an overwritten
//! word can make both ends wait for each other, and then neither reads. So an end that waits for
//! its peer to take bytes checks now and then whether the peer still can.

use seekwire_protocol::record::{HEADER, Head, Record};

use super::pair::{QueueMemory, QueuePair, announced};
use super::rx::Rx;
use super::tx::Tx;
use crate::layout::{self, Geometry};
use crate::mem::PeerMemory;
use crate::sync::Ordering;

/// The words of the sending half, besides records, that the peer reads and only the holder changes.
const READ_BY_PEER: [usize; 7] = [
    layout::MAGIC_WORD,
    layout::LAYOUT_WORD,
    layout::SEGMENTS_WORD,
    layout::PUBLISHED,
    layout::PUBLISHED_BYTES,
    layout::TX_POSITION,
    layout::TX_TCP_BYTES,
];

impl<O: QueueMemory, P: PeerMemory> QueuePair<O, P> {
    /// Whether the ring has records that the peer, by its own account, has not taken. The end of
    /// the stream does not count: it stays where it is.
    #[inline]
    #[must_use]
    pub fn has_undelivered(&self) -> bool {
        let records = self.get(layout::TX_POSITION).wrapping_sub(self.consumed_mark());
        records > u64::from(self.is_shut()) && self.get(layout::RECALLED) == 0
    }

    fn peer_is_itself(&self) -> bool {
        announced(&self.peer) == Ok(self.peer_geometry)
    }

    /// Whether the peer can see the values of these words.
    fn shows(&self, mut offsets: impl Iterator<Item = usize>) -> bool {
        offsets.all(|offset| {
            let shown = self.own.shown(offset);
            shown.is_none_or(|shown| shown.load(Ordering::Relaxed) == self.get(offset))
        })
    }
}

impl<O: QueueMemory, P: PeerMemory> Tx<'_, O, P> {
    /// Whether the peer finds all records that it has not taken, and its words about them are
    /// possible. Always true if the peer cannot write the words that this end shows.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        let q = self.queue;
        if !q.own.shows_copies() {
            return true;
        }
        let position = q.get(layout::TX_POSITION);
        let consumed = q.consumed_mark();
        if !(q.get(layout::CONSUMED_SEEN)..=position).contains(&consumed) {
            return false;
        }
        q.set(layout::CONSUMED_SEEN, consumed);
        q.peer_is_itself()
            && q.shows(READ_BY_PEER.into_iter())
            && q.shows(self.words_of_records(consumed, position))
    }

    /// The words of the records between two positions that are not payload.
    pub(super) fn words_of_records(&self, from: u64, to: u64) -> impl Iterator<Item = usize> {
        let q = self.queue;
        let g: Geometry = q.geometry;
        let mut position = from;
        std::iter::from_fn(move || {
            let cell = g.cell_at(position);
            let record = match Record::decode(q.get(cell), position, g.segment_size()) {
                Head::Record(record) if position < to => record,
                _ => return None,
            };
            position += match record {
                Record::Pad => (g.cells() - g.lap_offset(position)) as u64,
                other => other.cells() as u64,
            };
            let has_word = matches!(record, Record::Segment { .. } | Record::RingAt);
            // The header is shown last.
            Some(has_word.then_some(cell + HEADER).into_iter().chain([cell]))
        })
        .flatten()
    }
}

impl<O: QueueMemory, P: PeerMemory> Rx<'_, O, P> {
    /// Whether the records that the peer claims to have published are on the ring. Always true if
    /// this end cannot write the words that the peer shows.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        let q = self.queue;
        if !q.own.shows_copies() || q.peer.load(layout::RECALLED, Ordering::Acquire) != 0 {
            return true;
        }
        // The peer stores it after the records.
        let published = q.peer.load(layout::PUBLISHED, Ordering::Acquire);
        let position = q.get(layout::RX_POSITION);
        q.peer_is_itself() && (published <= position || q.record_at(position) != Head::Empty)
    }
}
