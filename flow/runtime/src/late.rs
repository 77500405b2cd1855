//! Late copies, if some are in other processes than the one that deals.
//!
//! A copy elsewhere does not look for something to do, and a process that was stopped answers
//! nothing. So the home of the stream has a thread that looks when blocks become late: it gives a
//! late block to another copy, here or elsewhere, calls back blocks that are not begun (recall),
//! and sends no more to late copies. A process that does not even answer that is considered
//! stopped, and hedging its blocks is not charged to the budget.
//!
//! For the same reason the home ends units for copies elsewhere: when they report that they are
//! done, or without them if another copy has finished their block, or if they take far longer than
//! the end of a unit usually does. Only the home decides it, so that no process counts a copy
//! twice. An idempotent filter sends nothing at the end, so no output has to be awaited.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::hedging::{Hedges, LEAST, Which, keep, usual_of};
use crate::lanes::State;
use crate::merge;
use crate::panics::caught;
use crate::remote::distant::Distant;
use crate::remote::link::Link;
use crate::remote::message::{Garbled, Message};
use crate::report::Failure;
use crate::shared::Shared;
use crate::stream::Stream;
use crate::unit::UnitId;
use crate::wakeup::Wakeup;

/// Stands for the thread, in place of the number of a copy.
const LOOKER: usize = usize::MAX;

/// How soon the thread looks again for late blocks that no copy could take.
const AGAIN: Duration = Duration::from_millis(10);

/// The end of a unit takes too long if it takes this many times as long as usual: giving up a copy
/// that would soon be done gains nothing.
const STALL: u32 = 8;

/// A unit that has ended for a copy, which is done with it or no longer awaited.
pub(crate) struct Ended {
    copy: usize,
    /// The process of the copy; `None` if it is here.
    process: Option<u32>,
    unit: UnitId,
}

/// The ends of units, for copies elsewhere.
#[derive(Default)]
pub(crate) struct Ends {
    /// When the end of a unit was announced to copies that have not yet reported that they are
    /// done.
    told: BTreeMap<(UnitId, usize), Instant>,
    /// How long such reports took.
    took: VecDeque<Duration>,
    /// Ends to announce to the others.
    ended: Vec<Ended>,
}

impl Ends {
    /// The unit has ended for all copies.
    pub(crate) fn forget(&mut self, unit: UnitId) {
        self.told.retain(|(of, _), _| *of != unit);
        self.ended.retain(|one| one.unit != unit);
    }

    /// When each copy will be late with the end of a unit, if that can be known.
    fn due<'s>(
        &'s self,
        hedges: &'s Hedges,
        distant: &'s [Option<Distant>],
    ) -> impl Iterator<Item = (UnitId, usize, Instant)> + 's {
        let usual = usual_of(self.took.iter()).map(|usual| usual.saturating_mul(STALL));
        self.told.iter().filter_map(move |((unit, copy), at)| {
            let own = distant[*copy].as_ref()?;
            let is_stuck = |one: &Distant| one.process() == own.process() && one.is_stuck();
            // If another copy of its process is stuck, this one may also be.
            let usual = match distant.iter().flatten().any(is_stuck) {
                true => hedges.usual(*copy).or(usual)?,
                false => usual?,
            };
            Some((*unit, *copy, *at + usual))
        })
    }
}

impl Stream {
    /// Ends a unit for a copy elsewhere.
    pub(crate) fn end_elsewhere(state: &mut State, copy: usize, unit: UnitId) {
        let State { distant, hedges, .. } = state;
        let Some(one) = &mut distant[copy] else { return };
        let Some(hedges) = hedges else { return one.end(unit) };
        if one.is_stuck() {
            one.ended_for(unit);
            hedges.ends.ended.push(Ended { copy, process: Some(one.process()), unit });
        } else {
            one.end(unit);
            hedges.ends.told.insert((unit, copy), Instant::now());
        }
    }

    /// A process reports that a copy there is done with a unit.
    pub(crate) fn through(&self, (process, copy): (u32, u16), unit: UnitId) -> Result<(), Garbled> {
        let mut state = self.state();
        let copy = usize::from(copy);
        state.distant(process, copy)?;
        let Some(hedges) = &mut state.hedges else {
            return Err(Garbled::Unexpected("the end of a unit at a filter that is not hedged"));
        };
        // Unless the unit was ended without it.
        if let Some(at) = hedges.ends.told.remove(&(unit, copy)) {
            keep(&mut hedges.ends.took, at.elapsed());
            hedges.ends.ended.push(Ended { copy, process: Some(process), unit });
        }
        self.watch_all(&mut state);
        Ok(())
    }

    /// Makes the thread look, if it is not about to.
    pub(crate) fn watch_all(&self, state: &mut State) {
        let (Some(looker), Some(hedges)) = (&self.looker, &state.hedges) else { return };
        if hedges.is_looking {
            return;
        }
        let now = Instant::now();
        let is_at_once = !hedges.ends.ended.is_empty() || state.has_over_for_beaten();
        let next = if is_at_once { Some(now) } else { state.next_due(|_| true) };
        let Some(next) = next else { return };
        // It need not look more often if nothing can be done.
        let until = next.max(now + LEAST);
        let is_watched = hedges.watch.is_some_and(|(_, at)| at > now && at <= until);
        if is_at_once || !is_watched {
            state.to_ring.push(Arc::clone(looker));
            if let Some(hedges) = &mut state.hedges {
                hedges.watch = Some((LOOKER, until));
            }
        }
    }

    /// Looks for late blocks and units. Returns the ends to announce, and when to look again.
    fn look(&self) -> (Vec<Ended>, Option<Instant>) {
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
                hedges.ends.ended.push(Ended { copy, process: None, unit });
            }
        }
        state.distant.iter_mut().flatten().for_each(Distant::flush);
        let again = || state.next_due(|_| true).map(|_| now + AGAIN);
        let next = state.next_due(|at| at > now).or_else(again);
        let Some(hedges) = &mut state.hedges else { return (Vec::new(), None) };
        hedges.is_looking = false;
        hedges.watch = next.map(|at| (LOOKER, at));
        (std::mem::take(&mut hedges.ends.ended), next)
    }

    /// Gives a late block to another copy. False if there is none, no copy can take it, or
    /// something else waits.
    fn hedge_elsewhere(&self, state: &mut State, now: Instant) -> bool {
        if state.lanes.values().any(|lane| !lane.undealt.is_empty()) {
            return false;
        }
        for to in state.free(now) {
            let State { hedges, distant, .. } = &mut *state;
            let Some(hedges) = hedges else { return false };
            if distant[to].is_none() {
                if hedges.has_any_for(to, distant, now) {
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
    fn end_late(&self, state: &mut State, now: Instant) {
        let State { hedges, distant, .. } = state;
        let Some(hedges) = hedges else { return };
        let late: Vec<(UnitId, usize)> = hedges
            .ends
            .due(hedges, distant)
            .filter(|(_, _, due)| now >= *due)
            .map(|(unit, copy, _)| (unit, copy))
            .collect();
        for (unit, copy) in late {
            hedges.ends.told.remove(&(unit, copy));
            let Some(one) = &mut distant[copy] else { continue };
            one.ended_for(unit);
            hedges.ends.ended.push(Ended { copy, process: Some(one.process()), unit });
        }
    }
}

impl State {
    /// A copy is lost: no end is awaited from it.
    pub(crate) fn lose_ends(&mut self, copy: usize) {
        if let Some(hedges) = &mut self.hedges {
            hedges.ends.told.retain(|(_, of), _| *of != copy);
        }
    }

    /// Idle copies, in the order in which they would finish a block. Not those in a process in
    /// which another copy is late: the whole process may be.
    fn free(&self, now: Instant) -> Vec<usize> {
        let Some(hedges) = &self.hedges else { return Vec::new() };
        let is_late = |(copy, one): (usize, &Option<Distant>)| {
            let one = one.as_ref().filter(|one| hedges.is_late(copy, one, now))?;
            Some(one.process())
        };
        let late: Vec<u32> = self.distant.iter().enumerate().filter_map(is_late).collect();
        let is_well = |copy: &usize| {
            self.distant[*copy].as_ref().is_none_or(|one| !late.contains(&one.process()))
        };
        let mut free: Vec<usize> = self.all_free().filter(is_well).collect();
        free.sort_by_key(|copy| self.dealer.until_done(*copy, self.way(*copy)));
        free
    }

    /// When the next block or end becomes late that something can be done about.
    fn next_due(&self, is_wanted: impl Fn(Instant) -> bool) -> Option<Instant> {
        let hedges = self.hedges.as_ref()?;
        let ends = hedges.ends.due(hedges, &self.distant).map(|(.., due)| due);
        let ends = ends.filter(|due| is_wanted(*due)).min();
        if self.all_free().next().is_none() {
            return ends;
        }
        if self.lanes.values().any(|lane| !lane.undealt.is_empty()) {
            // It was left to others, which are no longer expected to be sooner once they are late.
            let late = hedges.late_at(&self.distant).filter(|due| is_wanted(*due));
            return late.chain(ends).min();
        }
        let blocks = hedges.alone(&self.distant).map(|one| one.due);
        blocks.filter(|due| is_wanted(*due)).chain(ends).min()
    }

    /// Whether a unit has ended for a copy here that is late with a block that is no longer
    /// awaited.
    fn has_over_for_beaten(&self) -> bool {
        let Some(hedges) = &self.hedges else { return false };
        let mut beaten = (0..self.consumers.len()).filter(|copy| hedges.has_beaten(*copy));
        beaten
            .any(|copy| self.lanes.values().any(|lane| !lane.told.has(copy) && lane.is_over(true)))
    }
}

/// A stream from the filter that is looked after.
pub(crate) enum Next {
    Here(Arc<Stream>),
    /// Its number, and the link to its home.
    Elsewhere(u16, Arc<Link>),
}

/// Looks after a stream whose home is here.
pub(crate) struct Looker {
    pub(crate) stream: Arc<Stream>,
    /// The filter whose copies may be late.
    pub(crate) filter: Arc<str>,
    /// The streams that its copies send to.
    pub(crate) next: Vec<Next>,
    pub(crate) shared: Arc<Shared>,
}

impl Looker {
    /// Runs until the pipeline stops, which rings it.
    pub(crate) fn run(self, own: &Wakeup) {
        let Err(error) = caught(|| self.look_after(own)) else { return };
        // Perhaps freeing the memory of a block failed. Without this thread nothing would end
        // units.
        let error: Arc<str> =
            format!("its late blocks are not handled any more: the thread {error}").into();
        self.shared.break_for(|unit| Failure::Filter {
            unit,
            filter: Arc::clone(&self.filter),
            copy: 0,
            host: self.shared.host(),
            block: None,
            origin: None,
            error: Arc::clone(&error),
        });
    }

    fn look_after(&self, own: &Wakeup) {
        while !self.shared.is_stopped.load(Ordering::SeqCst) {
            let (ended, next) = self.stream.look();
            ended.iter().for_each(|one| self.end(one));
            match next {
                Some(at) => own.wait_for(at.saturating_duration_since(Instant::now())),
                None => own.wait(),
            }
        }
    }

    /// Acts as if that copy were done with the unit.
    fn end(&self, Ended { copy, process, unit }: &Ended) {
        let Some(open) = self.shared.units.find(*unit) else { return };
        let (unit, group) = (*unit, merge::last_of(*copy));
        for next in &self.next {
            match next {
                Next::Here(stream) => {
                    stream.begin_last(&open, *copy);
                    stream.end(&open, *copy, group);
                }
                // After the output of that unit that copies here have sent there.
                Next::Elsewhere(stream, link) => {
                    let from = (*stream, *copy as u16);
                    link.send_of(open.rank, Message::Last { from, unit });
                    link.send_of(open.rank, Message::SentAll { from, unit, group });
                }
            }
        }
        match (process, self.shared.node.get()) {
            (Some(process), Some(node)) => node.copy_has_ended(unit, *process),
            _ => self.shared.copy_is_done(unit),
        }
    }
}

#[cfg(test)]
#[path = "late_tests.rs"]
mod tests;
