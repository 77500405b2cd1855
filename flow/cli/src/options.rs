//! The keys of a table in a pipeline file, taken one by one; any that are left were mistyped.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The location of an error in the file, and its message.
pub(crate) type Fault = (Range<usize>, String);

pub(crate) struct OptionTable<'a> {
    /// Names the owner of the options in messages.
    of: String,
    span: Range<usize>,
    table: DeTable<'a>,
    names: Vec<&'static str>,
}

impl<'a> OptionTable<'a> {
    pub(crate) fn new(of: String, span: Range<usize>, table: DeTable<'a>) -> Self {
        Self { of, span, table, names: Vec::new() }
    }

    /// The owner of the options, as named in messages.
    pub(crate) fn owner(&self) -> &str {
        &self.of
    }

    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    fn take(&mut self, name: &'static str) -> Option<Spanned<DeValue<'a>>> {
        self.names.push(name);
        self.table.remove(name)
    }

    fn with<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        of: impl Fn(&DeValue<'a>) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match of(value.get_ref()) {
            Some(value) => Ok(Some(value)),
            None => Err((value.span(), format!("`{name}` of {} must be {expected}", self.of))),
        }
    }

    pub(crate) fn string(&mut self, name: &'static str) -> Result<Option<String>, Fault> {
        self.with(name, "a string", |value| value.as_str().map(str::to_owned))
    }

    pub(crate) fn required(&mut self, name: &'static str) -> Result<String, Fault> {
        let value = self.string(name)?;
        value.ok_or_else(|| (self.span(), format!("{} needs a value for `{name}`", self.of)))
    }

    /// The same, with the location of the value.
    pub(crate) fn required_at(
        &mut self,
        name: &'static str,
    ) -> Result<(String, Range<usize>), Fault> {
        let at = self.location(name);
        Ok((self.required(name)?, at))
    }

    /// The location of the value of that key, or of the whole table if the key is missing.
    pub(crate) fn location(&self, name: &'static str) -> Range<usize> {
        self.table.get(name).map_or_else(|| self.span(), Spanned::span)
    }

    pub(crate) fn boolean(&mut self, name: &'static str) -> Result<bool, Fault> {
        Ok(self.with(name, "true or false", DeValue::as_bool)?.unwrap_or(false))
    }

    pub(crate) fn number(&mut self, name: &'static str) -> Result<Option<u64>, Fault> {
        self.with(name, "a whole number", |value| number(value))
    }

    pub(crate) fn positive(&mut self, name: &'static str) -> Result<Option<f64>, Fault> {
        self.with(name, "a number above 0", |value| {
            let float = value.as_float().and_then(|float| float.as_str().parse::<f64>().ok());
            let number = float.or_else(|| number(value).map(|number| number as f64))?;
            (number.is_finite() && number > 0.0).then_some(number)
        })
    }

    pub(crate) fn duration(&mut self, name: &'static str) -> Result<Option<Duration>, Fault> {
        self.with(name, "a time such as \"250us\", \"40ms\" or \"1.5s\"", |value| {
            duration(value.as_str()?)
        })
    }

    /// A number of bytes, or a string such as `64KiB`.
    pub(crate) fn size(&mut self, name: &'static str) -> Result<Option<usize>, Fault> {
        self.with(
            name,
            "a size of at least 1: a number of bytes, or such as \"64KiB\", \"8MiB\", \"1GiB\"",
            |value| {
                let size = number(value).or_else(|| size(value.as_str()?))?;
                usize::try_from(size).ok().filter(|size| *size > 0)
            },
        )
    }

    /// Like [`OptionTable::size`], or `Some(None)` for that word.
    pub(crate) fn size_or(
        &mut self,
        name: &'static str,
        word: &str,
    ) -> Result<Option<Option<usize>>, Fault> {
        let is_word =
            self.table.get(name).is_some_and(|value| value.get_ref().as_str() == Some(word));
        if is_word {
            self.take(name);
            return Ok(Some(None));
        }
        let size = self.size(name);
        let size = size.map_err(|(span, why)| (span, format!("{why}, or \"{word}\"")))?;
        Ok(size.map(Some))
    }

    pub(crate) fn strings(&mut self, name: &'static str) -> Result<Option<Vec<String>>, Fault> {
        self.with(name, "a list of strings", |value| {
            value.as_array()?.iter().map(|item| Some(item.get_ref().as_str()?.to_owned())).collect()
        })
    }

    pub(crate) fn numbers(&mut self, name: &'static str) -> Result<Option<Vec<u64>>, Fault> {
        self.with(name, "a list of whole numbers", |value| {
            value.as_array()?.iter().map(|item| number(item.get_ref())).collect()
        })
    }

    /// One of these words.
    pub(crate) fn word<T: Clone>(
        &mut self,
        name: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, Fault> {
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        self.with(name, &format!("one of {}", all.join(", ")), |value| {
            let said = value.as_str()?;
            words.iter().find(|(word, _)| *word == said).map(|(_, means)| means.clone())
        })
    }

    /// The handling of blocks that are errors: `fail`, `skip`, or an output port for them.
    pub(crate) fn on_error(&mut self) -> Result<Option<Rejects>, Fault> {
        let expected = "\"fail\", \"skip\", or a port for the blocks such as { to = \"rejects\" }";
        let rejects = self.with("on_error", expected, |value| match value.as_table() {
            Some(table) => {
                let (key, to) = table.iter().next().filter(|_| table.len() == 1)?;
                let is_port = *key.get_ref() == "to" && is_name(to.get_ref().as_str()?);
                is_port.then(|| to.get_ref().as_str().map(|to| Some(Rejects::To(to.to_owned()))))?
            }
            None => match value.as_str()? {
                "fail" => Some(None),
                "skip" => Some(Some(Rejects::Skip)),
                _ => None,
            },
        });
        Ok(rejects?.flatten())
    }

    /// Fails if any key is left.
    pub(crate) fn finish(self) -> Result<(), Fault> {
        let Some((key, _)) = self.table.iter().next() else { return Ok(()) };
        let names = self.names.join(", ");
        Err((key.span(), format!("{} has no option `{}`; it has {names}", self.of, key.get_ref())))
    }
}

/// The handling of blocks that are errors, if they do not end the unit of work.
pub(crate) enum Rejects {
    Skip,
    /// An output port of that name.
    To(String),
}

/// Whether this can be the name of a filter or a port.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '_';
    !name.is_empty() && name.chars().all(is_plain)
}

fn number(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(&integer.as_str().replace('_', ""), integer.radix()).ok()
}

/// Parses a number of bytes such as `64KiB`.
pub(crate) fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let shift = match text[digits.len()..].trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Parses a time above zero such as `40ms`.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match text[digits.len()..].trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return None,
    };
    let time = Duration::try_from_secs_f64(digits.parse::<f64>().ok()? * unit).ok()?;
    Some(time).filter(|time| !time.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_prefixes() {
        let sizes = ["17", "64KiB", "2 MiB", "1GiB", "3B"].map(size);
        assert_eq!(sizes, [17, 65536, 2 << 20, 1 << 30, 3].map(Some));
        assert_eq!(["", "KiB", "64KB", "-1", "1.5MiB"].map(size), [None; 5]);
        assert_eq!(size("99999999999GiB"), None);
    }

    #[test]
    fn times_have_units() {
        let times = ["250us", "40 ms", "1.5s", "2min"].map(duration);
        let micros = [250, 40_000, 1_500_000, 120_000_000].map(Duration::from_micros);
        assert_eq!(times, micros.map(Some));
        assert_eq!(["", "ms", "40", "-1s", "0s", "1h", "1e300s", "nans"].map(duration), [None; 8]);
    }
}
