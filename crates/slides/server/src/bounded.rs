//! What was used last, within a bound in bytes.

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

/// What an entry takes besides its value: the key, and the links of the list.
const OVERHEAD: usize = 256;

/// A cache from which what was not used for longest goes first. Nothing is done under its lock but
/// moving entries.
pub(crate) struct Bounded<K: Hash + Eq, V> {
    limit: usize,
    state: Mutex<State<K, V>>,
}

struct State<K: Hash + Eq, V> {
    entries: LruCache<K, (V, usize)>,
    held: usize,
}

impl<K: Hash + Eq, V: Clone> Bounded<K, V> {
    /// Of at most `limit` bytes, [`OVERHEAD`] of each entry among them.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::new(State { entries: LruCache::unbounded(), held: 0 }) }
    }

    fn state(&self) -> MutexGuard<'_, State<K, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.state().entries.get(key).map(|(value, _)| value.clone())
    }

    /// Whether it is there; it does not count as used.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.state().entries.contains(key)
    }

    /// Keeps a value of so many bytes. One that is larger than the bound is not kept.
    pub(crate) fn put(&self, key: K, value: V, bytes: usize) {
        let bytes = bytes.saturating_add(OVERHEAD);
        if bytes > self.limit {
            return;
        }
        // Dropped when the lock is free again.
        let mut gone = Vec::new();
        let mut state = self.state();
        state.held += bytes;
        if let Some((_, (value, bytes))) = state.entries.push(key, (value, bytes)) {
            state.held -= bytes;
            gone.push(value);
        }
        while state.held > self.limit {
            let Some((_, (value, bytes))) = state.entries.pop_lru() else { break };
            state.held -= bytes;
            gone.push(value);
        }
        drop(state);
    }

    /// Bytes that it holds now, and may hold at most.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        (self.state().held, self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_and_what_was_used_stays() {
        let cache = Bounded::new(3 * (100 + OVERHEAD));
        for key in 0..3 {
            cache.put(key, key, 100);
        }
        assert_eq!(cache.get(&0), Some(0));
        cache.put(3, 3, 100);
        assert!(cache.has(&2) && !cache.has(&1));
        assert_eq!((cache.get(&1), cache.get(&0), cache.get(&3)), (None, Some(0), Some(3)));
        assert_eq!(cache.bytes(), (3 * (100 + OVERHEAD), 3 * (100 + OVERHEAD)));
        cache.put(3, 4, 10);
        assert_eq!((cache.get(&3), cache.bytes().0), (Some(4), 2 * 100 + 10 + 3 * OVERHEAD));
        cache.put(5, 5, 3 * (100 + OVERHEAD));
        assert_eq!((cache.get(&5), cache.get(&3)), (None, Some(4)));
        cache.put(6, 6, 2 * (100 + OVERHEAD));
        assert_eq!((cache.get(&0), cache.get(&6)), (None, Some(6)));
        assert!(cache.bytes().0 <= cache.bytes().1);
    }
}
