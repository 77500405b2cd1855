//! The memory budget of annotations, while they are read and afterwards.

use std::cell::Cell;

use serde::de::Error;

/// Bytes that may still be used.
pub(super) struct Budget {
    left: Cell<usize>,
    is_spent: Cell<bool>,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self { left: Cell::new(bytes), is_spent: Cell::new(false) }
    }

    pub(super) fn spend<E: Error>(&self, bytes: usize) -> Result<(), E> {
        let Some(left) = self.left.get().checked_sub(bytes) else {
            self.is_spent.set(true);
            return Err(E::custom("too many annotations, or points of them"));
        };
        self.left.set(left);
        Ok(())
    }

    pub(super) fn left(&self) -> usize {
        self.left.get()
    }

    /// Returns bytes to the budget.
    pub(super) fn give(&self, bytes: usize) {
        self.left.set(self.left.get() + bytes);
    }

    /// True if more was requested than there was.
    pub(super) fn is_spent(&self) -> bool {
        self.is_spent.get()
    }
}
