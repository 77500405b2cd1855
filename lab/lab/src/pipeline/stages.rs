//! Work of the stages on blocks.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::order::{PipelineOrder, now};
use super::report::{CopyOfStep, PipelineReport};

/// A source without an interval reads the clock once in this many blocks.
const LOOK: u64 = 32;

const WORD: usize = 8;

/// Makes blocks.
#[derive(Debug)]
pub struct BlockSource {
    order: PipelineOrder,
    next: u64,
    begun: u64,
}

impl BlockSource {
    /// The time begins with the first block.
    #[must_use]
    pub fn new(order: PipelineOrder) -> Self {
        Self { order, next: 0, begun: 0 }
    }

    /// Time until the next block is due.
    #[must_use]
    pub fn wait(&self) -> Duration {
        let due = self.begun + self.next * self.order.interval_ns;
        Duration::from_nanos(due.saturating_sub(now()))
    }

    /// The next block, when it is due; `None` after the last one.
    // Not an iterator, because it sleeps.
    #[expect(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Vec<u8>> {
        if self.begun == 0 {
            self.begun = now();
        }
        let is_timed = self.order.interval_ns > 0;
        if is_timed {
            let wait = self.wait();
            if !wait.is_zero() {
                std::thread::sleep(wait);
            }
        }
        if (is_timed || self.next % LOOK == 0)
            && now() - self.begun >= self.order.milliseconds * 1_000_000
        {
            return None;
        }
        let moment = if is_timed || self.next == 0 { now() } else { 0 };
        let block = made(self.order.size, self.next, moment);
        self.next += 1;
        Some(block)
    }

    /// Number of blocks made.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.next
    }
}

fn made(size: usize, number: u64, moment: u64) -> Vec<u8> {
    let mut block = vec![0; size];
    for (index, word) in (0_u64..).zip(block.chunks_exact_mut(WORD)) {
        word.copy_from_slice(&(number.wrapping_add(index)).to_ne_bytes());
    }
    block[WORD..2 * WORD].copy_from_slice(&moment.to_ne_bytes());
    block
}

fn word(block: &[u8], index: usize) -> u64 {
    let mut bytes = [0; WORD];
    bytes.copy_from_slice(&block[index * WORD..][..WORD]);
    u64::from_ne_bytes(bytes)
}

/// Whether it is a block of that order, and not another message over the same channel.
#[must_use]
pub fn is_block(block: &[u8], order: &PipelineOrder) -> bool {
    block.len() == order.size
}

/// The sum of all words.
#[must_use]
pub fn total(block: &[u8]) -> u64 {
    let words = block.chunks_exact(WORD).map(|bytes| {
        let mut word = [0; WORD];
        word.copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    });
    black_box(words.fold(0, u64::wrapping_add))
}

/// All words of a block but the moment.
fn sum(block: &[u8]) -> u64 {
    total(block).wrapping_sub(word(block, 1))
}

/// Numbers the copies of the first step, of which the first one pauses.
#[derive(Debug, Default)]
pub struct Copies(AtomicUsize);

impl Copies {
    /// Whether the calling copy is the one that pauses.
    pub fn is_first(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) == 0
    }
}

/// Work of a copy of a step.
#[derive(Debug)]
pub struct StepWork {
    order: PipelineOrder,
    sum: u64,
    pauses: bool,
    copy: CopyOfStep,
}

impl StepWork {
    /// `pauses`: this copy stops once, if the order requires it.
    #[must_use]
    pub fn new(order: PipelineOrder, pauses: bool) -> Self {
        let pauses = pauses && order.pause_ms > 0;
        Self { order, sum: 0, pauses, copy: CopyOfStep::default() }
    }

    /// A copy of the second step, which only reads.
    #[must_use]
    pub fn second(order: PipelineOrder) -> Self {
        Self::new(PipelineOrder { service_ns: 0, pause_ms: 0, ..order }, false)
    }

    /// Reads a block, and takes its time.
    pub fn work(&mut self, block: &[u8]) {
        self.sum = self.sum.wrapping_add(sum(block));
        if self.order.service_ns > 0 {
            self.serve();
        }
    }

    fn serve(&mut self) {
        let start = now();
        self.copy.starts.push(start);
        let until = start + self.order.service_ns;
        std::thread::sleep(Duration::from_nanos(until.saturating_sub(now())));
        let first = self.copy.starts[0];
        if self.pauses && now() - first >= self.order.milliseconds * 1_000_000 / 3 {
            std::thread::sleep(Duration::from_millis(self.order.pause_ms));
            self.copy.resumed = Some(now());
            self.pauses = false;
        }
    }

    /// The report of its work, as step number 0 or 1.
    #[must_use]
    pub fn report(&mut self, number: usize) -> PipelineReport {
        let mut report = PipelineReport::default();
        report.sums[number] = self.sum;
        if !self.copy.starts.is_empty() {
            report.copies.push(std::mem::take(&mut self.copy));
        }
        report
    }
}

/// Work of the sink.
#[derive(Debug)]
pub struct Sink {
    order: PipelineOrder,
    blocks: u64,
    sum: u64,
    /// When block 0 was made.
    begun: u64,
    /// Time until which it is slow; 0: not known yet.
    slow_until: u64,
    latencies: Vec<u64>,
}

impl Sink {
    /// A sink that has received nothing.
    #[must_use]
    pub fn new(order: PipelineOrder) -> Self {
        Self { order, blocks: 0, sum: 0, begun: 0, slow_until: 0, latencies: Vec::new() }
    }

    /// Reads a block.
    pub fn take(&mut self, block: &[u8]) {
        self.sum = self.sum.wrapping_add(sum(block));
        self.blocks += 1;
        let moment = word(block, 1);
        if moment > 0 {
            if word(block, 0) == 0 {
                self.begun = moment;
            }
            if self.order.interval_ns > 0 {
                self.latencies.push(now() - moment);
            }
        }
        if self.order.sink_ns > 0 {
            let now = now();
            if self.slow_until == 0 {
                self.slow_until = now + self.order.milliseconds * 1_000_000;
            }
            if now < self.slow_until {
                std::thread::sleep(Duration::from_nanos(self.order.sink_ns));
            }
        }
    }

    /// Number of blocks received.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.blocks
    }

    /// The report after the last block.
    #[must_use]
    pub fn report(&mut self) -> PipelineReport {
        let seconds = now().saturating_sub(self.begun) as f64 / 1e9;
        self.latencies.sort_unstable();
        let quantile = |part: f64| {
            let last = self.latencies.len().checked_sub(1)?;
            Some(self.latencies[(part * last as f64) as usize])
        };
        let mut report =
            PipelineReport { blocks: self.blocks, seconds, ..PipelineReport::default() };
        (report.p50_ns, report.p99_ns) = (quantile(0.5), quantile(0.99));
        report.sums[2] = self.sum;
        report
    }
}
