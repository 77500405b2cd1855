//! Orders of the programs of a pipeline, and their clock.

use anyhow::{Context as _, Result, ensure};

/// The smallest block: a number, a moment and words to read.
pub const LEAST: usize = 64;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineOrder {
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

impl PipelineOrder {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const ORDER: PipelineOrder = PipelineOrder {
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
        assert_eq!(PipelineOrder::parse(&ORDER.arguments()).unwrap(), ORDER);
        assert!(PipelineOrder::parse(&["64"]).is_err());
        let odd = PipelineOrder { size: 65, ..ORDER };
        assert!(PipelineOrder::parse(&odd.arguments()).is_err());
    }
}
