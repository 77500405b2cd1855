//! Sizes of regions, as people write them.

/// The smallest and the largest region.
const LIMITS: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 30;

/// A power of two in bytes: `256M`, `1G`; K, M and G are powers of 1024.
///
/// # Errors
///
/// The message lists the valid sizes.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|bytes| bytes.is_power_of_two() && LIMITS.contains(bytes))
        .ok_or_else(|| "a power of two from 1M to 64G, such as 256M".to_owned())
}

/// The size in the largest unit of which it is a multiple, as QEMU and `parse` read it.
pub(crate) fn shown(bytes: u64) -> String {
    if bytes % (1 << 30) == 0 { format!("{}G", bytes >> 30) } else { format!("{}M", bytes >> 20) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_within_what_a_link_can_have() {
        assert_eq!(parse("1M"), Ok(1 << 20));
        assert_eq!(parse("1024k"), Ok(1 << 20));
        assert_eq!(parse("64G"), Ok(64 << 30));
        assert_eq!(parse("268435456"), Ok(256 << 20));
        for refused in
            ["", "M", "0", "3M", "512K", "128G", "-1M", "1.5G", "1MiB", "é", "99999999999G"]
        {
            assert!(parse(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn what_is_shown_is_understood() {
        for power in 20..=36 {
            assert_eq!(parse(&shown(1 << power)), Ok(1 << power));
        }
        assert_eq!(shown(2 << 30), "2G");
    }
}
