//! Logs persistent problems once, not at each repeated check.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Warnings of a check that is repeated.
#[derive(Debug, Default)]
pub(crate) struct WarnOnce(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    before: BTreeSet<String>,
    /// Warnings since this check began.
    now: BTreeSet<String>,
}

impl WarnOnce {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a warning, unless the previous check or this one already has. Returns whether it was
    /// logged.
    pub(crate) fn warn(&self, what: String) -> bool {
        let mut state = self.state();
        let is_new = !state.before.contains(&what) && !state.now.contains(&what);
        if is_new {
            tracing::warn!("{what}");
        }
        state.now.insert(what);
        is_new
    }

    /// Ends a check: a problem that is gone is logged again if it reappears.
    pub(crate) fn sweep(&self) {
        let mut state = self.state();
        state.before = std::mem::take(&mut state.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_persistent_problem_is_logged_once() {
        let warnings = WarnOnce::default();
        for (what, is_new) in [("a", true), ("a", false), ("b", true)] {
            assert_eq!(warnings.warn(what.to_owned()), is_new, "{what}");
        }
        warnings.sweep();
        assert!(!warnings.warn("a".to_owned()));
        warnings.sweep();
        assert!(!warnings.warn("a".to_owned()) && warnings.warn("b".to_owned()));
    }
}
