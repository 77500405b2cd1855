//! Numbers of bytes.

use std::fmt;
use std::ops::RangeInclusive;

use crate::number::number_and_unit;

/// A number of bytes that was written as a text, such as `65536`, `64K` or `64KiB`.
///
/// K, M, G and T are powers of 1024. KB and MB are refused, since half of the world takes them for
/// powers of 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

/// The unit of a number that has none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeUnit {
    /// 1 byte.
    Byte,
    /// 1,000,000,000 bytes.
    Gigabyte,
}

/// The units, and how often each is to be doubled.
const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

impl Size {
    /// Reads a number of bytes. Fractions are those of a unit, and rounded to bytes.
    #[must_use]
    pub fn parse(text: &str, default: SizeUnit) -> Option<Self> {
        let (number, unit) = number_and_unit(text);
        let factor = match unit {
            "" => default.bytes(),
            "B" => 1,
            _ => {
                let is_it = |name: &str| unit == name || unit.eq_ignore_ascii_case(&name[..1]);
                1 << UNITS.iter().find(|(name, _)| is_it(name))?.1
            }
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Self);
        }
        let bytes = (number.parse::<f64>().ok()? * factor as f64).round();
        let is_possible = factor > 1 && (0.0..u64::MAX as f64).contains(&bytes);
        is_possible.then_some(Self(bytes as u64))
    }

    /// Reads a number of bytes within limits.
    ///
    /// # Errors
    ///
    /// The message has the valid sizes.
    pub fn parse_within(
        text: &str,
        default: SizeUnit,
        limits: &RangeInclusive<u64>,
    ) -> Result<Self, String> {
        let size = Self::parse(text, default).filter(|size| limits.contains(&size.0));
        size.ok_or_else(|| {
            let [least, most] = [limits.start(), limits.end()].map(|limit| Self(*limit));
            let range = match *limits.end() {
                u64::MAX => format!("from {least} on"),
                _ => format!("from {least} to {most}"),
            };
            format!(
                "not a size {range}, such as 65536, 64K or 64KiB; a number without a unit is in {}",
                default.plural()
            )
        })
    }

    /// A parser for an option whose numbers without a unit are in bytes.
    pub fn within(
        limits: RangeInclusive<u64>,
    ) -> impl Fn(&str) -> Result<Self, String> + Clone + Send + Sync + 'static {
        Self::within_in(SizeUnit::Byte, limits)
    }

    /// A parser for an option whose numbers without a unit are in `default`.
    pub fn within_in(
        default: SizeUnit,
        limits: RangeInclusive<u64>,
    ) -> impl Fn(&str) -> Result<Self, String> + Clone + Send + Sync + 'static {
        move |text: &str| Self::parse_within(text, default, &limits)
    }

    /// Shows a number of bytes as [`Size::parse`] reads it, in the largest unit of which it is a
    /// multiple.
    #[must_use]
    pub fn shown(bytes: u64) -> String {
        Self(bytes).to_string()
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of bytes, or the largest one that memory can have.
    #[must_use]
    pub fn in_memory(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl SizeUnit {
    const fn bytes(self) -> u64 {
        match self {
            Self::Byte => 1,
            Self::Gigabyte => 1_000_000_000,
        }
    }

    const fn plural(self) -> &'static str {
        match self {
            Self::Byte => "bytes",
            Self::Gigabyte => "gigabytes",
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |power: &u32| self.0 > 0 && self.0.trailing_zeros() >= *power;
        match UNITS.iter().find(|(_, power)| fits(power)) {
            Some((name, power)) => write!(to, "{}{name}", self.0 >> power),
            None => write!(to, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<u64> {
        Size::parse(text, SizeUnit::Byte).map(Size::get)
    }

    #[test]
    fn sizes_have_binary_units_and_numbers_alone_are_bytes() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("3B", 3),
            ("1024k", 1 << 20),
            ("64K", 65536),
            ("64KiB", 65536),
            ("2 MiB", 2 << 20),
            ("256M", 256 << 20),
            ("1G", 1 << 30),
            ("64GiB", 64 << 30),
            ("1.5KiB", 1536),
            ("0.5g", 512 << 20),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parsed(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "M",
            "KiB",
            "-1",
            "-1M",
            "1.5",
            "64KB",
            "64kb",
            "1MB",
            "1Mi",
            "1mib",
            "é",
            "1é",
            "184467440737095516159",
            "99999999999GiB",
            "1e30M",
            "nanK",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
        let gigabytes = |text| Size::parse(text, SizeUnit::Gigabyte).map(Size::get);
        assert_eq!(gigabytes("0.15"), Some(150_000_000));
        assert_eq!(gigabytes("4"), Some(4_000_000_000));
        assert_eq!(gigabytes("1GiB"), Some(1 << 30));
    }

    #[test]
    fn limits_are_named() {
        let why = Size::within(1..=16 << 20)("17M").unwrap_err();
        assert!(why.starts_with("not a size from 1 to 16MiB, such as"), "{why}");
        assert!(why.ends_with("without a unit is in bytes"), "{why}");
        let why = Size::within(1..=u64::MAX)("0").unwrap_err();
        assert!(why.starts_with("not a size from 1 on, such as"), "{why}");
    }

    #[test]
    fn sizes_are_shown_as_they_are_read() {
        for power in 0..64 {
            for bytes in [1 << power, (1 << power) + 1] {
                assert_eq!(parsed(&Size::shown(bytes)), Some(bytes));
            }
        }
        assert_eq!(Size::shown(256 << 20), "256MiB");
    }
}
