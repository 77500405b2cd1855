//! The keys of a table in a pipeline file, taken one by one; any that are left were mistyped.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

use seekwire_values::{Size, SizeUnit, Time, TimeUnit};
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

    /// A time, or a number of seconds; either above zero.
    pub(crate) fn duration(&mut self, name: &'static str) -> Result<Option<Duration>, Fault> {
        self.with(name, "a time such as \"250us\", \"40ms\" or \"1.5s\"", |value| {
            let time = Time::parse(&written(value)?, TimeUnit::Second)?.get();
            Some(time).filter(|time| !time.is_zero())
        })
    }

    /// A number of bytes, or a string such as `64KiB`; either above zero.
    pub(crate) fn size(&mut self, name: &'static str) -> Result<Option<usize>, Fault> {
        self.with(
            name,
            "a size of at least 1: a number of bytes, or such as \"64KiB\", \"8MiB\", \"1GiB\"",
            |value| {
                let size = Size::parse(&written(value)?, SizeUnit::Byte)?;
                usize::try_from(size.get()).ok().filter(|size| *size > 0)
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

/// A string, or a number as one would write it in a string.
fn written<'v>(value: &'v DeValue<'_>) -> Option<Cow<'v, str>> {
    let float = || value.as_float().map(|float| Cow::Borrowed(float.as_str()));
    let number = || number(value).map(|number| Cow::Owned(number.to_string()));
    value.as_str().map(Cow::Borrowed).or_else(number).or_else(float)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of the option `it` by `of`, if it is accepted.
    fn read<T>(text: &str, of: fn(&mut OptionTable<'_>) -> Result<Option<T>, Fault>) -> Option<T> {
        let source = format!("it = {text}");
        let table = DeTable::parse(&source).unwrap().into_inner();
        of(&mut OptionTable::new("the test".to_owned(), 0..0, table)).ok()?
    }

    #[test]
    fn sizes_are_numbers_or_strings_with_units() {
        let size = |text| read(text, |options| options.size("it"));
        let sizes = ["17", "64_000", "\"64KiB\"", "\"2 MiB\"", "\"3B\""].map(size);
        assert_eq!(sizes, [17, 64_000, 65536, 2 << 20, 3].map(Some));
        assert_eq!(["0", "-1", "1.5", "\"64KB\"", "\"\"", "true"].map(size), [None; 6]);
    }

    #[test]
    fn times_are_numbers_or_strings_with_units() {
        let time = |text| read(text, |options| options.duration("it"));
        let times = ["2", "1.5", "\"250us\"", "\"40 ms\"", "\"2min\""].map(time);
        let micros = [2_000_000, 1_500_000, 250, 40_000, 120_000_000].map(Duration::from_micros);
        assert_eq!(times, micros.map(Some));
        assert_eq!(["0", "-1", "inf", "\"0s\"", "\"fast\"", "[1]"].map(time), [None; 6]);
    }
}
