//! Counters of the running server.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start. [`Counters::all`] explains each.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) opened: AtomicU64,
    pub(crate) kept: AtomicU64,
    pub(crate) joined: AtomicU64,
    pub(crate) stored: AtomicU64,
    pub(crate) encoded: AtomicU64,
    pub(crate) decoded: AtomicU64,
    pub(crate) decoded_twice: AtomicU64,
    pub(crate) unwanted: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) not_modified: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// Name, meaning and count of each.
    pub(crate) fn all(&self) -> [(&'static str, &'static str, u64); 12] {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("slides_opened_total", "Slides opened, counting each time.", of(&self.opened)),
            ("images_kept_total", "Images served from memory.", of(&self.kept)),
            (
                "images_joined_total",
                "Images already being made for another client.",
                of(&self.joined),
            ),
            (
                "images_stored_total",
                "Images served as stored tiles, without decoding.",
                of(&self.stored),
            ),
            ("images_encoded_total", "Images that were encoded.", of(&self.encoded)),
            (
                "images_cancelled_total",
                "Images abandoned because all their clients had disconnected.",
                of(&self.cancelled),
            ),
            ("images_not_modified_total", "Images that a client had.", of(&self.not_modified)),
            ("tiles_decoded_total", "Stored tiles decoded.", of(&self.decoded)),
            (
                "decoded_twice_total",
                "Stored tiles decoded although they were being decoded or in the cache.",
                of(&self.decoded_twice),
            ),
            (
                "tiles_unwanted_total",
                "Stored tiles no longer wanted when their turn came.",
                of(&self.unwanted),
            ),
            (
                "requests_refused_total",
                "Requests refused because of their rate or because the server was busy.",
                of(&self.refused),
            ),
            ("sent_bytes_total", "Bytes of response bodies.", of(&self.bytes)),
        ]
    }
}
