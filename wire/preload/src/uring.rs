//! A ring of io_uring(7), in the memory that it shares with the kernel.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::fd_numbers::Numbers;
use crate::lock::Lock;

/// linux/io_uring.h, struct io_uring_params.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Params {
    sq_entries: u32,
    cq_entries: u32,
    pub(crate) flags: u32,
    others: [u32; 7],
    submission: Offsets,
    completion: [u64; 5],
}

/// struct io_sqring_offsets.
#[repr(C)]
#[derive(Clone, Copy)]
struct Offsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    flags: u32,
    dropped: u32,
    array: u32,
    reserved: u32,
    address: u64,
}

/// struct io_uring_sqe.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sqe {
    pub(crate) operation: u8,
    pub(crate) flags: u8,
    pub(crate) priority: u16,
    pub(crate) fd: c_int,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) operation_flags: u32,
    pub(crate) user_data: u64,
    pub(crate) buffer: u16,
    pub(crate) personality: u16,
    pub(crate) other_fd: c_int,
    pub(crate) rest: [u64; 2],
}

const _: () = assert!(size_of::<Params>() == 120 && size_of::<Sqe>() == 64);

pub(crate) const SETUP_SQPOLL: u32 = 1 << 1;
pub(crate) const SETUP_SQ_AFF: u32 = 1 << 2;
const SETUP_SQE128: u32 = 1 << 10;
pub(crate) const SETUP_NO_MMAP: u32 = 1 << 14;
pub(crate) const SETUP_REGISTERED_FD_ONLY: u32 = 1 << 15;
const SETUP_NO_SQARRAY: u32 = 1 << 16;
const SQ_NEED_WAKEUP: u32 = 1 << 0;

/// Offsets for mmap: of the ring of indices, and of the entries.
const OFFSET_RING: u64 = 0;
const OFFSET_ENTRIES: u64 = 0x1000_0000;

/// Memory shared with the kernel.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value; the kernel and the program change it, so it is read by
// atomics and by copying.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, len: usize, offset: u64) -> Option<Mapping> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base =
            unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, fd, offset) }.ok()?;
        Some(Mapping { base: NonNull::new(base.cast())?, len })
    }

    /// The number at `offset`.
    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < self.len, "outside the mapping");
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned.
        unsafe { self.base.add(offset).cast().as_ref() }
    }

    /// The entry at `offset`.
    fn entry(&self, offset: usize) -> *mut Sqe {
        assert!(offset <= self.len - size_of::<Sqe>(), "outside the mapping");
        // SAFETY: inside the mapping.
        unsafe { self.base.add(offset) }.cast().as_ptr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, which is no longer used.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A ring of this process that the library follows.
pub(crate) struct Uring {
    numbers: Lock<Numbers>,
    ring: Mapping,
    entries: Mapping,
    at: Offsets,
    has_array: bool,
    entry_size: usize,
    /// The program believes that the kernel polls for entries by itself.
    pub(crate) polled: bool,
}

impl Uring {
    pub(crate) fn new(fd: c_int, params: &Params) -> Option<Uring> {
        const PAGE: usize = 4096;
        // SAFETY: the kernel has just handed it out.
        let ring = unsafe { BorrowedFd::borrow_raw(fd) };
        let (at, entries) = (params.submission, params.sq_entries as usize);
        let has_array = params.flags & SETUP_NO_SQARRAY == 0;
        let entry_size = if params.flags & SETUP_SQE128 == 0 { 64 } else { 128 };
        let array_end = if has_array { at.array as usize + entries * 4 } else { 0 };
        let last =
            [at.head, at.tail, at.mask, at.flags].into_iter().max().unwrap_or(0) as usize + 4;
        let uring = Uring {
            numbers: Lock::new(Numbers::new(fd)),
            ring: Mapping::new(ring, array_end.max(last).next_multiple_of(PAGE), OFFSET_RING)?,
            entries: Mapping::new(
                ring,
                (entries * entry_size).next_multiple_of(PAGE),
                OFFSET_ENTRIES,
            )?,
            at,
            has_array,
            entry_size,
            polled: params.flags & SETUP_SQPOLL != 0,
        };
        if uring.polled {
            uring.word(at.flags).fetch_or(SQ_NEED_WAKEUP, Ordering::SeqCst);
        }
        Some(uring)
    }

    pub(crate) fn numbers(&self) -> &Lock<Numbers> {
        &self.numbers
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        self.ring.word(offset as usize)
    }

    /// Number of entries that the kernel has not taken.
    pub(crate) fn waiting(&self) -> u32 {
        let head = self.word(self.at.head).load(Ordering::Acquire);
        self.word(self.at.tail).load(Ordering::Acquire).wrapping_sub(head)
    }

    /// The places of the first `count` of them, each with the number of entries before it.
    pub(crate) fn waiting_entries(&self, count: u32) -> impl Iterator<Item = (u32, *mut Sqe)> {
        let head = self.word(self.at.head).load(Ordering::Acquire);
        let mask = self.word(self.at.mask).load(Ordering::Relaxed);
        (0..count.min(self.waiting())).filter_map(move |before| {
            let mut index = head.wrapping_add(before) & mask;
            if self.has_array {
                index = self.word(self.at.array + index * 4).load(Ordering::Relaxed);
            }
            // The kernel drops entries with other indices.
            (index <= mask).then(|| (before, self.entries.entry(index as usize * self.entry_size)))
        })
    }
}
