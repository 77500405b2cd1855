//! How the peer takes from the ring.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// The sender's observations of the peer's taking. In a cache line of its own: it changes with
/// every send, and receivers read the neighbouring data.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct PeerProgress {
    /// Sends since the peer last showed that it lives, or since the kernel was asked.
    pub(super) sends: AtomicU32,
    /// The [`life_mark`] at that time.
    ///
    /// [`life_mark`]: seekwire_transport::queue::QueuePair::life_mark
    pub(super) shown: AtomicU64,
    /// When the kernel was last asked, as [`tick`] has it.
    ///
    /// [`tick`]: seekwire_transport::sys::host::tick
    pub(super) asked: AtomicU64,
    /// The position up to which the peer had taken when it was last doubted.
    pub(super) consumed: AtomicU64,
    /// The position up to which the peer had taken when the ring was found full, and since when,
    /// in nanoseconds.
    pub(super) full_at: AtomicU64,
    pub(super) full_since: AtomicU64,
    /// A send found no room for all of its bytes, and none was let through since.
    pub(super) refused: AtomicBool,
    /// The position up to which a peer on another machine had taken when bytes were left for it,
    /// since when, in nanoseconds, and the position, plus 1, at which it was rung for again.
    pub(super) undelivered_at: AtomicU64,
    pub(super) undelivered_since: AtomicU64,
    pub(super) rung_at: AtomicU64,
    /// Since when a receiver that is inside a read has kept this end from TCP, in nanoseconds; 0 if
    /// none does.
    pub(super) held_up_since: AtomicU64,
}
