//! Chooses the size of blocks: just large enough that the fixed cost of a block does not matter.
//!
//! P. Balaji et al., "Impact of High Performance Sockets on Data Intensive Applications" (HPDC
//! 2003), which V. Melnyk et al. (2024) follow: with a transfer time of alpha + b/beta and a
//! processing time of c b for a block of b bytes, a pipeline is perfect at b* = alpha / (c -
//! 1/beta), where both times are equal. Larger blocks only add latency, and make unequal copies
//! wait for one another; with smaller ones, the link cannot keep up. Here alpha, beta and c are
//! fitted while the pipeline runs: alpha is the fixed part of the time that a block occupies a
//! link, not its latency, which is hidden by the blocks that are sent ahead. Copies and sending
//! also have a cost for each block. All fixed costs together must be a small part of the cost of
//! the bytes; this also gives a size if c < 1/beta, which the formula does not cover.
//!
//! This module has no clock and no lock: callers pass the time, so that tests can simulate it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::encoding::few;
use crate::policy::fit::{CLIP, Cost, Fit};
use crate::policy::guarantee::Guarantee;
use crate::policy::size_bounds::SizeBounds;
use crate::policy::size_race::RaceResult;
use serde::{Deserialize, Serialize};

/// The fixed cost of blocks may be at most this fraction of the cost of their bytes.
const OVERHEAD: f64 = 1.0 / 16.0;

/// Number of blocks of a unit of work for each copy: with fewer, one that has finished waits for
/// another at the end.
const PARTS: f64 = 8.0;

/// A size is kept until another one is better by this factor.
const HYSTERESIS: f64 = 1.5;

/// The first size, if the bounds allow it.
const FIRST: usize = 16 << 10;

/// Only blocks of different sizes show what a block costs and what a byte costs. This many blocks
/// at the beginning have a quarter of the first size, that size, and four times it.
const PROBES: usize = 24;

/// From then on, this many blocks in a row have half of the size, so that those that a link carries
/// together are of one size,
const DITHERED: usize = 32;

/// out of this many.
const DITHER: usize = 256;

/// The size is reconsidered after this many blocks; later, after up to this many more.
const OFTEN: [u64; 2] = [32, 512];

/// The goal that small blocks serve.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Aim {
    #[default]
    Throughput,
    /// A block occupies a copy and the link to it for at most this long, in seconds, since another
    /// one may wait for its end.
    Latency(f64),
    /// Units per second; if blocks of half the size achieve it, they are better.
    Rate(f64),
}

impl Aim {
    /// The goal for one of this many streams.
    pub(crate) fn of(guarantee: Option<Guarantee>, streams: usize) -> Self {
        match guarantee {
            None => Self::Throughput,
            // In each stream, an urgent block may wait for one that has begun, and then takes as
            // long itself. So the blocks of all streams together take half of the time.
            Some(Guarantee::Latency(time)) => {
                Self::Latency(time.as_secs_f64() / (4 * streams.max(1)) as f64)
            }
            Some(Guarantee::Rate(rate)) => Self::Rate(rate),
        }
    }
}

/// A rate is planned with this reserve.
const RESERVE: f64 = 1.25;

/// The way to a copy: the link to it, if it is elsewhere, and the copy itself.
#[derive(Clone, Copy, Debug, Default)]
struct Path {
    /// The process that it is in, if that is another one, and the cost of the link there.
    link: Option<(u32, Cost)>,
    copy: Cost,
}

/// Why a size was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SizeReason {
    /// A link and the copies after it take the same time for a block: b* = alpha / (c - 1/beta).
    Pipelining,
    /// The fixed cost of a block is a small part of the cost of its bytes.
    Overhead,
    /// With larger ones, a unit of work would have too few blocks for all copies.
    Unit,
    /// A larger one would keep urgent blocks waiting for longer than the guarantee of a latency
    /// allows.
    Latency,
    /// The smallest size that can keep the guarantee of a rate.
    Rate,
    /// The smallest allowed size is large enough.
    Least,
    /// The largest allowed size, or 256 KiB: only a trial can show whether larger ones are faster.
    Most,
    /// The size with the highest throughput, when sizes were tried against each other.
    Measured,
}

/// Tried sizes are powers of two: there are no more.
const MOST_TRIED: usize = usize::BITS as usize;

/// A size of blocks that a stream has chosen, and the measurements that led to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeDecision {
    /// Number of blocks before the decision.
    pub blocks: u64,
    /// The size before, in bytes.
    pub from: usize,
    /// The size from then on.
    pub to: usize,
    /// The reason.
    pub reason: SizeReason,
    /// Fixed cost of sending a block.
    pub sending: Duration,
    /// Fixed part of the time that a block occupies the link; the largest of all links. `None` if
    /// all copies are in one process.
    pub alpha: Option<Duration>,
    /// Throughput of that link, in bytes per second.
    pub beta: Option<u64>,
    /// Fixed cost of a block for the copies, as a mean over the copies.
    pub service: Duration,
    /// Cost of a thousand of its bytes for them, as a mean.
    pub kilobyte: Duration,
    /// For [`SizeReason::Measured`], the sizes that were tried, and the bytes per second that
    /// passed with each.
    #[serde(deserialize_with = "few::<_, _, MOST_TRIED>")]
    pub tried: Vec<(usize, u64)>,
}

/// The largest size of a block that takes at most this long.
fn within(time: f64, paths: &[Path]) -> f64 {
    let size = |path: &Path| {
        let link = path.link.map_or(Cost::default(), |(_, link)| link);
        let left = time - path.copy.block - link.block;
        left.max(0.0) / (path.copy.byte + link.byte).max(1e-13)
    };
    paths.iter().map(size).fold(f64::INFINITY, f64::min)
}

/// The smallest size at which this many bytes come through per second. `None` if no size does it.
fn enough(bytes_per_second: f64, paths: &[Path], shares: &[f64], sending: f64) -> Option<f64> {
    // The time available for each byte.
    let time = 1.0 / (RESERVE * bytes_per_second);
    let size = |cost: Cost, share: f64| {
        let left = time / share - cost.byte;
        (left > 0.0).then(|| cost.block / left)
    };
    let mut least = size(Cost { block: sending, byte: 0.0 }, 1.0)?;
    for (path, share) in paths.iter().zip(shares) {
        least = least.max(size(path.copy, *share)?);
        if let Some((process, link)) = path.link {
            let same = |other: &&(&Path, &f64)| other.0.link.is_some_and(|(to, _)| to == process);
            let behind = paths.iter().zip(shares).collect::<Vec<_>>();
            let share = behind.iter().filter(same).map(|(_, share)| **share).sum();
            least = least.max(size(link, share)?);
        }
    }
    Some(least)
}

/// The size for these paths, if sending costs this much for each block, and a unit of work has this
/// many bytes. `None` if there are no paths.
fn choose(
    paths: &[Path],
    sending: f64,
    bounds: SizeBounds,
    aim: Aim,
    unit: Option<f64>,
) -> Option<(usize, SizeReason)> {
    if paths.is_empty() {
        return None;
    }
    // A faster copy takes more of the blocks.
    let at = (bounds.least as f64 * bounds.most as f64).sqrt();
    let shares: Vec<f64> = paths.iter().map(|path| 1.0 / path.copy.of(at).max(1e-12)).collect();
    let all: f64 = shares.iter().sum();
    let shares: Vec<f64> = shares.iter().map(|share| share / all).collect();
    let mean = |of: fn(&Path) -> f64| -> f64 {
        paths.iter().zip(&shares).map(|(path, share)| of(path) * share).sum()
    };
    let block = mean(|path| path.copy.block + path.link.map_or(0.0, |(_, link)| link.block));
    let byte = mean(|path| path.copy.byte + path.link.map_or(0.0, |(_, link)| link.byte));
    let mut size = (block + sending) / (OVERHEAD * byte.max(1e-13));
    let mut reason = SizeReason::Overhead;
    for (process, link) in paths.iter().filter_map(|path| path.link) {
        let behind = paths.iter().filter(|path| path.link.is_some_and(|(to, _)| to == process));
        // The time that the copies after the link leave it for each byte.
        let together = 1.0 / behind.map(|path| 1.0 / path.copy.byte.max(1e-13)).sum::<f64>();
        if together <= link.byte {
            // The link is the bottleneck at any size.
            continue;
        }
        let perfect = link.block / (together - link.byte).max(OVERHEAD * together);
        if perfect > size {
            (size, reason) = (perfect, SizeReason::Pipelining);
        }
    }
    if let Some(bytes) = unit {
        let most = bytes / (PARTS * paths.len() as f64);
        if most < size {
            (size, reason) = (most, SizeReason::Unit);
        }
    }
    match aim {
        Aim::Throughput => {}
        Aim::Latency(time) => {
            let most = within(time, paths);
            if most < size {
                (size, reason) = (most, SizeReason::Latency);
            }
        }
        Aim::Rate(rate) => {
            let needed = unit.and_then(|bytes| enough(rate * bytes, paths, &shares, sending));
            if let Some(needed) = needed.filter(|needed| *needed < size) {
                (size, reason) = (needed, SizeReason::Rate);
            }
        }
    }
    Some(match size {
        size if size <= bounds.least as f64 => (bounds.nearest(bounds.least), SizeReason::Least),
        size if size >= bounds.most as f64 => (bounds.nearest(bounds.most), SizeReason::Most),
        size => (bounds.nearest(rounded(size)), reason),
    })
}

/// Rounds to two binary digits: sizes that people can compare, and memory that can be reused.
fn rounded(size: f64) -> usize {
    let step = 2_f64.powf(size.log2().floor() - 1.0);
    ((size / step).round() * step) as usize
}

/// The size of the next block, given the number of blocks so far and the size of most of them.
pub(crate) fn size_of(number: usize, size: usize, bounds: SizeBounds) -> usize {
    let size = match (3 * number / PROBES, number % DITHER) {
        (0, _) => size / 4,
        (2, _) => size.saturating_mul(4),
        (3.., 0..DITHERED) => size / 2,
        _ => size,
    };
    bounds.nearest(size)
}

/// The first size.
pub(crate) fn first(bounds: SizeBounds) -> usize {
    bounds.nearest(FIRST)
}

/// The measurements of a stream, at its owner or at a sender, and the size that follows.
#[derive(Debug)]
pub(crate) struct Tuner {
    bounds: SizeBounds,
    size: usize,
    /// For each copy, the process that it is in, if that is another one.
    processes: Vec<Option<u32>>,
    copies: Vec<Fit>,
    /// At a sender: the common cost of all copies, as reported by the owner.
    reported: Option<Cost>,
    /// The costs of links to other processes.
    links: BTreeMap<u32, Option<Cost>>,
    /// Seconds for each block that is sent.
    sending: Option<f64>,
    aim: Aim,
    /// Bytes of a unit of work, if known.
    unit: Option<f64>,
    blocks: u64,
    think_at: u64,
}

impl Tuner {
    /// At the owner: for copies that are here, or in these processes. `room` is the most that the
    /// stream has for a block.
    pub(crate) fn new(
        bounds: SizeBounds,
        room: usize,
        processes: Vec<Option<u32>>,
        aim: Aim,
    ) -> Self {
        let bounds = bounds.within(room);
        Self {
            bounds,
            size: first(bounds),
            copies: vec![Fit::of_copy(); processes.len()],
            processes,
            reported: None,
            links: BTreeMap::new(),
            sending: None,
            aim,
            unit: None,
            blocks: 0,
            think_at: OFTEN[0],
        }
    }

    /// Notes that a copy has processed this many blocks and bytes in that time.
    pub(crate) fn served(&mut self, copy: usize, blocks: usize, bytes: usize, took: Duration) {
        self.copies[copy].add(blocks as u64, bytes as u64, took);
        self.blocks += blocks as u64;
    }

    /// Notes how long sending a block took, without the wait for its room.
    pub(crate) fn sent(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        let mean = self.sending.get_or_insert(took);
        *mean += (took.min(CLIP * *mean) - *mean) / 16.0;
    }

    /// Notes the number of ended units, and their bytes.
    pub(crate) fn units(&mut self, units: u64, bytes: u64) {
        self.unit = (units > 0).then(|| bytes as f64 / units as f64);
    }

    /// Notes the number of blocks sent.
    pub(crate) fn counts(&mut self, blocks: u64) {
        self.blocks = blocks;
    }

    /// Notes the common cost of the copies, as reported by the owner.
    pub(crate) fn set_reported(&mut self, cost: Cost) {
        let is_cost = |of: f64| of.is_finite() && of >= 0.0;
        if is_cost(cost.block) && is_cost(cost.byte) {
            self.reported = Some(cost);
        }
    }

    /// A copy is gone.
    pub(crate) fn lose(&mut self, copy: usize) {
        self.copies[copy] = Fit::of_copy();
    }

    /// Whether it is time to [think](Tuner::think).
    pub(crate) fn is_time(&self) -> bool {
        self.blocks >= self.think_at
    }

    /// The paths to the copies, with their costs.
    fn paths(&self) -> Vec<Path> {
        let link = |process: &u32| Some((*process, self.links.get(process).copied()??));
        if let Some(copy) = self.reported {
            let links = self.links.keys().filter_map(link);
            return links.map(|link| Path { link: Some(link), copy }).collect();
        }
        let path = |(process, copy): (&Option<u32>, &Fit)| {
            let link = match process {
                Some(process) => Some(link(process)?),
                None => None,
            };
            Some(Path { link, copy: copy.cost()? })
        };
        self.processes.iter().zip(&self.copies).filter_map(path).collect()
    }

    /// The common cost of all copies, for senders elsewhere: for each block as a mean, and for each
    /// byte as if they were one copy.
    pub(crate) fn together(&self) -> Option<Cost> {
        let paths = self.paths();
        let count = (!paths.is_empty()).then_some(paths.len() as f64)?;
        let block = paths.iter().map(|path| path.copy.block).sum::<f64>() / count;
        let speed: f64 = paths.iter().map(|path| 1.0 / path.copy.byte.max(1e-13)).sum();
        Some(Cost { block, byte: 1.0 / speed })
    }

    /// Returns another size, if that is better. `links` are those to other processes.
    pub(crate) fn think(
        &mut self,
        links: impl Iterator<Item = (u32, Option<Cost>)>,
    ) -> Option<SizeDecision> {
        self.think_at = self.blocks + (self.blocks / 4).clamp(OFTEN[0], OFTEN[1]);
        self.links.extend(links);
        let paths = self.paths();
        let sending = self.sending.unwrap_or_default();
        let (size, reason) = choose(&paths, sending, self.bounds, self.aim, self.unit)?;
        let ratio = size as f64 / self.size as f64;
        let is_close = (1.0 / HYSTERESIS..=HYSTERESIS).contains(&ratio);
        if size == self.size || is_close {
            return None;
        }
        let from = std::mem::replace(&mut self.size, size);
        Some(self.decision([from, size], reason, &paths, Vec::new()))
    }

    /// The size that follows from the costs.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The decision after a race.
    pub(crate) fn after_race(&self, from: usize, result: RaceResult) -> SizeDecision {
        self.decision([from, result.size], SizeReason::Measured, &self.paths(), result.rates)
    }

    fn decision(
        &self,
        [from, to]: [usize; 2],
        reason: SizeReason,
        paths: &[Path],
        tried: Vec<(usize, u64)>,
    ) -> SizeDecision {
        let links = paths.iter().filter_map(|path| path.link.map(|(_, link)| link));
        let link = links.max_by(|a, b| a.block.total_cmp(&b.block));
        let count = paths.len().max(1) as f64;
        let mean = |of: fn(&Path) -> f64| paths.iter().map(of).sum::<f64>() / count;
        SizeDecision {
            blocks: self.blocks,
            from,
            to,
            reason,
            sending: seconds(self.sending.unwrap_or_default()),
            alpha: link.map(|link| seconds(link.block)),
            beta: link.map(|link| (1.0 / link.byte.max(1e-13)) as u64),
            service: seconds(mean(|path| path.copy.block)),
            kilobyte: seconds(1000.0 * mean(|path| path.copy.byte)),
            tried,
        }
    }
}

fn seconds(of: f64) -> Duration {
    Duration::try_from_secs_f64(of).unwrap_or(Duration::MAX)
}

#[cfg(test)]
#[path = "size_tuner_tests.rs"]
mod tests;
