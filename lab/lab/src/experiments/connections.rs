//! `connections`: the cost of a short connection when nothing can be gained.

use std::time::Duration;

use anyhow::Result;

use super::sweep::{ACCELERATED, TCP, program_variant, sweep};
use crate::bench::{CONNECTIONS, Operation, Socket};
use crate::experiment::{Context, Experiment};
use crate::outcome::{Findings, Outcome, Recorded};
use crate::plot::{Bar, Chart, Figure};
use crate::record::Row;
use crate::schedule::{Group, alternate};

pub(super) struct Connections;

const SIZE: u64 = 64;

impl Experiment for Connections {
    experiment_file!("connections");

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
        let rows = samples.rows(TCP);
        let is_wanted = |row: &&Row| row.variant == ACCELERATED && row.metric == CONNECTIONS.name;
        let ratio = rows.iter().find(is_wanted).and_then(Row::widened_ratio);
        let bars = ratio.map(|ratio| Bar {
            name: "connect, request, response, close".to_owned(),
            value: ratio.value,
            low: ratio.low,
            high: ratio.high,
        });
        Findings {
            summary: self.file().summary(samples, &[]),
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
