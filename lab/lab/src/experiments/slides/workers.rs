//! The server with workers on other hosts: what they add, and what a slow one costs, by how work is
//! dealt.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::bench::{self, BEFORE, COMING, CONNECTIONS};
use super::{GOAL, MEDIAN, MISSING, RATE, TAIL, closed, viewers};
use crate::experiments::by_size::spread;
use crate::imaging::Dealing;
use crate::outcome::{Key, Table};
use crate::record::{Better, Metric, Row, Samples, Selector};
use crate::schedule::{Group, Trial, Variant};
use crate::slides::cluster::{Link, Setup};
use crate::slides::load::Pace;
use crate::slides::material::{Material, Slide};
use crate::slides::servers::Peer;
use crate::slides::view::{View, What};

/// Work that was done for an answer: a tile is decompressed, or an image scaled and encoded.
const PIECES: Metric =
    Metric { name: "pieces of an answer done by workers", unit: "", better: Better::Higher };

/// Numbers of workers.
const COUNTS: [usize; 3] = [0, 2, 4];
/// The number of which one may be slow.
const MOST: usize = 4;
/// Number of viewers: few, so that they request less than the server alone can do.
pub(super) const VIEWERS: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(60);

/// The load, the workers, and whether one of them is slow, as a case.
fn case(load: &str, workers: usize, is_one_slow: bool) -> String {
    let slow = if is_one_slow { ", one slow" } else { "" };
    format!("{load}, {workers} workers{slow}")
}

pub(super) fn rate_case(workers: usize, is_one_slow: bool) -> String {
    case(&closed(What::Decoded, GOAL), workers, is_one_slow)
}

pub(super) fn tail_case(is_one_slow: bool) -> String {
    viewers_case(MOST, is_one_slow)
}

fn viewers_case(workers: usize, is_one_slow: bool) -> String {
    case(&viewers(What::Decoded, VIEWERS), workers, is_one_slow)
}

/// The setups to measure: how many workers there are, whether one is slow, and how work is dealt.
fn setups(quick: bool) -> Vec<(usize, bool, Vec<Dealing>)> {
    if quick {
        let both = vec![Dealing::RoundRobin, Dealing::Adaptive];
        return vec![(MOST, false, vec![Dealing::Adaptive]), (MOST, true, both)];
    }
    let alone = |workers: &usize| (*workers, false, vec![Dealing::Adaptive]);
    let few = COUNTS.iter().filter(|workers| **workers < MOST).map(alone);
    let most = [false, true].map(|is_one_slow| (MOST, is_one_slow, Dealing::ALL.to_vec()));
    few.chain(most).collect()
}

pub(super) struct Workers {
    link: Link,
    command: PathBuf,
    directory: PathBuf,
    slide: Slide,
    quick: bool,
}

impl Workers {
    pub(super) fn new(command: &Path, material: &Material, quick: bool) -> Self {
        let (directory, slide) = (material.directory.clone(), material.flat.clone());
        Self { link: Link::new(), command: command.to_owned(), directory, slide, quick }
    }

    /// How long a load is measured: at most if it is closed.
    pub(super) fn milliseconds(&self, is_open: bool) -> u64 {
        match (self.quick, is_open) {
            (true, false) => 500,
            (true, true) => 1000,
            (false, false) => 2000,
            (false, true) => 10_000,
        }
    }

    pub(super) fn groups(&self) -> Vec<Group<'_>> {
        let group = |(workers, is_one_slow, dealings): (usize, bool, Vec<Dealing>)| {
            let variant = |dealing: Dealing| {
                let setup = Setup { workers, is_one_slow, dealing };
                Variant::new(dealing.name(), move |trial: &mut Trial| self.run(setup, trial))
            };
            let name = case(What::Decoded.name(), workers, is_one_slow);
            Group::new(name, dealings.into_iter().map(variant).collect())
        };
        setups(self.quick).into_iter().map(group).collect()
    }

    fn run(&self, setup: Setup, trial: &mut Trial) -> Result<()> {
        self.closed(setup, trial)?;
        // All are warm by then.
        if trial.is_warm_up() { Ok(()) } else { self.viewers(setup, trial) }
    }

    fn paths(&self, views: Vec<View>) -> Result<Vec<String>> {
        let path = |view| Peer::Seekwire.path(&self.slide, view).context("it has all addresses");
        views.into_iter().map(path).collect()
    }

    fn closed(&self, setup: Setup, trial: &mut Trial) -> Result<()> {
        let cluster = self.link.start(&self.command, &self.directory, setup)?;
        let paths = self.paths(What::Decoded.views(&self.slide, 0))?;
        let (before, paths) = paths.split_at(BEFORE.min(paths.len() / 4));
        let lane = |paths: &[String]| [bench::without_a_pause(paths.len(), GOAL)];
        cluster.load(before, &lane(before), Pace::Closed(PATIENCE))?;
        let time = Duration::from_millis(self.milliseconds(false));
        let time = if trial.is_warm_up() { time / 4 } else { time };
        let done = cluster.done()?;
        let measured = cluster.load(paths, &lane(paths), Pace::Closed(time))?;
        let Setup { workers, is_one_slow, .. } = setup;
        let (case, x) = (rate_case(workers, is_one_slow), Some(workers as f64));
        trial.record(&case, x, RATE, measured.rate());
        let pieces = (cluster.done()? - done) / measured.answers as f64;
        trial.record(&case, x, PIECES, pieces);
        Ok(())
    }

    fn viewers(&self, setup: Setup, trial: &mut Trial) -> Result<()> {
        let cluster = self.link.start(&self.command, &self.directory, setup)?;
        let time = Duration::from_millis(self.milliseconds(true));
        let (views, lanes) = bench::panning(&self.slide, What::Decoded, VIEWERS, time);
        let paths = self.paths(views)?;
        let before = &paths[..BEFORE.min(paths.len() / 4)];
        let lane = bench::without_a_pause(before.len(), CONNECTIONS as u64);
        cluster.load(before, &[lane], Pace::Closed(PATIENCE))?;
        let done = cluster.done()?;
        let measured = cluster.load(&paths, &lanes, Pace::Open(COMING))?;
        let Setup { workers, is_one_slow, .. } = setup;
        let (case, x) = (viewers_case(workers, is_one_slow), Some(workers as f64));
        let mut record = |metric: Metric, value: f64| trial.record(&case, x, metric, value);
        for (metric, which) in [(MEDIAN, 0.5), (TAIL, 0.99)] {
            let quantile = measured.latencies.quantile(which).context("nothing was measured")?;
            record(metric, quantile as f64 / 1e6);
        }
        let all = measured.answers + measured.unanswered;
        record(MISSING, 100.0 * measured.unanswered as f64 / all as f64);
        record(PIECES, (cluster.done()? - done) / measured.answers as f64);
        Ok(())
    }
}

pub(super) fn table(rows: &[Row]) -> Table {
    let mut lines: Vec<Vec<Value>> = Vec::new();
    for is_one_slow in [false, true] {
        for workers in COUNTS {
            for dealing in Dealing::ALL {
                let of = |case: &str, metric| {
                    let spread = spread(rows, case, dealing.name(), metric);
                    spread.map(|spread| spread.median)
                };
                let (rate, tail) =
                    (rate_case(workers, is_one_slow), viewers_case(workers, is_one_slow));
                let cells = [
                    of(&rate, RATE),
                    of(&rate, PIECES),
                    of(&tail, MEDIAN),
                    of(&tail, TAIL),
                    of(&tail, PIECES),
                ];
                if cells.iter().any(Option::is_some) {
                    let who = case("", workers, is_one_slow);
                    let who = who.trim_start_matches(", ").into();
                    let begin = [who, dealing.name().into()];
                    lines.push(begin.into_iter().chain(cells.map(Value::from)).collect());
                }
            }
        }
    }
    let columns = [
        "hosts beside the server's".to_owned(),
        "dealt".to_owned(),
        format!("tiles/s, {GOAL} connections"),
        "pieces of a tile by workers".to_owned(),
        format!("p50, ms, {VIEWERS} viewers"),
        "p99, ms".to_owned(),
        "pieces of a tile by workers".to_owned(),
    ];
    Table {
        title: "Workers: decoded tiles".to_owned(),
        note: "The server and each worker have 30 % of a processor each, and a slow worker a tenth of that. A link of \
               1 Gb/s is between the server and all workers. A tile is about five pieces of work: four stored tiles \
               that are decompressed, and one image."
            .to_owned(),
        columns: columns.into(),
        rows: lines,
    }
}

pub(super) fn summary(samples: &Samples) -> [Option<Key>; 3] {
    fn of(case: &str, dealing: Dealing, metric: Metric) -> Selector<'_> {
        Selector { case, variant: dealing.name(), metric }
    }
    let ratio = |these, others| samples.ratio(these, others).map(|ratio| ratio.value);
    let (slow, without) = (tail_case(true), tail_case(false));
    let (most, none) = (rate_case(MOST, false), rate_case(0, false));
    let adaptive = of(&slow, Dealing::Adaptive, TAIL);
    [
        Key::measured(
            "slow_worker_p99_ratio_adaptive_vs_round_robin",
            "decoded tiles for viewers, four workers of which one is ten times slower: latency p99 if dealt adaptively, \
             over that if dealt in turn; lower is better",
            ratio(adaptive, of(&slow, Dealing::RoundRobin, TAIL)),
        ),
        Key::measured(
            "slow_worker_p99_cost_adaptive",
            "decoded tiles for viewers, four workers, dealt adaptively: latency p99 if one is ten times slower, over that \
             if none is; lower is better",
            ratio(adaptive, of(&without, Dealing::Adaptive, TAIL)),
        ),
        Key::measured(
            "four_workers_vs_none",
            "decoded tiles per second on 16 connections with four workers, over none; higher is better",
            ratio(of(&most, Dealing::Adaptive, RATE), of(&none, Dealing::Adaptive, RATE)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_goal_speaks_of_is_measured_in_quick_runs_too() {
        for quick in [false, true] {
            let measured = setups(quick);
            let has = |is_one_slow, dealing| {
                let is_it = |(workers, slow, dealings): &(usize, bool, Vec<Dealing>)| {
                    (*workers, *slow) == (MOST, is_one_slow) && dealings.contains(&dealing)
                };
                measured.iter().any(is_it)
            };
            assert!(has(false, Dealing::Adaptive) && has(true, Dealing::Adaptive));
            assert!(has(true, Dealing::RoundRobin));
        }
        assert_eq!(tail_case(true), "decoded tiles, 3 viewers, 4 workers, one slow");
        assert_eq!(rate_case(0, false), "decoded tiles, 16 connections, 0 workers");
    }
}
