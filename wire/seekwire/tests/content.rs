//! The bytes of a message.

use std::sync::LazyLock;

/// A prime, so that the bytes do not repeat where buffers or messages begin.
const PERIOD: usize = 65521;

/// Drawn once: a debug build takes more time for this than for sending them.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut state = 1_u32;
    let draw = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as u8
    };
    (0..PERIOD).map(draw).collect()
});

/// Bytes that identify their message, by its seed, and their position in it.
pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    // Each seed below the period begins elsewhere.
    let mut from = (seed as usize % PERIOD) * 25_013 % PERIOD;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let n = (PERIOD - from).min(len - bytes.len());
        bytes.extend_from_slice(&BYTES[from..from + n]);
        from = 0;
    }
    bytes
}
