//! Late copies, if some are in other processes than the one that deals.
//!
//! A copy elsewhere does not look for something to do, and a process that was stopped answers
//! nothing. So the owner of the stream has a thread that looks when blocks become late: it gives a
//! late block to another copy, here or elsewhere, calls back blocks that are not begun (recall),
//! and sends no more to late copies. A process that does not even answer that is considered
//! stopped, and hedging its blocks is not charged to the budget.
//!
//! For the same reason the owner ends units for copies elsewhere: when they report that they are
//! done, or without them if another copy has finished their block, or if they take far longer than
//! the end of a unit usually does. Only the owner decides it, so that no process counts a copy
//! twice. An idempotent filter sends nothing at the end, so no output has to be awaited.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Stream;
use super::state::StreamState;
use crate::policy::hedging::{LEAST, Which};
use crate::policy::priority::UnitId;
use crate::stream::end_tracker::EndedForCopy;
use crate::stream::remote_copy::RemoteCopy;

/// Stands for the thread, in place of the number of a copy.
const MONITOR: usize = usize::MAX;

/// How soon the thread looks again for late blocks that no copy could take.
const AGAIN: Duration = Duration::from_millis(10);

impl Stream {
    /// Ends a unit for a copy elsewhere.
    pub(super) fn end_elsewhere(state: &mut StreamState, copy: usize, unit: UnitId) {
        let StreamState { remote_copies, hedges, .. } = state;
        let Some(one) = &mut remote_copies[copy] else { return };
        let Some(hedges) = hedges else { return one.end(unit) };
        if one.is_stuck() {
            one.ended_for(unit);
            hedges.ends.ended.push(EndedForCopy { copy, process: Some(one.process()), unit });
        } else {
            one.end(unit);
            hedges.ends.announced.insert((unit, copy), Instant::now());
        }
    }

    /// Makes the thread look, if it is not about to.
    pub(super) fn watch_all(&self, state: &mut StreamState) {
        let (Some(monitor), Some(hedges)) = (&self.monitor, &state.hedges) else { return };
        if hedges.is_looking {
            return;
        }
        let now = Instant::now();
        let is_at_once = !hedges.ends.ended.is_empty() || state.has_over_for_beaten();
        let next = if is_at_once { Some(now) } else { state.next_due(now, |_| true) };
        let Some(next) = next else { return };
        // It need not look more often if nothing can be done.
        let until = next.max(now + LEAST);
        let is_watched = hedges.watch.is_some_and(|(_, at)| at > now && at <= until);
        if is_at_once || !is_watched {
            state.to_ring.push(Arc::clone(monitor));
            if let Some(hedges) = &mut state.hedges {
                hedges.watch = Some((MONITOR, until));
            }
        }
    }

    /// Looks for late blocks and units. Returns the ends to announce, and when to look again.
    pub(crate) fn look(&self) -> (Vec<EndedForCopy>, Option<Instant>) {
        let mut state = self.state();
        let state = &mut *state;
        let now = Instant::now();
        if let Some(hedges) = &mut state.hedges {
            hedges.is_looking = true;
        }
        self.feed(state);
        while self.hedge_elsewhere(state, now) {}
        self.end_late(state, now);
        while let Some((copy, unit)) = state.end_for_beaten() {
            if let Some(hedges) = &mut state.hedges {
                hedges.ends.ended.push(EndedForCopy { copy, process: None, unit });
            }
        }
        state.remote_copies.iter_mut().flatten().for_each(RemoteCopy::flush);
        let again = || state.next_due(now, |_| true).map(|_| now + AGAIN);
        let next = state.next_due(now, |at| at > now).or_else(again);
        let Some(hedges) = &mut state.hedges else { return (Vec::new(), None) };
        hedges.is_looking = false;
        hedges.watch = next.map(|at| (MONITOR, at));
        (std::mem::take(&mut hedges.ends.ended), next)
    }

    /// Gives a late block to another copy. False if there is none, no copy can take it, or
    /// something else waits.
    fn hedge_elsewhere(&self, state: &mut StreamState, now: Instant) -> bool {
        if state.queues.values().any(|queue| !queue.undealt.is_empty()) {
            return false;
        }
        for to in state.free(now) {
            let StreamState { hedges, remote_copies, .. } = &mut *state;
            let Some(hedges) = hedges else { return false };
            if remote_copies[to].is_none() {
                if hedges.has_any_for(to, remote_copies, now) {
                    // It takes the block itself, and makes this thread look again.
                    state.wake(to);
                    return false;
                }
                continue;
            }
            if self.send_late(state, to, Which::Any) {
                return true;
            }
        }
        false
    }

    /// Ends units without the copies that are too late to finish them.
    fn end_late(&self, state: &mut StreamState, now: Instant) {
        let StreamState { hedges, remote_copies, .. } = state;
        let Some(hedges) = hedges else { return };
        let late: Vec<(UnitId, usize)> = hedges
            .ends
            .due(|copy| hedges.policy.usual(copy), remote_copies)
            .filter(|(_, _, due)| now >= *due)
            .map(|(unit, copy, _)| (unit, copy))
            .collect();
        for (unit, copy) in late {
            hedges.ends.announced.remove(&(unit, copy));
            let Some(one) = &mut remote_copies[copy] else { continue };
            one.ended_for(unit);
            hedges.ends.ended.push(EndedForCopy { copy, process: Some(one.process()), unit });
        }
    }
}

impl StreamState {
    /// A copy is lost: no end is awaited from it.
    pub(super) fn lose_ends(&mut self, copy: usize) {
        if let Some(hedges) = &mut self.hedges {
            hedges.ends.announced.retain(|(_, of), _| *of != copy);
        }
    }

    /// Idle copies, in the order in which they would finish a block. Not those in a process in
    /// which another copy is late: the whole process may be.
    fn free(&self, now: Instant) -> Vec<usize> {
        let Some(hedges) = &self.hedges else { return Vec::new() };
        let is_late = |(copy, one): (usize, &Option<RemoteCopy>)| {
            let one = one.as_ref().filter(|one| hedges.is_late(copy, one, now))?;
            Some(one.process())
        };
        let late: Vec<u32> = self.remote_copies.iter().enumerate().filter_map(is_late).collect();
        let is_well = |copy: &usize| {
            self.remote_copies[*copy].as_ref().is_none_or(|one| !late.contains(&one.process()))
        };
        let mut free: Vec<usize> = self.all_free().filter(is_well).collect();
        free.sort_by_key(|copy| self.dealer.until_done(*copy, self.round_trip(*copy)));
        free
    }

    /// When the next block or end becomes late that something can be done about.
    fn next_due(&self, now: Instant, is_wanted: impl Fn(Instant) -> bool) -> Option<Instant> {
        let hedges = self.hedges.as_ref()?;
        let ends = hedges
            .ends
            .due(|copy| hedges.policy.usual(copy), &self.remote_copies)
            .map(|(.., due)| due);
        let ends = ends.filter(|due| is_wanted(*due)).min();
        if self.all_free().next().is_none() {
            return ends;
        }
        if self.queues.values().any(|queue| !queue.undealt.is_empty()) {
            // It was left to others, which are no longer expected to be sooner once they are late.
            let late = hedges.late_at(&self.remote_copies).filter(|due| is_wanted(*due));
            return late.chain(ends).min();
        }
        let blocks = hedges.alone(&self.remote_copies, now).map(|one| one.due);
        blocks.filter(|due| is_wanted(*due)).chain(ends).min()
    }

    /// Whether a unit has ended for a copy here that is late with a block that is no longer
    /// awaited.
    fn has_over_for_beaten(&self) -> bool {
        let Some(hedges) = &self.hedges else { return false };
        let mut beaten = (0..self.consumers.len()).filter(|copy| hedges.has_beaten(*copy));
        beaten.any(|copy| {
            self.queues.values().any(|queue| !queue.notified.has(copy) && queue.is_over(true))
        })
    }
}

#[cfg(test)]
#[path = "stragglers_tests.rs"]
mod tests;
