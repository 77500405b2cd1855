//! How much better one of two is, and how sure that is.

use serde::Serialize;

/// A ratio of two scores with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Geometric mean of the ratios of all rounds; above 1 the first one is better.
    pub ratio: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Rounds in which both were measured.
    pub rounds: usize,
}

impl Interval {
    /// How sure each interval is by itself: 0.99, so that the intervals of five at once are still 95 % sure
    /// (Bonferroni).
    pub const CONFIDENCE: f64 = 0.99;

    /// Of pairs measured in the same rounds: Student's interval of the mean of the logarithms, so that what disturbed
    /// a whole round cancels. None: fewer than two pairs, or a score that is not a positive number.
    pub(crate) fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let logs: Vec<f64> = pairs.iter().map(|(one, other)| (one / other).ln()).collect();
        let n = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / n;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let half = student(logs.len().checked_sub(1)?)? * (variance / n).sqrt();
        half.is_finite().then(|| Self {
            ratio: mean.exp(),
            low: (mean - half).exp(),
            high: (mean + half).exp(),
            rounds: logs.len(),
        })
    }

    /// Whether the first one is better, for sure.
    pub(crate) fn is_above(&self) -> bool {
        self.low > 1.0
    }

    /// Whether the two are the same for sure, as far as it matters.
    pub(crate) fn is_within(&self, margin: f64) -> bool {
        self.low > 1.0 / margin && self.high < margin
    }
}

/// Quantile of Student's t-distribution for two-sided intervals of [`Interval::CONFIDENCE`]; between the lines of the
/// table that of fewer degrees, which is larger.
fn student(degrees: usize) -> Option<f64> {
    const TABLE: [(usize, f64); 24] = [
        (1, 63.657),
        (2, 9.925),
        (3, 5.841),
        (4, 4.604),
        (5, 4.032),
        (6, 3.707),
        (7, 3.499),
        (8, 3.355),
        (9, 3.250),
        (10, 3.169),
        (11, 3.106),
        (12, 3.055),
        (13, 3.012),
        (14, 2.977),
        (15, 2.947),
        (16, 2.921),
        (17, 2.898),
        (18, 2.878),
        (19, 2.861),
        (20, 2.845),
        (25, 2.787),
        (30, 2.750),
        (60, 2.660),
        (120, 2.617),
    ];
    TABLE.iter().rev().find(|(from, _)| degrees >= *from).map(|(_, quantile)| *quantile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_of_known_numbers() {
        // Logarithms 0.1, 0.2, 0.3: mean 0.2, standard deviation 0.1.
        let pairs: Vec<_> = [0.1f64, 0.2, 0.3].iter().map(|log| (log.exp() * 7.0, 7.0)).collect();
        let interval = Interval::of(&pairs).unwrap();
        let half = 9.925 * 0.1 / 3f64.sqrt();
        assert!((interval.ratio.ln() - 0.2).abs() < 1e-9, "{interval:?}");
        assert!((interval.low.ln() - (0.2 - half)).abs() < 1e-9, "{interval:?}");
        assert!((interval.high.ln() - (0.2 + half)).abs() < 1e-9, "{interval:?}");
        assert_eq!(interval.rounds, 3);
        assert!(!interval.is_above() && !interval.is_within(1.5) && interval.is_within(3.0));
    }

    #[test]
    fn what_disturbs_a_whole_round_cancels() {
        let pairs: Vec<_> = [1.0, 50.0, 3.0, 0.1].iter().map(|load| (1.2 * load, load * 1.0)).collect();
        let interval = Interval::of(&pairs).unwrap();
        assert!((interval.low - 1.2).abs() < 1e-9 && (interval.high - 1.2).abs() < 1e-9, "{interval:?}");
        assert!(interval.is_above());
    }

    #[test]
    fn too_little_is_no_interval() {
        assert_eq!(Interval::of(&[]), None);
        assert_eq!(Interval::of(&[(1.0, 2.0)]), None);
        assert_eq!(Interval::of(&[(1.0, 2.0), (0.0, 2.0)]), None);
    }

    #[test]
    fn the_table_is_read_on_the_safe_side() {
        assert_eq!([1, 4, 22, 60, 100_000].map(student), [63.657, 4.604, 2.845, 2.660, 2.617].map(Some));
        assert_eq!(student(0), None);
    }
}
