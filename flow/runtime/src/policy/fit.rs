//! The cost of blocks, fitted to measured times: a part for each block, and a part for each byte.
//!
//! This is the line alpha + b/beta of V. Melnyk et al. (2024), for a link or a copy.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The least number of samples to fit.
const ENOUGH: usize = 6;

/// A sample of a copy counts for at most this many times the expected cost: one that was paused is
/// little evidence about the cost of bytes.
pub(crate) const CLIP: f64 = 3.0;

/// The time that something takes for each block, and for each byte, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    pub(crate) block: f64,
    pub(crate) byte: f64,
}

impl Cost {
    pub(crate) fn of(self, bytes: f64) -> f64 {
        self.block + self.byte * bytes
    }
}

/// A line through samples of blocks, bytes and times: least squares of the time per byte over the
/// blocks per byte, so that relative errors count.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    /// Number of samples that count; older ones are forgotten.
    memory: f64,
    clip: f64,
    count: usize,
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Fit {
    pub(crate) fn of_copy() -> Self {
        Self::new(256.0, CLIP)
    }

    /// For a link, most samples only fill the buffers before it, and few wait until these are
    /// drained.
    pub(crate) fn of_link() -> Self {
        Self::new(1024.0, f64::INFINITY)
    }

    fn new(memory: f64, clip: f64) -> Self {
        Self { memory, clip, count: 0, weight: 0.0, x: 0.0, y: 0.0, xx: 0.0, xy: 0.0 }
    }

    pub(crate) fn add(&mut self, blocks: u64, bytes: u64, took: Duration) {
        if bytes == 0 || blocks == 0 {
            return;
        }
        let (blocks, bytes) = (blocks as f64, bytes as f64);
        let (x, mut y) = (blocks / bytes, took.as_secs_f64() / bytes);
        if let Some(cost) = self.cost() {
            y = y.min(self.clip * (cost.block * x + cost.byte));
        }
        let keep = 1.0 - 1.0 / self.memory;
        let into = |sum: &mut f64, sample: f64| *sum = *sum * keep + sample;
        into(&mut self.weight, 1.0);
        into(&mut self.x, x);
        into(&mut self.y, y);
        into(&mut self.xx, x * x);
        into(&mut self.xy, x * y);
        self.count += 1;
    }

    /// `None` if there are too few samples.
    pub(crate) fn cost(&self) -> Option<Cost> {
        if self.count < ENOUGH {
            return None;
        }
        let mean = |sum: f64| sum / self.weight;
        let (x, y) = (mean(self.x), mean(self.y));
        let variance = mean(self.xx) - x * x;
        // Blocks of one size cannot separate the two costs.
        let is_flat = variance < 1e-3 * x * x;
        let block = if is_flat { 0.0 } else { (mean(self.xy) - x * y) / variance };
        let block = block.clamp(0.0, y / x);
        Some(Cost { block, byte: (y - block * x).max(0.0) })
    }
}
