//! Sleeping on a word of shared memory (futex(2)).

use std::time::Duration;

#[cfg(not(loom))]
use rustix::thread::futex;

#[cfg(not(loom))]
use crate::mem::{Own, OwnMemory};

/// A word of shared memory that threads of several processes can sleep on.
pub trait Futex {
    /// Sleeps until woken, at most [`SUSPICION`], and only if the low half of the word is
    /// `expected`. False when the time ran out.
    fn futex_wait(&self, offset: usize, expected: u32) -> bool;
    /// Wakes one sleeper.
    fn futex_wake(&self, offset: usize);
}

/// After this time a waiter asks whether the holder is still alive.
pub const SUSPICION: Duration = Duration::from_millis(50);

#[cfg(not(loom))]
impl Futex for Own {
    fn futex_wait(&self, offset: usize, expected: u32) -> bool {
        let timeout = rustix::fs::Timespec { tv_sec: 0, tv_nsec: SUSPICION.subsec_nanos().into() };
        let result = futex::wait(
            low_half(self.word(offset)),
            futex::Flags::empty(),
            expected,
            Some(&timeout),
        );
        result != Err(rustix::io::Errno::TIMEDOUT)
    }

    fn futex_wake(&self, offset: usize) {
        // Nothing can be done about a failure, and the waiter looks again after SUSPICION.
        let _ = futex::wake(low_half(self.word(offset)), futex::Flags::empty(), 1);
    }
}

#[cfg(not(loom))]
fn low_half(word: &std::sync::atomic::AtomicU64) -> &std::sync::atomic::AtomicU32 {
    let halves: *const u32 = word.as_ptr().cast();
    let low = if cfg!(target_endian = "big") { halves.wrapping_add(1) } else { halves };
    // SAFETY: half of a live atomic word, aligned; the kernel and this crate only use it
    // atomically.
    unsafe { std::sync::atomic::AtomicU32::from_ptr(low.cast_mut()) }
}
