//! Reports about dealt blocks, and the copies that they could be dealt to.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::priority::UnitId;

/// Blocks that a copy got, and the state of all copies at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deal {
    /// Their unit.
    pub unit: UnitId,
    /// The number of the first one.
    pub sequence: u64,
    /// Their number.
    pub blocks: usize,
    /// The copy that got them.
    pub copy: usize,
    /// Blocks not dealt to any copy before this deal.
    pub backlog: usize,
    /// The state of each copy, by number.
    pub copies: Vec<CopyState>,
}

/// The state of a receiving copy that dealing uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyState {
    /// Blocks that it has not finished.
    pub outstanding: usize,
    /// How long it takes for a block; `None` if it has not finished any.
    pub service: Option<Duration>,
    /// Round-trip time of a block and its acknowledgement; `None` if it is in the same process, or
    /// the time is not known yet.
    #[serde(rename = "way")]
    pub round_trip: Option<Duration>,
    /// True if its process is gone.
    pub is_lost: bool,
}
