//! The bytes of a stream, and who waits for room in it.
//!
//! A limit in blocks fails both ways: with small ones it starves, with large ones it fills the
//! memory. So what is counted is bytes, from before a buffer is filled until the last use of the
//! block is over.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::wakeup::Wakeup;

/// The account of one stream.
pub(crate) struct Ledger {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: usize,
    peak: usize,
    waiting: Vec<Arc<Wakeup>>,
}

impl Ledger {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// What is held now, and the most that was.
    pub(crate) fn held(&self) -> (usize, usize) {
        let state = self.state();
        (state.held, state.peak)
    }

    /// Takes room for `bytes`, if no more than `most` are held then. Otherwise the caller
    /// is woken when something is given back.
    pub(crate) fn take(
        self: &Arc<Self>,
        bytes: usize,
        most: usize,
        caller: &Arc<Wakeup>,
    ) -> Option<Charge> {
        let mut state = self.state();
        if state.held + bytes > most.min(self.limit) {
            if !state.waiting.iter().any(|other| Arc::ptr_eq(other, caller)) {
                state.waiting.push(Arc::clone(caller));
            }
            return None;
        }
        state.held += bytes;
        state.peak = state.peak.max(state.held);
        Some(Charge { ledger: Arc::clone(self), bytes })
    }

    /// For bytes that somebody else has taken room for.
    pub(crate) fn add(self: &Arc<Self>, bytes: usize) -> Charge {
        let mut state = self.state();
        state.held += bytes;
        state.peak = state.peak.max(state.held);
        Charge { ledger: Arc::clone(self), bytes }
    }

    /// Something has changed that those who wait have to know.
    pub(crate) fn wake_all(&self) {
        let waiting = std::mem::take(&mut self.state().waiting);
        waiting.iter().for_each(|one| one.ring());
    }
}

/// A share of the limit, until it is dropped.
pub(crate) struct Charge {
    ledger: Arc<Ledger>,
    bytes: usize,
}

impl Charge {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A part of the share, for a part of the block.
    pub(crate) fn split(&mut self, bytes: usize) -> Charge {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Charge { ledger: Arc::clone(&self.ledger), bytes }
    }

    /// Both shares in one, of the same ledger.
    pub(crate) fn join(&mut self, mut other: Charge) {
        debug_assert!(Arc::ptr_eq(&self.ledger, &other.ledger));
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut state = self.ledger.state();
            state.held -= self.bytes;
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            waiting.iter().for_each(|one| one.ring());
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (held, peak) = self.held();
        f.debug_struct("Ledger")
            .field("limit", &self.limit)
            .field("held", &held)
            .field("peak", &peak)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_held_until_it_is_dropped() {
        let ledger = Ledger::new(100);
        let own = Arc::default();
        let mut first = ledger.take(60, usize::MAX, &own).unwrap();
        assert!(ledger.take(41, usize::MAX, &own).is_none());
        assert!(ledger.take(10, 65, &own).is_none(), "more than the caller may");
        let part = first.split(20);
        assert_eq!((first.bytes(), part.bytes()), (40, 20));
        drop(first);
        assert_eq!(ledger.held(), (20, 60));
        let rest = ledger.take(80, usize::MAX, &own).unwrap();
        drop((part, rest));
        assert_eq!(ledger.held(), (0, 100));
    }
}
