//! How large blocks are to be, where nobody says so: large enough that what a block costs besides
//! its bytes does not matter, and no larger.
//!
//! P. Balaji et al., "Impact of High Performance Sockets on Data Intensive Applications" (HPDC 2003),
//! which V. Melnyk et al. (2024) follow: with a transfer time of alpha + b/beta and a processing time
//! of c b for a block of b bytes, a pipeline is perfect at b* = alpha / (c - 1/beta), where both take
//! the same. Larger blocks only add latency, and let unequal copies wait for one another; with
//! smaller ones, the link cannot keep up. Here alpha, beta and c are fitted while the pipeline runs:
//! alpha is for how long a block occupies a link besides its bytes, not for how long it is on its way,
//! which is hidden by the blocks that are sent ahead. Copies cost something for each block, too, and
//! so does sending it. All of that together is to be a small part of what the bytes cost; this also
//! gives a size where c < 1/beta, of which the formula knows nothing.
//!
//! Here is no clock and no lock: times are given, so that tests can play them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fit::{CLIP, Cost, Fit};
use crate::guarantee::Guarantee;
use crate::race::Found;
use crate::remote::told::few;
use serde::{Deserialize, Serialize};

/// Between which sizes a stream chooses, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The smallest.
    pub least: usize,
    /// The largest. What the stream's limit does not allow is not chosen either.
    pub most: usize,
    /// Blocks have whole records of so many bytes, but for the last one of a unit.
    pub record: usize,
}

impl Bounds {
    /// Whether there is a size.
    pub(crate) fn is_sound(self) -> bool {
        let Self { least, most, record } = self;
        record > 0 && least > 0 && least.div_ceil(record) <= most / record
    }

    /// The least that the stream's limit has to have room for.
    pub(crate) fn needed(self) -> usize {
        self.least.div_ceil(self.record.max(1)).saturating_mul(self.record)
    }

    pub(crate) fn within(self, room: usize) -> Self {
        let most = self.most.min(room).max(self.needed());
        Self { most, ..self }
    }

    /// What costs may ask for: of a block that is larger than the cache that a processor has for
    /// itself, each byte may cost more, of which they say nothing.
    pub(crate) fn cached(self) -> Self {
        const CACHED: usize = 256 << 10;
        Self { most: self.most.min(CACHED.max(self.needed())), ..self }
    }

    /// The nearest that is allowed.
    pub(crate) fn nearest(self, size: usize) -> usize {
        let size = size.clamp(self.least, self.most);
        (size - size % self.record).max(self.needed())
    }
}

impl Default for Bounds {
    /// From 1 KiB to 1 MiB.
    fn default() -> Self {
        Self { least: 1 << 10, most: 1 << 20, record: 1 }
    }
}

/// What blocks may cost besides their bytes, as a part of what these cost.
const OVERHEAD: f64 = 1.0 / 16.0;

/// Each copy is to get so many blocks of a unit of work: with fewer, one that is done waits for
/// another at the end.
const PARTS: f64 = 8.0;

/// A size is kept until another one is better by such a factor.
const HYSTERESIS: f64 = 1.5;

/// The first size, if the bounds allow it.
const FIRST: usize = 16 << 10;

/// What a block costs and what a byte costs can only be told apart by blocks of different sizes. So
/// many at the beginning have a quarter of the first size, that, and four times as much.
const PROBES: usize = 24;

/// From then on, so many in a row have half of the size, so that those that a link carries together
/// are of one size,
const DITHERED: usize = 32;

/// of so many.
const DITHER: usize = 256;

/// After so many blocks, the size is thought over; later, after so many more.
const OFTEN: [u64; 2] = [32, 512];

/// What blocks are to be small for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Aim {
    #[default]
    Throughput,
    /// No block occupies a copy and the link to it for longer, in seconds: another one may wait for
    /// its end.
    Latency(f64),
    /// So many units in a second; where blocks of half the size do it, they are better.
    Rate(f64),
}

impl Aim {
    /// Of one of so many streams.
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

/// A rate is to be reached with such a reserve.
const RESERVE: f64 = 1.25;

/// What comes to a copy: a link to it, if it is elsewhere, and the copy itself.
#[derive(Clone, Copy, Debug, Default)]
struct Path {
    /// The process that it is in, where that is another one, and what the link there costs.
    link: Option<(u32, Cost)>,
    copy: Cost,
}

/// Why a size was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reason {
    /// A link and the copies behind it take the same time for a block: b* = alpha / (c - 1/beta).
    Pipelining,
    /// What blocks cost besides their bytes is a small part of what the bytes cost.
    Overhead,
    /// With larger ones, a unit of work would have too few blocks for all copies.
    Unit,
    /// A larger one would keep urgent blocks waiting for longer than the guarantee of a latency
    /// allows.
    Latency,
    /// The smallest with which the guarantee of a rate can be kept.
    Rate,
    /// The smallest that is allowed is large enough.
    Least,
    /// The largest that is allowed, or 256 KiB: whether larger ones are faster, a trial has to say.
    Most,
    /// Bytes passed fastest with it, when sizes were tried against each other.
    Measured,
}

/// Powers of two: there are no more.
const MOST_TRIED: usize = usize::BITS as usize;

/// A size of blocks that a stream has chosen, and from what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeDecision {
    /// After so many blocks.
    pub blocks: u64,
    /// The size before, in bytes.
    pub from: usize,
    /// The size from then on.
    pub to: usize,
    /// Why.
    pub reason: Reason,
    /// What sending a block costs besides its bytes.
    pub sending: Duration,
    /// For how long a block occupies the link besides its bytes; the largest of all links. `None`:
    /// all copies are in one process.
    pub alpha: Option<Duration>,
    /// What that link carries, in bytes per second.
    pub beta: Option<u64>,
    /// What a block costs the copies besides its bytes, as a mean of what each takes.
    pub service: Duration,
    /// What its bytes cost them: a thousand of them, as a mean.
    pub kilobyte: Duration,
    /// Where it was [`Reason::Measured`], the sizes that were tried, and the bytes per second that
    /// passed with each.
    #[serde(deserialize_with = "few::<_, _, MOST_TRIED>")]
    pub tried: Vec<(usize, u64)>,
}

/// The largest size of a block that takes no longer.
fn within(time: f64, paths: &[Path]) -> f64 {
    let size = |path: &Path| {
        let link = path.link.map_or(Cost::default(), |(_, link)| link);
        let left = time - path.copy.block - link.block;
        left.max(0.0) / (path.copy.byte + link.byte).max(1e-13)
    };
    paths.iter().map(size).fold(f64::INFINITY, f64::min)
}

/// The smallest size at which so many bytes come through in a second. `None`: no size does it.
fn enough(bytes_per_second: f64, paths: &[Path], shares: &[f64], sending: f64) -> Option<f64> {
    // What there is for each byte.
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

/// The size for these paths, where sending costs so much for each block, and a unit of work has so many
/// bytes. `None`: there are no paths.
fn choose(
    paths: &[Path],
    sending: f64,
    bounds: Bounds,
    aim: Aim,
    unit: Option<f64>,
) -> Option<(usize, Reason)> {
    if paths.is_empty() {
        return None;
    }
    // Who is faster takes more of the blocks.
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
    let mut reason = Reason::Overhead;
    for (process, link) in paths.iter().filter_map(|path| path.link) {
        let behind = paths.iter().filter(|path| path.link.is_some_and(|(to, _)| to == process));
        // So much of the link's time the copies behind it leave for each byte.
        let together = 1.0 / behind.map(|path| 1.0 / path.copy.byte.max(1e-13)).sum::<f64>();
        if together <= link.byte {
            // The link is what all wait for, whatever the size.
            continue;
        }
        let perfect = link.block / (together - link.byte).max(OVERHEAD * together);
        if perfect > size {
            (size, reason) = (perfect, Reason::Pipelining);
        }
    }
    if let Some(bytes) = unit {
        let most = bytes / (PARTS * paths.len() as f64);
        if most < size {
            (size, reason) = (most, Reason::Unit);
        }
    }
    match aim {
        Aim::Throughput => {}
        Aim::Latency(time) => {
            let most = within(time, paths);
            if most < size {
                (size, reason) = (most, Reason::Latency);
            }
        }
        Aim::Rate(rate) => {
            let needed = unit.and_then(|bytes| enough(rate * bytes, paths, &shares, sending));
            if let Some(needed) = needed.filter(|needed| *needed < size) {
                (size, reason) = (needed, Reason::Rate);
            }
        }
    }
    Some(match size {
        size if size <= bounds.least as f64 => (bounds.nearest(bounds.least), Reason::Least),
        size if size >= bounds.most as f64 => (bounds.nearest(bounds.most), Reason::Most),
        size => (bounds.nearest(rounded(size)), reason),
    })
}

/// To two digits in binary: sizes that people can compare, and memory that can be used again.
fn rounded(size: f64) -> usize {
    let step = 2_f64.powf(size.log2().floor() - 1.0);
    ((size / step).round() * step) as usize
}

/// The size of the next block, as the numbers of blocks and the size of most of them say.
pub(crate) fn size_of(number: usize, size: usize, bounds: Bounds) -> usize {
    let size = match (3 * number / PROBES, number % DITHER) {
        (0, _) => size / 4,
        (2, _) => size.saturating_mul(4),
        (3.., 0..DITHERED) => size / 2,
        _ => size,
    };
    bounds.nearest(size)
}

/// The first size.
pub(crate) fn first(bounds: Bounds) -> usize {
    bounds.nearest(FIRST)
}

/// What is known of a stream, at its home or where its blocks are sent, and the size that follows.
#[derive(Debug)]
pub(crate) struct Tuner {
    bounds: Bounds,
    size: usize,
    /// Of each copy, the process that it is in, if that is another one.
    places: Vec<Option<u32>>,
    copies: Vec<Fit>,
    /// Elsewhere than at the home: what all copies together take, as the home has told.
    told: Option<Cost>,
    /// What links to other processes cost.
    links: BTreeMap<u32, Option<Cost>>,
    /// For each block that is sent, in seconds.
    sending: Option<f64>,
    aim: Aim,
    /// Bytes of a unit of work, if that is known.
    unit: Option<f64>,
    blocks: u64,
    think_at: u64,
}

impl Tuner {
    /// At the home: for copies that are here, or in these processes. `room` is the most that the
    /// stream has for a block.
    pub(crate) fn new(bounds: Bounds, room: usize, places: Vec<Option<u32>>, aim: Aim) -> Self {
        let bounds = bounds.within(room);
        Self {
            bounds,
            size: first(bounds),
            copies: vec![Fit::of_copy(); places.len()],
            places,
            told: None,
            links: BTreeMap::new(),
            sending: None,
            aim,
            unit: None,
            blocks: 0,
            think_at: OFTEN[0],
        }
    }

    /// A copy has processed so many blocks with so many bytes in that time.
    pub(crate) fn served(&mut self, copy: usize, blocks: usize, bytes: usize, took: Duration) {
        self.copies[copy].add(blocks as u64, bytes as u64, took);
        self.blocks += blocks as u64;
    }

    /// Sending a block took so long, without the wait for its room.
    pub(crate) fn sent(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        let known = self.sending.get_or_insert(took);
        *known += (took.min(CLIP * *known) - *known) / 16.0;
    }

    /// So many units had so many bytes.
    pub(crate) fn units(&mut self, units: u64, bytes: u64) {
        self.unit = (units > 0).then(|| bytes as f64 / units as f64);
    }

    /// So many blocks were sent.
    pub(crate) fn counts(&mut self, blocks: u64) {
        self.blocks = blocks;
    }

    /// What the copies take, as the home says.
    pub(crate) fn told(&mut self, cost: Cost) {
        let is_cost = |of: f64| of.is_finite() && of >= 0.0;
        if is_cost(cost.block) && is_cost(cost.byte) {
            self.told = Some(cost);
        }
    }

    /// A copy is no more.
    pub(crate) fn lose(&mut self, copy: usize) {
        self.copies[copy] = Fit::of_copy();
    }

    /// Whether it is time to [think](Tuner::think).
    pub(crate) fn is_time(&self) -> bool {
        self.blocks >= self.think_at
    }

    /// What is known of the ways to the copies.
    fn paths(&self) -> Vec<Path> {
        let link = |process: &u32| Some((*process, self.links.get(process).copied()??));
        if let Some(copy) = self.told {
            let links = self.links.keys().filter_map(link);
            return links.map(|link| Path { link: Some(link), copy }).collect();
        }
        let path = |(place, copy): (&Option<u32>, &Fit)| {
            let link = match place {
                Some(process) => Some(link(process)?),
                None => None,
            };
            Some(Path { link, copy: copy.cost()? })
        };
        self.places.iter().zip(&self.copies).filter_map(path).collect()
    }

    /// What a block takes of all copies together, for those who send elsewhere: for each block as a
    /// mean, and for each byte as if they were one.
    pub(crate) fn together(&self) -> Option<Cost> {
        let paths = self.paths();
        let count = (!paths.is_empty()).then_some(paths.len() as f64)?;
        let block = paths.iter().map(|path| path.copy.block).sum::<f64>() / count;
        let speed: f64 = paths.iter().map(|path| 1.0 / path.copy.byte.max(1e-13)).sum();
        Some(Cost { block, byte: 1.0 / speed })
    }

    /// Another size, if that is better. `links` are those to other processes.
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

    /// The size that costs ask for.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// A race was won.
    pub(crate) fn found(&self, from: usize, found: Found) -> SizeDecision {
        self.decision([from, found.size], Reason::Measured, &self.paths(), found.rates)
    }

    fn decision(
        &self,
        [from, to]: [usize; 2],
        reason: Reason,
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
#[path = "tune_tests.rs"]
mod tests;
