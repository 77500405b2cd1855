//! What the programs of a pipeline report, and how the reports of several processes become one.

use serde::{Deserialize, Serialize};

use super::{begin_memory, peak_memory, shared_memory};

/// What one process, or all, have done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Blocks that the sink has got.
    #[serde(default)]
    pub blocks: u64,
    /// From when the first one was made until the sink knew that there were no more.
    #[serde(default)]
    pub seconds: f64,
    /// What the first step, the second one and the sink have added up.
    #[serde(default)]
    pub sums: [u64; 3],
    /// From before a block is made until the sink has read it: the median.
    #[serde(default)]
    pub p50_ns: Option<u64>,
    /// The 99th percentile of that.
    #[serde(default)]
    pub p99_ns: Option<u64>,
    /// Memory of the process; of several, the one that has grown most.
    #[serde(default)]
    pub resident: Option<Resident>,
    /// The most that a stream has held over what it may hold, where the runtime counts it.
    #[serde(default)]
    pub held: Option<f64>,
    /// The size of blocks that a stream has found, where it is to find one.
    #[serde(default)]
    pub chosen: Option<u64>,
    /// When the copies of the first step have begun with blocks, where the order has a service time.
    #[serde(default)]
    pub copies: Vec<CopyOfStep>,
}

/// Resident bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    /// Before the first block.
    pub before: u64,
    /// At most.
    pub peak: u64,
    /// How much of what there is at the end is shared memory, which is the ring's.
    #[serde(default)]
    pub shared: u64,
}

/// The work of one copy, in nanoseconds of the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOfStep {
    /// When it has begun with each block.
    pub starts: Vec<u64>,
    /// When its pause was over, if it had one.
    pub resumed: Option<u64>,
}

impl Resident {
    /// What there is before the first block; the peak comes later.
    #[must_use]
    pub fn begin() -> Option<Self> {
        let before = begin_memory()?;
        Some(Self { before, peak: before, shared: 0 })
    }

    /// With the peak until now.
    #[must_use]
    pub fn end(self) -> Self {
        let shared = shared_memory().unwrap_or(0);
        Self { peak: peak_memory().unwrap_or(self.before), shared, ..self }
    }

    /// By how much it has grown, without the ring: what lies in the kernel's buffers between two
    /// processes is not counted either.
    #[must_use]
    pub fn growth(&self) -> u64 {
        self.peak.saturating_sub(self.before).saturating_sub(self.shared)
    }
}

impl Report {
    /// Adds what another part of the pipeline has done.
    pub fn join(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.seconds = self.seconds.max(other.seconds);
        for (sum, more) in self.sums.iter_mut().zip(other.sums) {
            *sum = sum.wrapping_add(more);
        }
        self.p50_ns = self.p50_ns.or(other.p50_ns);
        self.p99_ns = self.p99_ns.or(other.p99_ns);
        let growth = |of: &Option<Resident>| of.map(|resident| resident.growth());
        if growth(&other.resident) > growth(&self.resident) {
            self.resident = other.resident;
        }
        self.held = match (self.held, other.held) {
            (Some(this), Some(other)) => Some(this.max(other)),
            (this, other) => this.or(other),
        };
        self.chosen = self.chosen.or(other.chosen);
        self.copies.extend(other.copies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_a_whole() {
        let resident = |before, peak| Some(Resident { before, peak, shared: 5 });
        let mut all =
            Report { sums: [0, u64::MAX, 0], resident: resident(100, 150), ..Report::default() };
        let other = Report {
            blocks: 3,
            seconds: 0.5,
            sums: [1, 2, 3],
            p50_ns: Some(7),
            resident: resident(10, 90),
            held: Some(0.5),
            ..Report::default()
        };
        all.join(other);
        assert_eq!((all.blocks, all.sums, all.p50_ns), (3, [1, 1, 3], Some(7)));
        assert_eq!(all.resident.unwrap().growth(), 75);
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), all);
    }
}
