//! The doorbell: an eventfd, the cheapest thing that poll, select and epoll can wait on.

use std::io;

use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use super::fd::{Fd, Placed};

/// An eventfd that one end sleeps on and the other rings.
#[derive(Debug)]
pub struct Bell(Placed);

impl Bell {
    /// A new one, silent.
    ///
    /// # Errors
    /// Those of eventfd(2), and EMFILE when there is no room above the library's floor.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC.union(EventfdFlags::NONBLOCK);
        Ok(Self(Placed::new(rustix::event::eventfd(0, flags)?)?))
    }

    /// One that a peer sent. Nothing is believed of it: should it not be an eventfd, or one that
    /// blocks, ringing it fails or the write is refused.
    ///
    /// # Errors
    /// EINVAL when the descriptor blocks or is not an eventfd.
    pub fn from_peer(bell: OwnedFd) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&bell)?;
        if !flags.contains(rustix::fs::OFlags::NONBLOCK) || !is_eventfd(bell.as_fd()) {
            return Err(rustix::io::Errno::INVAL.into());
        }
        Ok(Self(Placed::new(bell)?))
    }

    /// Wakes whoever sleeps on it.
    #[inline]
    pub fn ring(&self) {
        // A full counter means that it is ringing already; a dead peer needs no waking.
        let _ = rustix::io::write(self.0.as_fd(), &1u64.to_ne_bytes());
    }

    /// Silences it.
    pub fn quiet(&self) {
        let mut count = [0; 8];
        // EAGAIN: it was silent.
        let _ = rustix::io::read(self.0.as_fd(), &mut count);
    }

    /// Its descriptor, for poll and epoll.
    #[must_use]
    pub fn fd(&self) -> Fd {
        Fd::from(&self.0.as_fd())
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An eventfd is the one anonymous file whose name says so.
fn is_eventfd(fd: BorrowedFd<'_>) -> bool {
    use rustix::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::readlink(path, Vec::new()).is_ok_and(|name| name.as_bytes() == b"anon_inode:[eventfd]")
}
