//! A cache of the most recently used entries, bounded in bytes.

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

/// Bytes of an entry besides its value: the key, and the links of the list.
const OVERHEAD: usize = 256;

/// A cache that evicts the least recently used entry first. Only entries are moved while its lock
/// is held.
pub(crate) struct Bounded<K: Hash + Eq, V> {
    limit: usize,
    state: Mutex<State<K, V>>,
}

struct State<K: Hash + Eq, V> {
    entries: LruCache<K, (V, usize)>,
    held: usize,
}

impl<K: Hash + Eq, V: Clone> Bounded<K, V> {
    /// Holds at most `limit` bytes, including [`OVERHEAD`] for each entry.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::new(State { entries: LruCache::unbounded(), held: 0 }) }
    }

    fn state(&self) -> MutexGuard<'_, State<K, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.state().entries.get(key).map(|(value, _)| value.clone())
    }

    /// True if the key is present; this does not count as a use.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.state().entries.contains(key)
    }

    /// Stores a value of so many bytes, unless it is larger than the bound.
    pub(crate) fn put(&self, key: K, value: V, bytes: usize) {
        let bytes = bytes.saturating_add(OVERHEAD);
        if bytes > self.limit {
            return;
        }
        // Dropped after the lock is released.
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

    /// Bytes in use, and the limit.
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
