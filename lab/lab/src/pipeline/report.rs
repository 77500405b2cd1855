//! Reports of the programs of a pipeline, and how those of several processes become one.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Work of one process, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PipelineReport {
    /// Blocks that the sink has received.
    #[serde(default)]
    pub blocks: u64,
    /// From when the first one was made until the sink knew that no more would come.
    #[serde(default)]
    pub seconds: f64,
    /// Sums of the first step, the second one and the sink.
    #[serde(default)]
    pub sums: [u64; 3],
    /// Median time from before a block is made until the sink has read it.
    #[serde(default)]
    pub p50_ns: Option<u64>,
    /// The 99th percentile of that time.
    #[serde(default)]
    pub p99_ns: Option<u64>,
    /// Memory of the process; of several, that of the one that grew most.
    #[serde(default)]
    pub resident: Option<Resident>,
    /// The most that a stream held over its limit, where the runtime counts it.
    #[serde(default)]
    pub held: Option<f64>,
    /// Size of blocks that a stream has found, where it is to find one.
    #[serde(default)]
    pub chosen: Option<u64>,
    /// When the copies of the first step began blocks, where the order has a service time.
    #[serde(default)]
    pub copies: Vec<CopyOfStep>,
}

/// Resident bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    /// Before the first block.
    pub before: u64,
    /// Maximum.
    pub peak: u64,
    /// The part at the end that is shared memory, which is the ring's.
    #[serde(default)]
    pub shared: u64,
}

/// The work of one copy, in nanoseconds of the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOfStep {
    /// When it began each block.
    pub starts: Vec<u64>,
    /// When its pause ended, if it had one.
    pub resumed: Option<u64>,
}

impl Resident {
    /// The memory before the first block; the peak is measured later.
    #[must_use]
    pub fn begin() -> Option<Self> {
        let before = begin_memory()?;
        Some(Self { before, peak: before, shared: 0 })
    }

    /// The same with the peak until now.
    #[must_use]
    pub fn end(self) -> Self {
        let shared = shared_memory().unwrap_or(0);
        Self { peak: peak_memory().unwrap_or(self.before), shared, ..self }
    }

    /// Its growth without the ring; bytes in the kernel's buffers between two processes are not
    /// counted either.
    #[must_use]
    pub fn growth(&self) -> u64 {
        self.peak.saturating_sub(self.before).saturating_sub(self.shared)
    }
}

impl PipelineReport {
    /// Adds the report of another part of the pipeline.
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

/// A number in kB of /proc/self/status, in bytes.
fn status(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Resident memory of this process, whose peak is counted from here on.
fn begin_memory() -> Option<u64> {
    // 5 resets the peak to the current size (proc_pid_clear_refs(5)).
    let _ = std::fs::write(Path::new("/proc/self/clear_refs"), "5");
    status("VmRSS")
}

/// The peak since then.
fn peak_memory() -> Option<u64> {
    status("VmHWM")
}

/// Shared memory of this process.
fn shared_memory() -> Option<u64> {
    status("RssShmem")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_known() {
        assert!(begin_memory().unwrap() > 0 && peak_memory().unwrap() > 0);
    }

    #[test]
    fn parts_become_a_whole() {
        let resident = |before, peak| Some(Resident { before, peak, shared: 5 });
        let mut all = PipelineReport {
            sums: [0, u64::MAX, 0],
            resident: resident(100, 150),
            ..PipelineReport::default()
        };
        let other = PipelineReport {
            blocks: 3,
            seconds: 0.5,
            sums: [1, 2, 3],
            p50_ns: Some(7),
            resident: resident(10, 90),
            held: Some(0.5),
            ..PipelineReport::default()
        };
        all.join(other);
        assert_eq!((all.blocks, all.sums, all.p50_ns), (3, [1, 1, 3], Some(7)));
        assert_eq!(all.resident.unwrap().growth(), 75);
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<PipelineReport>(&text).unwrap(), all);
    }
}
