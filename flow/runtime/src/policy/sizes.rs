//! The size of the next block of a stream, as chosen.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::policy::size_bounds::SizeBounds;
use crate::policy::size_tuner;

/// One of this many blocks is timed while it is sent. Coprime to the periods of other patterns.
const TIMED: usize = 13;

/// Chooses the sizes of the blocks of one end of a stream.
#[derive(Debug)]
pub(crate) struct Sizes {
    bounds: SizeBounds,
    size: AtomicUsize,
    number: AtomicUsize,
    /// The size of all blocks from now on; 0: `size`, with some others to measure costs.
    all: AtomicUsize,
    /// Bytes sent since the last look.
    bytes: AtomicUsize,
}

impl Sizes {
    /// `room` is the most that the stream has for one block.
    pub(crate) fn new(bounds: SizeBounds, room: usize) -> Self {
        let bounds = bounds.within(room);
        Self {
            bounds,
            size: AtomicUsize::new(size_tuner::first(bounds)),
            number: AtomicUsize::new(0),
            all: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    /// The size of the next block.
    pub(crate) fn next(&self) -> usize {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let all = self.all.load(Ordering::Relaxed);
        if all > 0 {
            return all;
        }
        size_tuner::size_of(number, self.size.load(Ordering::Relaxed), self.bounds)
    }

    /// Notes that this many bytes were sent.
    pub(crate) fn passed(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether to time the sending of the last block.
    pub(crate) fn is_timed(&self) -> bool {
        self.count() % TIMED == 0
    }

    /// Bytes sent since the last look.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The same, which begins anew.
    pub(crate) fn take_bytes(&self) -> usize {
        self.bytes.swap(0, Ordering::Relaxed)
    }

    /// Number of blocks so far.
    pub(crate) fn count(&self) -> usize {
        self.number.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, size: usize) {
        self.size.store(size, Ordering::Relaxed);
    }

    /// Whether all blocks have one size.
    pub(crate) fn is_fixed(&self) -> bool {
        self.all.load(Ordering::Relaxed) > 0
    }

    /// Lets all blocks have that size from now on.
    pub(crate) fn fix(&self, size: usize) {
        self.all.store(size, Ordering::Relaxed);
    }
}
