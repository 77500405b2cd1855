//! Numbers of units of work, and the order in which these are worked on.

use std::fmt;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Numbers the units of a running pipeline from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnitId(pub(crate) u64);

impl UnitId {
    /// The number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The more urgent rank is the smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Priority {
    has_no_deadline: bool,
    pub(crate) deadline: Option<Instant>,
    pub(crate) unit: UnitId,
}

impl Priority {
    pub(crate) fn new(deadline: Option<Instant>, unit: UnitId) -> Self {
        Self { has_no_deadline: deadline.is_none(), deadline, unit }
    }
}
