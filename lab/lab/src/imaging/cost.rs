//! Cost of a block at a copy of clip or subsample, and the oracle, a lower bound for any dealer.
//!
//! A slow node is emulated as in the paper: it takes as long for one block as for several.

use serde::{Deserialize, Serialize};

/// Copies of repository, clip and subsample.
pub(crate) const COPIES: u64 = 3;

/// The host that is slow where one is.
pub(crate) const SLOW_HOST: u32 = 1;

/// The paper's cost of computation.
pub(crate) const PER_BYTE_NS: u64 = 18;

/// How filters compute.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Compute {
    #[serde(rename = "way")]
    pub(crate) mode: EmulationMode,
    /// Nanoseconds for a byte in clip.
    pub(crate) clip_ns: u64,
    /// Nanoseconds for a byte in subsample.
    pub(crate) subsample_ns: u64,
    /// The copies of clip that are slow.
    pub(crate) slow: Slow,
}

/// How computation is emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EmulationMode {
    /// The copy sleeps, as if each had a processor of its own.
    Sleep,
    /// The copy uses that much processor time.
    Burn,
}

impl EmulationMode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleeping",
            Self::Burn => "burning",
        }
    }
}

/// The slow hosts, and when they are slow. A block then takes `factor` times as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Slow {
    Nobody,
    /// One host, all the time.
    Host {
        factor: u64,
    },
    /// All hosts, for this part of the blocks. It is drawn for each block: the same ones are slow,
    /// whichever host gets them.
    Drawn {
        percent: u64,
        factor: u64,
        seed: u64,
    },
    /// One host: after this many blocks of its own it is slow for this many, over and over.
    Phases {
        fast: u64,
        slow: u64,
        factor: u64,
    },
}

impl Compute {
    pub(crate) const NONE: Self =
        Self { mode: EmulationMode::Sleep, clip_ns: 0, subsample_ns: 0, slow: Slow::Nobody };

    /// Both filters compute.
    pub(crate) const BOTH: Self =
        Self { clip_ns: PER_BYTE_NS, subsample_ns: PER_BYTE_NS, ..Self::NONE };

    /// Clip computes, and may be slow.
    pub(crate) const fn clip(slow: Slow, mode: EmulationMode) -> Self {
        Self { mode, clip_ns: PER_BYTE_NS, subsample_ns: 0, slow }
    }
}

impl Slow {
    /// How many times as long the block with that number takes, the host's own block `own`.
    pub(crate) fn factor(self, host: u32, block: u64, own: u64) -> u64 {
        let is_slow = match self {
            Self::Nobody => false,
            Self::Host { .. } => host == SLOW_HOST,
            Self::Drawn { percent, seed, .. } => is_drawn(seed, block, percent),
            Self::Phases { fast, slow, .. } => host == SLOW_HOST && own % (fast + slow) >= fast,
        };
        match self {
            Self::Host { factor } | Self::Drawn { factor, .. } | Self::Phases { factor, .. }
                if is_slow =>
            {
                factor
            }
            _ => 1,
        }
    }

    /// Whether the host becomes slow with that block of its own.
    pub(crate) fn is_onset(self, host: u32, own: u64) -> bool {
        match self {
            Self::Phases { fast, slow, .. } => host == SLOW_HOST && own % (fast + slow) == fast,
            _ => false,
        }
    }
}

fn is_drawn(seed: u64, block: u64, percent: u64) -> bool {
    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(block);
    fastrand::Rng::with_seed(seed).u64(..100) < percent
}

/// The shortest time, in seconds, in which copies with a dealer that knows everything can finish
/// that work: work divided by the sum of speeds; where speeds change, the sum of the drawn costs
/// divided by the copies. A processor does no more than its own time; a link carries only so many
/// bits a second.
pub(crate) fn oracle(
    slow: Slow,
    work: &[ClipWork],
    processors: Option<usize>,
    link: Option<(u64, u64)>,
) -> f64 {
    let sum = |of: fn(&ClipWork) -> u64| work.iter().map(of).sum::<u64>() as f64 / 1e9;
    let copies = COPIES as f64;
    let (cost, speeds) = match slow {
        Slow::Host { factor } => (sum(|work| work.base_ns), copies - 1.0 + 1.0 / factor as f64),
        _ => (sum(|work| work.cost_ns), copies),
    };
    let speeds = processors.map_or(speeds, |processors| speeds.min(processors as f64));
    let carried = link.map_or(0.0, |(bytes, bits)| 8.0 * bytes as f64 / bits as f64);
    (cost / speeds).max(carried)
}

/// Work of a copy of clip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClipWork {
    pub(crate) blocks: u64,
    /// The cost of its blocks if no host were slow.
    pub(crate) base_ns: u64,
    /// Their intended cost.
    pub(crate) cost_ns: u64,
    /// The time that they took.
    pub(crate) took_ns: u64,
}

impl ClipWork {
    pub(crate) fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.base_ns += other.base_ns;
        self.cost_ns += other.cost_ns;
        self.took_ns += other.took_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(base_ns: u64, cost_ns: u64) -> ClipWork {
        ClipWork { blocks: 1, base_ns, cost_ns, took_ns: 0 }
    }

    #[test]
    fn nobody_is_faster_than_the_sum_of_speeds() {
        let all = [work(300_000_000, 3_000_000_000), work(600_000_000, 600_000_000)];
        let standing = Slow::Host { factor: 10 };
        assert!((oracle(standing, &all, None, None) - 0.9 / 2.1).abs() < 1e-9);
        let drawn = Slow::Drawn { percent: 20, factor: 10, seed: 1 };
        assert!((oracle(drawn, &all, None, None) - 3.6 / 3.0).abs() < 1e-9);
        assert!((oracle(drawn, &all, Some(2), None) - 3.6 / 2.0).abs() < 1e-9);
        assert!((oracle(standing, &all, Some(4), Some((1 << 20, 1 << 20))) - 8.0).abs() < 1e-9);
    }

    #[test]
    fn as_many_blocks_are_slow_as_were_to_be_whoever_gets_them() {
        for percent in [0, 20, 50, 100] {
            let slow = Slow::Drawn { percent, factor: 4, seed: 7 };
            let factors = |host| (0..10_000).map(move |block| slow.factor(host, block, 0));
            assert!(factors(1).eq(factors(3)));
            let slow = factors(2).filter(|factor| *factor == 4).count() as u64;
            assert!(slow.abs_diff(100 * percent) <= 150, "{percent} %: {slow}");
        }
    }

    #[test]
    fn a_host_becomes_slow_once_a_phase() {
        let slow = Slow::Phases { fast: 3, slow: 2, factor: 5 };
        let factors: Vec<u64> = (0..7).map(|own| slow.factor(SLOW_HOST, 0, own)).collect();
        assert_eq!(factors, [1, 1, 1, 5, 5, 1, 1]);
        let onsets: Vec<u64> = (0..10).filter(|own| slow.is_onset(SLOW_HOST, *own)).collect();
        assert_eq!(onsets, [3, 8]);
        assert!((0..7).all(|own| slow.factor(2, 0, own) == 1 && !slow.is_onset(2, own)));
        assert_eq!(Slow::Host { factor: 6 }.factor(SLOW_HOST, 0, 0), 6);
    }
}
