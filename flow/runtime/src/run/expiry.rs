//! Ends units that are of no use after their deadline.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use crate::policy::priority::UnitId;
use crate::stream::local_pipeline::LocalPipeline;
use crate::stream::report::Failure;

/// A thread that waits for deadlines, started with the first one.
#[derive(Default)]
pub(crate) struct Expiry {
    queue: Arc<ExpiryQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct ExpiryQueue {
    state: Mutex<State>,
    change: Condvar,
}

#[derive(Default)]
struct State {
    deadlines: BinaryHeap<Reverse<(Instant, UnitId)>>,
    /// Number of deadlines left after those of finished units were last removed.
    least: usize,
    is_stopped: bool,
}

impl ExpiryQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, shared: &Weak<LocalPipeline>) {
        let mut state = self.state();
        while !state.is_stopped {
            let now = Instant::now();
            let Some(Reverse((deadline, unit))) = state.deadlines.peek().copied() else {
                state = self.change.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if deadline > now {
                let waited = self.change.wait_timeout(state, deadline - now);
                (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.deadlines.pop();
            drop(state);
            // If it has ended meanwhile, nothing happens.
            if let Some(shared) = shared.upgrade() {
                shared.end_early(unit, Failure::Late { unit });
            }
            state = self.state();
        }
    }
}

impl Expiry {
    /// Ends that unit at its deadline if it is not done.
    pub(crate) fn add(&self, shared: &Arc<LocalPipeline>, unit: UnitId, deadline: Instant) {
        let mut state = self.queue.state();
        state.deadlines.push(Reverse((deadline, unit)));
        if state.deadlines.len() > 2 * state.least.max(64) {
            // Deadlines of finished units are useless.
            state.deadlines.retain(|Reverse((_, unit))| shared.units.find(*unit).is_some());
            state.least = state.deadlines.len();
        }
        drop(state);
        self.queue.change.notify_one();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (queue, shared) = (Arc::clone(&self.queue), Arc::downgrade(shared));
            let started = Builder::new().name("deadlines".to_owned());
            // If it cannot start, units have no time limit.
            *thread = started.spawn(move || queue.run(&shared)).ok();
        }
    }
}

impl Drop for Expiry {
    fn drop(&mut self) {
        self.queue.state().is_stopped = true;
        self.queue.change.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Its panics are not reported.
            let _ = thread.join();
        }
    }
}
