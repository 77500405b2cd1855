//! What papers say, and whether it is so here: claims that are judged by what was measured.
//!
//! A claim names the number that decides (its evidence, with an interval) and the criterion. The verdict follows from the
//! two, every time a report is made; where the interval contains the criterion, nothing can be told.

use crate::outcome::{ResultFile, Table};
use crate::plot::Figure;
use crate::stats;
use crate::text;

/// Rounds below which no interval is believed.
const FEWEST_ROUNDS: usize = 3;

/// A statement that an experiment can support or not.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// A few words, for lists.
    pub title: &'static str,
    /// What is said, in a sentence of our own.
    pub statement: &'static str,
    /// Who says it.
    pub source: Source,
    /// The published number as text with its unit; empty if there is none.
    pub published: &'static str,
    /// What is compared with the criterion, in words.
    pub measure: &'static str,
    /// Unit of the evidence; empty for ratios.
    pub unit: &'static str,
    /// Finds that number in a result, or says why it is not there.
    pub evidence: fn(&ResultFile) -> Result<Estimate, String>,
    /// What the number must be.
    pub criterion: Criterion,
    /// What it means if it is not.
    pub otherwise: &'static str,
}

/// Who makes a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A publication: authors, title, and section, figure or table.
    Paper(&'static str),
    /// This project, of itself.
    Goal,
}

/// A number with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Rounds behind it.
    pub rounds: usize,
}

/// What a number must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Criterion {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// More than this.
    Above(f64),
    /// Less than this.
    Below(f64),
    /// Anything but this.
    Differs(f64),
}

/// What a result says about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval fulfils the criterion.
    Reproduced,
    /// No part of the interval does.
    NotReproduced,
    /// A part of it does.
    CannotBeTold,
    /// The number is missing.
    NotMeasured,
}

/// A verdict and its grounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// What it was judged by.
    pub estimate: Option<Estimate>,
    /// Why, in a sentence.
    pub why: String,
}

/// Published numbers beside ours.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Where the published numbers stand.
    pub source: &'static str,
    /// The numbers as curves; the paper's is one series and ours another. `None` if they are too few to draw.
    pub figure: Option<Figure>,
    /// The numbers.
    pub table: Table,
}

/// One (case, variant, metric) of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At<'a> {
    /// The case.
    pub case: &'a str,
    /// The variant.
    pub variant: &'a str,
    /// Name of the metric.
    pub metric: &'a str,
}

impl Claim {
    /// Judges the claim by `result`.
    pub fn judge(&self, result: &ResultFile) -> Judgement {
        let estimate = match (self.evidence)(result) {
            Ok(estimate) => estimate,
            Err(why) => return Judgement { verdict: Verdict::NotMeasured, estimate: None, why },
        };
        let Estimate { low, high, rounds, .. } = estimate;
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        let verdict = match rounds < FEWEST_ROUNDS {
            true => Verdict::CannotBeTold,
            false => self.criterion.judge(&estimate),
        };
        let why = match verdict {
            Verdict::Reproduced => format!("the whole interval is {}{unit}", self.criterion),
            Verdict::NotReproduced => self.otherwise.to_owned(),
            Verdict::CannotBeTold if rounds < FEWEST_ROUNDS => {
                format!("{rounds} rounds give no interval; {FEWEST_ROUNDS} are needed at least")
            }
            Verdict::CannotBeTold | Verdict::NotMeasured => format!(
                "only a part of the interval, {} to {}{unit}, is {}; more rounds make it narrower",
                text::significant(low),
                text::significant(high),
                self.criterion
            ),
        };
        Judgement { verdict, estimate: Some(estimate), why }
    }
}

impl Criterion {
    /// Whether all, nothing or a part of the interval fulfils it.
    fn judge(self, estimate: &Estimate) -> Verdict {
        let Estimate { low, high, .. } = *estimate;
        let (all, nothing) = match self {
            Self::AtLeast(bound) => (low >= bound, high < bound),
            Self::Above(bound) => (low > bound, high <= bound),
            Self::AtMost(bound) => (high <= bound, low > bound),
            Self::Below(bound) => (high < bound, low >= bound),
            // An interval around the value never shows that there is no difference.
            Self::Differs(bound) => (low > bound || high < bound, false),
        };
        match (all, nothing) {
            (true, _) => Verdict::Reproduced,
            (_, true) => Verdict::NotReproduced,
            (false, false) => Verdict::CannotBeTold,
        }
    }
}

impl std::fmt::Display for Criterion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "at least {bound}"),
            Self::AtMost(bound) => write!(f, "at most {bound}"),
            Self::Above(bound) => write!(f, "more than {bound}"),
            Self::Below(bound) => write!(f, "less than {bound}"),
            Self::Differs(bound) => write!(f, "other than {bound}"),
        }
    }
}

impl Verdict {
    /// As readers see it: papers are reproduced, goals are met.
    pub fn name(self, source: Source) -> &'static str {
        match (self, source) {
            (Self::Reproduced, Source::Paper(_)) => "reproduced",
            (Self::Reproduced, Source::Goal) => "met",
            (Self::NotReproduced, Source::Paper(_)) => "not reproduced",
            (Self::NotReproduced, Source::Goal) => "not met",
            (Self::CannotBeTold, _) => "cannot be told",
            (Self::NotMeasured, _) => "not measured",
        }
    }
}

impl Estimate {
    /// A row's ratio to the baseline of its experiment: bootstrap over rounds.
    ///
    /// # Errors
    ///
    /// If it was not measured.
    pub fn ratio(result: &ResultFile, at: At<'_>) -> Result<Self, String> {
        let row = result.row(at)?;
        let ratio = row.ratio.ok_or_else(|| format!("{at} has no ratio to a baseline"))?;
        let rounds = row.spread.map_or(0, |spread| spread.n);
        Self { value: ratio.value, low: ratio.low, high: ratio.high, rounds }.checked()
    }

    /// The median of a row. The interval is that of notched box plots, 1.58 interquartile ranges over the root of the
    /// rounds to each side (McGill, Tukey and Larsen, "Variations of box plots", 1978).
    ///
    /// # Errors
    ///
    /// If it was not measured.
    pub fn median(result: &ResultFile, at: At<'_>) -> Result<Self, String> {
        let spread = result.row(at)?.spread.ok_or_else(|| format!("{at} was not measured"))?;
        let half = 1.58 * (spread.q3 - spread.q1) / (spread.n.max(1) as f64).sqrt();
        let (low, high) = (spread.median - half, spread.median + half);
        Self { value: spread.median, low, high, rounds: spread.n }.checked()
    }

    /// Ratio of the medians of any two rows. The interval is wide enough for both numbers being anywhere in theirs.
    ///
    /// # Errors
    ///
    /// If one of them was not measured, or the second may be zero.
    pub fn ratio_of_medians(result: &ResultFile, these: At<'_>, others: At<'_>) -> Result<Self, String> {
        let (this, other) = (Self::median(result, these)?, Self::median(result, others)?);
        if other.low <= 0.0 {
            return Err(format!("{others} varies too much to be divided by"));
        }
        let rounds = this.rounds.min(other.rounds);
        let (low, high) = (this.low / other.high, this.high / other.low);
        Self { value: this.value / other.value, low: low.max(0.0), high, rounds }.checked()
    }

    /// A key of the summary. Its interval is from the keys `NAME_low` and `NAME_high` if there are such, else from
    /// `NAME_standard_error` (Student's t); the rounds are those of the parameters.
    ///
    /// # Errors
    ///
    /// If there is no such key, or no interval of it.
    pub fn key(result: &ResultFile, name: &str) -> Result<Self, String> {
        let key = |suffix: &str| result.summary.get(&format!("{name}{suffix}")).copied();
        let value = key("").ok_or_else(|| format!("the summary has no {name}"))?;
        let rounds = result.rounds();
        match (key("_low").zip(key("_high")), key("_standard_error")) {
            (Some((low, high)), _) => Self { value, low, high, rounds }.checked(),
            (None, Some(error)) => Self::mean(value, error, rounds),
            (None, None) => Err(format!("the summary has no interval of {name}")),
        }
    }

    /// A mean with its standard error (Student's t).
    ///
    /// # Errors
    ///
    /// If these are no such numbers.
    pub fn mean(value: f64, standard_error: f64, rounds: usize) -> Result<Self, String> {
        let freedom = rounds.checked_sub(1).filter(|&freedom| freedom > 0);
        let freedom = freedom.ok_or_else(|| format!("{rounds} rounds give no interval"))?;
        let half = stats::student_t(freedom) * standard_error;
        Self { value, low: value - half, high: value + half, rounds }.checked()
    }

    /// By how much `self` exceeds `other`, both independent.
    ///
    /// # Errors
    ///
    /// If these are no such numbers.
    pub fn minus(self, other: Self) -> Result<Self, String> {
        let value = self.value - other.value;
        let below = (self.value - self.low).hypot(other.high - other.value);
        let above = (self.high - self.value).hypot(other.value - other.low);
        let rounds = self.rounds.min(other.rounds);
        Self { value, low: value - below, high: value + above, rounds }.checked()
    }

    /// What stands in a file may be anything.
    fn checked(self) -> Result<Self, String> {
        match self.low <= self.value && self.value <= self.high && (self.high - self.low).is_finite() {
            true => Ok(self),
            false => Err("result.json has an interval that does not contain its number".to_owned()),
        }
    }
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [value, low, high] = [self.value, self.low, self.high].map(text::significant);
        write!(f, "{value} ({low} – {high})")
    }
}

impl std::fmt::Display for At<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}, {}", self.metric, self.case, self.variant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(low: f64, high: f64) -> Estimate {
        Estimate { value: (low + high) / 2.0, low, high, rounds: 5 }
    }

    #[test]
    fn only_whole_intervals_are_verdicts() {
        let cases = [
            (Criterion::AtLeast(4.0), 4.0, 5.0, Verdict::Reproduced),
            (Criterion::AtLeast(4.0), 3.0, 5.0, Verdict::CannotBeTold),
            (Criterion::AtLeast(4.0), 1.0, 3.9, Verdict::NotReproduced),
            (Criterion::Above(0.0), 0.0, 1.0, Verdict::CannotBeTold),
            (Criterion::Above(0.0), -1.0, 0.0, Verdict::NotReproduced),
            (Criterion::AtMost(0.35), 0.1, 0.35, Verdict::Reproduced),
            (Criterion::AtMost(0.35), 0.36, 0.4, Verdict::NotReproduced),
            (Criterion::Below(1.0), 0.5, 1.5, Verdict::CannotBeTold),
            (Criterion::Below(1.0), 1.0, 1.5, Verdict::NotReproduced),
            (Criterion::Differs(0.0), -2.0, -1.0, Verdict::Reproduced),
            (Criterion::Differs(0.0), -2.0, 1.0, Verdict::CannotBeTold),
        ];
        for (criterion, low, high, verdict) in cases {
            assert_eq!(criterion.judge(&estimate(low, high)), verdict, "{criterion}: {low} to {high}");
        }
    }

    #[test]
    fn means_have_intervals_of_students_t() {
        let mean = Estimate::mean(50.0, 1.0, 10).unwrap();
        assert!((mean.low - (50.0 - 2.262)).abs() < 1e-9 && (mean.high - 52.262).abs() < 1e-9, "{mean:?}");
        let difference = mean.minus(Estimate { value: 10.0, low: 6.0, high: 14.0, rounds: 4 }).unwrap();
        assert_eq!((difference.value, difference.rounds), (40.0, 4));
        assert!((difference.high - (40.0 + 2.262f64.hypot(4.0))).abs() < 1e-9, "{difference:?}");
        assert!(Estimate::mean(f64::NAN, 1.0, 10).is_err());
        assert!(Estimate::mean(50.0, -1.0, 10).is_err());
    }
}
