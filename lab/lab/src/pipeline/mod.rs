//! The pipeline of the experiment `flow-peers`: its four stages treat a block the same in every
//! runtime, so that the runtimes differ in how the blocks get from one stage to the next.
//!
//! ```text
//! source ──> first step, copies ──> second step, copies ──> sink
//! makes       reads all              reads all               reads all, counts, measures
//! ```
//!
//! Programs in C and C++ have the same in `peer/pipeline.h`, and one in Python has it in
//! `peer/pipeline_dask.py`. Orders are numbers on the command line ([`Order::arguments`]), reports
//! a line of JSON ([`Report`]). A block consists of 8-byte words of the machine: its number, the
//! moment at which it was made or 0, and words that follow from the number.

mod report;
mod stages;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

pub use report::{CopyOfStep, Report, Resident};
pub use stages::{Copies, Sink, Source, StepWork, is_block, total};

/// The smallest block: a number, a moment and words to read.
pub const LEAST: usize = 64;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Bytes of a block, a multiple of 8.
    pub size: usize,
    /// How long the source makes blocks.
    pub milliseconds: u64,
    /// Nanoseconds between two of them; 0: as fast as there is room.
    pub interval_ns: u64,
    /// Bytes that each of the three streams may hold.
    pub limit: usize,
    /// Copies of each step, where the runtime supports them.
    pub copies: usize,
    /// Time that the sink sleeps for each block, while the source makes blocks.
    pub sink_ns: u64,
    /// Time that the first step takes for a block, by sleeping; 0: no longer than reading it takes.
    pub service_ns: u64,
    /// How long one copy of the first step stops, once, after a third of the time; 0: it does not.
    pub pause_ms: u64,
}

impl Order {
    /// The arguments of a program.
    #[must_use]
    pub fn arguments(&self) -> [String; 8] {
        [
            self.size as u64,
            self.milliseconds,
            self.interval_ns,
            self.limit as u64,
            self.copies as u64,
            self.sink_ns,
            self.service_ns,
            self.pause_ms,
        ]
        .map(|number| number.to_string())
    }

    /// Parses the arguments of a program.
    ///
    /// # Errors
    ///
    /// If they are not such arguments.
    pub fn parse<S: AsRef<str>>(arguments: &[S]) -> Result<Self> {
        let numbers = arguments.iter().map(|argument| argument.as_ref().parse::<u64>());
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().context("not a number")?;
        let [size, milliseconds, interval_ns, limit, copies, sink_ns, service_ns, pause_ms] =
            numbers[..]
        else {
            anyhow::bail!("an order has eight numbers")
        };
        let (size, limit, copies) = (size as usize, limit as usize, copies as usize);
        ensure!(size >= LEAST && size % 8 == 0 && copies > 0, "no such blocks");
        Ok(Self { size, milliseconds, interval_ns, limit, copies, sink_ns, service_ns, pause_ms })
    }

    /// Number of blocks that fit into a stream's limit.
    #[must_use]
    pub fn room(&self) -> usize {
        (self.limit / self.size).max(1)
    }

    /// The sum of the words of this many blocks, without the moments.
    #[must_use]
    pub fn expected(&self, blocks: u64) -> u64 {
        let words = self.size as u64 / 8;
        // Word n of block b is b + n, and the one of the moment is left out.
        let of_numbers = (blocks.wrapping_mul(blocks.wrapping_sub(1)) / 2).wrapping_mul(words - 1);
        let of_places = words * (words - 1) / 2 - 1;
        of_numbers.wrapping_add(blocks.wrapping_mul(of_places))
    }
}

/// The clock of all programs: nanoseconds of CLOCK_MONOTONIC, which the processes of a host share.
#[must_use]
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A number in kB of /proc/self/status, in bytes.
fn status(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Resident memory of this process, whose peak is counted from here on.
pub(crate) fn begin_memory() -> Option<u64> {
    // 5 resets the peak to the current size (proc_pid_clear_refs(5)).
    let _ = std::fs::write(Path::new("/proc/self/clear_refs"), "5");
    status("VmRSS")
}

/// The peak since then.
pub(crate) fn peak_memory() -> Option<u64> {
    status("VmHWM")
}

/// Shared memory of this process.
pub(crate) fn shared_memory() -> Option<u64> {
    status("RssShmem")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: Order = Order {
        size: 64,
        milliseconds: 5,
        interval_ns: 0,
        limit: 1 << 20,
        copies: 3,
        sink_ns: 0,
        service_ns: 0,
        pause_ms: 0,
    };

    #[test]
    fn orders_survive_the_command_line() {
        assert_eq!(Order::parse(&ORDER.arguments()).unwrap(), ORDER);
        assert!(Order::parse(&["64"]).is_err());
        let odd = Order { size: 65, ..ORDER };
        assert!(Order::parse(&odd.arguments()).is_err());
    }

    #[test]
    fn the_sums_are_known_beforehand() {
        let mut source = Source::new(ORDER);
        let mut sink = Sink::new(ORDER);
        let mut step = StepWork::new(ORDER, false);
        while let Some(block) = source.next() {
            step.work(&block);
            sink.take(&block);
        }
        let mut report = step.report(1);
        report.join(sink.report());
        assert!(report.blocks > 0);
        let sum = ORDER.expected(report.blocks);
        assert_eq!((report.sums[0], report.sums[2]), (0, sum));
        assert_eq!(report.sums[1], sum);
    }

    #[test]
    fn memory_is_known() {
        assert!(begin_memory().unwrap() > 0 && peak_memory().unwrap() > 0);
    }
}
