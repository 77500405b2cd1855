//! Names of cases, taken apart by a pattern such as `TCP, {message}, N = {N}`.

use anyhow::{Result, bail};

/// A pattern: text, and names in braces that stand for any text.
#[derive(Debug)]
pub(super) struct Pattern<'a> {
    /// Text before the first name.
    head: &'a str,
    /// Names, each with the text that follows it.
    parts: Vec<(&'a str, &'a str)>,
}

impl<'a> Pattern<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self> {
        let (head, mut rest) = text.split_once('{').unwrap_or((text, ""));
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let Some((name, after)) = rest.split_once('}') else {
                bail!("a name of `{text}` is not closed");
            };
            let (literal, next) = after.split_once('{').unwrap_or((after, ""));
            parts.push((name, literal));
            rest = next;
        }
        if parts.is_empty() {
            bail!("`{text}` has no name in braces");
        }
        Ok(Self { head, parts })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.parts.iter().map(|(name, _)| *name)
    }

    /// The values of the names in `case`, in their order, if it matches this pattern. Each is as
    /// short as possible.
    pub(super) fn values<'c>(&self, case: &'c str) -> Option<Vec<&'c str>> {
        let mut rest = case.strip_prefix(self.head)?;
        let mut values = Vec::new();
        for (index, (_, literal)) in self.parts.iter().enumerate() {
            let is_last = index + 1 == self.parts.len();
            let (value, after) = match is_last {
                true => (rest.strip_suffix(literal)?, ""),
                false => rest.split_once(literal)?,
            };
            values.push(value);
            rest = after;
        }
        Some(values)
    }
}

/// Magnitude of the thing that `text` names: `64 KiB`, `3 pairs`; 0 if it begins with no number.
pub(super) fn magnitude(text: &str) -> f64 {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let Ok(number) = text[..digits].parse::<f64>() else { return 0.0 };
    let unit = text[digits..].trim_start();
    let power = ["KiB", "MiB", "GiB"].iter().position(|prefix| unit.starts_with(prefix));
    number * 1024f64.powi(power.map_or(0, |power| power as i32 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_what_lies_between_the_text() {
        let pattern = Pattern::parse("TCP, {message} in pieces of {piece}, N = 8").unwrap();
        assert_eq!(pattern.names().collect::<Vec<_>>(), ["message", "piece"]);
        let values = pattern.values("TCP, 4 KiB in pieces of 64 B, N = 8");
        assert_eq!(values.unwrap(), ["4 KiB", "64 B"]);
        assert_eq!(pattern.values("ring, 4 KiB in pieces of 64 B, N = 8"), None);
        assert_eq!(pattern.values("TCP, 4 KiB in pieces of 64 B, N = 9"), None);
        let whole = Pattern::parse("{program}").unwrap();
        assert_eq!(whole.values("http, a, b").unwrap(), ["http, a, b"]);
        assert!(Pattern::parse("1 pair").is_err() && Pattern::parse("{a").is_err());
    }

    #[test]
    fn sizes_are_compared_as_numbers() {
        let sizes = ["64 B", "1460 B", "4 KiB", "1 MiB", "2 GiB"].map(magnitude);
        assert!(sizes.is_sorted(), "{sizes:?}");
        assert_eq!(["2 pairs", "16", "http", "0.5"].map(magnitude), [2.0, 16.0, 0.0, 0.5]);
    }
}
