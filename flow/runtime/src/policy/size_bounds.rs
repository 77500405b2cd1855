//! The sizes that blocks of a stream may have.

/// The range of sizes that a stream chooses from, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeBounds {
    /// The smallest.
    pub least: usize,
    /// The largest. The stream's limit may reduce it.
    pub most: usize,
    /// Blocks have whole records of this many bytes, except the last one of a unit.
    pub record: usize,
}

impl SizeBounds {
    /// Whether any size is within the bounds.
    pub(crate) fn is_sound(self) -> bool {
        let Self { least, most, record } = self;
        record > 0 && least > 0 && least.div_ceil(record) <= most / record
    }

    /// The smallest size that the stream's limit must have room for.
    pub(crate) fn needed(self) -> usize {
        self.least.div_ceil(self.record.max(1)).saturating_mul(self.record)
    }

    pub(crate) fn within(self, room: usize) -> Self {
        let most = self.most.min(room).max(self.needed());
        Self { most, ..self }
    }

    /// The bounds for sizes derived from costs: in blocks larger than a processor's private cache,
    /// each byte may cost more, which the costs do not show.
    pub(crate) fn cached(self) -> Self {
        const CACHED: usize = 256 << 10;
        Self { most: self.most.min(CACHED.max(self.needed())), ..self }
    }

    /// The nearest allowed size.
    pub(crate) fn nearest(self, size: usize) -> usize {
        let size = size.clamp(self.least, self.most);
        (size - size % self.record).max(self.needed())
    }
}

impl Default for SizeBounds {
    /// From 1 KiB to 1 MiB.
    fn default() -> Self {
        Self { least: 1 << 10, most: 1 << 20, record: 1 }
    }
}
