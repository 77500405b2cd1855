//! What is wrong for long is told once, not each time that it is looked at.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Warnings of looks that are made again and again.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    before: BTreeSet<String>,
    /// Since this look began.
    now: BTreeSet<String>,
}

impl Told {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes it to the log, unless the look before has, or this one; whether it has.
    pub(crate) fn warn(&self, what: String) -> bool {
        let mut state = self.state();
        let is_new = !state.before.contains(&what) && !state.now.contains(&what);
        if is_new {
            tracing::warn!("{what}");
        }
        state.now.insert(what);
        is_new
    }

    /// A look has ended: what was not wrong any more is told again when it is.
    pub(crate) fn sweep(&self) {
        let mut state = self.state();
        state.before = std::mem::take(&mut state.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_wrong_is_told_once() {
        let told = Told::default();
        for (what, is_new) in [("a", true), ("a", false), ("b", true)] {
            assert_eq!(told.warn(what.to_owned()), is_new, "{what}");
        }
        told.sweep();
        assert!(!told.warn("a".to_owned()));
        told.sweep();
        assert!(!told.warn("a".to_owned()) && told.warn("b".to_owned()));
    }
}
