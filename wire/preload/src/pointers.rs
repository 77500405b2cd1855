//! Checks whether the application's pointers lead to memory, before the library reads or writes
//! there.
//!
//! The kernel answers a bad pointer with EFAULT, so a program may survive one, and must not crash
//! in the library. The descriptions of a call (lists for poll, sets for select, msghdr, iovec,
//! addresses) are checked with [`can_read`] and [`can_write`], which ask the kernel page by page,
//! and remember the latest ranges in each thread: the same list in the next call costs a few
//! comparisons. For buffers it suffices that they are [likely](is_likely), because asking costs as
//! much as the message; the others are checked.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use libc::sigset_t;
use seekwire_transport::Errno;
use seekwire_transport::sys::call;

/// The smallest page size of all processors: larger pages are checked more than once.
const PAGE: usize = 4096;

/// Where the kernel puts memory unless the program insists on another place: above mmap_min_addr,
/// and within the reach of four-level page tables.
const LIKELY: std::ops::Range<usize> =
    0x1_0000..1 << if cfg!(target_arch = "x86_64") { 47 } else { 48 };

/// True if memory is likely there. No system call.
#[inline]
pub(crate) fn is_likely(base: *const c_void, len: usize) -> bool {
    let at = base.addr();
    at >= LIKELY.start && at.checked_add(len).is_some_and(|end| end <= LIKELY.end)
}

/// True if `count` entries are readable.
#[inline]
pub(crate) fn can_read<T>(at: *const T, count: usize) -> bool {
    let len = count.saturating_mul(size_of::<T>());
    readable(at.cast(), len) == len
}

/// True if `count` entries are writable and readable.
#[inline]
pub(crate) fn can_write<T>(at: *const T, count: usize) -> bool {
    let len = count.saturating_mul(size_of::<T>());
    writable(at.cast(), len) == len
}

/// True if a call may continue with this signal mask: none, or a readable one. The kernel checks it
/// before anything else.
pub(crate) fn is_mask(mask: *const sigset_t) -> bool {
    mask.is_null() || can_read(mask.cast::<u64>(), 1)
}

/// Number of readable bytes, from the first one on.
#[inline]
pub(crate) fn readable(base: *const c_void, len: usize) -> usize {
    READABLE.with(|cache| cache.reach(base.addr(), len, asks_to_read))
}

/// Number of writable bytes, from the first one on.
#[inline]
pub(crate) fn writable(base: *const c_void, len: usize) -> usize {
    WRITABLE.with(|cache| cache.reach(base.addr(), len, asks_to_write))
}

thread_local! {
    static READABLE: RangeCache = const { RangeCache::nothing() };
    static WRITABLE: RangeCache = const { RangeCache::nothing() };
}

/// The ranges checked last.
struct RangeCache {
    ranges: [(Cell<usize>, Cell<usize>); 4],
    next: Cell<usize>,
}

impl RangeCache {
    const fn nothing() -> RangeCache {
        RangeCache { ranges: [const { (Cell::new(0), Cell::new(0)) }; 4], next: Cell::new(0) }
    }

    #[inline]
    fn reach(&self, at: usize, len: usize, ask: fn(usize) -> bool) -> usize {
        let end = at.saturating_add(len);
        let is_known = self.ranges.iter().any(|(from, to)| from.get() <= at && end <= to.get());
        if is_known || len == 0 { len } else { self.ask(at, end, ask) }
    }

    #[cold]
    fn ask(&self, at: usize, end: usize, ask: fn(usize) -> bool) -> usize {
        let first = at & !(PAGE - 1);
        let mut reached = first;
        while reached < end && ask(reached.max(at)) {
            reached = reached.saturating_add(PAGE);
        }
        if reached == first {
            return 0;
        }
        let place = self.next.get() % self.ranges.len();
        self.next.set(place + 1);
        let (from, to) = &self.ranges[place];
        // A signal handler in between finds an empty range.
        to.set(0);
        from.set(first);
        to.set(reached);
        reached.min(end) - at
    }
}

/// Checks with a system call that reads eight bytes, and then rejects another argument.
fn asks_to_read(at: usize) -> bool {
    const HOW: c_int = -1;
    // A null pointer would skip the read.
    let place = (at & !7).max(8);
    // SAFETY: the kernel reads there, if it can, and changes nothing since there is no such way to
    // change a mask.
    let result = unsafe { call(libc::SYS_rt_sigprocmask, [HOW as usize, place, 0, 8, 0, 0]) };
    result != Err(Errno::FAULT)
}

/// Checks with system calls that change nothing. The first one does not even read, so that memory
/// checkers do not complain about an array that is only to be filled. It fails for a stack that has
/// yet to grow, for device memory, and for pages larger than [`PAGE`].
fn asks_to_write(at: usize) -> bool {
    let page = at & !(PAGE - 1);
    let populate = libc::MADV_POPULATE_WRITE as usize;
    // SAFETY: the kernel makes the page ready to be written to, if it may be, and changes no byte.
    let result = unsafe { call(libc::SYS_madvise, [page, PAGE, populate, 0, 0, 0]) };
    result.is_ok() || adds_nothing(at)
}

/// Checks with a system call that atomically adds 0 to a number there. A waiter for that number may
/// be woken, but spurious wake-ups are always possible.
fn adds_nothing(at: usize) -> bool {
    const ADD_NOTHING: c_int = libc::FUTEX_OP_ADD << 28;
    let nobody = 0u32;
    let place = (&raw const nobody).expose_provenance();
    let how = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the kernel adds nothing there, if it can, and looks for waiters, to wake none.
    let result =
        unsafe { call(libc::SYS_futex, [place, how, 0, 0, at & !3, ADD_NOTHING as usize]) };
    result != Err(Errno::FAULT)
}
