//! `flow-latency`: the latency of partial updates while a rate of complete ones is guaranteed.

use anyhow::Result;

use super::gains::{Guarantee, gain};
use super::load::{
    self, ACHIEVED, COMPUTE, LATENCY, LoadVariant, Loaded, MAX, NO_COMPUTE, P50, P95, PAPERS,
    REDISTRIBUTED, RING, TCP, VARIANTS,
};
use super::{axis, figure, grid, points};
use crate::claim::{Evidence, PublishedComparison};
use crate::experiment::{Context, Experiment};
use crate::experiments::by_size::median;
use crate::imaging::cluster::Surroundings;
use crate::imaging::cost::{Compute, Slow};
use crate::outcome::{Findings, Outcome, Recorded, ResultFile, Table};
use crate::plot::{Axis, Scale, Series};
use crate::record::Row;
use crate::schedule::{Group, Trial, Variant, alternate};

pub(in crate::experiments) struct Latency;

const RATES: &str = "complete updates a second";

/// The surroundings of the hosts: all alike, and one of them slow.
const COMPUTES: [(&str, Compute); 3] = [load::COMPUTES[0], load::COMPUTES[1], (ONE_SLOW, UNEQUAL)];
const ONE_SLOW: &str = "one slow host, 18 ns/byte";
const UNEQUAL: Compute = Compute { slow: Slow::Host { factor: 4 }, ..Compute::BOTH };

fn case(compute: &str, rate: u64) -> String {
    load::case(compute, &format!("{rate} updates/s"))
}

impl Experiment for Latency {
    experiment_file!("flow-latency");

    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        GUARANTEE.computed(words, result)
    }

    fn comparisons(&self, result: &ResultFile) -> Vec<PublishedComparison> {
        GUARANTEE.comparison(result).into_iter().collect()
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(2, 7);
        let rates: &[u64] = context.pick(&[3, 6], &[1, 2, 3, 4, 6, 8, 12, 16, 24]);
        let seconds = context.pick(0.5, 2.0);
        let surroundings = Surroundings::new();
        let surroundings = &surroundings;
        let variants = &VARIANTS[..context.pick(PAPERS, VARIANTS.len())];
        let mut groups: Vec<Group<'_>> = COMPUTES
            .into_iter()
            .map(|(name, compute)| {
                let build = |&variant: &LoadVariant| {
                    Variant::new(variant.name, move |trial: &mut Trial| {
                        let mut loaded = Loaded::start(context, surroundings, variant, compute)?;
                        measure(&mut loaded, name, compute, rates, seconds, trial)
                    })
                };
                Group::new(name, variants.iter().map(build).collect())
            })
            .collect();
        let samples = alternate(&mut groups, rounds, context.progress())?;
        drop(groups);

        let mut parameters = context.parameters(rounds);
        parameters.insert(RATES.to_owned(), rates.into());
        parameters.insert("seconds of a load, at least".to_owned(), seconds.into());
        parameters.insert("partial updates a second".to_owned(), load::PARTIAL.into());
        Ok(Outcome { parameters, samples, baseline: TCP, violation: surroundings.violation() })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let rows = recorded.samples.rows(TCP);
        let rates = recorded.numbers(RATES);
        Findings {
            summary: GUARANTEE.keys(&rows),
            tables: tables(&rows, &rates),
            figures: COMPUTES
                .iter()
                .enumerate()
                .map(|(index, (name, _))| {
                    let is_own = |row: &Row| row.case.starts_with(name);
                    let curve = |(colour, variant): (usize, &LoadVariant)| Series {
                        name: variant.name.to_owned(),
                        colour,
                        points: points(&rows, LATENCY, variant.name, is_own),
                    };
                    figure(
                        &format!("latency-{index}.svg"),
                        format!("Latency of partial updates, {name}"),
                        axis("complete updates a second that are guaranteed"),
                        Axis { label: "mean latency (ms)".to_owned(), scale: Scale::Log10 },
                        VARIANTS.iter().enumerate().map(curve).collect(),
                    )
                })
                .collect(),
        }
    }
}

fn measure(
    loaded: &mut Loaded<'_>,
    name: &str,
    compute: Compute,
    rates: &[u64],
    seconds: f64,
    trial: &mut Trial,
) -> Result<()> {
    let rates = if trial.is_warm_up() { &rates[..1] } else { rates };
    for &rate in rates {
        let result = loaded.run(rate as f64, seconds, compute)?;
        let (case, x) = (case(name, rate), Some(rate as f64));
        trial.record(&case, x, ACHIEVED, result.achieved);
        if !result.is_held {
            // Higher rates are not held either, and the backlog would only grow.
            break;
        }
        for (metric, value) in
            [(LATENCY, result.mean), (P50, result.p50), (P95, result.p95), (MAX, result.max)]
        {
            trial.record(&case, x, metric, value);
        }
    }
    Ok(())
}

/// The highest rate that both hold in all rounds.
fn hardest(rows: &[Row], compute: &str, variant: &str) -> Option<String> {
    let start = format!("{compute}, ");
    let own = || rows.iter().filter(|row| row.case.starts_with(&start));
    let rounds = |row: &Row| row.spread.map_or(0, |spread| spread.n);
    let holds = |case: &str, variant: &str| {
        let held = |row: &Row| row.variant == variant && row.metric == LATENCY.name;
        let all = own().filter(|row| row.variant == variant).map(rounds).max();
        own().any(|row| row.case == case && held(row) && Some(rounds(row)) == all)
    };
    own()
        .filter(|row| holds(&row.case, TCP) && holds(&row.case, variant))
        .max_by(|a, b| a.x.unwrap_or(0.0).total_cmp(&b.x.unwrap_or(0.0)))
        .map(|row| row.case.clone())
}

const GUARANTEE: Guarantee = Guarantee {
    metric: LATENCY,
    case: hardest,
    gains: &[
        gain("gain_over_tcp_no_compute", NO_COMPUTE, REDISTRIBUTED, Some(10.0)),
        gain("gain_over_tcp_18ns", COMPUTE, REDISTRIBUTED, Some(12.0)),
        gain("gain_over_tcp_no_compute_16k", NO_COMPUTE, RING, Some(3.5)),
        gain("gain_over_tcp_18ns_16k", COMPUTE, RING, Some(3.9)),
        gain("gain_over_tcp_one_slow_host", ONE_SLOW, REDISTRIBUTED, None),
        gain("gain_over_tcp_one_slow_host_16k", ONE_SLOW, RING, None),
    ],
    about: [
        "mean latency of partial updates over TCP with blocks of 16 KiB over that on the",
        "at the highest rate of complete updates that both hold in all rounds",
    ],
};

fn tables(rows: &[Row], rates: &[u64]) -> Vec<Table> {
    let columns = VARIANTS.map(|variant| variant.name.to_owned());
    let mut tables = Vec::new();
    for (compute, _) in COMPUTES {
        let cases: Vec<String> = rates.iter().map(|rate| case(compute, *rate)).collect();
        for (metric, title) in [
            (LATENCY, "Mean latency of partial updates (ms)"),
            (P95, "Latency of 95 % of the partial updates (ms)"),
            (ACHIEVED, "Complete updates a second that were done"),
        ] {
            tables.push(grid(
                &format!("{title}, {compute}"),
                "Medians of the rounds. There is no latency where the rate was not held. Computation is \
                 emulated by sleeping.",
                "case",
                &columns,
                &cases,
                |case, variant| median(rows, case, variant, metric),
            ));
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Sample, Samples};

    #[test]
    fn carriers_are_compared_at_the_highest_rate_that_both_hold_in_all_rounds() {
        let sample = |round: usize, variant: &str, rate: u64, value: f64| Sample {
            x: Some(rate as f64),
            ..Sample::new(case(NO_COMPUTE, rate), variant, LATENCY, round, value)
        };
        let mut samples = Samples(Vec::new());
        for round in [1, 2] {
            samples.0.extend([
                sample(round, TCP, 4, 2.0),
                sample(round, REDISTRIBUTED, 4, 1.0),
                sample(round, TCP, 12, 8.0),
                sample(round, REDISTRIBUTED, 12, 1.0),
                sample(round, REDISTRIBUTED, 24, 1.5),
            ]);
        }
        samples.0.extend([sample(1, TCP, 16, 9.0), sample(1, REDISTRIBUTED, 16, 1.0)]);
        let rows = samples.rows(TCP);
        let keys = GUARANTEE.keys(&rows);
        assert_eq!(
            (keys.len(), &*keys[0].name, keys[0].value),
            (1, "gain_over_tcp_no_compute", 8.0)
        );
    }
}
