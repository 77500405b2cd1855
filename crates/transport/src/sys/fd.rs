//! File descriptors by number: the application owns them, this library only names them.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A file descriptor that somebody else owns and may close at any time, as with every use of a number
/// in C: a call on a closed one fails with EBADF.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Fd(i32);

impl Fd {
    /// Names a descriptor. -1 stands for none.
    #[must_use]
    pub const fn new(raw: i32) -> Self {
        Self(raw)
    }

    /// The number.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }

    #[inline]
    pub(crate) fn borrow(&self) -> BorrowedFd<'_> {
        // BorrowedFd forbids -1 alone; any other number that is not open gives EBADF.
        let raw = if self.0 == -1 { i32::MAX } else { self.0 };
        // SAFETY: not -1. The descriptor may be closed by its owner meanwhile; this crate then gets an
        // error or another file's data, as any C program would, but no memory is touched through it.
        unsafe { BorrowedFd::borrow_raw(raw) }
    }
}

impl<F: AsRawFd> From<&F> for Fd {
    fn from(fd: &F) -> Self {
        Self(fd.as_raw_fd())
    }
}

static FLOOR: AtomicI32 = AtomicI32::new(0);

/// From now on the library's own descriptors get numbers from `floor` on, so that the application's
/// stay as low as they would be without it (select() cannot handle numbers over 1023).
pub fn set_floor(floor: i32) {
    FLOOR.store(floor, Ordering::Relaxed);
}

/// Moves a descriptor of the library's own above the floor.
///
/// # Errors
/// EMFILE or EINVAL when the limit on descriptors leaves no room there.
pub fn place(fd: OwnedFd) -> io::Result<OwnedFd> {
    let floor = FLOOR.load(Ordering::Relaxed);
    if fd.as_raw_fd() >= floor {
        return Ok(fd);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), floor)?)
}
