//! The limits of the machine itself: copying memory, and passing a cache line between processors.

use std::hint::{black_box, spin_loop};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use crate::record::Metric;

/// Bandwidth of one processor copying chunks into a pool.
pub(crate) const COPY: Metric = Metric::higher("single copy", "GB/s");
/// Bandwidth of one processor copying chunks into a pool and out again.
pub(crate) const TWO_COPIES: Metric = Metric::higher("two copies, one processor", "GB/s");
/// Bandwidth of two processors, one copying chunks into a pool and the other one copying them out.
pub(crate) const PIPELINE: Metric = Metric::higher("two copies, two processors", "GB/s");
/// Time for a cache line to go to another processor and come back.
pub(crate) const CACHE_LINE: Metric = Metric::lower("cache-line round trip", "ns");

/// How memory is copied: in chunks, through a pool of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copying {
    /// Bytes per copy.
    pub(crate) chunk: usize,
    /// Bytes of the pool; at least two chunks.
    pub(crate) pool: usize,
}

impl Copying {
    fn chunks(self) -> usize {
        (self.pool / self.chunk).max(2)
    }
}

/// One slot of the pool.
struct Slot {
    full: AtomicBool,
    /// Never contended: `full` determines whose turn it is.
    bytes: Mutex<Vec<u8>>,
}

/// One processor copies a chunk over and over into a pool; GB/s.
pub(crate) fn single_copy(how: Copying, time: Duration) -> f64 {
    let source = vec![1u8; how.chunk];
    on_one_processor(how, time, |slot| slot.copy_from_slice(black_box(&source)))
}

/// One processor copies a chunk into a pool and out again; GB/s.
///
/// This is the limit for two processes that take turns on one processor: the second copy finds the
/// data in its cache, so it may well be higher than that of two processors.
pub(crate) fn two_copies(how: Copying, time: Duration) -> f64 {
    let source = vec![1u8; how.chunk];
    let mut target = vec![1u8; how.chunk];
    on_one_processor(how, time, |slot| {
        slot.copy_from_slice(black_box(&source));
        black_box(&mut target).copy_from_slice(slot);
    })
}

fn on_one_processor(how: Copying, time: Duration, mut copy: impl FnMut(&mut [u8])) -> f64 {
    let mut slots = vec![vec![1u8; how.chunk]; how.chunks()];
    let begun = Instant::now();
    let mut bytes = 0usize;
    loop {
        for slot in &mut slots {
            copy(black_box(slot));
        }
        bytes += slots.len() * how.chunk;
        let elapsed = begun.elapsed();
        if elapsed >= time {
            return bytes as f64 / elapsed.as_secs_f64() / 1e9;
        }
    }
}

/// One processor copies chunks into a pool, another one copies them out; GB/s.
///
/// This is the limit for two processes that run at the same time: every byte also crosses from one
/// cache to the other.
///
/// # Errors
///
/// If there are not two processors.
pub(crate) fn two_copy_pipeline(how: Copying, time: Duration) -> Result<f64> {
    need_two_processors()?;
    let slot = || Slot { full: AtomicBool::new(false), bytes: Mutex::new(vec![1; how.chunk]) };
    let slots: Vec<Slot> = (0..how.chunks()).map(|_| slot()).collect();
    let done = AtomicBool::new(false);
    // Waits for our turn with a slot, and hands it over; false when all is done.
    let turn = |slot: &Slot, full: bool, copy: &mut dyn FnMut(&mut Vec<u8>)| {
        let mut patience = Patience::default();
        while slot.full.load(Ordering::Acquire) != full {
            if done.load(Ordering::Relaxed) {
                return false;
            }
            patience.wait();
        }
        let Ok(mut bytes) = slot.bytes.lock() else { return false };
        copy(&mut bytes);
        drop(bytes);
        slot.full.store(!full, Ordering::Release);
        true
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let source = vec![1u8; how.chunk];
            let mut write =
                |slot| turn(slot, false, &mut |bytes| bytes.copy_from_slice(black_box(&source)));
            while slots.iter().all(&mut write) {}
        });
        let reader = scope.spawn(|| {
            let mut target = vec![1u8; how.chunk];
            let mut read_all = || {
                for slot in &slots {
                    turn(slot, true, &mut |bytes| black_box(&mut target).copy_from_slice(bytes));
                }
            };
            // The writer is running, and all memory has been touched.
            read_all();
            let begun = Instant::now();
            let mut bytes = 0usize;
            loop {
                read_all();
                bytes += slots.len() * how.chunk;
                let elapsed = begun.elapsed();
                if elapsed >= time {
                    done.store(true, Ordering::Relaxed);
                    return bytes as f64 / elapsed.as_secs_f64() / 1e9;
                }
            }
        });
        reader.join().map_err(|_| anyhow!("the reading thread failed"))
    })
}

/// Time for a cache line to go from one processor to another and back; ns. The best of many
/// batches: the limit.
///
/// # Errors
///
/// If there are not two processors.
pub(crate) fn cache_line_round_trip(time: Duration) -> Result<f64> {
    /// Alone on its cache line, and on the pair of lines that prefetchers fetch together.
    #[repr(align(128))]
    struct Line(AtomicU64);
    const BATCH: u64 = 1000;

    need_two_processors()?;
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for expected in 1.. {
                let mut patience = Patience::default();
                while ping.0.load(Ordering::Acquire) < expected {
                    patience.wait();
                }
                if ping.0.load(Ordering::Acquire) == u64::MAX {
                    return;
                }
                pong.0.store(expected, Ordering::Release);
            }
        });
        let sender = scope.spawn(|| {
            let begun = Instant::now();
            let mut best = f64::INFINITY;
            let mut value = 0;
            loop {
                let batch = Instant::now();
                for _ in 0..BATCH {
                    value += 1;
                    ping.0.store(value, Ordering::Release);
                    let mut patience = Patience::default();
                    while pong.0.load(Ordering::Acquire) != value {
                        patience.wait();
                    }
                }
                best = best.min(batch.elapsed().as_nanos() as f64 / BATCH as f64);
                if begun.elapsed() >= time {
                    break;
                }
            }
            ping.0.store(u64::MAX, Ordering::Release);
            best
        });
        sender.join().map_err(|_| anyhow!("the measuring thread failed"))
    })
}

/// Spins, and yields now and then, because the other thread may share this processor.
#[derive(Default)]
struct Patience(u32);

impl Patience {
    fn wait(&mut self) {
        self.0 += 1;
        if self.0 % 10_000 == 0 {
            std::thread::yield_now();
        } else {
            spin_loop();
        }
    }
}

/// The scheduler places the two threads, as it places the processes that are compared with them.
fn need_two_processors() -> Result<()> {
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("this needs two processors");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_positive_where_they_can_be_measured() {
        let time = Duration::from_millis(1);
        let how = Copying { chunk: 64 << 10, pool: 1 << 20 };
        assert!(single_copy(how, time) > 0.0 && two_copies(how, time) > 0.0);
        match (two_copy_pipeline(how, time), cache_line_round_trip(time)) {
            (Ok(pipeline), Ok(line)) => assert!(pipeline > 0.0 && line > 0.0),
            (pipeline, line) => {
                assert!(need_two_processors().is_err(), "{pipeline:?} {line:?}");
            }
        }
    }
}
