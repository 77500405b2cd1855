//! Robust statistics: medians, spread, and bootstrap intervals for ratios of medians.
//!
//! Everything here is deterministic: the seed of the resampling is fixed, so the same raw data always
//! give the same report.

use std::cell::RefCell;

use serde::{Deserialize, Serialize};

/// The 97.5 % quantile of the normal distribution.
const NORMAL: f64 = 1.96;

/// Resamples behind each confidence interval.
const RESAMPLES: usize = 2000;

/// Most rounds whose resamples are kept, in 8 MB.
const MOST_KEPT: usize = 1000;

/// Rounds below which there is no interval.
pub const FEWEST_ROUNDS: usize = 2;

/// Seed of the bootstrap; any constant works.
const SEED: u64 = 0x5eec_0001_d1ce_0001;

/// Location and spread of a set of samples. Same unit as the samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of samples.
    pub n: usize,
    /// Smallest sample.
    pub min: f64,
    /// First quartile.
    pub q1: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub q3: f64,
    /// Largest sample.
    pub max: f64,
    /// Median absolute deviation from the median (not scaled to a standard deviation).
    pub mad: f64,
}

impl Spread {
    /// Describes `samples`; `None` if there are none. Samples that are not finite are left out.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples);
        let median = quantile(&sorted, 0.5)?;
        let deviations: Vec<f64> = sorted.iter().map(|x| (x - median).abs()).collect();
        Some(Self {
            n: sorted.len(),
            min: *sorted.first()?,
            q1: quantile(&sorted, 0.25)?,
            median,
            q3: quantile(&sorted, 0.75)?,
            max: *sorted.last()?,
            mad: self::median(&deviations)?,
        })
    }
}

/// Median of `samples` in any order; `None` if there are none.
pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(&sorted(samples), 0.5)
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Quantile `p` of an ascending slice, by linear interpolation between the closest ranks (Hyndman
/// and Fan, type 7).
fn quantile(ascending: &[f64], p: f64) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    let rank = p * last as f64;
    let below = rank.floor() as usize;
    let above = rank.ceil() as usize;
    let weight = rank - below as f64;
    Some(ascending[below] + (ascending[above] - ascending[below]) * weight)
}

/// A mean and how far it can be trusted. Same unit as the samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// Number of samples.
    pub n: usize,
    /// Arithmetic mean.
    pub value: f64,
    /// Standard deviation of the samples over the square root of their number; `None` of a single
    /// one.
    pub standard_error: Option<f64>,
}

impl Mean {
    /// Of `samples`; `None` if there are none. Samples that are not finite are left out.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let samples = sorted(samples);
        let n = samples.len();
        let value = samples.iter().sum::<f64>() / n as f64;
        let squares: f64 = samples.iter().map(|sample| (sample - value).powi(2)).sum();
        let standard_error = (n > 1).then(|| (squares / (n - 1) as f64 / n as f64).sqrt());
        (n > 0).then_some(Self { n, value, standard_error })
    }
}

/// The 97.5 % quantile of Student's t distribution: half the width of a 95 % interval, in standard
/// errors. Infinite for no degree of freedom.
pub fn student_t(degrees_of_freedom: usize) -> f64 {
    const QUANTILES: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    match degrees_of_freedom {
        0 => f64::INFINITY,
        // Cornish-Fisher's first terms; off by less than 0.001 from here on.
        many @ 31.. => 1.96 + 2.372 / many as f64 + 2.82 / (many as f64).powi(2),
        few => QUANTILES[few - 1],
    }
}

/// Ratio of two medians with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median of the numerators over median of the denominators.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Rounds in which both were measured, which may be fewer than those of either; `None` if a
    /// file of an earlier version does not contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<usize>,
}

impl Ratio {
    /// Whether the interval is meaningful: a single pair has no spread.
    pub fn has_interval(&self) -> bool {
        self.pairs.map_or(self.low < self.high, |pairs| pairs >= FEWEST_ROUNDS)
    }

    /// The same with the interval that `rounds` justify: percentiles of a bootstrap are too narrow
    /// for few of them (Hesterberg, "What teachers should know about the bootstrap", 2015). Fewer
    /// than [`FEWEST_ROUNDS`] have no interval to widen.
    pub fn widened(self, rounds: usize) -> Self {
        let factor = match rounds {
            ..FEWEST_ROUNDS => 1.0,
            _ => (rounds as f64 / (rounds - 1) as f64).sqrt() * student_t(rounds - 1) / NORMAL,
        };
        let Self { value, low, high, .. } = self;
        // A ratio and its inverse are to have the same interval; zero has no inverse.
        let widen = |end: f64| match value > 0.0 {
            true => value * (end / value).powf(factor),
            false => value + (end - value) * factor,
        };
        Self { low: widen(low), high: widen(high), ..self }
    }
}

/// Ratio of the medians of `pairs` (numerator, denominator), one pair per round.
///
/// The interval is a percentile bootstrap that resamples whole rounds: a disturbance of both
/// members of a round cancels. Pairs with a number that is not finite are left out. `None` without
/// pairs, or if the denominators' median is not positive.
pub fn ratio_of_medians(pairs: &[(f64, f64)]) -> Option<Ratio> {
    let (numerators, denominators): (Vec<f64>, Vec<f64>) = pairs
        .iter()
        .filter(|(above, below)| above.is_finite() && below.is_finite())
        .copied()
        .unzip();
    let [numerators, denominators] = [numerators, denominators].map(|values| Ranked::of(&values));
    let rounds = numerators.0.len();
    let ratio = |counts: &[u32]| {
        let denominator = denominators.median(counts)?;
        (denominator > 0.0).then_some(numerators.median(counts)? / denominator)
    };
    let value = ratio(&vec![1; rounds])?;
    let mut ratios = Vec::with_capacity(RESAMPLES);
    with_resamples(rounds, |counts| ratios.extend(ratio(counts)));
    ratios.sort_unstable_by(f64::total_cmp);
    let (low, high) = (quantile(&ratios, 0.025)?, quantile(&ratios, 0.975)?);
    Some(Ratio { value, low, high, pairs: Some(rounds) })
}

/// Calls `each` with every resample of that many rounds: how often it contains each of them.
fn with_resamples(rounds: usize, mut each: impl FnMut(&[u32])) {
    thread_local! {
        /// The resamples of the last number of rounds, one after the other. They depend on nothing
        /// else, and most ratios of a report have the same number.
        static LAST: RefCell<(usize, Vec<u32>)> = const { RefCell::new((0, Vec::new())) };
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut draw = |counts: &mut [u32]| {
        for _ in 0..rounds {
            counts[random.usize(..rounds)] += 1;
        }
    };
    if rounds > MOST_KEPT {
        let mut counts = vec![0; rounds];
        for _ in 0..RESAMPLES {
            counts.fill(0);
            draw(&mut counts);
            each(&counts);
        }
        return;
    }
    LAST.with_borrow_mut(|(of, all)| {
        if *of != rounds {
            *of = rounds;
            all.clear();
            all.resize(RESAMPLES * rounds, 0);
            all.chunks_exact_mut(rounds).for_each(draw);
        }
        all.chunks_exact(rounds).for_each(each);
    });
}

/// Readings in ascending order, each with its original position: sorted once, so that a resample of
/// them is a number for each position.
struct Ranked(Vec<(f64, usize)>);

impl Ranked {
    fn of(values: &[f64]) -> Self {
        let mut ranked: Vec<(f64, usize)> = values.iter().copied().zip(0..).collect();
        ranked.sort_unstable_by(|(one, _), (other, _)| one.total_cmp(other));
        Self(ranked)
    }

    /// Median of a resample in which the reading at each position occurs `counts` times; the sum of
    /// these is the number of positions.
    fn median(&self, counts: &[u32]) -> Option<f64> {
        let total = self.0.len() as u32;
        let (below, above) = (total.checked_sub(1)? / 2, total / 2);
        let mut seen = 0;
        let mut lower = None;
        for &(value, position) in &self.0 {
            seen += counts[position];
            if seen > below && lower.is_none() {
                lower = Some(value);
            }
            if seen > above {
                return lower.map(|lower| lower + (value - lower) / 2.0);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_known_values() {
        let spread = Spread::of(&[7.0, 1.0, 3.0, 5.0, 100.0]).unwrap();
        assert_eq!((spread.n, spread.min, spread.max), (5, 1.0, 100.0));
        assert_eq!((spread.q1, spread.median, spread.q3), (3.0, 5.0, 7.0));
        assert_eq!(spread.mad, 2.0);
    }

    #[test]
    fn median_interpolates_between_two_middles() {
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[9.0]), Some(9.0));
    }

    #[test]
    fn mean_of_known_values() {
        let mean = Mean::of(&[2.0, 4.0, 4.0, 6.0]).unwrap();
        assert_eq!((mean.n, mean.value), (4, 4.0));
        assert!((mean.standard_error.unwrap() - (8.0f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
        assert_eq!(Mean::of(&[3.0]).unwrap().standard_error, None);
        assert_eq!(Mean::of(&[]), None);
    }

    #[test]
    fn quantiles_of_student_fall_towards_the_normal_one() {
        let quantiles: Vec<f64> = (0..200).map(student_t).collect();
        assert!(quantiles.windows(2).all(|pair| pair[0] > pair[1]), "{quantiles:?}");
        assert!((student_t(60) - 2.000).abs() < 1e-3 && (student_t(120) - 1.980).abs() < 1e-3);
    }

    #[test]
    fn values_that_are_not_finite_are_left_out() {
        assert_eq!(Spread::of(&[f64::NAN, 2.0, f64::INFINITY]).unwrap().n, 1);
        assert_eq!(Spread::of(&[f64::NAN]), None);
    }

    #[test]
    fn ratio_of_constant_pairs_has_no_width() {
        let ratio = ratio_of_medians(&[(6.0, 2.0); 5]).unwrap();
        assert_eq!(ratio, Ratio { value: 3.0, low: 3.0, high: 3.0, pairs: Some(5) });
        assert!(ratio.has_interval(), "five equal rounds are more than one");
        assert!(!ratio_of_medians(&[(6.0, 2.0)]).unwrap().has_interval());
    }

    #[test]
    fn few_rounds_have_a_wider_interval_also_around_zero() {
        let ratio = Ratio { value: 2.0, low: 1.0, high: 4.0, pairs: Some(5) };
        let widened = ratio.widened(5);
        assert!((widened.low * widened.high - 4.0).abs() < 1e-9 && widened.low < 0.7);
        assert_eq!(ratio.widened(1), ratio);
        let nothing = Ratio { value: 0.0, low: 0.0, high: 0.5, pairs: Some(5) }.widened(5);
        assert_eq!((nothing.value, nothing.low), (0.0, 0.0));
        assert!(nothing.high > 0.5 && nothing.high < 1.0, "{nothing:?}");
    }

    #[test]
    fn ratios_of_earlier_files_do_not_say_how_many_pairs() {
        let ratio: Ratio =
            serde_json::from_str(r#"{"value": 2.0, "low": 1.5, "high": 2.5}"#).unwrap();
        assert_eq!(ratio, Ratio { value: 2.0, low: 1.5, high: 2.5, pairs: None });
        assert!(ratio.has_interval() && !Ratio { low: 2.0, high: 2.0, ..ratio }.has_interval());
    }

    #[test]
    fn interval_contains_the_ratio_and_repeats_exactly() {
        let pairs: Vec<(f64, f64)> =
            (0..20).map(|i| (20.0 + f64::from(i % 7), 10.0 + f64::from(i % 5))).collect();
        let ratio = ratio_of_medians(&pairs).unwrap();
        assert!(ratio.low <= ratio.value && ratio.value <= ratio.high, "{ratio:?}");
        assert!(ratio.low < ratio.high, "{ratio:?}");
        assert_eq!(ratio_of_medians(&pairs), Some(ratio));
    }

    #[test]
    fn resamples_are_the_same_whether_they_are_kept_or_not() {
        let drawn = |rounds| {
            let mut all = Vec::new();
            with_resamples(rounds, |counts| all.push(counts.to_vec()));
            all
        };
        for rounds in [3, MOST_KEPT + 1] {
            let first = drawn(rounds);
            assert_eq!(first.len(), RESAMPLES);
            assert!(first.iter().all(|counts| counts.iter().sum::<u32>() as usize == rounds));
            // Another number comes between.
            drawn(2);
            assert!(drawn(rounds) == first && drawn(rounds) == first, "{rounds}");
        }
    }

    #[test]
    fn ratio_to_nothing_is_none() {
        assert_eq!(ratio_of_medians(&[]), None);
        assert_eq!(ratio_of_medians(&[(1.0, 0.0)]), None);
    }

    #[test]
    fn a_resample_has_the_median_of_what_it_repeats() {
        let ranked = Ranked::of(&[7.0, 1.0, 3.0]);
        assert_eq!(ranked.median(&[1, 1, 1]), Some(3.0));
        assert_eq!(ranked.median(&[2, 1, 0]), Some(7.0));
        let ranked = Ranked::of(&[4.0, 1.0, 2.0, 3.0]);
        assert_eq!(ranked.median(&[1, 1, 1, 1]), Some(2.5));
        assert_eq!(ranked.median(&[0, 2, 2, 0]), Some(1.5));
        assert_eq!(Ranked::of(&[]).median(&[]), None);
    }

    #[test]
    fn pairs_without_a_number_do_not_count() {
        let pairs = [(2.0, 1.0), (f64::NAN, 1.0), (4.0, f64::INFINITY), (2.0, 1.0)];
        let ratio = ratio_of_medians(&pairs).unwrap();
        assert_eq!((ratio.value, ratio.pairs), (2.0, Some(2)));
    }
}
