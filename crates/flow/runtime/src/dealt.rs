//! What was decided when a block was dealt, for those who want to know.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::hand::Hand;
use crate::lanes::{State, Taken};
use crate::remote::distant::Distant;
use crate::stream::Stream;
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

impl State {
    /// Of each copy.
    pub(crate) fn copies(&self) -> Vec<CopyState> {
        let one = |copy: usize| CopyState {
            way: self.distant[copy].as_ref().and_then(Distant::round_trip),
            ..self.dealer.copy_state(copy)
        };
        (0..self.consumers.len()).map(one).collect()
    }
}

impl Stream {
    /// What a copy is to do next, of which those who watch are told.
    pub(crate) fn take_next(
        &self,
        state: &mut State,
        copy: usize,
        hand: &mut Hand,
    ) -> Option<Taken> {
        let is_redealt = self.counts_undone();
        let Some(observer) = self.observer.as_ref().map(Arc::clone) else {
            return state.take(copy, is_redealt, hand);
        };
        let copies = state.copies();
        let backlog = state.lanes.values().map(|lane| lane.undealt.len()).sum();
        let taken = state.take(copy, is_redealt, hand);
        if let (Some(Taken::Blocks), Some(rank)) = (&taken, hand.rank()) {
            let sequence = hand.blocks.front().map_or(0, |block| block.sequence);
            let deal =
                Deal { unit: rank.unit, sequence, blocks: hand.taken(), copy, backlog, copies };
            observer.dealt(self.number(), &deal, Instant::now());
        }
        taken
    }
}
