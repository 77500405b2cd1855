//! Numbers as people read them.

use std::time::Duration;

/// Numbers in a text with a minus sign for people, U+2212, instead of the hyphen of programs.
pub fn signed(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    let mut before = None;
    while let Some(character) = characters.next() {
        let begins = before.is_none_or(|before: char| before.is_whitespace() || before == '(');
        let is_sign =
            begins && character == '-' && characters.peek().is_some_and(char::is_ascii_digit);
        shown.push(if is_sign { '−' } else { character });
        before = Some(character);
    }
    shown
}

/// Four significant digits, without an exponent for anything a report shows.
pub fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = usize::try_from(3 - magnitude).unwrap_or(0);
    signed(&format!("{value:.decimals$}"))
}

/// Three significant digits, thousands and millions by their letters from 10,000 on.
pub fn three_digits(value: f64) -> String {
    let (scaled, letter) = match value.abs() {
        1e6.. => (value / 1e6, " M"),
        1e4.. => (value / 1e3, " k"),
        _ => (value, ""),
    };
    if scaled == 0.0 || !scaled.is_finite() {
        return format!("{value}");
    }
    let magnitude = scaled.abs().log10().floor() as i32;
    let decimals = usize::try_from(2 - magnitude).unwrap_or(0);
    signed(&format!("{scaled:.decimals$}{letter}"))
}

/// As [`significant`], without zeros at the end.
pub fn short(value: f64) -> String {
    let shown = significant(value);
    match shown.contains('.') {
        true => shown.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => shown,
    }
}

/// A size in binary units if that is exact, e.g. `64 KiB`, else in bytes.
pub fn size(bytes: u64) -> String {
    match bytes {
        0 => "0 B".to_owned(),
        _ if bytes % (1 << 30) == 0 => format!("{} GiB", bytes >> 30),
        _ if bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        _ if bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// About how many bytes, e.g. `1.5 GiB`.
pub fn about_bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// A time in the units people plan with: in seconds while it is short, then in whole minutes.
pub fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_signs_of_numbers_are_changed() {
        for (text, shown) in [
            ("-0.4 ± 0.3", "−0.4 ± 0.3"),
            ("reproduced: -3.0 % (-4 – -2)", "reproduced: −3.0 % (−4 – −2)"),
            ("seek-module, -, 1-2, --quick -x", "seek-module, -, 1-2, --quick -x"),
        ] {
            assert_eq!(signed(text), shown);
        }
        assert_eq!([significant(-0.4), short(-0.4)], ["−0.4000", "−0.4"]);
    }

    #[test]
    fn four_digits_are_kept() {
        let shown = [1234567.0, 1234.56, 12.3456, 0.98765, 0.0012345, 0.0].map(significant);
        assert_eq!([4.4, 0.35, 40.0, 1500.0].map(short), ["4.4", "0.35", "40", "1500"]);
        assert_eq!(shown, ["1234567", "1235", "12.35", "0.9877", "0.001234", "0"]);
    }

    #[test]
    fn three_digits_are_enough_for_prose() {
        let shown = [1_090_000.0, 14_192.0, 1433.0, 70.41, 0.4567, -0.00912, 0.0].map(three_digits);
        assert_eq!(shown, ["1.09 M", "14.2 k", "1433", "70.4", "0.457", "−0.00912", "0"]);
    }

    #[test]
    fn times_are_rounded_up() {
        assert_eq!(
            [5, 119, 120, 121].map(|s| minutes(Duration::from_secs(s))),
            ["5 s", "119 s", "2 min", "3 min"]
        );
    }

    #[test]
    fn sizes_use_exact_units() {
        let shown = [0, 1, 1000, 1024, 65536, 1 << 20, 3 << 29].map(size);
        assert_eq!(shown, ["0 B", "1 B", "1000 B", "1 KiB", "64 KiB", "1 MiB", "1536 MiB"]);
        assert_eq!([512, 1536, 3 << 29].map(about_bytes), ["512 B", "1.5 KiB", "1.5 GiB"]);
    }
}
