//! Finds the numbers at which streams of the C library (FILE) stand. What the C library does with
//! these numbers bypasses this library.
//!
//! A program can put a socket where a stream already is, as inetd does with the standard streams:
//! by dup2, or by closing the number and having the kernel give it to the next socket. Nothing
//! tells when libc then reads or writes, so such a socket belongs to libc from the beginning. A
//! signal handler may ask, so there is no lock.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::FILE;

use crate::ffi::keeping_errno;

/// Streams at larger numbers are not remembered.
const NUMBERS: usize = 65536;
const BITS: usize = u64::BITS as usize;

/// One bit per number. The standard streams are there from the start.
static STANDS: [AtomicU64; NUMBERS / BITS] = {
    let mut words = [const { AtomicU64::new(0) }; NUMBERS / BITS];
    words[0] = AtomicU64::new(0b111);
    words
};

fn bit(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    // Negative numbers become too large ones.
    let number = fd as usize;
    Some((STANDS.get(number / BITS)?, 1 << (number % BITS)))
}

/// Whether a stream stands at this number.
pub(crate) fn stands_at(fd: c_int) -> bool {
    bit(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// A stream was opened at this number.
pub(crate) fn opened(fd: c_int) {
    if let Some((word, bit)) = bit(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// The stream at this number is about to be closed, and the number with it.
pub(crate) fn closing(fd: c_int) {
    if let Some((word, bit)) = bit(fd) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// The number of a stream; negative if it has none, as one in memory.
///
/// # Safety
///
/// `file` is an open stream.
pub(crate) unsafe fn number(file: *mut FILE) -> c_int {
    // SAFETY: as the caller says.
    keeping_errno(|| unsafe { libc::fileno(file) })
}
