//! Sizes of regions.

use seekwire_values::{Size, SizeUnit};

/// The smallest and the largest region.
const LIMITS: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 30;

/// A power of two in bytes: `256M`, `1GiB`.
///
/// # Errors
///
/// The message lists the valid sizes.
pub(crate) fn parse(text: &str) -> Result<Size, String> {
    Size::parse(text, SizeUnit::Byte)
        .filter(|size| size.get().is_power_of_two() && LIMITS.contains(&size.get()))
        .ok_or_else(|| "a power of two from 1M to 64G, such as 256M".to_owned())
}

/// The size in the largest unit of which it is a multiple, as QEMU reads it.
pub(crate) fn shown(bytes: u64) -> String {
    Size::shown(bytes).trim_end_matches("iB").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<u64> {
        parse(text).ok().map(Size::get)
    }

    #[test]
    fn sizes_are_powers_of_two_within_what_a_link_can_have() {
        assert_eq!(parsed("1M"), Some(1 << 20));
        assert_eq!(parsed("1024k"), Some(1 << 20));
        assert_eq!(parsed("64GiB"), Some(64 << 30));
        assert_eq!(parsed("268435456"), Some(256 << 20));
        for refused in ["", "M", "0", "3M", "512K", "128G", "-1M", "1.5G", "1MB", "99999999999G"] {
            assert_eq!(parsed(refused), None, "{refused}");
        }
    }

    #[test]
    fn what_is_shown_is_understood() {
        for power in 20..=36 {
            assert_eq!(parsed(&shown(1 << power)), Some(1 << power));
        }
        assert_eq!(shown(2 << 30), "2G");
    }
}
