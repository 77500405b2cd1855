//! The data of the library's own registrations in an application's epoll set.
//!
//! Applications store pointers, fd numbers, or a generation above an fd number there. A tag is an
//! address inside a range that this library has reserved, so it is not a pointer of the
//! application, and its lower half is larger than any fd number.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use seekwire_endpoint::readiness::ONE_SHOT;
use seekwire_transport::Errno;

const INDEX_BITS: u32 = 20;
const GENERATION_BITS: u32 = 5;
const SPAN: u64 = 1 << (INDEX_BITS + GENERATION_BITS + 1);

/// Maximum number of watches: as many as fit into a tag.
pub(super) const MAX_WATCHES: usize = (1 << INDEX_BITS) - 1;

/// First tag; 0 until the range is reserved.
static BASE: AtomicU64 = AtomicU64::new(0);

/// The subject of an event.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Tag {
    pub(super) watch: u32,
    /// Low bits of the watch's generation: an event can be older than the watch that now has its
    /// index.
    pub(super) generation: u8,
    pub(super) subject: Subject,
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum Subject {
    /// The application's own fd.
    Socket,
    /// The doorbell that the peer rings.
    Doorbell,
}

pub(super) const GENERATIONS: u8 = 1 << GENERATION_BITS;

impl Tag {
    /// Belongs to no watch.
    pub(super) const NOTHING: Tag =
        Tag { watch: MAX_WATCHES as u32, generation: 0, subject: Subject::Doorbell };

    /// For a socket whose one-shot registration has fired. The kernel adds EPOLLERR and EPOLLHUP to
    /// all requests, so it may still report them once, which must not reach the application.
    pub(super) const FIRED: Tag = Tag { subject: Subject::Socket, ..Tag::NOTHING };

    pub(super) fn encode(self) -> Result<u64, Errno> {
        let doorbell = u64::from(self.subject == Subject::Doorbell);
        let generation = u64::from(self.generation % GENERATIONS);
        Ok(base()? + (u64::from(self.watch) << (GENERATION_BITS + 1) | generation << 1 | doorbell))
    }

    /// `None` for the application's own data.
    #[inline]
    pub(super) fn decode(data: u64) -> Option<Tag> {
        let base = BASE.load(Ordering::Relaxed);
        let offset = data.wrapping_sub(base);
        if base == 0 || offset >= SPAN {
            return None;
        }
        let subject = if offset & 1 == 1 { Subject::Doorbell } else { Subject::Socket };
        let generation = (offset >> 1) as u8 % GENERATIONS;
        Some(Tag { watch: (offset >> (GENERATION_BITS + 1)) as u32, generation, subject })
    }
}

pub(super) fn base() -> Result<u64, Errno> {
    let base = BASE.load(Ordering::Acquire);
    if base != 0 {
        return Ok(base);
    }
    let fresh = reserve()?;
    match BASE.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(fresh),
        Err(theirs) => {
            release(fresh);
            Ok(theirs)
        }
    }
}

/// Reserves addresses whose lower half is above every fd number.
fn reserve() -> Result<u64, Errno> {
    const ABOVE_FDS: u64 = 1 << 28;
    let mut misfits = Vec::new();
    let base = loop {
        // SAFETY: a new private mapping without access rights, at an address of the kernel's
        // choice, disturbs nothing.
        let address = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                SPAN as usize,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        match address {
            Ok(address) => {
                let low = address as u64 & 0xffff_ffff;
                if low >= ABOVE_FDS && low + SPAN <= 1 << 32 {
                    break Ok(address as u64);
                }
                misfits.push(address as u64);
                if misfits.len() == 8 {
                    break Err(Errno::NOMEM);
                }
            }
            Err(error) => break Err(error),
        }
    };
    misfits.into_iter().for_each(release);
    base
}

fn release(base: u64) {
    // SAFETY: `base` is an unused mapping of this length, made by `reserve`.
    let _ = unsafe { munmap(base as *mut _, SPAN as usize) };
}

/// An operation on a registration.
#[derive(Copy, Clone)]
pub(super) enum Op {
    Add,
    Modify,
    Delete,
}

/// Disables the one-shot registration of `fd` in the kernel, as if it had fired.
pub(super) fn fire(epfd: c_int, fd: c_int) -> Result<(), Errno> {
    control(epfd, Op::Modify, fd, ONE_SHOT, Tag::FIRED.encode()?)
}

/// epoll_ctl without libc, so that errno stays as it is.
pub(super) fn control(epfd: c_int, op: Op, fd: c_int, events: u32, data: u64) -> Result<(), Errno> {
    // SAFETY: both numbers are open fds of the application or of the connection while the caller
    // holds the lock of the socket's registrations: closing them goes through `forget`, which takes
    // it. A number that was closed out of the library's sight gives EBADF, or touches a
    // registration with a tag that no watch has any more.
    let (epfd, fd) = unsafe { (BorrowedFd::borrow_raw(epfd), BorrowedFd::borrow_raw(fd)) };
    let events = EventFlags::from_bits_retain(events);
    match op {
        Op::Add => epoll::add(epfd, fd, EventData::new_u64(data), events),
        Op::Modify => epoll::modify(epfd, fd, EventData::new_u64(data), events),
        Op::Delete => epoll::delete(epfd, fd),
    }
}
