//! Numbers with units.

/// Splits a text into a number and the unit that follows it. Blanks around both are left out.
pub(crate) fn number_and_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let number = text.trim_end_matches(|letter: char| !letter.is_ascii_digit() && letter != '.');
    (number, text[number.len()..].trim_start())
}
