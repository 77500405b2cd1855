//! The coordinator: it requests updates, and reports their results.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use seekwire_flow::{Running, Unit, UnitHandle};

use super::filters::Desk;
use crate::imaging::cost::Compute;
use crate::imaging::{ClusterTask, Done, IMAGE, Load, Order, TILE, Update, UpdateReport};

/// Deadline of a partial update; complete ones are not urgent.
const SOON: Duration = Duration::from_millis(1);

/// Executes each line of `orders`, until there are no more.
pub(super) fn follow(
    running: &Running,
    desk: &Desk,
    orders: impl Iterator<Item = io::Result<String>>,
) -> Result<()> {
    let mut coordinator = Coordinator { running, desk, updates: 0 };
    for line in orders {
        let order: Order = serde_json::from_str(&line?).context("not an order")?;
        let outcome = match order.what {
            ClusterTask::Updates { count, compute } => coordinator.at_once(count, compute),
            ClusterTask::Load(load) => coordinator.load(load),
        };
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        say(&serde_json::to_string(&Done { turn: order.turn, outcome })?)?;
    }
    Ok(())
}

pub(super) fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

struct Coordinator<'r> {
    running: &'r Running,
    desk: &'r Desk,
    updates: u64,
}

/// An update that was requested.
struct Asked {
    update: Update,
    /// Time from when it was due until it was requested.
    late: Duration,
    handle: UnitHandle,
}

impl Coordinator<'_> {
    fn ask(&mut self, start: u64, bytes: u64, compute: Compute, due: Instant) -> Result<Asked> {
        let update = Update { number: self.updates, start, bytes, compute };
        self.updates += 1;
        let mut unit = Unit::new(serde_json::to_string(&update)?);
        if bytes < IMAGE {
            unit = unit.deadline(due + SOON);
        }
        let late = due.elapsed();
        Ok(Asked { update, late, handle: self.running.submit(unit) })
    }

    /// Time from when it was due until it was done.
    fn wait(&self, asked: &Asked, report: &mut UpdateReport) -> Result<Duration> {
        let took = asked.handle.wait()?.took + asked.late;
        let Update { number, start, bytes, .. } = asked.update;
        let seen = self.desk.take(number);
        let nanoseconds = took.as_nanos() as u64;
        match bytes {
            IMAGE => {
                report.complete_ns.push(nanoseconds);
                report.work.resize(seen.work.len(), Default::default());
                report.work.iter_mut().zip(seen.work).for_each(|(all, own)| all.add(own));
                report.onsets.extend(seen.onsets);
            }
            _ => report.partial_ns.push(nanoseconds),
        }
        if (seen.bytes, seen.sum) != (bytes, self.desk.image.sum(start, bytes)) {
            report.damage = Some(format!("an update of {bytes} bytes arrived with other bytes"));
        }
        Ok(took)
    }

    fn at_once(&mut self, count: u64, compute: Compute) -> Result<UpdateReport> {
        let begin = Instant::now();
        let ask = |_| self.ask(0, IMAGE, compute, begin);
        let asked: Vec<Asked> = (0..count).map(ask).collect::<Result<_>>()?;
        let mut report = UpdateReport::default();
        for asked in &asked {
            let took = self.wait(asked, &mut report)?;
            report.span_ns = report.span_ns.max(took.as_nanos() as u64);
        }
        report.rings = rings()?;
        Ok(report)
    }

    /// Requests updates when they are due, whether the pipeline is ready or not: delays count from
    /// that time.
    fn load(&mut self, load: Load) -> Result<UpdateReport> {
        let Load { complete, partial, seconds, compute } = load;
        let begin = Instant::now();
        let mut random = fastrand::Rng::with_seed(self.updates);
        let mut asked = Vec::new();
        for (at, is_complete) in times(complete, partial, seconds) {
            let due = begin + Duration::from_secs_f64(at);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let (start, bytes) = match is_complete {
                true => (0, IMAGE),
                false => (random.u64(..IMAGE / TILE) * TILE, TILE),
            };
            asked.push((at, self.ask(start, bytes, compute, due)?));
        }
        let mut report = UpdateReport::default();
        for (at, asked) in &asked {
            let took = self.wait(asked, &mut report)?;
            if asked.update.bytes == IMAGE {
                let end = Duration::from_secs_f64(*at) + took;
                report.span_ns = report.span_ns.max(end.as_nanos() as u64);
            }
        }
        report.rings = rings()?;
        Ok(report)
    }
}

/// The times at which updates are due, in seconds, and whether they are complete. Partial ones come
/// halfway between two of their times, so that they do not coincide with complete ones.
fn times(complete: f64, partial: f64, seconds: f64) -> Vec<(f64, bool)> {
    let count = |rate: f64| (rate * seconds).ceil() as u32;
    let complete_at = (0..count(complete)).map(|at| (f64::from(at) / complete, true));
    let partial_at = (0..count(partial)).map(|at| ((f64::from(at) + 0.5) / partial, false));
    let mut times: Vec<(f64, bool)> = complete_at.chain(partial_at).collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    times
}

/// Number of pieces of connections' shared memory that this process has mapped.
fn rings() -> Result<u64> {
    let maps = fs::read_to_string("/proc/self/maps").context("cannot see what is mapped")?;
    let of_ring = maps.lines().filter(|line| line.contains("memfd:seekwire"));
    let inodes: HashSet<&str> = of_ring.filter_map(|line| line.split_whitespace().nth(4)).collect();
    Ok(inodes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_comes_at_its_times_whatever_becomes_of_it() {
        assert_eq!(
            times(2.0, 4.0, 1.0),
            [
                (0.0, true),
                (0.125, false),
                (0.375, false),
                (0.5, true),
                (0.625, false),
                (0.875, false)
            ]
        );
        assert_eq!(times(0.75, 0.0, 1.0), [(0.0, true)]);
    }
}
