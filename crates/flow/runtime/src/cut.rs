//! How what is sent becomes blocks.

use crate::tune::Bounds;

/// What a block takes of a limit besides its bytes.
pub(crate) const OVERHEAD: usize = 128;

/// How a stream cuts what is sent into blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// A block is what a filter has sent at once.
    #[default]
    Whole,
    /// Blocks of so many bytes. Smaller are the last one of a unit, and one after which a copy turns
    /// to another unit.
    Bytes(usize),
    /// Blocks of bytes, of a size that the stream finds while it runs: where a latency or a rate is
    /// guaranteed, large enough that what they cost besides their bytes does not matter, and no larger;
    /// else the one with which bytes pass fastest. Some blocks have another size, by which costs are
    /// measured and sizes compared.
    Auto(Bounds),
    /// Blocks of whole lines, of so many bytes or a little more: up to the end of the line. What
    /// follows the last end of a line is a block, too.
    Lines(usize),
}

impl Cut {
    /// Whether so many bytes may become blocks where they are. Else they are copied.
    pub(crate) fn keeps(self, len: usize) -> bool {
        match self {
            Self::Whole => true,
            Self::Bytes(size) => len >= size,
            Self::Auto(bounds) => len >= bounds.least,
            Self::Lines(_) => false,
        }
    }
}
