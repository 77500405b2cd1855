//! Puts the output of several copies into the order of their input.
//!
//! The output of a copy for one block is a group, with the number of that block. Groups go on in
//! the order of their numbers; the blocks of the group whose turn it is go on as they come. Output
//! from `finalize` comes last, in the order of the copies.

use std::collections::BTreeMap;

use crate::stream::range_set::RangeSet;

/// The group of the output from `finalize` of copy `copy`.
pub(crate) fn last_of(copy: usize) -> u64 {
    (1 << 63) | copy as u64
}

/// Whether a group is one of these.
pub(crate) fn is_last(group: u64) -> bool {
    group >= last_of(0)
}

#[derive(Debug)]
pub(crate) struct Merge<T> {
    /// The group whose turn it is.
    next: u64,
    /// Items of later groups.
    waiting: BTreeMap<u64, Vec<T>>,
    /// Later groups that are complete.
    over: RangeSet,
}

impl<T> Merge<T> {
    pub(crate) fn new() -> Self {
        Self { next: 0, waiting: BTreeMap::new(), over: RangeSet::default() }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the item if it is its turn.
    pub(crate) fn add(&mut self, group: u64, item: T) -> Option<T> {
        // Past groups are complete, unless the sender is faulty: then it will soon be gone.
        if group <= self.next {
            return Some(item);
        }
        self.waiting.entry(group).or_default().push(item);
        None
    }

    /// Completes that group. Returns the items whose turn it is now.
    pub(crate) fn end(&mut self, group: u64) -> Vec<T> {
        let mut ready = Vec::new();
        if group != self.next {
            if group > self.next {
                self.over.insert(group);
            }
            return ready;
        }
        let first = self.next.saturating_add(1);
        self.next = self.over.take(first).unwrap_or(first);
        while let Some(group) = self.waiting.range(first..=self.next).next().map(|(at, _)| *at) {
            ready.extend(self.waiting.remove(&group).into_iter().flatten());
        }
        ready
    }

    /// Items that wait for their turn.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &T> {
        self.waiting.values().flatten()
    }

    /// Number of entries that hold no items, so that no limit of bytes bounds them: grows with the
    /// number of gaps between the groups that are complete.
    pub(crate) fn entries(&self) -> usize {
        self.over.count()
    }

    /// Only the last groups are left, and it is the turn of the first of them.
    pub(crate) fn begin_last(&mut self) -> Vec<T> {
        self.next = last_of(0) - 1;
        self.end(last_of(0) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_out_in_order() {
        let mut merge = Merge::new();
        assert_eq!(merge.add(1, "b"), None);
        assert_eq!(merge.add(last_of(1), "z"), None);
        assert_eq!(merge.add(last_of(0), "y"), None);
        assert_eq!(merge.add(0, "a"), Some("a"));
        assert_eq!(merge.end(2), Vec::<&str>::new());
        assert_eq!(merge.end(0), ["b"]);
        assert_eq!(merge.add(1, "c"), Some("c"));
        assert_eq!(merge.add(3, "d"), None);
        assert!(merge.waiting().eq(["d", "y", "z"].iter()));
        assert_eq!(merge.end(1), ["d"]);
        assert_eq!(merge.end(3), Vec::<&str>::new());
        assert_eq!(merge.next(), 4);
        assert_eq!(merge.begin_last(), ["y"]);
        assert_eq!(merge.add(last_of(0), "x"), Some("x"));
        assert_eq!(merge.end(last_of(0)), ["z"]);
    }

    #[test]
    fn groups_that_are_over_take_no_room() {
        let mut merge = Merge::new();
        for group in 1..100_000 {
            assert!(merge.end(group).is_empty());
        }
        assert_eq!(merge.add(70_000, "x"), None);
        assert_eq!(merge.entries(), 1);
        assert_eq!(merge.end(0), ["x"]);
        assert_eq!((merge.next(), merge.entries()), (100_000, 0));
    }
}
