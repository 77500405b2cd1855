//! Units of work: requests to a pipeline, one after the other or several at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::policy::guarantee::{Guarantee, Keeper};
use crate::policy::priority::{Priority, UnitId};
use crate::stream::report::{Failure, UnitReport};

/// A unit of work to submit.
#[derive(Clone, Debug, Default)]
pub struct Unit {
    pub(crate) argument: String,
    pub(crate) deadline: Option<Instant>,
    pub(crate) expires: bool,
}

impl Unit {
    /// `argument` is for the sources.
    #[must_use]
    pub fn new(argument: impl Into<String>) -> Self {
        Self { argument: argument.into(), deadline: None, expires: false }
    }

    /// Blocks of the unit with the earliest deadline go first everywhere; those of units without a
    /// deadline go last.
    #[must_use]
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Lets the unit expire at its deadline: everything left of it is dropped then, and it fails
    /// with [`Failure::Late`]. Without a deadline this changes nothing.
    #[must_use]
    pub fn expires(mut self) -> Self {
        self.expires = true;
        self
    }
}

/// A unit under way.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) rank: Priority,
    pub(crate) argument: String,
    began: Instant,
    is_closed: AtomicBool,
    state: Mutex<State>,
    is_over: Condvar,
}

#[derive(Debug)]
struct State {
    /// Copies of filters that are not done with it, by process; empty if another process counts
    /// them.
    copies_left: Vec<usize>,
    outcome: Option<Result<Duration, Failure>>,
}

impl Open {
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.rank.deadline
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has ended, so that no copy should work on it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// True for the first caller that sets the outcome of the unit. `tell` is called before any
    /// other thread sees it.
    fn end(&self, outcome: Result<Duration, Failure>, tell: impl FnOnce()) -> bool {
        let mut state = self.state();
        if state.outcome.is_some() {
            return false;
        }
        tell();
        state.outcome = Some(outcome);
        self.is_closed.store(true, Ordering::Release);
        drop(state);
        self.is_over.notify_all();
        true
    }
}

/// The units of one running pipeline that are under way.
#[derive(Debug, Default)]
pub(crate) struct Units {
    open: Mutex<HashMap<UnitId, Arc<Open>>>,
    next: AtomicU64,
    /// Counts the units that ended before they were done.
    pub(crate) ended_early: AtomicU64,
    keeper: Option<Mutex<Keeper>>,
}

impl Units {
    /// For a pipeline with that guarantee.
    pub(crate) fn new(guarantee: Option<Guarantee>) -> Self {
        Self {
            keeper: guarantee.map(|guarantee| Mutex::new(Keeper::new(guarantee))),
            ..Self::default()
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<UnitId, Arc<Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `Some` where units are submitted, if the pipeline has a guarantee.
    pub(crate) fn keeper(&self) -> Option<MutexGuard<'_, Keeper>> {
        self.keeper.as_ref().map(|keeper| keeper.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins a new unit; this many copies in each process have to finish it.
    pub(crate) fn begin(&self, mut unit: Unit, copies: Vec<usize>) -> Arc<Open> {
        if let Some(mut keeper) = self.keeper() {
            let now = Instant::now();
            keeper.begins(now);
            unit.deadline = unit.deadline.or_else(|| keeper.deadline(now));
        }
        let id = UnitId(self.next.fetch_add(1, Ordering::Relaxed));
        self.begin_as(id, unit, copies)
    }

    /// The same, if another process has given it its number.
    pub(crate) fn begin_as(&self, id: UnitId, unit: Unit, copies: Vec<usize>) -> Arc<Open> {
        let open = Arc::new(Open {
            rank: Priority::new(unit.deadline, id),
            argument: unit.argument,
            began: Instant::now(),
            is_closed: AtomicBool::new(false),
            state: Mutex::new(State { copies_left: copies, outcome: None }),
            is_over: Condvar::new(),
        });
        self.open().insert(id, Arc::clone(&open));
        open
    }

    pub(crate) fn find(&self, unit: UnitId) -> Option<Arc<Open>> {
        self.open().get(&unit).cloned()
    }

    /// A copy of a filter in that process has finished the unit; true if the unit is done with
    /// that. `None` if that copy is not awaited.
    pub(crate) fn copy_is_done(&self, unit: UnitId, process: u32) -> Option<bool> {
        let Some(open) = self.find(unit) else { return Some(false) };
        let mut state = open.state();
        let left = state.copies_left.get_mut(process as usize)?;
        *left = left.checked_sub(1)?;
        drop(state);
        Some(self.end_if_done(&open))
    }

    /// Stops waiting for that process. Returns the units that are done with that.
    pub(crate) fn process_is_lost(&self, process: u32) -> Vec<UnitId> {
        let mut done = Vec::new();
        for unit in self.all() {
            let Some(open) = self.find(unit) else { continue };
            if let Some(left) = open.state().copies_left.get_mut(process as usize) {
                *left = 0;
            }
            if self.end_if_done(&open) {
                done.push(unit);
            }
        }
        done
    }

    fn end_if_done(&self, open: &Open) -> bool {
        let is_done = open.state().copies_left.iter().all(|left| *left == 0);
        is_done && self.end(open)
    }

    fn end(&self, open: &Open) -> bool {
        self.open().remove(&open.rank.unit);
        let took = open.began.elapsed();
        open.end(Ok(took), || self.tell_keeper(took, true))
    }

    /// The unit was done, as reported by another process.
    pub(crate) fn is_done(&self, unit: UnitId) {
        if let Some(open) = self.find(unit) {
            self.end(&open);
        }
    }

    /// Ends the unit now; true if it was under way.
    pub(crate) fn end_early(&self, unit: UnitId, failure: Failure) -> bool {
        let Some(open) = self.open().remove(&unit) else { return false };
        let is_late = matches!(failure, Failure::Late { .. });
        let is_first = open.end(Err(failure), || self.tell_keeper(open.began.elapsed(), is_late));
        // After it is closed: a thread that sees the count finds it closed.
        self.ended_early.fetch_add(1, Ordering::SeqCst);
        is_first
    }

    fn tell_keeper(&self, took: Duration, counts: bool) {
        if let Some(mut keeper) = self.keeper() {
            keeper.ends(took, Instant::now(), counts);
        }
    }

    /// The units under way.
    pub(crate) fn all(&self) -> Vec<UnitId> {
        self.open().keys().copied().collect()
    }
}

/// A submitted unit.
#[derive(Debug)]
pub struct UnitHandle {
    pub(crate) open: Arc<Open>,
}

impl UnitHandle {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> UnitId {
        self.open.rank.unit
    }

    /// Waits until every copy of every filter has finished the unit.
    ///
    /// # Errors
    ///
    /// Why it ended early: a filter that failed, a process that was lost, a cancellation, or the
    /// end of the pipeline.
    pub fn wait(&self) -> Result<UnitReport, Failure> {
        let mut state = self.open.state();
        loop {
            match &state.outcome {
                Some(Ok(took)) => return Ok(UnitReport { unit: self.id(), took: *took }),
                Some(Err(failure)) => return Err(failure.clone()),
                None => {
                    state = self.open.is_over.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}
