//! `flow-latency`: the latency of partial updates while a rate of complete ones is guaranteed.

use std::time::Duration;

use anyhow::Result;

use super::gains::{Guarantee, gain};
use super::load::{
    self, ACHIEVED, COMPUTE, LATENCY, Loaded, MAX, NO_COMPUTE, P50, P95, PAPERS, REDISTRIBUTED,
    RING, TCP, WAYS, Way,
};
use super::{axis, figure, grid, median, points};
use crate::claim::{Claim, Comparison, Criterion, Source};
use crate::experiment::{Context, Experiment};
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
    fn name(&self) -> &'static str {
        "flow-latency"
    }

    fn question(&self) -> &'static str {
        "How soon a part of an image arrives while a rate of whole images is guaranteed."
    }

    fn about(&self) -> &'static str {
        "The image pipeline of flow-demand. Complete updates of 16 MiB are due at a fixed rate, and in addition 100 \
         partial ones of 16 KiB a second, each with a deadline, so that it overtakes blocks that are not urgent. \
         Latency counts from the time at which an update was due until the last filter has finished it, whether or not \
         the preceding ones were done. A rate is guaranteed if 95 % of it was done; where it was not, there is no \
         latency. The carriers are TCP and the ring with blocks of 16 KiB, and the ring with blocks that the stream \
         cuts into 2 KiB (redistributed); and TCP between two network namespaces with links of 1 Gb/s and 100 Mb/s, \
         where those can be made. Clip and subsample compute nothing, or 18 ns for a byte, emulated by sleeping, whose \
         errors are carried over to the next block. The latter is also measured with one of the three hosts four times \
         as slow at clip."
    }

    fn paper_reference(&self) -> Option<&'static str> {
        Some(
            "the latency under guaranteed updates of the paper on sockets and heterogeneous clusters",
        )
    }

    fn claims(&self) -> &'static [Claim] {
        CLAIMS
    }

    fn comparisons(&self, result: &ResultFile) -> Vec<Comparison> {
        GUARANTEE.comparison(result).into_iter().collect()
    }

    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 45 } else { 2700 })
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(2, 7);
        let rates: &[u64] = context.pick(&[3, 6], &[1, 2, 3, 4, 6, 8, 12, 16, 24]);
        let seconds = context.pick(0.5, 2.0);
        let surroundings = Surroundings::new();
        let surroundings = &surroundings;
        let ways = &WAYS[..context.pick(PAPERS, WAYS.len())];
        let mut groups: Vec<Group<'_>> = COMPUTES
            .into_iter()
            .map(|(name, compute)| {
                let variant = |&way: &Way| {
                    Variant::new(way.name, move |trial: &mut Trial| {
                        let mut loaded = Loaded::start(context, surroundings, way, compute)?;
                        measure(&mut loaded, name, compute, rates, seconds, trial)
                    })
                };
                Group::new(name, ways.iter().map(variant).collect())
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
                    let curve = |(colour, way): (usize, &Way)| Series {
                        name: way.name.to_owned(),
                        colour,
                        points: points(&rows, LATENCY, way.name, is_own),
                    };
                    figure(
                        &format!("latency-{index}.svg"),
                        format!("Latency of partial updates, {name}"),
                        axis("complete updates a second that are guaranteed"),
                        Axis { label: "mean latency (ms)".to_owned(), scale: Scale::Log10 },
                        WAYS.iter().enumerate().map(curve).collect(),
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
        let found = loaded.run(rate as f64, seconds, compute)?;
        let (case, x) = (case(name, rate), Some(rate as f64));
        trial.record(&case, x, ACHIEVED, found.achieved);
        if !found.is_held {
            // Higher rates are not held either, and the backlog would only grow.
            break;
        }
        for (metric, value) in
            [(LATENCY, found.mean), (P50, found.p50), (P95, found.p95), (MAX, found.max)]
        {
            trial.record(&case, x, metric, value);
        }
    }
    Ok(())
}

/// The highest rate that both hold in all rounds.
fn hardest(rows: &[Row], compute: &str, way: &str) -> Option<String> {
    let start = format!("{compute}, ");
    let own = || rows.iter().filter(|row| row.case.starts_with(&start));
    let rounds = |row: &Row| row.spread.map_or(0, |spread| spread.n);
    let holds = |case: &str, variant: &str| {
        let held = |row: &Row| row.variant == variant && row.metric == LATENCY.name;
        let all = own().filter(|row| row.variant == variant).map(rounds).max();
        own().any(|row| row.case == case && held(row) && Some(rounds(row)) == all)
    };
    own()
        .filter(|row| holds(&row.case, TCP) && holds(&row.case, way))
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
    let columns = WAYS.map(|way| way.name.to_owned());
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

const CONCLUSIONS: &str = "Melnyk et al., “Sockets and heterogeneous clusters” (2024), conclusions";
const ANALYSIS: &str =
    "Melnyk et al., “Sockets and heterogeneous clusters” (2024), analysis of the latest research";

const CLAIMS: &[Claim] = &[
    Claim {
        title: "latency, redistributed, no computation",
        statement: "While a rate of complete updates is guaranteed, fast sockets that cut data into smaller blocks \
                    deliver partial updates more than 10 times as soon as TCP.",
        source: Source::Paper(CONCLUSIONS),
        published: "more than 10",
        measure: "mean latency of partial updates over TCP with blocks of 16 KiB over that on the ring with 2 KiB, at \
                  the highest rate that both hold in all rounds, no computation",
        unit: "",
        evidence: |result| GUARANTEE.gain(result, NO_COMPUTE, REDISTRIBUTED),
        criterion: Criterion::AtLeast(10.0),
        better: None,
        otherwise: "TCP over loopback is a much better carrier than the paper's network, and a partial update comes \
                    first on all of them",
    },
    Claim {
        title: "latency, no computation",
        statement: "Without cutting, they deliver partial updates more than 3.5 times as soon.",
        source: Source::Paper(CONCLUSIONS),
        published: "more than 3.5",
        measure: "the same with blocks of 16 KiB on the ring",
        unit: "",
        evidence: |result| GUARANTEE.gain(result, NO_COMPUTE, RING),
        criterion: Criterion::AtLeast(3.5),
        better: None,
        otherwise: "TCP over loopback is a much better carrier than the paper's network",
    },
    Claim {
        title: "latency, redistributed, 18 ns/byte",
        statement: "With 18 ns of computation for a byte, and data cut into smaller blocks, they deliver partial \
                    updates about 12 times as soon.",
        source: Source::Paper(ANALYSIS),
        published: "about 12",
        measure: "mean latency of partial updates over TCP with blocks of 16 KiB over that on the ring with 2 KiB, at \
                  the highest rate that both hold in all rounds, 18 ns for a byte in clip and in subsample",
        unit: "",
        evidence: |result| GUARANTEE.gain(result, COMPUTE, REDISTRIBUTED),
        criterion: Criterion::AtLeast(12.0),
        better: None,
        otherwise: "a block of 16 KiB computes for eight times as long as one of 2 KiB, and carriers differ by less \
                    than in the paper",
    },
    Claim {
        title: "latency, 18 ns/byte",
        statement: "With 18 ns of computation for a byte, and without cutting, they deliver partial updates 3.9 to 4.1 \
            times as soon.",
        source: Source::Paper(ANALYSIS),
        published: "3.9 to 4.1",
        measure: "the same with blocks of 16 KiB on the ring",
        unit: "",
        evidence: |result| GUARANTEE.gain(result, COMPUTE, RING),
        criterion: Criterion::AtLeast(3.9),
        better: None,
        otherwise: "computation takes most of the time on either carrier, and TCP over loopback is a much better one \
                    than the paper's network",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Sample, Samples};

    #[test]
    fn carriers_are_compared_at_the_highest_rate_that_both_hold_in_all_rounds() {
        let sample = |round: usize, variant: &str, rate: u64, value: f64| Sample {
            case: case(NO_COMPUTE, rate),
            x: Some(rate as f64),
            variant: variant.to_owned(),
            metric: Some(LATENCY),
            round,
            position: 0,
            outcome: Ok(value),
            traffic: None,
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
        assert_eq!((keys.len(), keys[0].name, keys[0].value), (1, "gain_over_tcp_no_compute", 8.0));
    }
}
