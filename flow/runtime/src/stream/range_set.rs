//! A set of numbers, stored as ranges of consecutive ones.
//!
//! Groups end in any order, and a slow one lets millions of others end before it. Between those
//! there are no more gaps than blocks under way, so there are few ranges.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct RangeSet {
    /// The first number of each range, and the one after its last.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// False if it was there.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        if self.has(number) {
            return false;
        }
        let after = number.saturating_add(1);
        let end = self.ranges.remove(&after).unwrap_or(after);
        match self.ranges.range_mut(..number).next_back() {
            Some((_, last)) if *last == number => *last = end,
            _ => {
                self.ranges.insert(number, end);
            }
        }
        true
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        let before = self.ranges.range(..=number).next_back();
        before.is_some_and(|(_, end)| number < *end)
    }

    /// Removes the range that begins there, if there is one, and returns the number after its last.
    pub(crate) fn take(&mut self, first: u64) -> Option<u64> {
        self.ranges.remove(&first)
    }

    /// The number of ranges.
    pub(crate) fn count(&self) -> usize {
        self.ranges.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_is_the_set_and_ranges_are_as_few_as_can_be() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..200 {
            let (mut ranges, mut set) = (RangeSet::default(), BTreeSet::new());
            for _ in 0..60 {
                let number = random.u64(0..40);
                assert_eq!(ranges.insert(number), set.insert(number));
                let begins = |number: &&u64| **number == 0 || !set.contains(&(**number - 1));
                assert_eq!(ranges.count(), set.iter().filter(begins).count());
                assert!((0..41).all(|number| ranges.has(number) == set.contains(&number)));
            }
            let Some(first) = set.first().copied() else { continue };
            let end = (first..).find(|number| !set.contains(number));
            assert_eq!((ranges.take(first), ranges.has(first)), (end, false));
            assert_eq!(ranges.take(first), None);
        }
    }
}
