//! The server with workers on other hosts: what they add, and what a slow one costs, by how work is
//! dealt.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use seekwire_flow::DealingPolicy;
use serde_json::Value;

use super::bench::{self, BEFORE, COMING, CONNECTIONS};
use super::cases::{GOAL, MEDIAN, MISSING, RATE, TAIL, closed, viewers};
use crate::experiments::by_size::spread;
use crate::imaging::POLICIES;
use crate::outcome::Table;
use crate::record::{Metric, Row};
use crate::schedule::{Group, Trial, Variant};
use crate::slides::cluster::{TestLink, WorkerSetup};
use crate::slides::load::Pace;
use crate::slides::servers::ServerKind;
use crate::slides::test_slides::Material;
use crate::slides::view::{Slide, SlideView, ViewKind};

/// Work that was done for an answer: a tile is decompressed, or an image scaled and encoded.
const PIECES: Metric = Metric::higher("pieces of an answer done by workers", "");

/// Numbers of workers.
const COUNTS: [usize; 3] = [0, 2, 4];
/// The number of which one may be slow.
const MOST: usize = 4;
/// Number of viewers: few, so that they request less than the server alone can do.
const VIEWERS: u64 = 3;
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// The load, the workers, and whether one of them is slow, as a case.
fn case(load: &str, workers: usize, is_one_slow: bool) -> String {
    let slow = if is_one_slow { ", one slow" } else { "" };
    format!("{load}, {workers} workers{slow}")
}

fn rate_case(workers: usize, is_one_slow: bool) -> String {
    case(&closed(ViewKind::Decoded, GOAL), workers, is_one_slow)
}

fn viewers_case(workers: usize, is_one_slow: bool) -> String {
    case(&viewers(ViewKind::Decoded, VIEWERS), workers, is_one_slow)
}

/// The setups to measure: how many workers there are, whether one is slow, and how work is dealt.
fn setups(quick: bool) -> Vec<(usize, bool, Vec<DealingPolicy>)> {
    if quick {
        let both = vec![DealingPolicy::RoundRobin, DealingPolicy::Adaptive];
        return vec![(MOST, false, vec![DealingPolicy::Adaptive]), (MOST, true, both)];
    }
    let alone = |workers: &usize| (*workers, false, vec![DealingPolicy::Adaptive]);
    let few = COUNTS.iter().filter(|workers| **workers < MOST).map(alone);
    let most = [false, true].map(|is_one_slow| (MOST, is_one_slow, POLICIES.to_vec()));
    few.chain(most).collect()
}

pub(super) struct Workers {
    link: TestLink,
    command: PathBuf,
    directory: PathBuf,
    slide: Slide,
    quick: bool,
}

impl Workers {
    pub(super) fn new(command: &Path, material: &Material, quick: bool) -> Self {
        let (directory, slide) = (material.directory.clone(), material.flat.clone());
        Self { link: TestLink::new(), command: command.to_owned(), directory, slide, quick }
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
        let group = |(workers, is_one_slow, dealings): (usize, bool, Vec<DealingPolicy>)| {
            let variant = |dealing: DealingPolicy| {
                let setup = WorkerSetup { workers, is_one_slow, dealing };
                Variant::new(dealing.name(), move |trial: &mut Trial| self.run(setup, trial))
            };
            let name = case(ViewKind::Decoded.name(), workers, is_one_slow);
            Group::new(name, dealings.into_iter().map(variant).collect())
        };
        setups(self.quick).into_iter().map(group).collect()
    }

    fn run(&self, setup: WorkerSetup, trial: &mut Trial) -> Result<()> {
        self.closed(setup, trial)?;
        // All are warm by then.
        if trial.is_warm_up() { Ok(()) } else { self.viewers(setup, trial) }
    }

    fn paths(&self, views: Vec<SlideView>) -> Result<Vec<String>> {
        let path =
            |view| ServerKind::Seekwire.path(&self.slide, view).context("it has all addresses");
        views.into_iter().map(path).collect()
    }

    fn closed(&self, setup: WorkerSetup, trial: &mut Trial) -> Result<()> {
        let cluster = self.link.start(&self.command, &self.directory, setup)?;
        let paths = self.paths(ViewKind::Decoded.views(&self.slide, 0))?;
        let (before, paths) = paths.split_at(BEFORE.min(paths.len() / 4));
        let client = |paths: &[String]| [bench::without_a_pause(paths.len(), GOAL)];
        cluster.load(before, &client(before), Pace::Closed(RESPONSE_TIMEOUT))?;
        let time = Duration::from_millis(self.milliseconds(false));
        let time = if trial.is_warm_up() { time / 4 } else { time };
        let done = cluster.done()?;
        let measured = cluster.load(paths, &client(paths), Pace::Closed(time))?;
        let WorkerSetup { workers, is_one_slow, .. } = setup;
        let (case, x) = (rate_case(workers, is_one_slow), Some(workers as f64));
        trial.record(&case, x, RATE, measured.rate());
        let pieces = (cluster.done()? - done) / measured.answers as f64;
        trial.record(&case, x, PIECES, pieces);
        Ok(())
    }

    fn viewers(&self, setup: WorkerSetup, trial: &mut Trial) -> Result<()> {
        let cluster = self.link.start(&self.command, &self.directory, setup)?;
        let time = Duration::from_millis(self.milliseconds(true));
        let (views, clients) = bench::panning(&self.slide, ViewKind::Decoded, VIEWERS, time);
        let paths = self.paths(views)?;
        let before = &paths[..BEFORE.min(paths.len() / 4)];
        let client = bench::without_a_pause(before.len(), CONNECTIONS as u64);
        cluster.load(before, &[client], Pace::Closed(RESPONSE_TIMEOUT))?;
        let done = cluster.done()?;
        let measured = cluster.load(&paths, &clients, Pace::Open(COMING))?;
        let WorkerSetup { workers, is_one_slow, .. } = setup;
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
            for dealing in POLICIES {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_goal_speaks_of_is_measured_in_quick_runs_too() {
        for quick in [false, true] {
            let measured = setups(quick);
            let has = |is_one_slow, dealing| {
                let is_it = |(workers, slow, dealings): &(usize, bool, Vec<DealingPolicy>)| {
                    (*workers, *slow) == (MOST, is_one_slow) && dealings.contains(&dealing)
                };
                measured.iter().any(is_it)
            };
            assert!(has(false, DealingPolicy::Adaptive) && has(true, DealingPolicy::Adaptive));
            assert!(has(true, DealingPolicy::RoundRobin));
        }
        assert_eq!(viewers_case(MOST, true), "decoded tiles, 3 viewers, 4 workers, one slow");
        assert_eq!(rate_case(0, false), "decoded tiles, 16 connections, 0 workers");
    }
}
