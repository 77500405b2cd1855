//! `connections`: the cost of a short connection when nothing can be gained.

use std::time::Duration;

use anyhow::Result;

use super::{ACCELERATED, TCP, program_variant, sweep};
use crate::bench::{CONNECTIONS, Operation, Socket};
use crate::claim::{Claim, Criterion, Estimate, Source};
use crate::experiment::{Context, Experiment};
use crate::outcome::{At, Findings, Key, Outcome, Recorded};
use crate::plot::{Bar, Chart, Figure};
use crate::record::Selector;
use crate::schedule::{Group, alternate};

pub(super) struct Connections;

const SIZE: u64 = 64;

const CLAIMS: &[Claim] = &[Claim {
    title: "cost of short connections",
    statement: "A connection that is too short to be accelerated costs at most 3 % more than plain TCP.",
    source: Source::Goal,
    published: "",
    measure: "connections per second, accelerated over plain",
    unit: "",
    evidence: |result| {
        Estimate::ratio(result, At { case: "64 B", variant: ACCELERATED, metric: CONNECTIONS.name })
    },
    criterion: Criterion::AtLeast(0.97),
    better: None,
    otherwise: "the calls that pass through the library cost more than that; BENCHMARKING.md says where",
}];

impl Experiment for Connections {
    fn name(&self) -> &'static str {
        "connections"
    }

    fn question(&self) -> &'static str {
        "Cost of Seekwire for connections that are too short to be accelerated."
    }

    fn about(&self) -> &'static str {
        "Connect, send 64 B, receive 64 B, close, one connection after the other: how many per second, plain and \
         accelerated. Such connections end before it pays to move them to shared memory, so the ratio should be 1."
    }

    fn paper_reference(&self) -> Option<&'static str> {
        None
    }

    fn claims(&self) -> &'static [Claim] {
        CLAIMS
    }

    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 5 } else { 40 })
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(20, 150);
        let time = Duration::from_millis(100);
        let tests = sweep(&[Operation::Short], &[SIZE], time);
        let variant = |name, accelerated| {
            program_variant(context, name, Socket::Tcp, accelerated, tests.clone(), |pair| pair)
        };
        let mut groups =
            [Group::new("64 B", vec![variant(TCP, false), variant(ACCELERATED, true)])];
        let samples = alternate(&mut groups, rounds, context.progress())?;

        let mut parameters = context.parameters(rounds);
        parameters.insert("milliseconds".to_owned(), (time.as_millis() as u64).into());
        parameters.insert("size".to_owned(), SIZE.into());
        Ok(Outcome { parameters, samples, baseline: TCP, violation: None })
    }

    fn findings(&self, Recorded { samples, .. }: Recorded<'_>) -> Findings {
        let select = |variant| Selector { case: "64 B", variant, metric: CONNECTIONS };
        let ratio = samples.ratio(select(ACCELERATED), select(TCP));
        let bars = ratio.map(|ratio| Bar {
            name: "connect, request, response, close".to_owned(),
            value: ratio.value,
            low: ratio.low,
            high: ratio.high,
        });
        Findings {
            summary: Vec::from_iter(Key::measured(
                "short_connections_ratio",
                "connections per second, accelerated over plain; 1 means that nothing is lost, higher is better",
                ratio.map(|ratio| ratio.value),
            )),
            figures: vec![Figure {
                file: "connections.svg".to_owned(),
                title: "Short connections per second".to_owned(),
                chart: Chart::Ratios {
                    label: "accelerated / TCP (higher is better)".to_owned(),
                    bars: Vec::from_iter(bars),
                },
            }],
            tables: Vec::new(),
        }
    }
}
