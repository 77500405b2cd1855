//! Numbers with intervals, by which claims are judged.

use crate::outcome::{At, ResultFile};
use crate::stats::{self, FEWEST_ROUNDS, Spread};
use crate::text;

/// A number with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Underlying rounds: those in which all of its parts were measured.
    pub rounds: usize,
}

/// An estimate, or the reason why there is none.
pub type Evidence = Result<Estimate, String>;

impl Estimate {
    /// A row's ratio to the baseline of its experiment: bootstrap over rounds,
    /// [widened](stats::Ratio::widened) for few of them.
    ///
    /// # Errors
    ///
    /// If it was not measured.
    pub fn ratio(result: &ResultFile, at: At<'_>) -> Result<Self, String> {
        let row = result.row(at)?;
        let ratio =
            row.widened_ratio().ok_or_else(|| format!("{at} has no ratio to a baseline"))?;
        let stats::Ratio { value, low, high, .. } = ratio;
        Self { value, low, high, rounds: row.rounds_of_ratio() }.checked()
    }

    /// The median of a row. Its standard error is taken from the quartiles, as in notched box plots
    /// (McGill, Tukey and Larsen, "Variations of box plots", 1978); the interval is Student's.
    ///
    /// # Errors
    ///
    /// If it was not measured.
    pub fn median(result: &ResultFile, at: At<'_>) -> Result<Self, String> {
        Self::of(&result.row(at)?.spread.ok_or_else(|| format!("{at} was not measured"))?)
    }

    /// The same of readings that are in no result yet.
    ///
    /// # Errors
    ///
    /// If these are no such numbers.
    pub fn of(spread: &Spread) -> Result<Self, String> {
        let error = 1.25 / 1.35 * (spread.q3 - spread.q1) / (spread.n.max(1) as f64).sqrt();
        Self::mean(spread.median, error, spread.n)
    }

    /// Ratio of the medians of any two rows, as independent numbers: their relative errors add up
    /// by squares.
    ///
    /// # Errors
    ///
    /// If one of them was not measured, or is not positive.
    pub fn ratio_of_medians(
        result: &ResultFile,
        these: At<'_>,
        others: At<'_>,
    ) -> Result<Self, String> {
        let (this, other) = (Self::median(result, these)?, Self::median(result, others)?);
        let relative = |one: Self| (one.high - one.value) / one.value;
        let (value, error) =
            (this.value / other.value, relative(this).hypot(relative(other)).exp());
        let rounds = this.rounds.min(other.rounds);
        Self { value, low: value / error, high: value * error, rounds }.checked()
    }

    /// A mean with its standard error (Student's t). One round has no interval and allows no
    /// conclusion.
    ///
    /// # Errors
    ///
    /// If these are no such numbers.
    pub fn mean(value: f64, standard_error: f64, rounds: usize) -> Result<Self, String> {
        let half = match rounds {
            ..FEWEST_ROUNDS => 0.0,
            _ => stats::student_t(rounds - 1) * standard_error,
        };
        Self { value, low: value - half, high: value + half, rounds }.checked()
    }

    /// The largest of several, each of which may be it: the ends of its interval are the largest
    /// ends. `None` if there are none.
    pub fn largest(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().reduce(|one, other| Self {
            value: one.value.max(other.value),
            low: one.low.max(other.low),
            high: one.high.max(other.high),
            rounds: one.rounds.min(other.rounds),
        })
    }

    /// The smallest of several in the same way.
    pub fn smallest(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().reduce(|one, other| Self {
            value: one.value.min(other.value),
            low: one.low.min(other.low),
            high: one.high.min(other.high),
            rounds: one.rounds.min(other.rounds),
        })
    }

    /// One over it, if all of it is positive.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn inverse(self) -> Result<Self, String> {
        let Self { value, low, high, rounds } = self;
        Self { value: 1.0 / value, low: 1.0 / high, high: 1.0 / low, rounds }.checked()
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

    /// Checks the numbers, because a file may contain anything.
    fn checked(self) -> Result<Self, String> {
        // Beyond this, the steps of an axis cannot be computed.
        let fits = |number: f64| number.abs() < 1e100;
        match self.low <= self.value && self.value <= self.high && fits(self.low) && fits(self.high)
        {
            true => Ok(self),
            false => Err("result.json has an impossible interval".to_owned()),
        }
    }
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [value, low, high] = [self.value, self.low, self.high].map(text::significant);
        write!(f, "{value} ({low} – {high})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_have_intervals_of_students_t() {
        let mean = Estimate::mean(50.0, 1.0, 10).unwrap();
        assert!(
            (mean.low - (50.0 - 2.262)).abs() < 1e-9 && (mean.high - 52.262).abs() < 1e-9,
            "{mean:?}"
        );
        let difference =
            mean.minus(Estimate { value: 10.0, low: 6.0, high: 14.0, rounds: 4 }).unwrap();
        assert_eq!((difference.value, difference.rounds), (40.0, 4));
        assert!((difference.high - (40.0 + 2.262f64.hypot(4.0))).abs() < 1e-9, "{difference:?}");
        let single = Estimate::mean(50.0, 1.0, 1).unwrap();
        assert_eq!((single.low, single.high, single.rounds), (50.0, 50.0, 1));
        assert!(Estimate::mean(f64::NAN, 1.0, 10).is_err());
        assert!(Estimate::mean(50.0, -1.0, 10).is_err());
    }

    #[test]
    fn the_largest_of_several_is_as_uncertain_as_all_of_them() {
        let estimate = |value, low, high, rounds| Estimate { value, low, high, rounds };
        let several = [estimate(1.1, 1.05, 1.15, 5), estimate(1.0, 0.7, 1.4, 3)];
        assert_eq!(Estimate::largest(several), Some(estimate(1.1, 1.05, 1.4, 3)));
        assert_eq!(Estimate::smallest(several), Some(estimate(1.0, 0.7, 1.15, 3)));
        assert_eq!(Estimate::largest([]), None);
        assert_eq!(several[1].inverse().unwrap().low, 1.0 / 1.4);
        assert!(estimate(1.0, 0.0, 2.0, 3).inverse().is_err());
    }
}
