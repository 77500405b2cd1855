//! Processes that are lost: the decision, and its consequences.

use std::sync::Arc;

use super::message::Message;
use super::node::{COORDINATOR, Node, NodeState};
use crate::stream::report::Failure;

impl Node {
    pub(super) fn lost_link(&self, rank: u32, why: &str) {
        {
            let state = self.state();
            if state.is_finished || state.is_lost[rank as usize] {
                return;
            }
        }
        if self.is_coordinator() {
            self.declare_lost(rank, why);
        } else if rank == COORDINATOR {
            self.lose(COORDINATOR, why);
        } else {
            self.to_coordinator(Message::Lost { rank, why: why.to_owned() });
        }
    }

    /// At the coordinator: one process reports that it has lost another.
    pub(super) fn judge(&self, one: u32, other: u32, why: &str) {
        let is_known = |rank: u32| self.state().is_lost.get(rank as usize).copied();
        if is_known(one) != Some(false) || is_known(other) != Some(false) || other == COORDINATOR {
            return;
        }
        if self.state().is_finished {
            // Processes that learned of the end earlier have left earlier.
            return;
        }
        let can_lose = |rank: u32| self.can_lose[rank as usize];
        let (gone, by) = match (can_lose(other), can_lose(one)) {
            (false, true) => (one, other),
            _ => (other, one),
        };
        let host = &self.hosts[by as usize];
        self.declare_lost(gone, &format!("rank {by} on {host} cannot reach it: {why}"));
    }

    /// At the coordinator: all processes give up that one.
    fn declare_lost(&self, rank: u32, why: &str) {
        {
            // A process that learns that the pipeline is broken ends at once, and must not count as
            // the cause.
            let mut state = self.state();
            if !self.goes_on_without(&state, rank) {
                state.broken.get_or_insert_with(|| self.failure(rank, why));
            }
        }
        let dead = Message::Dead { rank, why: why.to_owned() };
        self.others().for_each(|link| link.send(dead.clone()));
        self.lose(rank, why);
    }

    fn failure(&self, rank: u32, why: &str) -> Failure {
        Failure::Lost {
            rank,
            host: self.hosts.get(rank as usize).map_or_else(|| "?".into(), Arc::clone),
            why: why.into(),
        }
    }

    /// Whether the pipeline can also do without that process.
    fn goes_on_without(&self, state: &NodeState, rank: u32) -> bool {
        let is_left = |of: &Vec<u32>| {
            of.iter().any(|other| *other != rank && !state.is_lost[*other as usize])
        };
        rank != self.rank
            && self.can_lose.get(rank as usize) == Some(&true)
            && self.needed.iter().all(is_left)
    }

    pub(super) fn lose(&self, rank: u32, why: &str) {
        let mut failure = self.failure(rank, why);
        let mut state = self.state();
        let Some(is_lost) = state.is_lost.get_mut(rank as usize) else { return };
        if std::mem::replace(is_lost, true) {
            return;
        }
        let goes_on = self.goes_on_without(&state, rank);
        match goes_on {
            true => state.losses.push(failure.clone()),
            false => {
                failure = state.broken.get_or_insert(failure).clone();
            }
        }
        drop(state);
        self.change.notify_all();
        if let Some(link) = &self.links[rank as usize] {
            link.give_up();
        }
        let Ok(shared) = self.shared() else { return };
        if goes_on {
            shared.streams.iter().for_each(|stream| stream.lose(rank));
            if self.is_coordinator() {
                for unit in shared.units.process_is_lost(rank) {
                    self.tell_of_success(unit);
                }
            }
        } else {
            for unit in shared.units.all() {
                shared.end_here(unit, failure.clone());
            }
        }
    }
}
