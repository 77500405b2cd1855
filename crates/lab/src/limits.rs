//! What the machine itself can do: copying memory, and passing a cache line between processors.

use std::hint::{black_box, spin_loop};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::record::{Better, Metric};

/// Bandwidth of one processor copying chunks into a pool.
pub(crate) const COPY: Metric = Metric { name: "single copy", unit: "GB/s", better: Better::Higher };
/// Bandwidth of two processors, one copying chunks into a pool and the other one copying them out.
pub(crate) const PIPELINE: Metric =
    Metric { name: "two-copy pipeline", unit: "GB/s", better: Better::Higher };
/// Time for a cache line to go to another processor and come back.
pub(crate) const CACHE_LINE: Metric =
    Metric { name: "cache-line round trip", unit: "ns", better: Better::Lower };

/// Bytes per copy: the size of the bulk writes that are compared with this.
pub(crate) const CHUNK: usize = 64 << 10;

/// One slot of the pool.
struct Slot {
    full: AtomicBool,
    /// Never contended: `full` says whose turn it is.
    bytes: Mutex<Vec<u8>>,
}

/// One processor copies a chunk over and over into a pool of `pool` bytes; GB/s.
pub(crate) fn single_copy(pool: usize, time: Duration) -> f64 {
    let source = vec![1u8; CHUNK];
    let mut slots = vec![vec![0u8; CHUNK]; (pool / CHUNK).max(1)];
    let begun = Instant::now();
    let mut bytes = 0usize;
    loop {
        for slot in &mut slots {
            slot.copy_from_slice(black_box(&source));
            black_box(&slot);
        }
        bytes += slots.len() * CHUNK;
        let elapsed = begun.elapsed();
        if elapsed >= time {
            return bytes as f64 / elapsed.as_secs_f64() / 1e9;
        }
    }
}

/// One processor copies chunks into a pool of `pool` bytes, another one copies them out; GB/s.
///
/// This is the limit for sockets over shared memory: two copies, which two processors can do at the same time.
///
/// # Errors
///
/// If there are not two processors.
pub(crate) fn two_copy_pipeline(pool: usize, time: Duration) -> Result<f64> {
    let [first, second] = two_processors()?;
    let slot = || Slot { full: AtomicBool::new(false), bytes: Mutex::new(vec![0; CHUNK]) };
    let slots: Vec<Slot> = (0..(pool / CHUNK).max(2)).map(|_| slot()).collect();
    let done = AtomicBool::new(false);
    let turn = |slot: &Slot, full: bool, copy: &mut dyn FnMut(&mut Vec<u8>)| {
        while slot.full.load(Ordering::Acquire) != full {
            if done.load(Ordering::Relaxed) {
                return false;
            }
            spin_loop();
        }
        let Ok(mut bytes) = slot.bytes.lock() else { return false };
        copy(&mut bytes);
        drop(bytes);
        slot.full.store(!full, Ordering::Release);
        true
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(first);
            let source = vec![1u8; CHUNK];
            while slots
                .iter()
                .all(|slot| turn(slot, false, &mut |bytes| bytes.copy_from_slice(black_box(&source))))
            {
            }
        });
        let reader = scope.spawn(|| {
            pin(second);
            let mut target = vec![0u8; CHUNK];
            let begun = Instant::now();
            let mut bytes = 0usize;
            loop {
                for slot in &slots {
                    turn(slot, true, &mut |from| black_box(&mut target).copy_from_slice(from));
                }
                bytes += slots.len() * CHUNK;
                let elapsed = begun.elapsed();
                if elapsed >= time {
                    done.store(true, Ordering::Relaxed);
                    return bytes as f64 / elapsed.as_secs_f64() / 1e9;
                }
            }
        });
        reader.join().map_err(|_| anyhow::anyhow!("the reading thread failed"))
    })
}

/// Median time for a cache line to go from one processor to another and back; ns.
///
/// # Errors
///
/// If there are not two processors.
pub(crate) fn cache_line_round_trip(time: Duration) -> Result<f64> {
    /// Alone on its cache line, and on the pair of lines that prefetchers like to fetch.
    #[repr(align(128))]
    struct Line(AtomicU64);
    const BATCH: u64 = 1000;

    let [first, second] = two_processors()?;
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(first);
            let mut expected = 1;
            loop {
                match ping.0.load(Ordering::Acquire) {
                    u64::MAX => return,
                    value if value == expected => {
                        pong.0.store(value, Ordering::Release);
                        expected += 1;
                    }
                    _ => spin_loop(),
                }
            }
        });
        let sender = scope.spawn(|| {
            pin(second);
            let begun = Instant::now();
            let mut times = Vec::new();
            let mut value = 0;
            while begun.elapsed() < time {
                let batch = Instant::now();
                for _ in 0..BATCH {
                    value += 1;
                    ping.0.store(value, Ordering::Release);
                    while pong.0.load(Ordering::Acquire) != value {
                        spin_loop();
                    }
                }
                times.push(batch.elapsed().as_nanos() as f64 / BATCH as f64);
            }
            ping.0.store(u64::MAX, Ordering::Release);
            crate::stats::median(&times)
        });
        let median = sender.join().map_err(|_| anyhow::anyhow!("the measuring thread failed"))?;
        median.ok_or_else(|| anyhow::anyhow!("no time was given"))
    })
}

/// The first two processors that this process may run on.
fn two_processors() -> Result<[usize; 2]> {
    let allowed = sched_getaffinity(None)?;
    let mut processors = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor));
    match (processors.next(), processors.next()) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => bail!("this needs two processors"),
    }
}

/// Keeps the calling thread on one processor.
fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    // Unpinned the figures are only noisier.
    let _ = sched_setaffinity(None, &set);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_positive_where_they_can_be_measured() {
        let time = Duration::from_millis(1);
        assert!(single_copy(1 << 20, time) > 0.0);
        match (two_copy_pipeline(1 << 20, time), cache_line_round_trip(time)) {
            (Ok(pipeline), Ok(line)) => assert!(pipeline > 0.0 && line > 0.0),
            (pipeline, line) => {
                assert!(two_processors().is_err(), "{pipeline:?} {line:?}");
            }
        }
    }
}
