//! The parts of a queue pair that can be read without its locks.

use seekwire_protocol::Carrier;
use seekwire_protocol::record::{Head, Record};

use super::pair::{QueueMemory, QueuePair};
use crate::layout;
use crate::mem::PeerMemory;
use crate::sync::Ordering;

impl<O: QueueMemory, P: PeerMemory> QueuePair<O, P> {
    /// Changes when the peer has fallen asleep for data or was woken, and when this end has
    /// received something: the peer was alive then. The peer's word is in a cache line that each
    /// send reads.
    #[inline]
    #[must_use]
    pub fn life_mark(&self) -> u64 {
        let received = self.get(layout::RX_POSITION).wrapping_add(self.get(layout::RX_TCP_BYTES));
        self.peer.load(layout::ARM_DATA, Ordering::Relaxed).rotate_left(32) ^ received
    }

    /// Whether anything that the receiver has not taken lies at its position: data, a switch, or
    /// nonsense. A hint if taken without the lock.
    #[inline]
    #[must_use]
    pub fn has_record(&self) -> bool {
        self.look_at(self.get(layout::RX_POSITION)) != Head::Empty
    }

    /// The record that the receiver sees at a position: none if it is held back.
    #[inline]
    pub(super) fn look_at(&self, position: u64) -> Head {
        match self.record_at(position) {
            Head::Empty => Head::Empty,
            _ if self.is_held(position) => Head::Empty,
            head => head,
        }
    }

    /// The record that the peer has published at a position, held back or not.
    #[inline]
    pub(super) fn record_at(&self, position: u64) -> Head {
        let word = self.peer.load(self.peer_geometry.cell_at(position), Ordering::Acquire);
        Record::decode(word, position, self.peer_geometry.segment_size())
    }

    /// Remaining bytes of the record at the receiver's position, if it is a data record.
    fn head_bytes_left(&self) -> usize {
        let mut position = self.get(layout::RX_POSITION);
        let mut head = self.look_at(position);
        if head == Head::Record(Record::Pad) {
            position +=
                (self.peer_geometry.cells() - self.peer_geometry.lap_offset(position)) as u64;
            head = self.look_at(position);
        }
        match head {
            Head::Record(Record::Inline { len } | Record::Segment { len }) => {
                len.saturating_sub(self.offset_in(position))
            }
            _ => 0,
        }
    }

    /// Whether the receiver has bytes, or the end of the stream, next on the ring. False is certain
    /// only under the lock: a switch may have to be taken off the ring first.
    #[inline]
    #[must_use]
    pub fn has_data(&self) -> bool {
        let head = self.look_at(self.get(layout::RX_POSITION));
        let data = matches!(
            head,
            Head::Record(Record::Inline { .. } | Record::Segment { .. } | Record::Fin)
        );
        data && self.rx_on_ring()
    }

    /// Whether the next record for the receiver is the end of the stream.
    #[must_use]
    pub fn has_end(&self) -> bool {
        self.rx_on_ring()
            && self.look_at(self.get(layout::RX_POSITION)) == Head::Record(Record::Fin)
    }

    /// Whether the peer has shut its sending direction down.
    #[must_use]
    pub fn peer_is_shut(&self) -> bool {
        self.peer.load(layout::TX_SHUT, Ordering::Acquire) != 0
    }

    /// The carriers of both directions.
    #[must_use]
    pub fn carriers(&self) -> (Carrier, Carrier) {
        let rx = self.get(layout::RX_CARRIER) & !layout::RX_STANDING;
        (Carrier::from_code(self.get(layout::TX_CARRIER)), Carrier::from_code(rx))
    }

    /// Whether this end's next byte goes on the ring.
    #[inline]
    #[must_use]
    pub fn tx_on_ring(&self) -> bool {
        self.get(layout::TX_CARRIER) == Carrier::Ring as u64
    }

    /// Whether this end's next byte comes from the ring, according to the records it has taken.
    #[inline]
    #[must_use]
    pub fn rx_on_ring(&self) -> bool {
        self.get(layout::RX_CARRIER) == Carrier::Ring as u64
    }

    /// Whether the receiver is inside a read that keeps this end's sends from TCP, as
    /// [`Tx::may_use_tcp`](super::Tx::may_use_tcp) returns for the next one. A hint if taken
    /// without the lock.
    #[must_use]
    pub fn is_kept_from_tcp(&self) -> bool {
        let unbounded_read = self.peer.load(layout::UNBOUNDED_READ, Ordering::SeqCst) != 0;
        let consumed = self.peer.load(layout::CONSUMED, Ordering::SeqCst);
        !self.tx_on_ring() && !self.tx_switch().may_use_tcp(consumed, unbounded_read)
    }

    /// Whether this end's sending direction was shut down.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        self.get(layout::TX_SHUT) != 0
    }

    /// Changes whenever the peer publishes, or stops holding back what it has published.
    #[inline]
    #[must_use]
    pub fn published_mark(&self) -> u64 {
        // Before the hold is read, which begins before the records that it holds are published.
        let published = self.peer.load(layout::PUBLISHED, Ordering::Acquire);
        self.hold().map_or(published, |hold| hold.position.min(published))
    }

    /// Total bytes that the peer has published and does not hold back.
    #[inline]
    pub(super) fn released_bytes(&self) -> u64 {
        // As in `published_mark`.
        let published = self.peer.load(layout::PUBLISHED_BYTES, Ordering::Acquire);
        self.hold().map_or(published, |hold| hold.bytes.min(published))
    }

    /// Changes whenever the peer publishes bytes or the end of the stream, or stops holding bytes
    /// back, and with no other record.
    #[inline]
    #[must_use]
    pub fn data_mark(&self) -> u64 {
        self.released_bytes() << 1 | u64::from(self.peer_is_shut())
    }

    /// Whether the peer has given bytes to the kernel that this end has not received from there. A
    /// hint if taken without the lock.
    #[inline]
    #[must_use]
    pub fn peer_has_sent_by_tcp(&self) -> bool {
        self.peer.load(layout::TX_TCP_BYTES, Ordering::Acquire) != self.get(layout::RX_TCP_BYTES)
    }

    /// Bytes on the ring that this end has not taken: the peer's claim, bounded by what fits.
    #[must_use]
    pub fn unread(&self) -> usize {
        let published = self.released_bytes();
        let most = self.peer_geometry.cells() * seekwire_protocol::record::CELL
            + self.peer_geometry.segments() * self.peer_geometry.segment_size();
        let unread =
            (published.saturating_sub(self.get(layout::CONSUMED_BYTES)) as usize).min(most);
        // The peer counts bytes after it has published them, but readable bytes must not look
        // absent.
        unread.max(self.head_bytes_left())
    }

    /// Bytes on the ring that the peer has not taken, or that were recalled and wait for the
    /// kernel.
    #[must_use]
    pub fn unsent(&self) -> usize {
        let consumed = self.peer.load(layout::CONSUMED_BYTES, Ordering::Acquire);
        let published = self.get(layout::PUBLISHED_BYTES);
        // The peer may have taken bytes that are published but not counted yet.
        published.saturating_sub(consumed) as usize + self.to_retransmit()
    }

    /// Ring bytes sent and received so far.
    #[must_use]
    pub fn ring_bytes(&self) -> (u64, u64) {
        (self.get(layout::PUBLISHED_BYTES), self.get(layout::CONSUMED_BYTES))
    }

    /// TCP bytes sent and received so far.
    #[must_use]
    pub fn tcp_bytes(&self) -> (u64, u64) {
        (self.get(layout::TX_TCP_BYTES), self.get(layout::RX_TCP_BYTES))
    }
}
