//! The ratio of the scores of two candidates, with its confidence interval.

use serde::Serialize;

/// A ratio of two scores with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Geometric mean of the ratios of all rounds; above 1, the first candidate is better.
    pub ratio: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Rounds in which both were measured.
    pub rounds: usize,
}

impl Interval {
    /// Simultaneous confidence of all intervals of a search, of every candidate against the
    /// original settings, whenever the search ends. The search recommends settings that are not
    /// better with a probability below 1 - `CONFIDENCE`, provided that rounds are independent and
    /// the logarithms of their ratios are approximately normal.
    pub const CONFIDENCE: f64 = 0.99;

    /// Student's interval of the mean of the logarithms of pairs measured in the same rounds, with
    /// this quantile. Disturbances of a whole round cancel. Returns `None` for fewer than two pairs,
    /// or if a score is not a positive number.
    pub(crate) fn of(pairs: &[(f64, f64)], quantile: f64) -> Option<Self> {
        let logs: Vec<f64> = pairs.iter().map(|(one, other)| (one / other).ln()).collect();
        let n = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / n;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let half = quantile * (variance / n).sqrt();
        half.is_finite().then(|| Self {
            ratio: mean.exp(),
            low: (mean - half).exp(),
            high: (mean + half).exp(),
            rounds: logs.len(),
        })
    }

    /// True if the first candidate is significantly better.
    pub(crate) fn is_above(&self) -> bool {
        self.low > 1.0
    }

    /// True if the two are significantly equal, within a factor of `margin`.
    pub(crate) fn is_within(&self, margin: f64) -> bool {
        self.low > 1.0 / margin && self.high < margin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_of_known_numbers() {
        // Logarithms 0.1, 0.2, 0.3: mean 0.2, standard deviation 0.1.
        let pairs: Vec<_> = [0.1f64, 0.2, 0.3].iter().map(|log| (log.exp() * 7.0, 7.0)).collect();
        let interval = Interval::of(&pairs, 9.925).unwrap();
        let half = 9.925 * 0.1 / 3f64.sqrt();
        assert!((interval.ratio.ln() - 0.2).abs() < 1e-9, "{interval:?}");
        assert!((interval.low.ln() - (0.2 - half)).abs() < 1e-9, "{interval:?}");
        assert!((interval.high.ln() - (0.2 + half)).abs() < 1e-9, "{interval:?}");
        assert_eq!(interval.rounds, 3);
        assert!(!interval.is_above() && !interval.is_within(1.5) && interval.is_within(3.0));
    }

    #[test]
    fn what_disturbs_a_whole_round_cancels() {
        let pairs: Vec<_> =
            [1.0, 50.0, 3.0, 0.1].iter().map(|load| (1.2 * load, load * 1.0)).collect();
        let interval = Interval::of(&pairs, 9.925).unwrap();
        assert!(
            (interval.low - 1.2).abs() < 1e-9 && (interval.high - 1.2).abs() < 1e-9,
            "{interval:?}"
        );
        assert!(interval.is_above());
    }

    #[test]
    fn too_little_is_no_interval() {
        assert_eq!(Interval::of(&[], 3.0), None);
        assert_eq!(Interval::of(&[(1.0, 2.0)], 3.0), None);
        assert_eq!(Interval::of(&[(1.0, 2.0), (0.0, 2.0)], 3.0), None);
    }
}
