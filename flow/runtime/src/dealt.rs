//! Reports the decisions about dealt blocks to an observer.

use std::time::Instant;

use crate::deal::{CopyState, Deal};
use crate::hand::Hand;
use crate::lanes::{Event, State, Taken};
use crate::remote::distant::Distant;
use crate::stream::Stream;

impl State {
    /// The state of each copy.
    pub(crate) fn copies(&self) -> Vec<CopyState> {
        let one = |copy: usize| CopyState {
            way: self.distant[copy].as_ref().and_then(Distant::round_trip),
            ..self.dealer.copy_state(copy)
        };
        (0..self.consumers.len()).map(one).collect()
    }
}

impl Stream {
    /// Takes the next item for a copy, and reports the deal to the observer.
    pub(crate) fn take_next(
        &self,
        state: &mut State,
        copy: usize,
        hand: &mut Hand,
    ) -> Option<Taken> {
        let is_redealt = self.counts_undone();
        if self.observer.is_none() {
            return state.take(copy, is_redealt, hand);
        }
        let copies = state.copies();
        let backlog = state.lanes.values().map(|lane| lane.undealt.len()).sum();
        let taken = state.take(copy, is_redealt, hand);
        if let (Some(Taken::Blocks), Some(rank)) = (&taken, hand.rank()) {
            let sequence = hand.blocks.front().map_or(0, |block| block.sequence);
            let deal =
                Deal { unit: rank.unit, sequence, blocks: hand.taken(), copy, backlog, copies };
            state.to_tell.push((Event::Dealt(deal), Instant::now()));
        }
        taken
    }
}
