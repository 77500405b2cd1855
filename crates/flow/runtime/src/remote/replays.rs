//! Blocks that an idempotent filter sends a second time.
//!
//! When a copy is lost, another one is given the blocks that it was not done with, and sends what
//! comes out of them again: the same blocks in the same order. What has been taken from either of
//! them is not taken from the other.

use std::collections::BTreeMap;

use crate::merge;

/// Of one unit: the groups that were taken, whole or in part.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    /// All groups below are whole.
    whole: u64,
    /// Those from there on: how many blocks were taken; `None`: all.
    begun: BTreeMap<u64, Option<u32>>,
}

impl Replays {
    /// Whether block `index` of the group is to be taken.
    pub(crate) fn takes(&mut self, group: u64, index: u32) -> bool {
        if group < self.whole {
            return false;
        }
        match self.begun.entry(group).or_insert(Some(0)) {
            Some(taken) if *taken == index => {
                *taken += 1;
                true
            }
            _ => false,
        }
    }

    /// Somebody has sent all of the group: true if nobody had before.
    pub(crate) fn end(&mut self, group: u64) -> bool {
        if merge::is_last(group) {
            return true;
        }
        if group < self.whole || self.begun.insert(group, None) == Some(None) {
            return false;
        }
        while self.begun.get(&self.whole) == Some(&None) {
            self.begun.remove(&self.whole);
            self.whole += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_not_taken_again() {
        let mut replays = Replays::default();
        assert!(replays.takes(1, 0));
        assert!(replays.takes(1, 1));
        // The copy is lost; another one begins again.
        assert!(!replays.takes(1, 0));
        assert!(!replays.takes(1, 1));
        assert!(replays.takes(1, 2));
        assert!(replays.end(1));
        assert!(!replays.takes(1, 3) && !replays.end(1));
        assert!(replays.end(0), "a group without blocks");
        assert_eq!((replays.whole, replays.begun.len()), (2, 0));
        assert!(!replays.takes(0, 0) && !replays.end(1));
    }
}
