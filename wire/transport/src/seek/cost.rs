//! The cheaper method: a system call for each message, or a second copy of its bytes.
//!
//! Taking a message in place costs a system call or three; moving everything that has arrived into
//! library memory costs one for many messages, and each byte is then copied twice. Which is cheaper
//! depends on the size of the messages and on the machine.

use std::sync::atomic::{AtomicU32, Ordering};

use seekwire_protocol::record::INLINE_MAX;

/// Average size of a program's requests, in bytes, below which bytes are moved in bulk, if nothing
/// was measured.
pub const DEFAULT_SWITCH: u32 = 12 << 10;

/// Maximum of that size on the ring. Bytes in the descriptors themselves are moved, to free the
/// descriptors, and so are slightly larger messages: a second copy costs less than giving back a
/// single segment.
const SWITCH_ON_RING: u32 = 2 << 10;
const _: () = assert!(SWITCH_ON_RING > INLINE_MAX as u32);

static SWITCH: AtomicU32 = AtomicU32::new(DEFAULT_SWITCH);

/// Sets the average size at which the methods change over, in bytes; 0 never moves bytes in bulk.
pub fn set_switch(bytes: u32) {
    SWITCH.store(bytes, Ordering::Relaxed);
}

/// The average size at which the methods change over.
#[must_use]
pub fn switch() -> u32 {
    SWITCH.load(Ordering::Relaxed)
}

/// The same on the ring, where taking bytes in place costs no system call.
#[must_use]
pub fn switch_on_ring() -> u32 {
    switch().min(SWITCH_ON_RING)
}

/// The average size of recent requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Average(u32);

impl Average {
    /// Counts a request of this size; the latest few dozen count.
    #[inline]
    pub fn note(&mut self, bytes: usize) {
        let bytes = bytes.min(1 << 24) as u32;
        self.0 = if self.0 == 0 { bytes } else { self.0 - self.0 / 16 + bytes / 16 };
    }

    /// Whether it is below `bytes`.
    #[inline]
    #[must_use]
    pub fn is_below(self, bytes: u32) -> bool {
        // Before the first request, nothing is moved.
        self.0 != 0 && self.0 < bytes
    }
}
