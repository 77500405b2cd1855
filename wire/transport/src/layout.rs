//! The layout of the memory that one end writes and the other reads. Its version is
//! [`seekwire_protocol::offer::LAYOUT`].
//!
//! | offset | written by | words                                                        |
//! |--------|-----------|---------------------------------------------------------------|
//! | 0x000  | once      | magic, layout and ring size, segment size and count           |
//! | 0x040  | sender    | published position, published bytes; what ends the hold       |
//! | 0x080  | receiver  | consumed position, returned segments, consumed bytes          |
//! | 0x0c0  | both      | control bits, data arm and the mark it waits for, processor,  |
//! |        |           | unbounded read, recall, the hold that it knows                |
//! | 0x100  | sender    | space arm and the two marks it waits for; what was recalled;  |
//! |        |           | the hold                                                      |
//! | 0x140  | sender    | private: lock, position, switch, free list, arm bookkeeping   |
//! | 0x1c0  | receiver  | private: lock, position, switch, arm bookkeeping, SO_RCVLOWAT, |
//! |        |           | ancillary data that programs want, the length of the spill    |
//! | 0x240  | processes | private: who holds this end                                   |
//! | 0x2c0  | sender    | private: where the free list begins, the run of sends,        |
//! |        |           | recalls, where the full ring was left, what is kept           |
//! | 0x400  | sender    | private: list of free segments, state of each segment         |
//! |        | receiver  | ring that returns the peer's segments                         |
//! | page   | sender    | descriptor ring                                               |
//! | page   | sender    | segments                                                      |
//! | page   | sender    | private: bytes by TCP that are kept, to be sent again         |
//!
//! "Sender" and "receiver" are the two halves of the one end that owns the memory. "Private" words
//! are there, and not on the heap, because processes that fork share an end. The peer may read them
//! but learns nothing from them, and this end reads only its own. Each line of the table is a
//! separate cache line, so that no core polls a line that another one writes.
// The table documents the words.
#![allow(missing_docs)]

use std::ops::Range;

use seekwire_protocol::offer::LAYOUT;
use seekwire_protocol::record::{CELL, MAX_CELLS};

pub const MAGIC_WORD: usize = 0x000;
pub const LAYOUT_WORD: usize = 0x008;
pub const SEGMENTS_WORD: usize = 0x010;

pub const PUBLISHED: usize = 0x040;
pub const PUBLISHED_BYTES: usize = 0x048;
/// With [`HELD_FROM`]: the hold ends when the receiver has sent this many bytes.
pub const HELD_ANSWER: usize = 0x050;

pub const CONSUMED: usize = 0x080;
pub const RETURNED: usize = 0x088;
pub const CONSUMED_BYTES: usize = 0x090;

pub const CONTROL: usize = 0x0c0;
pub const ARM_DATA: usize = 0x0c8;
pub const UNBOUNDED_READ: usize = 0x0d0;
pub const PROCESSOR: usize = 0x0d8;
pub const RECALL_FROM: usize = 0x0e0;
pub const WANT_PUBLISHED: usize = 0x0e8;
/// With [`RECALL_FROM`]: bytes received by TCP, times 2, plus 1 if the next byte comes from the
/// ring.
pub const RECALL_TCP: usize = 0x0f0;
/// The peer's [`HELD_FROM`], once all waiters for data know how long it lasts; with the highest bit
/// if some do.
pub const KNOWN_HOLD: usize = 0x0f8;

pub const ARM_SPACE: usize = 0x100;
pub const WANT_CONSUMED: usize = 0x108;
pub const WANT_RETURNED: usize = 0x110;
pub const RECALLED: usize = 0x118;
/// With [`RECALLED`]: bytes by TCP up to this position are retransmitted as well; 0 when none are.
pub const DISCARD_UNTIL: usize = 0x120;
/// The position, plus 1, from which on the receiver holds records back; 0 when it holds none. It
/// lies next to the words of the peer that each receive reads.
pub const HELD_FROM: usize = 0x128;
/// With [`HELD_FROM`]: the end of the hold, by the clock of this machine; and the bytes published
/// before.
pub const HELD_UNTIL: usize = 0x130;
pub const HELD_BYTES: usize = 0x138;

pub const TX_LOCK: usize = 0x140;
pub const TX_POSITION: usize = 0x148;
pub const TX_CARRIER: usize = 0x150;
pub const TX_TCP_BYTES: usize = 0x158;
pub const TX_RING_SINCE: usize = 0x160;
pub const FREE_COUNT: usize = 0x168;
pub const PULLED: usize = 0x170;
pub const RUNG_DATA: usize = 0x178;

pub const CONSUMED_SEEN: usize = 0x180;
pub const ALLOTTED: usize = 0x188;
pub const SPACE_WAITERS: usize = 0x190;
pub const SPACE_SEQUENCE: usize = 0x198;
pub const TX_SHUT: usize = 0x1a0;
pub const TX_SWITCHING: usize = 0x1a8;
pub const RESERVED_COUNT: usize = 0x1b0;
/// Bits of [`holds`]. It lies next to the words that each send reads.
pub const TX_HOLDS: usize = 0x1b8;

pub const RX_LOCK: usize = 0x1c0;
pub const RX_POSITION: usize = 0x1c8;
pub const RX_OFFSET: usize = 0x1d0;
pub const RX_CARRIER: usize = 0x1d8;
pub const RX_TCP_BYTES: usize = 0x1e0;
pub const RUNG_SPACE: usize = 0x1e8;
pub const DATA_WAITERS: usize = 0x1f0;
pub const DATA_SEQUENCE: usize = 0x1f8;

pub const RETURNING: usize = 0x200;
/// Bytes to come by TCP that have to be discarded.
pub const RX_DISCARD: usize = 0x208;
/// SO_RCVLOWAT, once a process that shares this end has set it.
pub const LOW_WATER: usize = 0x210;
/// Not 0 once a process that shares this end has shut it down for reading.
pub const RX_SHUT: usize = 0x218;

/// The control messages that processes which share this end have asked for: bits of [`messages`].
pub const MESSAGES: usize = 0x220;
/// Not 0 once nothing is held back any more, whatever the peer writes.
pub const RX_UNHELD: usize = 0x228;
/// Bytes that were taken off the ring, and left for all holders of the socket; see
/// [`SpillFile`](crate::sys::spill::SpillFile).
pub const SPILL_LEN: usize = 0x230;
/// How processes that share this end have given it to other programs: bits of [`given`].
pub const GIVEN: usize = 0x238;

pub const HOLDERS: usize = 0x240;

pub const FREE_FIRST: usize = 0x2c0;
pub const RUN_BYTES: usize = 0x2c8;
pub const RUN_MARK: usize = 0x2d0;
pub const LEFT_AT: usize = 0x2d8;
pub const RETRANSMIT_FROM: usize = 0x2e0;
pub const RETRANSMIT_BYTES: usize = 0x2e8;
/// The peer's consumed position, plus 1, when the full ring was left; 0 when it was not, or was
/// entered again.
pub const OVERFLOWED_AT: usize = 0x2f0;
/// The position in the stream of TCP, plus 1, from which on bytes are kept; 0 when none are.
pub const KEPT_FROM: usize = 0x2f8;

/// With [`RETRANSMIT_FROM`]: the carrier of the next byte to retransmit, and its position in the
/// stream of TCP.
pub const RETRANSMIT_CARRIER: usize = 0x300;
pub const RETRANSMIT_TCP: usize = 0x308;
/// Not 0 once bytes are given to the kernel by calls that the library cannot count, or by other
/// programs that were given the socket.
pub const TX_UNCOUNTED: usize = 0x310;

/// Words that only the holder of the sending half changes.
pub(crate) const OF_SENDER: [Range<usize>; 3] =
    [PUBLISHED..CONSUMED, RECALLED..TX_LOCK, TX_LOCK..SPACE_WAITERS];
/// Words that only the holder of the receiving half changes.
pub(crate) const OF_RECEIVER: [Range<usize>; 2] = [CONSUMED..CONTROL, RX_LOCK..DATA_WAITERS];

/// Values of [`RECALLED`]; 0 is no answer yet.
pub const TAKEN: u64 = 1;
pub const REFUSED: u64 = 2;
pub const AT_WORK: u64 = 3;

/// Added to [`RX_CARRIER`] while this end asks for a recall without waiting for the answer.
pub const RX_STANDING: u64 = 2;

pub const HOLDER_SLOTS: usize = 8;
pub const FORKS_PENDING: usize = HOLDERS + HOLDER_SLOTS * 8;

/// Maximum number of bytes sent by TCP that are kept. By default, the kernel's buffers take less
/// while nobody receives: 4 to 5 MiB. Pages are only allocated when they are used.
pub const KEPT_BYTES: usize = if cfg!(loom) {
    64
} else if cfg!(miri) {
    64 << 10
} else {
    8 << 20
};

pub const TABLES: usize = 0x400;
const PAGE: usize = 4096;
const MAX_SEGMENTS: usize = 1024;
const MAGIC: u64 = u64::from_le_bytes(*b"SEEKWIRE");

/// Number of bytes taken of the record at `position`. `word` is [`RX_OFFSET`]: the number, with the
/// low half of the position that it belongs to; for another record it means nothing.
#[inline]
pub(crate) fn offset_at(word: u64, position: u64) -> usize {
    if word >> 32 == position & 0xffff_ffff { (word & 0xffff_ffff) as usize } else { 0 }
}

/// Bits of [`CONTROL`].
pub mod control {
    /// This end looks at its ring: the peer may use it.
    pub const READY: u64 = 1;
    /// This end wants TCP only from now on.
    pub const TCP_ONLY: u64 = 2;
    /// This end has closed the connection.
    pub const CLOSED: u64 = 4;
    /// This end takes nothing more off its ring: the peer is to retransmit it by TCP.
    pub const RECALL: u64 = 8;
    /// This end has seen the end of TCP, which the peer has not announced: perhaps the peer's
    /// socket was closed by a call that its library did not see.
    pub const SAW_END: u64 = 16;
    /// Nobody waits for the answer to [`RECALL`], which is also set, or about to be set again. So
    /// nobody would discard bytes that come by TCP before their turn.
    pub const STANDING: u64 = 32;
    /// This end is shut down both ways: TCP takes nothing more for it, and resets the connection if
    /// anything arrives.
    pub const REFUSES: u64 = 64;
    /// This end has checked for the last time whether the peer wants a retransmission, or is about
    /// to: its direction ends.
    pub const LAST_LOOK: u64 = 128;

    const _: () = assert!(
        (READY | TCP_ONLY | CLOSED | RECALL | SAW_END | STANDING | REFUSES | LAST_LOOK)
            .count_ones()
            == 8,
        "each bit says one thing"
    );
}

/// Bits of [`TX_HOLDS`].
pub mod holds {
    /// The application has corked the socket (TCP_CORK).
    pub const CORKED: u64 = 1;
    /// [`HELD_FROM`](super::HELD_FROM) is not 0.
    pub const HELD: u64 = 2;
    /// The bytes that are held back end a record (MSG_EOR): they do not wait for those of another.
    pub const ENDED: u64 = 4;
}

/// Bits of [`GIVEN`].
pub mod given {
    /// Another program has the socket, and nobody counts its processes.
    pub const TO_PROGRAM: u64 = 1;
    /// A message has passed it on, and perhaps nobody has received that yet.
    pub const IN_MESSAGE: u64 = 2;
}

/// Bits of [`MESSAGES`].
pub mod messages {
    /// The number of unread bytes (TCP_INQ).
    pub const UNREAD: u64 = 1;
    /// The kernel's control messages, such as time stamps.
    pub const OF_KERNEL: u64 = 2;
}

/// The size of a ring and its pool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    cells: u32,
    segment_size: u32,
    segments: u32,
}

/// A geometry that no honest end uses.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "impossible ring geometry: descriptors must be a power of two from 64 to 65536, segments a power of \
     two from 8 to 1024 of 4096 to 1048576 bytes each in whole pages, together at most 256 MiB"
)]
pub struct GeometryError;

impl Geometry {
    /// The largest memory that an end may have, in bytes.
    pub const MAX_BYTES: usize = 256 << 20;

    /// A ring of `cells` descriptors and a pool of `segments` segments of `segment_size` bytes.
    ///
    /// # Errors
    /// [`GeometryError`] if a number is out of range.
    pub fn new(cells: u32, segment_size: u32, segments: u32) -> Result<Self, GeometryError> {
        let geometry = Self { cells, segment_size, segments };
        let possible = cells.is_power_of_two()
            && (4 * MAX_CELLS as u32..=65536).contains(&cells)
            && segments.is_power_of_two()
            && (8..=MAX_SEGMENTS as u32).contains(&segments)
            && segment_size % (PAGE as u32) == 0
            && (PAGE as u32..=1 << 20).contains(&segment_size);
        if possible && geometry.bytes() <= Self::MAX_BYTES {
            Ok(geometry)
        } else {
            Err(GeometryError)
        }
    }

    /// A geometry that no end may have, so small that every order of events can be tried.
    #[cfg(loom)]
    #[must_use]
    pub fn tiny(cells: u32, segment_size: u32, segments: u32) -> Self {
        Self { cells, segment_size, segments }
    }

    /// Decodes the three header words of an end, each read once.
    pub(crate) fn decode(words: [u64; 3]) -> Result<Self, GeometryError> {
        let [magic, layout, segments] = words;
        if magic != MAGIC || layout & 0xffff_ffff != u64::from(LAYOUT) {
            return Err(GeometryError);
        }
        Self::new((layout >> 32) as u32, segments as u32, (segments >> 32) as u32)
    }

    pub(crate) fn encode(self) -> [u64; 3] {
        let layout = u64::from(self.cells) << 32 | u64::from(LAYOUT);
        [MAGIC, layout, u64::from(self.segments) << 32 | u64::from(self.segment_size)]
    }

    /// Descriptors in the ring.
    #[must_use]
    pub fn cells(self) -> usize {
        self.cells as usize
    }

    /// Bytes in a segment.
    #[must_use]
    pub fn segment_size(self) -> usize {
        self.segment_size as usize
    }

    /// Segments in the pool.
    #[must_use]
    pub fn segments(self) -> usize {
        self.segments as usize
    }

    /// Bytes of the whole memory; pages are only allocated when they are first used.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.shown_bytes() + KEPT_BYTES
    }

    /// Bytes at the front that the peer reads, in whole pages.
    #[must_use]
    pub fn shown_bytes(self) -> usize {
        self.segment_at(self.segments())
    }

    /// The entry for the `count`th returned segment in memory of this geometry, if the segments are
    /// those of an end of geometry `of`, which has as many entries as segments.
    #[inline]
    pub fn return_at(self, count: u64, of: Self) -> usize {
        self.state_at(self.segments()) + (count as usize & (of.segments() - 1)) * 8
    }

    #[inline]
    pub fn free_at(self, place: u64) -> usize {
        TABLES + (place as usize & (self.segments() - 1)) * 8
    }

    #[inline]
    pub(crate) fn state_at(self, segment: usize) -> usize {
        TABLES + (self.segments() + segment) * 8
    }

    #[inline]
    fn ring_at(self) -> usize {
        (self.state_at(self.segments()) + MAX_SEGMENTS * 8).next_multiple_of(PAGE)
    }

    /// The descriptor of a position.
    #[inline]
    pub fn cell_at(self, position: u64) -> usize {
        self.ring_at() + self.lap_offset(position) * CELL
    }

    /// The distance of a position from the start of its lap, in descriptors.
    #[inline]
    pub(crate) fn lap_offset(self, position: u64) -> usize {
        position as usize & (self.cells() - 1)
    }

    /// The offset of a segment.
    #[inline]
    pub fn segment_at(self, segment: usize) -> usize {
        let behind_ring = (self.ring_at() + self.cells() * CELL).next_multiple_of(PAGE);
        behind_ring + segment * self.segment_size()
    }

    /// The location of `len` kept bytes from a position on: an offset and a length each, before and
    /// after the wrap.
    pub(crate) fn kept_at(self, position: u64, len: usize) -> ((usize, usize), (usize, usize)) {
        let at = (position % KEPT_BYTES as u64) as usize;
        let first = len.min(KEPT_BYTES - at);
        let kept = self.shown_bytes();
        ((kept + at, first), (kept, len - first))
    }
}

impl Default for Geometry {
    /// The geometry that follows from the experiment `ring-size` (lab/experiments/ring-size.md).
    fn default() -> Self {
        Self { cells: 512, segment_size: 32 << 10, segments: 64 }
    }
}

const _: () = assert!(FORKS_PENDING + 8 <= FREE_FIRST && RETRANSMIT_TCP + 8 <= TABLES);
const _: () = assert!(CELL == 64 && MAX_CELLS.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_follow_each_other_without_overlap() {
        for (cells, size, segments) in [(64, 4096, 8), (512, 32768, 32), (65536, 1 << 20, 128)] {
            let g = Geometry::new(cells, size, segments).unwrap();
            let largest = Geometry::new(64, 4096, MAX_SEGMENTS as u32).unwrap();
            assert!(g.free_at(g.segments() as u64 - 1) < g.state_at(0));
            assert_eq!(g.free_at(g.segments() as u64), g.free_at(0));
            assert!(g.state_at(g.segments() - 1) < g.return_at(0, largest));
            assert!(g.return_at(MAX_SEGMENTS as u64 - 1, largest) + 8 <= g.cell_at(0));
            assert_eq!(g.return_at(u64::from(segments), g), g.return_at(0, g));
            assert!(g.cell_at(g.cells() as u64 - 1) + CELL <= g.segment_at(0));
            assert_eq!(g.segment_at(g.segments()), g.shown_bytes());
            let (last, none) = g.kept_at(KEPT_BYTES as u64 - 1, 1);
            assert_eq!((last, none), ((g.bytes() - 1, 1), (g.shown_bytes(), 0)));
            assert_eq!(Geometry::decode(g.encode()), Ok(g));
        }
    }

    #[test]
    fn the_default_is_possible() {
        let g = Geometry::default();
        assert_eq!(Geometry::new(g.cells, g.segment_size, g.segments), Ok(g));
    }

    #[test]
    fn impossible_numbers_are_refused() {
        for (cells, size, segments) in [
            (0, 4096, 8),
            (63, 4096, 8),
            (64, 4095, 8),
            (64, 4096, 0),
            (64, 0, 8),
            (64, 1 << 20, 1024),
            (64, 4096, 2048),
        ] {
            assert_eq!(Geometry::new(cells, size, segments), Err(GeometryError));
        }
    }
}
