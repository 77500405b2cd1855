//! `programs`: the gains of real programs, thoroughly.

use std::time::Duration;

use anyhow::Result;

use crate::experiment::{Context, Experiment};
use crate::outcome::{Findings, Outcome, Recorded};
use crate::programs::{self, ProgramDurations};

pub(super) struct Programs;

impl Experiment for Programs {
    experiment_file!("programs");

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        programs::findings(recorded)
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let quick = ProgramDurations {
            iperf3: Duration::from_millis(300),
            redis: Duration::from_millis(200),
            sockperf_seconds: 1,
            file: 256 << 20,
        };
        let thorough = ProgramDurations {
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
