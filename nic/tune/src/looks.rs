//! When a race is evaluated, and how much chance of error each look may spend.
//!
//! Who looks at an interval of 99 % after every round, for every candidate, and stops when it suits
//! him is wrong far more often than once in a hundred times. So the chance of error of the whole
//! search is spread: equally over all comparisons with what was found (Bonferroni), and of each
//! comparison over looks after fixed numbers of rounds, 1 / (k (k + 1)) for the k-th, of which the
//! sum over all looks is 1 (alpha spending: K. K. G. Lan and D. L. DeMets, "Discrete Sequential
//! Boundaries for Clinical Trials", Biometrika 70, 1983; here with the union bound, which needs no
//! common distribution of the looks). Early looks get most, because they have the fewest degrees of
//! freedom, where a little chance costs much width; looks become rarer, because soon the width
//! shrinks no faster than the root of the rounds. All intervals of a search hold at once then,
//! whenever it stops.

use crate::interval::Interval;

/// What a look at two candidates is based on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// Of the rounds in which both have run, so many first ones.
    pub(crate) rounds: usize,
    /// Quantile of Student's distribution for an interval that holds with all others of the
    /// search.
    pub(crate) of_all: f64,
    /// The same for an interval by itself.
    pub(crate) single: f64,
}

/// The looks of a race.
#[derive(Debug)]
pub(crate) struct Looks {
    /// How many candidates are compared with what was found.
    comparisons: usize,
    taken: Vec<Look>,
}

impl Looks {
    pub(crate) fn new(comparisons: usize) -> Self {
        Self { comparisons, taken: Vec::new() }
    }

    /// Rounds of the look with this number, counted from 0: 4, 6, 8, 12, 16, 24, 32 and so on.
    pub(crate) fn rounds(number: usize) -> usize {
        (if number % 2 == 0 { 4 } else { 6 }) << (number / 2)
    }

    /// Makes all looks known that so many rounds allow.
    pub(crate) fn reach(&mut self, rounds: usize) {
        while Self::rounds(self.taken.len()) <= rounds {
            let number = self.taken.len();
            let share = 1.0 / ((number + 1) * (number + 2)) as f64;
            let error = 1.0 - Interval::CONFIDENCE;
            let rounds = Self::rounds(number);
            let of_all = quantile(error * share / self.comparisons.max(1) as f64, rounds - 1);
            self.taken.push(Look { rounds, of_all, single: quantile(error, rounds - 1) });
        }
    }

    /// The last look that so many common rounds allow.
    pub(crate) fn last(&self, rounds: usize) -> Option<Look> {
        self.taken.iter().rev().find(|look| look.rounds <= rounds).copied()
    }
}

/// What Student's t with `degrees` degrees of freedom exceeds in absolute value with the chance
/// `error`.
fn quantile(error: f64, degrees: usize) -> f64 {
    let mut range = [0.0, 2.0];
    while 1.0 - within(range[1], degrees) > error {
        range = [range[1], 2.0 * range[1]];
    }
    // To the last digits that matter.
    for _ in 0..40 {
        let middle = f64::midpoint(range[0], range[1]);
        range[usize::from(1.0 - within(middle, degrees) <= error)] = middle;
    }
    // On the safe side.
    range[1]
}

/// The chance that Student's t is at most `t` in absolute value: M. Abramowitz and I. Stegun,
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
            let found = quantile(error, degrees);
            assert!((found - expected).abs() < 6e-4, "{error}, {degrees}: {found}");
        }
    }

    #[test]
    fn looks_become_rarer_and_spend_no_more_than_there_is() {
        let mut looks = Looks::new(10);
        assert!(looks.last(3).is_none());
        looks.reach(50);
        let rounds: Vec<_> = looks.taken.iter().map(|look| look.rounds).collect();
        assert_eq!(rounds, [4, 6, 8, 12, 16, 24, 32, 48]);
        assert_eq!(
            [3, 4, 11, 12, 49].map(|count| looks.last(count).map_or(0, |look| look.rounds)),
            [0, 4, 8, 12, 48]
        );
        let spent: f64 = looks
            .taken
            .iter()
            .map(|look| 10.0 * (1.0 - within(look.of_all, look.rounds - 1)))
            .sum();
        let promised = 1.0 - Interval::CONFIDENCE;
        assert!(spent < promised && spent > 0.85 * promised, "{spent}");
        assert!(looks.taken.iter().all(|look| look.of_all > look.single));
    }
}
