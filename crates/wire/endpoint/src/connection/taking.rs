//! How the peer takes from the ring.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// What a sender has seen of the peer's taking. In a cache line of its own: it changes with every
/// send, and receivers read what lies beside it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Watch {
    pub(super) sends: AtomicU32,
    /// The position up to which the peer had taken then.
    pub(super) taken: AtomicU64,
    /// The position up to which the peer had taken when the ring was found full, and since when,
    /// in nanoseconds.
    pub(super) full_at: AtomicU64,
    pub(super) full_since: AtomicU64,
    /// Since when a receiver that is inside a read keeps this end from TCP, in nanoseconds; 0 when
    /// none does.
    pub(super) held_up_since: AtomicU64,
}
