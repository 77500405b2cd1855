//! Blocks that an idempotent filter sends a second time.
//!
//! If a copy is lost, another one gets its unfinished blocks, and sends the output for them again:
//! the same blocks in the same order. A block that was accepted from either of them is not accepted
//! from the other.

use std::collections::BTreeMap;

use crate::stream::merge;
use crate::stream::range_set::RangeSet;

/// For one unit: the groups that were accepted, whole or in part.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    whole: RangeSet,
    /// For incomplete groups, how many blocks were accepted.
    begun: BTreeMap<u64, u32>,
}

impl Replays {
    /// Whether to accept block `index` of the group.
    pub(crate) fn takes(&mut self, group: u64, index: u32) -> bool {
        if self.whole.has(group) {
            return false;
        }
        let next_index = self.begun.entry(group).or_default();
        let is_next = *next_index == index;
        *next_index = next_index.saturating_add(u32::from(is_next));
        is_next
    }

    /// Notes that the group was sent completely; true if this is the first time.
    pub(crate) fn end(&mut self, group: u64) -> bool {
        if merge::is_last(group) {
            return true;
        }
        self.begun.remove(&group);
        self.whole.insert(group)
    }

    /// Number of entries: grows with the number of groups under way.
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
