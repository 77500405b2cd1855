//! Tables and figures by message size, as an experiment's file describes them.

use serde::Deserialize;
use serde_json::Value;

use crate::plot::Scale;
use crate::text;
use crate::words::words;

/// Message sizes of all tables of the thesis: 1 B to 64 KiB in powers of two.
pub(crate) const SIZES: [u64; 17] = [
    1,
    2,
    4,
    8,
    16,
    32,
    64,
    128,
    256,
    512,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
];

/// Mark of a cell that a note explains.
pub(crate) const DOUBT: &str = "*";

/// A table with a row for each message size, and a figure: a `[[view]]` of an experiment's file.
/// Titles and notes may have words in braces, which depend on the result.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct View {
    /// Where the published numbers are found, if the view is for a comparison with them alone.
    pub(crate) source: Option<String>,
    /// Name of the figure's file, if there is a figure.
    pub(crate) figure: Option<String>,
    #[serde(deserialize_with = "words")]
    pub(crate) title: String,
    #[serde(default, deserialize_with = "words")]
    pub(crate) note: String,
    /// The case, without the message size.
    #[serde(default)]
    pub(crate) case: String,
    pub(crate) metric: String,
    /// A list of the file's `[variants]`.
    pub(crate) variants: String,
    pub(crate) scale: Scale,
    /// Name of the published numbers, if there are any, and a factor for them as a fraction.
    #[serde(default)]
    pub(crate) published: String,
    pub(crate) published_times: Option<[f64; 2]>,
}

/// A table of the parts of one number: a `[[parts]]` of an experiment's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parts {
    /// The same as in a [`View`].
    #[serde(deserialize_with = "words")]
    pub(crate) title: String,
    #[serde(deserialize_with = "words")]
    pub(crate) note: String,
    pub(crate) case: String,
    pub(crate) variants: String,
    /// Metrics, each with its name in the note.
    pub(crate) metrics: Vec<[String; 2]>,
}

/// A column of published numbers: a `[[published.NAME]]` of an experiment's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// For each of [`SIZES`].
    pub(crate) values: [f64; SIZES.len()],
    /// A value that is shown as it was printed, but marked, with the reason.
    pub(crate) doubt: Option<Doubt>,
}

/// A number in doubt.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Doubt {
    /// The message size.
    pub(crate) bytes: u64,
    #[serde(deserialize_with = "words")]
    pub(crate) why: String,
}

impl Column {
    /// With all values multiplied.
    pub(crate) fn scaled(&self, by: f64) -> Self {
        Self { values: self.values.map(|value| value * by), ..self.clone() }
    }

    pub(crate) fn title(&self) -> String {
        format!("thesis: {}", self.name)
    }

    pub(crate) fn cell(&self, index: usize) -> Value {
        match &self.doubt {
            Some(doubt) if doubt.bytes == SIZES[index] => {
                format!("{}{DOUBT}", text::significant(self.values[index])).into()
            }
            _ => self.values[index].into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        assert!(SIZES.iter().enumerate().all(|(power, size)| *size == 1 << power));
    }
}
