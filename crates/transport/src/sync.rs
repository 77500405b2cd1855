//! The one door to atomics, so that loom can stand behind it.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Stores and then fences: when two threads each store to a word of their own in this way and then load
/// the other's, at least one of them sees what the other stored. Also a release.
#[inline]
pub(crate) fn store_fenced(word: &AtomicU64, value: u64) {
    // An exchange is a full barrier on this processor, and cheaper than a store and MFENCE.
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    word.swap(value, Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    {
        word.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}
