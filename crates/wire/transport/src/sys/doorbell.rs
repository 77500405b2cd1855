//! The doorbell: an eventfd, the cheapest thing that poll, select and epoll can wait on.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd};

use super::fd::{Fd, Placed};

/// An eventfd that one end sleeps on and the other rings.
#[derive(Debug)]
pub struct Doorbell {
    fd: Placed,
    /// A waiter has answered its ring, and left it to the next sleeper to silence it.
    heard: AtomicBool,
    /// How often waiters have left it rung for others since it was silenced.
    left: AtomicU32,
}

impl Doorbell {
    /// A new one, silent.
    ///
    /// # Errors
    /// Those of eventfd(2), and EMFILE when there is no room above the library's floor.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC.union(EventfdFlags::NONBLOCK);
        Ok(Self::of(Placed::new(rustix::event::eventfd(0, flags)?)?))
    }

    /// One that a peer sent. Nothing is believed of it: should it not be an eventfd, or one that
    /// blocks, ringing it fails or the write is refused.
    ///
    /// # Errors
    /// EINVAL when the descriptor blocks or is not an eventfd.
    pub fn from_peer(doorbell: Placed) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(doorbell.as_fd())?;
        if !flags.contains(rustix::fs::OFlags::NONBLOCK) || !is_eventfd(doorbell.as_fd()) {
            return Err(rustix::io::Errno::INVAL.into());
        }
        Ok(Self::of(doorbell))
    }

    fn of(fd: Placed) -> Self {
        Self { fd, heard: AtomicBool::new(false), left: AtomicU32::new(0) }
    }

    /// Wakes whoever sleeps on it.
    #[inline]
    pub fn ring(&self) {
        // A full counter means that it is ringing already; a dead peer needs no waking.
        let _ = rustix::io::write(self.fd.as_fd(), &1u64.to_ne_bytes());
    }

    /// Leaves it rung, for others.
    pub fn leave(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was [left](Self::leave) since it was silenced.
    #[must_use]
    pub fn times_left(&self) -> u32 {
        self.left.load(Ordering::Relaxed)
    }

    /// Silences it.
    pub fn quiet(&self) {
        let mut count = [0; 8];
        self.left.store(0, Ordering::Relaxed);
        // EAGAIN: it was silent.
        let _ = rustix::io::read(self.fd.as_fd(), &mut count);
    }

    /// Leaves the system call that silences it for the time when somebody wants to sleep again:
    /// between being woken and answering every microsecond counts.
    #[inline]
    pub fn quiet_later(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Whether that is due, which the caller now sees to.
    #[inline]
    pub fn take_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed) && self.heard.swap(false, Ordering::Relaxed)
    }

    /// Its descriptor, for poll and epoll.
    #[must_use]
    pub fn fd(&self) -> Fd {
        Fd::from(&self.fd.as_fd())
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Several doorbells as one descriptor, which is readable while any of them is rung.
#[derive(Debug)]
pub struct Doorbells {
    set: Placed,
}

impl Doorbells {
    /// None yet.
    ///
    /// # Errors
    /// Those of epoll_create1(2), and EMFILE when there is no room above the library's floor.
    pub fn new() -> io::Result<Self> {
        Ok(Self { set: Placed::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)? })
    }

    /// Adds one; again is as good as once. It leaves when it is closed.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn add(&self, doorbell: &Doorbell) -> io::Result<()> {
        match epoll::add(&self.set, doorbell, epoll::EventData::new_u64(0), epoll::EventFlags::IN) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The descriptor, for poll and epoll.
    #[must_use]
    pub fn fd(&self) -> Fd {
        Fd::from(&self.set.as_fd())
    }
}

/// Hears that something comes to a descriptor, also where something is already: a doorbell that is
/// rung, a socket with bytes.
#[derive(Debug)]
pub struct Ear {
    set: Placed,
}

impl Ear {
    /// Of one descriptor.
    ///
    /// # Errors
    /// Those of epoll_create1(2) and epoll_ctl(2), and EMFILE when there is no room above the
    /// library's floor.
    pub fn new(fd: Fd) -> io::Result<Self> {
        let set = Placed::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)?;
        let edges = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&set, fd.borrow(), epoll::EventData::new_u64(0), edges)?;
        Ok(Self { set })
    }

    /// Forgets what was heard so far.
    pub fn forget(&self) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        let _ = epoll::wait(&self.set, &mut events[..], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    }

    /// The descriptor, readable once something has come since.
    #[must_use]
    pub fn fd(&self) -> Fd {
        Fd::from(&self.set.as_fd())
    }
}

/// An eventfd is the one anonymous file whose name says so.
fn is_eventfd(fd: BorrowedFd<'_>) -> bool {
    use rustix::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::readlink(path, Vec::new())
        .is_ok_and(|name| name.as_bytes() == b"anon_inode:[eventfd]")
}
