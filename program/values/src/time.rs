//! Durations.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::number::number_and_unit;

/// A duration that was written as a text, such as `500ms`, `2.5s` or `10min`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(Duration);

/// The unit of a number that has none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// 1 us.
    Microsecond,
    /// 1 s.
    Second,
}

/// The units, and the seconds of each. [`Time`] is shown in the first one that fits.
const UNITS: [(&str, f64); 8] = [
    ("d", 86_400.0),
    ("h", 3600.0),
    ("min", 60.0),
    ("m", 60.0),
    ("s", 1.0),
    ("ms", 1e-3),
    ("us", 1e-6),
    ("ns", 1e-9),
];

impl Time {
    /// Reads a duration.
    #[must_use]
    pub fn parse(text: &str, default: TimeUnit) -> Option<Self> {
        let (number, unit) = number_and_unit(text);
        let unit = if unit.is_empty() { default.name() } else { unit };
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let seconds = number.parse::<f64>().ok()? * seconds;
        Duration::try_from_secs_f64(seconds).ok().map(Self)
    }

    /// Reads a duration within limits.
    ///
    /// # Errors
    ///
    /// The message has the valid durations.
    pub fn parse_within(
        text: &str,
        default: TimeUnit,
        limits: &RangeInclusive<Duration>,
    ) -> Result<Self, String> {
        let time = Self::parse(text, default).filter(|time| limits.contains(&time.0));
        time.ok_or_else(|| {
            let [least, most] = [limits.start(), limits.end()].map(|limit| Self(*limit));
            format!(
                "not a time from {least} to {most}, such as 250us, 1.5s, 10min, 12h or 7d; a number \
                 without a unit is in {}",
                default.plural()
            )
        })
    }

    /// A parser for an option whose numbers without a unit are in seconds.
    pub fn within(
        limits: RangeInclusive<Duration>,
    ) -> impl Fn(&str) -> Result<Self, String> + Clone + Send + Sync + 'static {
        Self::within_in(TimeUnit::Second, limits)
    }

    /// A parser for an option whose numbers without a unit are in `default`.
    pub fn within_in(
        default: TimeUnit,
        limits: RangeInclusive<Duration>,
    ) -> impl Fn(&str) -> Result<Self, String> + Clone + Send + Sync + 'static {
        move |text: &str| Self::parse_within(text, default, &limits)
    }

    /// The duration.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl TimeUnit {
    const fn name(self) -> &'static str {
        match self {
            Self::Microsecond => "us",
            Self::Second => "s",
        }
    }

    const fn plural(self) -> &'static str {
        match self {
            Self::Microsecond => "microseconds",
            Self::Second => "seconds",
        }
    }
}

/// Shown in the largest unit of which it is a multiple, as [`Time::parse`] reads it.
impl fmt::Display for Time {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        if nanoseconds == 0 {
            return to.write_str("0");
        }
        for (name, seconds) in UNITS {
            let unit = (seconds * 1e9).round() as u128;
            if nanoseconds % unit == 0 {
                return write!(to, "{}{name}", nanoseconds / unit);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Duration> {
        Time::parse(text, TimeUnit::Second).map(Time::get)
    }

    #[test]
    fn times_have_units_and_numbers_alone_are_seconds() {
        for (text, nanoseconds) in [
            ("250us", 250_000),
            ("40 ms", 40_000_000),
            ("1.5s", 1_500_000_000),
            (" 2min ", 120_000_000_000),
            ("90m", 5_400_000_000_000),
            ("12h", 43_200_000_000_000),
            ("7d", 604_800_000_000_000),
            ("0", 0),
            ("0.5", 500_000_000),
            (".5s", 500_000_000),
            ("50.ms", 50_000_000),
            ("1e3s", 1_000_000_000_000),
            ("33.333333333333336ms", 33_333_333),
            ("7ns", 7),
        ] {
            assert_eq!(parsed(text), Some(Duration::from_nanos(nanoseconds)), "{text}");
        }
        let microseconds = Time::parse("7", TimeUnit::Microsecond).map(Time::get);
        assert_eq!(microseconds, Some(Duration::from_micros(7)));
        for text in ["", "s", "ms", ".", "-1s", "1w", "1M", "1h 5", "nans", "infs", "1e300s", "5s."]
        {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn limits_are_named() {
        let parse = Time::within(Duration::from_millis(100)..=Duration::from_secs(86_400));
        assert_eq!(parse("1d").map(Time::get), Ok(Duration::from_secs(86_400)));
        for text in ["99ms", "86401", "x"] {
            let why = parse(text).unwrap_err();
            assert!(why.starts_with("not a time from 100ms to 1d, such as"), "{why}");
            assert!(why.ends_with("without a unit is in seconds"), "{why}");
        }
    }

    #[test]
    fn times_are_shown_as_they_are_read() {
        for text in ["0", "1d", "36h", "90min", "61s", "1500ms", "1us", "1001ns"] {
            let time = Time::parse(text, TimeUnit::Second).unwrap();
            assert_eq!(time.to_string(), text);
        }
    }
}
