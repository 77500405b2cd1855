//! What is counted while the server runs.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts from the start on. What each is for is in [`Counters::all`].
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
            ("slides_opened_total", "Times that a slide was opened.", of(&self.opened)),
            ("images_kept_total", "Images that were in memory.", of(&self.kept)),
            (
                "images_joined_total",
                "Images that were being made for another client already.",
                of(&self.joined),
            ),
            (
                "images_stored_total",
                "Images that were stored tiles, and were not decoded.",
                of(&self.stored),
            ),
            ("images_encoded_total", "Images that were encoded.", of(&self.encoded)),
            (
                "images_cancelled_total",
                "Images that were given up, since all their clients had gone.",
                of(&self.cancelled),
            ),
            ("images_not_modified_total", "Images that a client had.", of(&self.not_modified)),
            ("tiles_decoded_total", "Stored tiles that were decoded.", of(&self.decoded)),
            (
                "decoded_twice_total",
                "Stored tiles that were decoded while they were being decoded, or kept.",
                of(&self.decoded_twice),
            ),
            (
                "tiles_unwanted_total",
                "Stored tiles that nobody wanted any more when their turn came.",
                of(&self.unwanted),
            ),
            (
                "requests_refused_total",
                "Requests that came too fast, or when there was too much to do.",
                of(&self.refused),
            ),
            ("sent_bytes_total", "Bytes of the bodies of answers.", of(&self.bytes)),
        ]
    }
}
