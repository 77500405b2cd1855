//! `programs`: the gains of real programs, thoroughly.

use std::time::Duration;

use anyhow::Result;

use super::yasmin;
use crate::claim::{Claim, Comparison};
use crate::experiment::{Context, Experiment};
use crate::outcome::{Findings, Outcome, Recorded, ResultFile};
use crate::programs::{self, Scale};

pub(super) struct Programs;

impl Experiment for Programs {
    fn name(&self) -> &'static str {
        "programs"
    }

    fn question(&self) -> &'static str {
        "Gains of iperf3, Redis, HTTP, sockperf and gRPC, unmodified."
    }

    fn about(&self) -> &'static str {
        "Unmodified programs run plain and accelerated: iperf3 in both directions and by small writes, \
         redis-benchmark against redis-server, curl that fetches a file from Python's HTTP server, sockperf's ping-pong, and calls \
         and streams of gRPC's C library. In accelerated runs, both ends are accelerated. Ratios are \
         accelerated over plain, of throughput as of times."
    }

    fn paper_reference(&self) -> Option<&'static str> {
        None
    }

    fn claims(&self) -> &'static [Claim] {
        yasmin::PROGRAMS
    }

    fn comparisons(&self, result: &ResultFile) -> Vec<Comparison> {
        yasmin::programs(result)
    }

    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 54 } else { 620 })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        programs::findings(recorded)
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let quick = Scale {
            iperf3: Duration::from_millis(300),
            redis: Duration::from_millis(200),
            sockperf_seconds: 1,
            file: 256 << 20,
        };
        let thorough = Scale {
            iperf3: Duration::from_secs(1),
            redis: Duration::from_secs(1),
            sockperf_seconds: 2,
            file: 1 << 30,
        };
        let rounds = context.rounds(3, 10);
        let time = context.pick(Duration::from_millis(300), Duration::from_secs(1));
        let grpc = programs::grpc::groups(context, time);
        programs::measure(context, rounds, context.pick(quick, thorough), grpc)
    }
}
