//! The modes in which a suite runs.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A way to run a suite.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SuiteMode {
    /// Without the library
    Plain,
    /// With the default settings
    Default,
    /// Every connection is attached as early as possible
    Early,
    /// The same, and each connection goes back to TCP after some bytes
    Fallback,
}

impl SuiteMode {
    /// All of them, first the plain one, with which the others are compared.
    pub(crate) const ALL: [Self; 4] = [Self::Plain, Self::Default, Self::Early, Self::Fallback];

    pub(crate) fn is_accelerated(self) -> bool {
        self != Self::Plain
    }

    /// Settings for the library, besides its location.
    pub(crate) fn variables(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Plain | Self::Default => &[],
            Self::Early => &[("SEEKWIRE_THRESHOLD", "0")],
            Self::Fallback => &[("SEEKWIRE_THRESHOLD", "0"), ("SEEKWIRE_FALLBACK_AFTER", "1000")],
        }
    }
}

impl fmt::Display for SuiteMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Plain => "plain",
            Self::Default => "default",
            Self::Early => "early",
            Self::Fallback => "fallback",
        })
    }
}
