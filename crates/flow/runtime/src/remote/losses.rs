//! Processes that are lost: who decides it, and what it means.

use std::sync::Arc;

use super::message::Message;
use super::node::{FRONT, Node};
use crate::report::Failure;

impl Node {
    pub(super) fn lost_link(&self, rank: u32, why: &str) {
        {
            let state = self.state();
            if state.is_finished || state.is_lost[rank as usize] {
                return;
            }
        }
        if self.is_front() {
            self.declare_lost(rank, why);
        } else if rank == FRONT {
            self.lose(FRONT, why);
        } else {
            self.to_front(Message::Lost { rank, why: why.to_owned() });
        }
    }

    /// At the front: one process says that it has lost another.
    pub(super) fn judge(&self, one: u32, other: u32, why: &str) {
        let is_known = |rank: u32| self.state().is_lost.get(rank as usize).copied();
        if is_known(one) != Some(false) || is_known(other) != Some(false) || other == FRONT {
            return;
        }
        if self.state().is_finished {
            // Who has heard of that earlier has gone earlier.
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

    /// At the front: that process is given up by all.
    fn declare_lost(&self, rank: u32, why: &str) {
        let dead = Message::Dead { rank, why: why.to_owned() };
        self.others().for_each(|link| link.send(dead.clone()));
        self.lose(rank, why);
    }

    pub(super) fn lose(&self, rank: u32, why: &str) {
        let failure = Failure::Lost {
            rank,
            host: self.hosts.get(rank as usize).map_or_else(|| "?".into(), Arc::clone),
            why: why.into(),
        };
        let mut state = self.state();
        let Some(is_lost) = state.is_lost.get_mut(rank as usize) else { return };
        if std::mem::replace(is_lost, true) {
            return;
        }
        let is_left = |of: &Vec<u32>| of.iter().any(|rank| !state.is_lost[*rank as usize]);
        let goes_on = rank != self.rank
            && self.can_lose.get(rank as usize) == Some(&true)
            && self.needed.iter().all(is_left);
        match goes_on {
            true => state.losses.push(failure.clone()),
            false => {
                state.broken.get_or_insert_with(|| failure.clone());
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
            if self.is_front() {
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
