//! How output is cut into blocks.

use crate::policy::size_bounds::SizeBounds;

/// Bytes of a limit that a block takes besides its own.
pub(crate) const OVERHEAD: usize = 128;

/// The longest payload: its length has four bytes.
pub(crate) const LONGEST_PAYLOAD: usize = u32::MAX as usize;

/// Room that a block with such a payload takes of a limit.
pub(crate) const LARGEST_ELSEWHERE: usize = LONGEST_PAYLOAD.saturating_add(OVERHEAD);

/// How a stream cuts output into blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// Each send is one block.
    #[default]
    Whole,
    /// Blocks of this many bytes. Shorter are the last one of a unit, and one after which a copy
    /// turns to another unit.
    Bytes(usize),
    /// Blocks of a size that the stream chooses while it runs. With a guaranteed latency or rate it
    /// is just large enough that the fixed cost of a block does not matter; otherwise it is the
    /// size with the highest throughput. Some blocks have another size, to measure costs and
    /// compare sizes.
    Auto(SizeBounds),
    /// Blocks of whole lines, of this many bytes or a little more: up to the end of the line. Bytes
    /// after the last end of a line also make a block.
    Lines(usize),
}

impl Cut {
    /// Whether a piece of this length can become blocks in place. Otherwise it is copied.
    pub(crate) fn keeps(self, len: usize) -> bool {
        match self {
            Self::Whole => true,
            Self::Bytes(size) => len >= size,
            Self::Auto(bounds) => len >= bounds.least,
            Self::Lines(_) => false,
        }
    }
}
