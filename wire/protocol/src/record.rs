//! The header word of one record in a descriptor ring.
//!
//! The ring is an array of 64-byte descriptors ("cells"). A record takes one cell, or, when its
//! payload is inline and longer, as many consecutive cells as it needs. Its first 8 bytes are this
//! word, written last; the reader takes it once and believes nothing that it has not checked.
//!
//! ```text
//!   63            40 39      32 31                              0
//!   +---------------+----------+--------------------------------+
//!   | length (24)   | kind (8) | position, low 32 bits          |
//!   +---------------+----------+--------------------------------+
//! ```
//!
//! The position is that of the first cell, counted from the beginning of the connection, so a
//! header left by an earlier lap is never taken for a new record. Kind 0 is "nothing here yet".

/// Bytes in one descriptor.
pub const CELL: usize = 64;
/// Bytes of the header word.
pub const HEADER: usize = 8;
/// The longest record in descriptors.
pub const MAX_CELLS: usize = 16;
/// The longest inline payload in bytes.
pub const INLINE_MAX: usize = MAX_CELLS * CELL - HEADER;

/// One record, decoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Record {
    /// `len` bytes of the stream follow the header in the ring itself.
    Inline {
        /// Payload bytes, 1 to [`INLINE_MAX`].
        len: usize,
    },
    /// Bytes of the stream lie in a segment of the pool.
    Segment {
        /// Payload bytes, at least 1.
        len: usize,
    },
    /// Nothing: the next record begins at the start of the ring.
    Pad,
    /// This direction leaves TCP: the position in the TCP stream follows the header.
    RingAt,
    /// This direction goes on by TCP.
    Tcp,
    /// The writer has shut its direction down; nothing follows.
    Fin,
}

const INLINE: u64 = 1;
const SEGMENT: u64 = 2;
const PAD: u64 = 3;
const RING_AT: u64 = 4;
const TCP: u64 = 5;
const FIN: u64 = 6;

/// The state of the ring at a position, as the reader finds it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Head {
    /// Nothing published there yet.
    Empty,
    /// A record.
    Record(Record),
    /// No writer that follows the protocol writes this.
    Invalid,
}

impl Record {
    /// The header word that publishes this record at `position`.
    #[must_use]
    pub fn encode(self, position: u64) -> u64 {
        let (kind, len) = match self {
            Self::Inline { len } => (INLINE, len),
            Self::Segment { len } => (SEGMENT, len),
            Self::Pad => (PAD, 0),
            Self::RingAt => (RING_AT, 0),
            Self::Tcp => (TCP, 0),
            Self::Fin => (FIN, 0),
        };
        (len as u64) << 40 | kind << 32 | position & 0xffff_ffff
    }

    /// Reads a header word found at `position`; `segment_size` bounds a segment's length.
    #[must_use]
    pub fn decode(word: u64, position: u64, segment_size: usize) -> Head {
        let kind = word >> 32 & 0xff;
        if kind == 0 || word & 0xffff_ffff != position & 0xffff_ffff {
            return Head::Empty;
        }
        let len = (word >> 40) as usize;
        let record = match kind {
            INLINE if (1..=INLINE_MAX).contains(&len) => Self::Inline { len },
            SEGMENT if (1..=segment_size).contains(&len) => Self::Segment { len },
            PAD if len == 0 => Self::Pad,
            RING_AT if len == 0 => Self::RingAt,
            TCP if len == 0 => Self::Tcp,
            FIN if len == 0 => Self::Fin,
            _ => return Head::Invalid,
        };
        Head::Record(record)
    }

    /// Descriptors that the record takes; a [`Record::Pad`] takes the rest of its lap.
    #[must_use]
    pub fn cells(self) -> usize {
        match self {
            Self::Inline { len } => (HEADER + len).div_ceil(CELL),
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_record_round_trips(position: u64, len in 1..=INLINE_MAX, segment in 1usize..=1 << 20) {
            for record in [
                Record::Inline { len },
                Record::Segment { len: segment },
                Record::Pad,
                Record::RingAt,
                Record::Tcp,
                Record::Fin,
            ] {
                let word = record.encode(position);
                prop_assert_eq!(Record::decode(word, position, 1 << 20), Head::Record(record));
                prop_assert_eq!(Record::decode(word, position.wrapping_add(512), 1 << 20), Head::Empty);
            }
        }

        #[test]
        fn any_word_is_within_bounds(word: u64, position: u64) {
            if let Head::Record(record) = Record::decode(word, position, 4096) {
                prop_assert!(record.cells() <= MAX_CELLS);
                if let Record::Segment { len } = record {
                    prop_assert!(len <= 4096);
                }
            }
        }
    }

    #[test]
    fn zero_is_empty_at_every_position() {
        for position in [0, 1, u64::MAX, 1 << 32] {
            assert_eq!(Record::decode(0, position, 4096), Head::Empty);
        }
    }
}
