//! Alternation: every round runs every variant once, in an order that changes from round to round.
//!
//! Drift (temperature, other load) then affects all variants alike, and none always follows the
//! same other one.

use anyhow::{Result, bail};

use crate::launch::{self, Traffic};
use crate::progress::Progress;
use crate::record::{Metric, Sample, Samples};

/// Seed of the orders; constant, so that a run can be repeated in the same order.
const SEED: u64 = 42;

/// Failed runs after which a variant is given up.
const FAILURES: usize = 2;

/// Runs one variant once and reports its readings to the trial.
pub type RunFn<'a> = Box<dyn FnMut(&mut Trial) -> Result<()> + 'a>;

/// One of the ways to run a case, e.g. `plain` and `accelerated`.
pub struct Variant<'a> {
    /// Its name in tables and legends.
    pub name: String,
    run: RunFn<'a>,
    failures: usize,
}

impl<'a> Variant<'a> {
    /// A variant that is measured by calling `run`.
    pub fn new(name: impl Into<String>, run: impl FnMut(&mut Trial) -> Result<()> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run), failures: 0 }
    }

    /// A variant that cannot be measured here; every report gives the reason.
    pub fn unavailable(name: impl Into<String>, why: impl Into<String>) -> Self {
        let why = why.into();
        Self::new(name, move |_| anyhow::bail!("{why}"))
    }
}

/// Variants that are compared with each other.
pub struct Group<'a> {
    /// Names the case of a run that fails before it has any reading.
    pub name: String,
    /// The variants; any number.
    pub variants: Vec<Variant<'a>>,
}

impl<'a> Group<'a> {
    /// A group of `variants`.
    pub fn new(name: impl Into<String>, variants: Vec<Variant<'a>>) -> Self {
        Self { name: name.into(), variants }
    }
}

/// One run of one variant, as its closure sees it.
#[derive(Debug)]
pub struct Trial {
    warm_up: bool,
    readings: Vec<(String, Option<f64>, Metric, f64)>,
    traffic: Option<Traffic>,
}

impl Trial {
    /// Whether this is the warm-up run, whose readings are discarded.
    pub fn is_warm_up(&self) -> bool {
        self.warm_up
    }

    /// Reports one reading, in the metric's unit. `x` is the case as a number, where it has one.
    pub fn record(&mut self, case: impl Into<String>, x: Option<f64>, metric: Metric, value: f64) {
        self.readings.push((case.into(), x, metric, value));
    }

    /// The traffic counted in this run so far.
    pub fn traffic(&self) -> Option<Traffic> {
        self.traffic
    }

    /// Reports which carrier moved the bytes of this run; several clients of one run add up.
    pub fn count(&mut self, traffic: Option<Traffic>) {
        if let Some(traffic) = traffic {
            *self.traffic.get_or_insert_default() += traffic;
        }
    }

    /// For runs that are to use shared memory. The warm-up may end before the ends have found each
    /// other.
    ///
    /// # Errors
    ///
    /// If hardly a byte went through it. The readings are dropped: they are those of TCP.
    pub fn require_ring(&mut self) -> Result<()> {
        let Traffic { ring, tcp, .. } = self.traffic.unwrap_or_default();
        // A sender that does not block leaves a ring that is full of small messages until the
        // receiver has caught up.
        if self.warm_up || ring > tcp / 100 {
            return Ok(());
        }
        self.readings.clear();
        bail!(
            "{ring} bytes went through shared memory and {tcp} by TCP; `seekwire doctor` may say why"
        )
    }
}

/// Runs each variant of each group once to warm up and then `rounds` times.
///
/// A failure becomes a sample with an error. A variant that fails in its warm-up, or twice later,
/// is given up, so that a program that hangs cannot delay all others.
///
/// # Errors
///
/// Only an interruption (^C) stops the whole run.
pub fn alternate(groups: &mut [Group<'_>], rounds: usize, progress: &Progress) -> Result<Samples> {
    let mut samples = Samples::default();
    progress.expect((rounds + 1) * groups.iter().map(|group| group.variants.len()).sum::<usize>());
    for round in 0..=rounds {
        for (index, group) in groups.iter_mut().enumerate() {
            for (position, pick) in
                order(group.variants.len(), round, index).into_iter().enumerate()
            {
                let Group { name, variants } = &mut *group;
                let variant = &mut variants[pick];
                let what = if round == 0 {
                    "warm-up".to_owned()
                } else {
                    format!("round {round}/{rounds}")
                };
                progress.step(&format!("{what}: {name}, {}", variant.name));
                if variant.failures < FAILURES {
                    run(name, variant, round, position, &mut samples)?;
                }
            }
        }
    }
    Ok(samples)
}

fn run(
    group: &str,
    variant: &mut Variant<'_>,
    round: usize,
    position: usize,
    samples: &mut Samples,
) -> Result<()> {
    let mut trial = Trial { warm_up: round == 0, readings: Vec::new(), traffic: None };
    let result = (variant.run)(&mut trial);
    launch::interrupt::check()?;
    let sample = |case: &str, x, metric, outcome, traffic| Sample {
        case: case.to_owned(),
        x,
        variant: variant.name.clone(),
        metric,
        round,
        position,
        outcome,
        traffic,
    };
    // A run that was interrupted still counts for the readings it had taken by then.
    if round > 0 {
        for (case, x, metric, value) in &trial.readings {
            samples.0.push(sample(case, *x, Some(*metric), Ok(*value), trial.traffic));
        }
    }
    if let Err(error) = result {
        samples.0.push(sample(group, None, None, Err(format!("{error:#}")), trial.traffic));
        variant.failures += if round == 0 { FAILURES } else { 1 };
    }
    Ok(())
}

/// Order of `count` variants in a round: blocks of `count` rounds share a shuffled order and rotate
/// it, so that each variant takes each position equally often.
pub fn order(count: usize, round: usize, group: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let length = count.max(1);
    let seed = SEED + (group * 1000 + round / length) as u64;
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    order.rotate_left(round % length);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: Metric = Metric::higher("count", "");

    #[test]
    fn each_variant_takes_each_position_equally_often() {
        let mut seen = [[0; 3]; 3];
        for round in 0..9 {
            for (position, variant) in order(3, round, 0).into_iter().enumerate() {
                seen[variant][position] += 1;
            }
        }
        assert_eq!(seen, [[3; 3]; 3]);
    }

    #[test]
    fn warm_up_is_run_but_not_kept() {
        let mut calls = 0;
        let variant = Variant::new("a", |trial: &mut Trial| {
            calls += 1;
            trial.record("case", Some(1.0), COUNT, f64::from(calls));
            Ok(())
        });
        let mut groups = [Group::new("group", vec![variant])];
        let samples = alternate(&mut groups, 3, &Progress::silent()).unwrap();
        let values: Vec<_> =
            samples.0.iter().map(|sample| sample.outcome.clone().unwrap()).collect();
        assert_eq!(values, [2.0, 3.0, 4.0]);
    }

    #[test]
    fn failing_variant_is_reported_and_given_up_while_others_go_on() {
        let (mut broken, mut flaky) = (0, 0);
        let variants = vec![
            Variant::new("broken", |_: &mut Trial| {
                broken += 1;
                anyhow::bail!("no such program")
            }),
            Variant::new("flaky", |trial: &mut Trial| {
                flaky += 1;
                trial.record("case", None, COUNT, 1.0);
                if trial.is_warm_up() { Ok(()) } else { anyhow::bail!("hung") }
            }),
        ];
        let mut groups = [Group::new("group", variants)];
        let samples = alternate(&mut groups, 10, &Progress::silent()).unwrap();
        drop(groups);
        assert_eq!((broken, flaky), (1, 1 + FAILURES));
        let rows = samples.rows("broken");
        let error = rows.iter().find(|row| row.variant == "broken").unwrap();
        assert_eq!(
            (error.case.as_str(), error.error.as_deref()),
            ("group", Some("no such program"))
        );
        assert!(rows.iter().any(|row| row.variant == "flaky" && row.spread.is_some()));
    }

    #[test]
    fn a_run_that_stayed_on_tcp_has_no_readings() {
        let run = |ring: u64, tcp: u64| {
            let variant = Variant::new("accelerated", move |trial: &mut Trial| {
                trial.record("case", None, COUNT, 1.0);
                trial.count(Some(Traffic { ring, tcp, ..Traffic::default() }));
                trial.require_ring()
            });
            let mut groups = [Group::new("group", vec![variant])];
            let samples = alternate(&mut groups, 1, &Progress::silent()).unwrap().0;
            assert_eq!(samples.len(), 1, "{samples:?}");
            samples[0].outcome.clone()
        };
        assert_eq!(run(1000, 2000), Ok(1.0));
        assert!(run(10, 1000).unwrap_err().starts_with("10 bytes went through shared memory"));
        assert!(run(0, 0).is_err());
    }

    #[test]
    fn unavailable_variant_says_why() {
        let mut groups =
            [Group::new("group", vec![Variant::unavailable("accelerated", "no library")])];
        let samples = alternate(&mut groups, 2, &Progress::silent()).unwrap();
        assert_eq!(samples.0[0].outcome, Err("no library".to_owned()));
    }
}
