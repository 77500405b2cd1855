//! The only source of atomics, so that loom can replace them.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Stores and then fences: when two threads each store to a word of their own in this way and then
/// load the other's, at least one of them sees what the other stored. Two threads that store to the
/// same word are ordered as well: the later one has seen what the earlier one did before.
#[inline]
pub(crate) fn store_fenced(word: &AtomicU64, value: u64) {
    // An exchange is a full barrier on this processor, and cheaper than another one with MFENCE.
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    word.swap(value, Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    {
        word.swap(value, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }
}
