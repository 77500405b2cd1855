//! What is told of a block that was dealt, and of the copies that it could be dealt to.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::unit::UnitId;

/// Blocks that a copy got, and what was known of all copies then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deal {
    /// Of which unit they are.
    pub unit: UnitId,
    /// The number of the first one.
    pub sequence: u64,
    /// How many there are.
    pub blocks: usize,
    /// The copy.
    pub copy: usize,
    /// Blocks that nobody had been dealt, with these.
    pub backlog: usize,
    /// Of each copy, by number.
    pub copies: Vec<CopyState>,
}

/// What a stream knows of a copy that receives: what dealing goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyState {
    /// Blocks that it has and is not done with.
    pub outstanding: usize,
    /// How long it takes for one; `None`: it has not been done with any.
    pub service: Option<Duration>,
    /// How long a block and its acknowledgement are on their way to it; `None`: it is in the same
    /// process, or nobody knows yet.
    pub way: Option<Duration>,
    /// Its process is gone.
    pub is_lost: bool,
}
