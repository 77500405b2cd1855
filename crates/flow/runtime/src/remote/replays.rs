//! Blocks that an idempotent filter sends a second time.
//!
//! When a copy is lost, another one is given the blocks that it was not done with, and sends what
//! comes out of them again: the same blocks in the same order. What has been taken from either of
//! them is not taken from the other.

use std::collections::BTreeMap;

use crate::merge;
use crate::spans::Spans;

/// Of one unit: the groups that were taken, whole or in part.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    whole: Spans,
    /// Of others, how many blocks were taken.
    begun: BTreeMap<u64, u32>,
}

impl Replays {
    /// Whether block `index` of the group is to be taken.
    pub(crate) fn takes(&mut self, group: u64, index: u32) -> bool {
        if self.whole.has(group) {
            return false;
        }
        let taken = self.begun.entry(group).or_default();
        let is_next = *taken == index;
        *taken = taken.saturating_add(u32::from(is_next));
        is_next
    }

    /// Somebody has sent all of the group: true if nobody had before.
    pub(crate) fn end(&mut self, group: u64) -> bool {
        if merge::is_last(group) {
            return true;
        }
        self.begun.remove(&group);
        self.whole.insert(group)
    }

    /// How much is kept: grows with how many groups are under way.
    pub(crate) fn entries(&self) -> usize {
        self.begun.len() + self.whole.count()
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
        assert_eq!(replays.entries(), 1);
        assert!(!replays.takes(0, 0) && !replays.end(1));
    }
}
