//! Code that `flow-latency` and `flow-updates` share: partial updates while complete ones are due
//! at fixed times, on TCP, on the ring, and with blocks cut into smaller ones.

use anyhow::{Result, bail};
use seekwire_flow::DealingPolicy;

use crate::experiment::Context;
use crate::imaging::cluster::{Cluster, ClusterCarrier, Surroundings};
use crate::imaging::cost::Compute;
use crate::imaging::{BlockSize, ClusterTask, Load};
use crate::record::Metric;
use crate::stats::Spread;

pub(super) const TCP: &str = "TCP";
pub(super) const RING: &str = "ring";
pub(super) const REDISTRIBUTED: &str = "ring, redistributed";
pub(super) const AUTO: &str = "ring, auto";
pub(super) const GIGABIT: &str = "TCP, 1 Gb/s";
pub(super) const GIGABIT_SMALL: &str = "TCP, 1 Gb/s, redistributed";
pub(super) const SLOW_LINK: &str = "TCP, 100 Mb/s";

/// A carrier and the size of blocks on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadVariant {
    pub(super) name: &'static str,
    pub(super) carrier: ClusterCarrier,
    pub(super) block: BlockSize,
}

const fn variant(name: &'static str, carrier: ClusterCarrier, block: BlockSize) -> LoadVariant {
    LoadVariant { name, carrier, block }
}

/// Those of the paper first, then links as slow as its own.
pub(super) const VARIANTS: [LoadVariant; 7] = [
    variant(TCP, ClusterCarrier::Tcp, BlockSize::LARGE),
    variant(RING, ClusterCarrier::Ring, BlockSize::LARGE),
    variant(REDISTRIBUTED, ClusterCarrier::Ring, BlockSize::SMALL),
    variant(AUTO, ClusterCarrier::Ring, BlockSize::Auto),
    variant(GIGABIT, ClusterCarrier::Link(super::GIGABIT), BlockSize::LARGE),
    variant(GIGABIT_SMALL, ClusterCarrier::Link(super::GIGABIT), BlockSize::SMALL),
    variant(SLOW_LINK, ClusterCarrier::Link(super::GIGABIT / 10), BlockSize::LARGE),
];

/// Number of leading ones that quick runs use.
pub(super) const PAPERS: usize = 3;

/// Without computation, and with the paper's.
pub(super) const COMPUTES: [(&str, Compute); 2] =
    [(NO_COMPUTE, Compute::NONE), (COMPUTE, Compute::BOTH)];
pub(super) const NO_COMPUTE: &str = "no computation";
pub(super) const COMPUTE: &str = "18 ns/byte";

/// Partial updates a second.
pub(super) const PARTIAL: f64 = 100.0;

/// Fraction of the due updates that must be done in time for a rate to be guaranteed.
const HELD: f64 = 0.95;

pub(super) const LATENCY: Metric = Metric::lower("latency of partial updates", "ms");
pub(super) const P50: Metric = Metric::lower("latency p50", "ms");
pub(super) const P95: Metric = Metric::lower("latency p95", "ms");
pub(super) const MAX: Metric = Metric::lower("latency max", "ms");
pub(super) const ACHIEVED: Metric = Metric::higher("complete updates done", "1/s");

/// Result of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LoadResult {
    /// Complete updates a second that were done.
    pub(super) achieved: f64,
    /// Whether those were as many as were due.
    pub(super) is_held: bool,
    /// Of partial updates, milliseconds.
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) max: f64,
}

impl LoadResult {
    /// `complete`: updates a second that were due; `span`: from the first one until all were done,
    /// in seconds.
    fn of(complete: f64, count: usize, span: f64, partial_ms: &[f64]) -> Option<Self> {
        let Spread { median, max, .. } = Spread::of(partial_ms)?;
        let mean = partial_ms.iter().sum::<f64>() / partial_ms.len() as f64;
        let mut sorted = partial_ms.to_vec();
        sorted.sort_by(f64::total_cmp);
        let rank = (0.95 * (sorted.len() - 1) as f64).round() as usize;
        let achieved = count as f64 / span;
        let is_held = achieved >= HELD * complete;
        Some(Self { achieved, is_held, mean, p50: median, p95: sorted[rank], max })
    }
}

pub(super) struct Loaded<'s>(Cluster<'s>);

impl<'s> Loaded<'s> {
    pub(super) fn start(
        context: &Context<'_>,
        surroundings: &'s Surroundings,
        variant: LoadVariant,
        compute: Compute,
    ) -> Result<Self> {
        let LoadVariant { carrier, block, .. } = variant;
        let mut cluster =
            Cluster::start(context, surroundings, carrier, block, [DealingPolicy::Adaptive; 2])?;
        cluster.run(ClusterTask::Updates { count: 1, compute })?;
        Ok(Self(cluster))
    }

    pub(super) fn run(
        &mut self,
        complete: f64,
        seconds: f64,
        compute: Compute,
    ) -> Result<LoadResult> {
        // Long enough for a meaningful rate.
        let seconds = seconds.max(FEWEST / complete);
        let load = Load { complete, partial: PARTIAL, seconds, compute };
        let report = self.0.run(ClusterTask::Load(load))?;
        let milliseconds: Vec<f64> = report.partial_ns.iter().map(|ns| *ns as f64 / 1e6).collect();
        let span = (report.span_ns as f64 / 1e9).max(1e-9);
        match LoadResult::of(complete, report.complete_ns.len(), span, &milliseconds) {
            Some(result) => Ok(result),
            None => bail!("no partial update was due"),
        }
    }
}

/// Minimum number of complete updates of a load.
const FEWEST: f64 = 3.0;

/// The load and its computation as a case.
pub(super) fn case(compute: &str, what: &str) -> String {
    format!("{compute}, {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_held_if_nothing_is_left_over() {
        let partial: Vec<f64> = (1..=21).map(f64::from).collect();
        // Due at 0, 0.25, 0.5 and 0.75 s; the last one done in its own time.
        let result = LoadResult::of(4.0, 4, 0.98, &partial).unwrap();
        assert!(result.is_held && (result.achieved - 4.0 / 0.98).abs() < 1e-9, "{result:?}");
        assert_eq!((result.mean, result.p50, result.p95, result.max), (11.0, 11.0, 20.0, 21.0));
        // Each takes longer than its interval.
        assert!(!LoadResult::of(4.0, 4, 1.2, &partial).unwrap().is_held);
        assert_eq!(LoadResult::of(4.0, 4, 1.0, &[]), None);
    }
}
