//! Numbers of the summary with their error, and the point where they were found.

use crate::outcome::Key;
use crate::search::reduction::Reduction;

/// Names of a number, its standard error, and its point.
pub(super) struct Names {
    pub(super) name: &'static str,
    pub(super) standard_error: &'static str,
    pub(super) bytes: &'static str,
    pub(super) skipped: &'static str,
    pub(super) tags: &'static str,
}

impl Names {
    /// Of an extreme: the number, its error, and where it was found.
    pub(super) fn with_point(&self, meaning: &'static str, found: Option<&Reduction>) -> Vec<Key> {
        let point = |reduction: &Reduction| {
            [
                (self.bytes, "its message size, bytes", Some(reduction.plan.size as f64)),
                (
                    self.skipped,
                    "its N, messages skipped or unexpected",
                    Some(reduction.plan.skip as f64),
                ),
                (self.tags, "its number of tags", reduction.plan.tags.map(|tags| tags as f64)),
            ]
        };
        let mut keys = self.alone(meaning, found);
        keys.extend(found.into_iter().flat_map(point).filter_map(measured));
        keys
    }

    /// Of a point that is named by the key: the number and its error.
    pub(super) fn alone(&self, meaning: &'static str, found: Option<&Reduction>) -> Vec<Key> {
        let number = |reduction: &Reduction| {
            [
                (self.name, meaning, Some(reduction.percent.value)),
                (self.standard_error, "its standard error", reduction.percent.standard_error),
            ]
        };
        found.into_iter().flat_map(number).filter_map(measured).collect()
    }
}

fn measured((name, meaning, value): (&'static str, &'static str, Option<f64>)) -> Option<Key> {
    Key::measured(name, meaning, value)
}

/// The names that belong to a number's name.
macro_rules! names {
    ($name:literal) => {
        $crate::experiments::search_keys::Names {
            name: $name,
            standard_error: concat!($name, "_standard_error"),
            bytes: concat!($name, "_bytes"),
            skipped: concat!($name, "_N"),
            tags: concat!($name, "_tags"),
        }
    };
}
pub(super) use names;
