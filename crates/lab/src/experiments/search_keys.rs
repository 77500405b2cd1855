//! Numbers of the summary that come with their error, and with the point where they were found.

use crate::outcome::Key;
use crate::search::reduction::Reduction;

/// Names of a number, its standard error, and its point.
pub(super) struct Extreme {
    pub(super) name: &'static str,
    pub(super) standard_error: &'static str,
    pub(super) bytes: &'static str,
    pub(super) skipped: &'static str,
}

impl Extreme {
    pub(super) fn keys(&self, meaning: &'static str, found: Option<&Reduction>) -> Vec<Key> {
        let values = found.map(|reduction| {
            [
                (self.name, meaning, Some(reduction.percent.value)),
                (self.standard_error, "its standard error", reduction.percent.standard_error),
                (self.bytes, "its message size, bytes", Some(reduction.plan.size as f64)),
                (self.skipped, "its N, messages skipped", Some(reduction.plan.skip as f64)),
            ]
        });
        let values = values.into_iter().flatten();
        values.filter_map(|(name, meaning, value)| Key::measured(name, meaning, value)).collect()
    }
}

/// Keys of a reduction, by its name.
macro_rules! keys {
    ($extreme:ident, $name:literal, $meaning:literal, $found:expr) => {
        $extreme {
            name: $name,
            standard_error: concat!($name, "_standard_error"),
            bytes: concat!($name, "_bytes"),
            skipped: concat!($name, "_N"),
        }
        .keys($meaning, $found)
    };
}
pub(super) use keys;
