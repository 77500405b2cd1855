//! `flow-updates`: complete updates a second while a latency of partial ones is guaranteed.

use anyhow::Result;

use super::gains::{Guarantee, gain};
use super::load::{
    self, COMPUTE, COMPUTES, LoadVariant, Loaded, NO_COMPUTE, PAPERS, REDISTRIBUTED, RING, TCP,
    VARIANTS,
};
use super::{axis, figure, grid, points};
use crate::claim::{Evidence, PublishedComparison};
use crate::experiment::{Context, Experiment};
use crate::experiments::by_size::median;
use crate::imaging::cluster::Surroundings;
use crate::imaging::cost::Compute;
use crate::outcome::{Findings, Outcome, Recorded, ResultFile, Table};
use crate::plot::{Axis, Scale, Series};
use crate::record::{Metric, Row};
use crate::schedule::{Group, Trial, Variant, alternate};

pub(in crate::experiments) struct Updates;

const RATE: Metric = Metric::higher("complete updates guaranteed", "1/s");

const LIMITS: &str = "guaranteed latencies (µs)";
const RATES: &str = "complete updates a second";

fn case(compute: &str, limit_us: u64) -> String {
    load::case(compute, &format!("{} ms", limit_us as f64 / 1e3))
}

impl Experiment for Updates {
    experiment_file!("flow-updates");

    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        GUARANTEE.computed(words, result)
    }

    fn comparisons(&self, result: &ResultFile) -> Vec<PublishedComparison> {
        GUARANTEE.comparison(result).into_iter().collect()
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(2, 7);
        let rates: &[u64] =
            context.pick(&[2, 6, 12], &[1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32]);
        let limits: &[u64] = context.pick(
            &[100, 1000, 5000, 20_000],
            &[100, 300, 500, 700, 1000, 1500, 2000, 3000, 5000, 10_000, 20_000, 50_000],
        );
        let seconds = context.pick(0.5, 1.0);
        let surroundings = Surroundings::new();
        let surroundings = &surroundings;
        let variants = &VARIANTS[..context.pick(PAPERS, VARIANTS.len())];
        let mut groups: Vec<Group<'_>> = COMPUTES
            .into_iter()
            .map(|(name, compute)| {
                let build = |&variant: &LoadVariant| {
                    Variant::new(variant.name, move |trial: &mut Trial| {
                        let mut loaded = Loaded::start(context, surroundings, variant, compute)?;
                        let rates = if trial.is_warm_up() { &rates[..1] } else { rates };
                        let held =
                            climb(rates, |rate| measure(&mut loaded, rate, seconds, compute))?;
                        for &limit in limits {
                            let best = best(&held, limit);
                            trial.record(case(name, limit), Some(limit as f64), RATE, best);
                        }
                        Ok(())
                    })
                };
                Group::new(name, variants.iter().map(build).collect())
            })
            .collect();
        let samples = alternate(&mut groups, rounds, context.progress())?;
        drop(groups);

        let mut parameters = context.parameters(rounds);
        parameters.insert(RATES.to_owned(), rates.into());
        parameters.insert(LIMITS.to_owned(), limits.into());
        parameters.insert("seconds of a load, at least".to_owned(), seconds.into());
        parameters.insert("partial updates a second".to_owned(), load::PARTIAL.into());
        Ok(Outcome { parameters, samples, baseline: TCP, violation: surroundings.violation() })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let rows = recorded.samples.rows(TCP);
        let limits = recorded.numbers(LIMITS);
        let plot = |(index, (name, _)): (usize, &(&str, Compute))| {
            let is_own = |row: &Row| row.case.starts_with(name);
            let curve = |(colour, variant): (usize, &LoadVariant)| Series {
                name: variant.name.to_owned(),
                colour,
                points: points(&rows, RATE, variant.name, is_own),
            };
            figure(
                &format!("updates-{index}.svg"),
                format!("Complete updates while a latency is guaranteed, {name}"),
                Axis { label: "latency of partial updates (µs)".to_owned(), scale: Scale::Log10 },
                axis("complete updates a second"),
                VARIANTS.iter().enumerate().map(curve).collect(),
            )
        };
        Findings {
            summary: GUARANTEE.keys(&rows),
            tables: tables(&rows, &limits),
            figures: COMPUTES.iter().enumerate().map(plot).collect(),
        }
    }
}

/// A rate that was held, and the latency of 95 % of the partial updates then, µs.
type HeldRate = (u64, f64);

/// `None`: the rate was not held.
fn measure(
    loaded: &mut Loaded<'_>,
    rate: u64,
    seconds: f64,
    compute: Compute,
) -> Result<Option<HeldRate>> {
    let result = loaded.run(rate as f64, seconds, compute)?;
    Ok(result.is_held.then_some((rate, 1e3 * result.p95)))
}

/// All rates that are held, from the lowest up to the first one that is not.
fn climb(
    rates: &[u64],
    mut measure: impl FnMut(u64) -> Result<Option<HeldRate>>,
) -> Result<Vec<HeldRate>> {
    let mut all = Vec::new();
    for &rate in rates {
        match measure(rate)? {
            Some(held) => all.push(held),
            None => break,
        }
    }
    Ok(all)
}

fn best(held: &[HeldRate], limit_us: u64) -> f64 {
    let within = held.iter().filter(|(_, latency)| *latency <= limit_us as f64);
    within.map(|(rate, _)| *rate).max().unwrap_or(0) as f64
}

/// The shortest latency at which TCP delivers any complete update at all.
fn hardest(rows: &[Row], compute: &str, _: &str) -> Option<String> {
    let start = format!("{compute}, ");
    let own = rows.iter().filter(|row| {
        row.variant == TCP
            && row.metric == RATE.name
            && row.case.starts_with(&start)
            && row.spread.is_some_and(|spread| spread.min > 0.0)
    });
    own.min_by(|a, b| a.x.unwrap_or(0.0).total_cmp(&b.x.unwrap_or(0.0))).map(|row| row.case.clone())
}

const GUARANTEE: Guarantee = Guarantee {
    metric: RATE,
    case: hardest,
    gains: &[
        gain("gain_over_tcp_no_compute", NO_COMPUTE, REDISTRIBUTED, Some(8.0)),
        gain("gain_over_tcp_18ns", COMPUTE, REDISTRIBUTED, None),
        gain("gain_over_tcp_no_compute_16k", NO_COMPUTE, RING, Some(6.0)),
        gain("gain_over_tcp_18ns_16k", COMPUTE, RING, Some(4.0)),
    ],
    about: [
        "complete updates a second over those over TCP with blocks of 16 KiB, on the",
        "at the shortest guaranteed latency at which TCP delivers any",
    ],
};

fn tables(rows: &[Row], limits: &[u64]) -> Vec<Table> {
    let columns = VARIANTS.map(|variant| variant.name.to_owned());
    let table = |(compute, _): (&str, Compute)| {
        let cases: Vec<String> = limits.iter().map(|limit| case(compute, *limit)).collect();
        grid(
            &format!("Complete updates a second, {compute}"),
            "Medians of the rounds, by the latency that is guaranteed for 95 % of the partial updates. \
             Computation is emulated by sleeping.",
            "case",
            &columns,
            &cases,
            |case, variant| median(rows, case, variant, RATE),
        )
    };
    COMPUTES.map(table).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_rate_within_the_latency_counts() {
        let hold = |rate: u64| Some((rate, 100.0 * rate as f64)).filter(|_| rate < 8);
        let held = climb(&[1, 4, 6, 8, 2], |rate| Ok(hold(rate))).unwrap();
        assert_eq!(held, [(1, 100.0), (4, 400.0), (6, 600.0)]);
        assert_eq!([50, 100, 500, 1000].map(|limit| best(&held, limit)), [0.0, 1.0, 4.0, 6.0]);
        // A disturbance at a lower rate does not count against a higher one.
        assert_eq!(best(&[(1, 900.0), (4, 400.0)], 500), 4.0);
    }

    #[test]
    fn cases_read_as_people_write_them() {
        assert_eq!(case(NO_COMPUTE, 1500), "no computation, 1.5 ms");
        assert_eq!(case(COMPUTE, 20_000), "18 ns/byte, 20 ms");
    }
}
