//! The message size from which on it is cheaper to take messages in place than to move everything
//! into library memory.
//!
//! The receiver of the papers' microbenchmark (eight messages are skipped, the ninth is received,
//! then the eight), once by each method, in alternation, over loopback TCP; its processor time is
//! compared size by size.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use seekwire::SeekStream;
use seekwire_endpoint::seek_threshold;
use seekwire_program::command_line::is_standard_output;
use seekwire_transport::buffer::Buffer;

use crate::progress::Progress;
use crate::stats;

/// Messages that are skipped before each one that is wanted.
const SKIP: usize = 8;
/// Sizes that are tried, in bytes.
const SIZES: [usize; 9] = [512, 1024, 2048, 4096, 8192, 12288, 16384, 32768, 65536];
/// Bytes that one connection moves, at least.
const BYTES: usize = 4 << 20;
/// Groups of messages that one connection moves, at least.
const GROUPS: usize = 200;
const ROUNDS: usize = 7;

/// Result of a calibration.
#[derive(Debug)]
pub struct Calibration {
    /// Average size in bytes at which the methods change over.
    pub switch: u32,
    /// Receiver's processor time per message in microseconds, medians: in bulk, and in place.
    pub sizes: Vec<(usize, f64, f64)>,
    /// Where it was written, if it was.
    pub path: Option<PathBuf>,
}

/// Measures, and writes the result to a file, or where every process of this user finds it. If the
/// file stands for standard output, the result is only returned.
///
/// # Errors
///
/// If no sockets can be created, or the file cannot be written.
pub fn calibrate(file: Option<&Path>) -> Result<Calibration> {
    let path = match file {
        Some(file) if is_standard_output(file) => None,
        Some(file) => Some(file.to_owned()),
        None => Some(
            seek_threshold::path()
                .context("neither XDG_CACHE_HOME nor HOME says where to keep the result")?,
        ),
    };
    // Sender and receiver share a processor, as in the experiments: copies and system calls are
    // compared, not the path from cache to cache.
    let allowed = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).rfind(|&processor| allowed.is_set(processor)).unwrap_or(0));
    sched_setaffinity(None, &one)?;
    let result = compare(path);
    sched_setaffinity(None, &allowed)?;
    result
}

fn compare(path: Option<PathBuf>) -> Result<Calibration> {
    let progress = Progress::new("calibrate");
    progress.expect(ROUNDS * SIZES.len());
    let mut times = vec![[Vec::new(), Vec::new()]; SIZES.len()];
    for round in 0..ROUNDS {
        for (size, times) in SIZES.into_iter().zip(&mut times) {
            progress.step(&format!("round {}/{ROUNDS}: {size} B", round + 1));
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for method in order {
                // In bulk for any size, or never.
                seek_threshold::set_seek_switch([u32::MAX, 0][method]);
                times[method].push(measure(size)?);
            }
        }
    }
    drop(progress);
    let sizes: Vec<(usize, f64, f64)> = SIZES
        .into_iter()
        .zip(&times)
        .filter_map(|(size, [bulk, in_place])| {
            Some((size, stats::median(bulk)?, stats::median(in_place)?))
        })
        .collect();
    let switch = switch(&sizes);
    seek_threshold::set_seek_switch(switch);
    if let Some(path) = &path {
        seek_threshold::store(path, switch)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(Calibration { switch, sizes, path })
}

/// Between the last size at which moving in bulk is cheaper and the next one.
fn switch(sizes: &[(usize, f64, f64)]) -> u32 {
    let cheaper = |(_, bulk, in_place): &(usize, f64, f64)| bulk < in_place;
    let Some(last) = sizes.iter().rposition(cheaper) else { return 0 };
    let below = sizes[last].0;
    match sizes.get(last + 1) {
        Some(&(above, ..)) => ((below * above) as f64).sqrt() as u32,
        None => seek_threshold::MOST.min(2 * below as u32),
    }
}

/// The receiver's processor time per message, in microseconds, over one connection.
fn measure(size: usize) -> Result<f64> {
    let groups = (BYTES / (size * (SKIP + 1))).max(GROUPS);
    let messages = groups * (SKIP + 1);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (receiver, _) = listener.accept()?;
    let sending = std::thread::spawn(move || -> io::Result<()> {
        let message = vec![1; size];
        (0..messages).try_for_each(|_| sender.write_all(&message))
    });
    let before = processor_time();
    let received = receive(SeekStream::new(receiver), size, groups);
    let time = processor_time() - before;
    let sent = sending.join();
    received?;
    sent.map_err(|_| io::Error::other("the sender panicked"))??;
    Ok(time.as_secs_f64() * 1e6 / messages as f64)
}

fn receive(stream: SeekStream, size: usize, groups: usize) -> io::Result<()> {
    let mut message = Buffer::new(size);
    for _ in 0..groups {
        if stream.seek_recv(&mut message, (SKIP * size) as u64)? < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for _ in 0..SKIP {
            (&stream).read_exact(&mut message)?;
        }
    }
    Ok(())
}

/// User and system time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_lies_where_the_methods_cross() {
        assert_eq!(switch(&[(1024, 1.0, 2.0), (4096, 3.0, 2.0)]), 2048);
        assert_eq!(switch(&[(1024, 2.0, 1.0), (4096, 3.0, 2.0)]), 0);
        assert_eq!(switch(&[(1024, 1.0, 2.0), (4096, 1.0, 2.0)]), 8192);
    }

    #[test]
    fn both_methods_receive_all_messages() {
        for switch in [0, u32::MAX] {
            seek_threshold::set_seek_switch(switch);
            assert!(measure(512).unwrap() > 0.0);
        }
    }
}
