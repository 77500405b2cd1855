//! When a race is evaluated, and the probability of error that each look may spend.
//!
//! A search that evaluates a 99 % interval after every round, for every candidate, and stops at a
//! convenient moment is wrong far more often than once in a hundred times. So the probability of
//! error of the whole search is divided equally among all comparisons with the original settings
//! (Bonferroni). Each comparison divides its share among looks after fixed numbers of rounds: 1 /
//! (k (k + 1)) for the k-th look, whose sum over all looks is 1 (alpha spending: K. K. G. Lan and
//! D. L. DeMets, "Discrete Sequential Boundaries for Clinical Trials", Biometrika 70, 1983; here
//! with the union bound, which needs no joint distribution of the looks). Early looks get the
//! largest shares: with few degrees of freedom, a smaller share would widen the interval most.
//! Looks become rarer, because the width soon shrinks only with the square root of the number of
//! rounds. All intervals of a search then hold simultaneously, whenever it stops.

use crate::interval::Interval;

/// The parameters of a look at two candidates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// Number of rounds to use: the first ones in which both candidates were measured.
    pub(crate) rounds: usize,
    /// Quantile of Student's distribution for an interval that holds simultaneously with all
    /// others of the search.
    pub(crate) of_all: f64,
    /// The same for a single interval.
    pub(crate) single: f64,
}

/// The looks of a race.
#[derive(Debug)]
pub(crate) struct Looks {
    /// Number of candidates that are compared with the original settings.
    comparisons: usize,
    all: Vec<Look>,
}

impl Looks {
    pub(crate) fn new(comparisons: usize) -> Self {
        Self { comparisons, all: Vec::new() }
    }

    /// Rounds of the look with this number, counted from 0: 4, 6, 8, 12, 16, 24, 32 and so on.
    pub(crate) fn rounds(number: usize) -> usize {
        (if number % 2 == 0 { 4 } else { 6 }) << (number / 2)
    }

    /// Adds all looks that `rounds` rounds allow.
    pub(crate) fn reach(&mut self, rounds: usize) {
        while Self::rounds(self.all.len()) <= rounds {
            let number = self.all.len();
            let share = 1.0 / ((number + 1) * (number + 2)) as f64;
            let error = 1.0 - Interval::CONFIDENCE;
            let rounds = Self::rounds(number);
            let of_all = quantile(error * share / self.comparisons.max(1) as f64, rounds - 1);
            self.all.push(Look { rounds, of_all, single: quantile(error, rounds - 1) });
        }
    }

    /// The last look that `rounds` common rounds allow.
    pub(crate) fn last(&self, rounds: usize) -> Option<Look> {
        self.all.iter().rev().find(|look| look.rounds <= rounds).copied()
    }
}

/// The value that Student's t with `degrees` degrees of freedom exceeds in absolute value with
/// probability `error`.
fn quantile(error: f64, degrees: usize) -> f64 {
    let mut range = [0.0, 2.0];
    while 1.0 - within(range[1], degrees) > error {
        range = [range[1], 2.0 * range[1]];
    }
    // 40 halvings give all significant digits.
    for _ in 0..40 {
        let middle = f64::midpoint(range[0], range[1]);
        range[usize::from(1.0 - within(middle, degrees) <= error)] = middle;
    }
    // The upper bound is the safe one.
    range[1]
}

/// The probability that Student's t is at most `t` in absolute value: M. Abramowitz and I. Stegun,
/// "Handbook of Mathematical Functions", 26.7.3 and 26.7.4.
fn within(t: f64, degrees: usize) -> f64 {
    let angle = (t / (degrees as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let is_odd = degrees % 2;
    let mut term = if is_odd == 1 { cosine } else { 1.0 };
    let mut sum = if degrees == 1 { 0.0 } else { term };
    for step in 1..(degrees - is_odd) / 2 {
        let even = (2 * step) as f64;
        let factor = if is_odd == 1 { even / (even + 1.0) } else { (even - 1.0) / even };
        term *= cosine * cosine * factor;
        sum += term;
    }
    if is_odd == 1 { (angle + sine * sum) * std::f64::consts::FRAC_2_PI } else { sine * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        for (error, degrees, expected) in [
            (0.01, 1, 63.657),
            (0.01, 2, 9.925),
            (0.01, 3, 5.841),
            (0.01, 4, 4.604),
            (0.05, 7, 2.365),
            (0.001, 10, 4.587),
            (0.01, 23, 2.807),
            (0.001, 60, 3.460),
            (0.01, 120, 2.617),
            (0.01, 100_000, 2.576),
        ] {
            let computed = quantile(error, degrees);
            assert!((computed - expected).abs() < 6e-4, "{error}, {degrees}: {computed}");
        }
    }

    #[test]
    fn looks_become_rarer_and_spend_no_more_than_there_is() {
        let mut looks = Looks::new(10);
        assert!(looks.last(3).is_none());
        looks.reach(50);
        let rounds: Vec<_> = looks.all.iter().map(|look| look.rounds).collect();
        assert_eq!(rounds, [4, 6, 8, 12, 16, 24, 32, 48]);
        assert_eq!(
            [3, 4, 11, 12, 49].map(|count| looks.last(count).map_or(0, |look| look.rounds)),
            [0, 4, 8, 12, 48]
        );
        let spent: f64 =
            looks.all.iter().map(|look| 10.0 * (1.0 - within(look.of_all, look.rounds - 1))).sum();
        let promised = 1.0 - Interval::CONFIDENCE;
        assert!(spent < promised && spent > 0.85 * promised, "{spent}");
        assert!(looks.all.iter().all(|look| look.of_all > look.single));
    }
}
