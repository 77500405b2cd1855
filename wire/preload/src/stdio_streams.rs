//! Records the numbers at which there are streams of the C library (FILE). The C library's calls on
//! these numbers bypass this library.
//!
//! A program can put a socket at the number of an existing stream, as inetd does with the standard
//! streams: with dup2, or by closing the number so that the kernel gives it to the next socket. The
//! library is not notified when libc then reads or writes, so such a socket belongs to libc from
//! the beginning. There is no lock, because a signal handler may ask.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::FILE;

use crate::ffi::keeping_errno;

/// Streams at larger numbers are not recorded.
const NUMBERS: usize = 65536;
const BITS: usize = u64::BITS as usize;

/// One bit per number. The standard streams exist from the start.
static STANDS: [AtomicU64; NUMBERS / BITS] = {
    let mut words = [const { AtomicU64::new(0) }; NUMBERS / BITS];
    words[0] = AtomicU64::new(0b111);
    words
};

fn bit(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    // Negative numbers become numbers that are too large.
    let number = fd as usize;
    Some((STANDS.get(number / BITS)?, 1 << (number % BITS)))
}

/// True if there is a stream at this number.
pub(crate) fn stands_at(fd: c_int) -> bool {
    bit(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Called when a stream was opened at this number.
pub(crate) fn opened(fd: c_int) {
    if let Some((word, bit)) = bit(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Called before the stream at this number is closed, and the number with it.
pub(crate) fn closing(fd: c_int) {
    if let Some((word, bit)) = bit(fd) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// The number of a stream; negative if it has none, like a stream in memory.
///
/// # Safety
///
/// `file` is an open stream.
pub(crate) unsafe fn number(file: *mut FILE) -> c_int {
    // SAFETY: as the caller says.
    keeping_errno(|| unsafe { libc::fileno(file) })
}
