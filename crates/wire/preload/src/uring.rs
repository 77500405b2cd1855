//! io_uring(7): what a program submits there concerns the library like the calls of the same names.
//!
//! A program that makes a ring by libc's syscall() tells the library by that. Its entries lie in
//! memory that this process shares with the kernel: they are looked at when they are submitted,
//! before the kernel sees them. Registrations with an epoll set are made as by epoll_ctl, and what
//! the kernel is left to do is nothing; closing is noted; a socket that is used, or could be, by
//! the kernel alone goes back to TCP before.
//!
//! Where the kernel would look for entries by itself (IORING_SETUP_SQPOLL), it is not asked to, and
//! the program is told at any time that it has to wake the kernel, which brings it here.
//!
//! Rings that were made without a call to libc, and those of kinds that are not known here, are not
//! understood. What the program does by them is not seen, so nothing is accelerated in a process
//! that has one.

use std::ffi::{c_int, c_long, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::epoll_event;
use rustix::event::epoll;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use seekwire_endpoint::{Reason, permission};
use seekwire_transport::Errno;
use seekwire_transport::sys::fd::Placed;
use seekwire_transport::sys::file;
use smallvec::SmallVec;

use crate::calls;
use crate::ffi::{errno, fail, guarded, keeping_errno};
use crate::lock::Lock;
use crate::socket::{Last, Numbers};
use crate::table::{self, Entry as Known, Object};
use crate::{log, passed, pointers, process, socket};

/// linux/io_uring.h, struct io_uring_params.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
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
struct Entry {
    operation: u8,
    flags: u8,
    priority: u16,
    fd: c_int,
    offset: u64,
    address: u64,
    len: u32,
    operation_flags: u32,
    user_data: u64,
    buffer: u16,
    personality: u16,
    other_fd: c_int,
    rest: [u64; 2],
}

const _: () = assert!(size_of::<Params>() == 120 && size_of::<Entry>() == 64);

const SETUP_SQPOLL: u32 = 1 << 1;
const SETUP_SQ_AFF: u32 = 1 << 2;
const SETUP_SQE128: u32 = 1 << 10;
const SETUP_NO_MMAP: u32 = 1 << 14;
const SETUP_REGISTERED_FD_ONLY: u32 = 1 << 15;
const SETUP_NO_SQARRAY: u32 = 1 << 16;
/// Up to IORING_SETUP_HYBRID_IOPOLL, but for the two by which the memory or the number is not the
/// kernel's to give.
const SETUP_KNOWN: u32 = ((1 << 18) - 1) & !(SETUP_NO_MMAP | SETUP_REGISTERED_FD_ONLY);

const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_SQ_WAKEUP: u32 = 1 << 1;
const ENTER_SQ_WAIT: u32 = 1 << 2;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;

const REGISTER_FILES: u32 = 2;
const REGISTER_FILES_UPDATE: u32 = 6;
const REGISTER_FILES2: u32 = 13;
const REGISTER_FILES_UPDATE2: u32 = 14;
const REGISTER_RING_FDS: u32 = 20;

const SQ_NEED_WAKEUP: u32 = 1 << 0;

/// Where mmap finds the ring of indices, and the entries.
const OFFSET_RING: u64 = 0;
const OFFSET_ENTRIES: u64 = 0x1000_0000;

const FIXED_FILE: u8 = 1 << 0;

mod operation {
    pub(super) const NOP: u8 = 0;
    pub(super) const POLL_ADD: u8 = 6;
    pub(super) const SENDMSG: u8 = 9;
    pub(super) const CLOSE: u8 = 19;
    pub(super) const FILES_UPDATE: u8 = 20;
    pub(super) const EPOLL_CTL: u8 = 29;
    pub(super) const SPLICE: u8 = 30;
    pub(super) const TEE: u8 = 33;
    pub(super) const SENDMSG_ZC: u8 = 48;
    pub(super) const EPOLL_WAIT: u8 = 59;
    /// None of the kernel's.
    pub(super) const NONE: u8 = 255;

    /// Whether a socket is used by this operation if its fd names one: READV, WRITEV, READ_FIXED,
    /// WRITE_FIXED, POLL_ADD, SENDMSG, RECVMSG, CONNECT, READ, WRITE, SEND, RECV, SPLICE, TEE,
    /// SHUTDOWN, URING_CMD, SEND_ZC, SENDMSG_ZC, READ_MULTISHOT, RECV_ZC, READV_FIXED,
    /// WRITEV_FIXED.
    pub(super) fn uses_fd(operation: u8) -> bool {
        matches!(
            operation,
            1 | 2 | 4 | 5 | 6 | 9 | 10 | 16 | 22 | 23 | 26 | 27 | 30 | 33 | 34 | 46
                ..=49 | 58 | 60 | 61
        )
    }
}

/// Memory that is shared with the kernel.
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
    fn entry(&self, offset: usize) -> *mut Entry {
        assert!(offset <= self.len - size_of::<Entry>(), "outside the mapping");
        // SAFETY: inside the mapping.
        unsafe { self.base.add(offset) }.cast().as_ptr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, which nobody uses any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Entries that the kernel is to see otherwise: how many come before each, where, and what it was.
type Changed = SmallVec<[(u32, *mut Entry, Entry); 4]>;

/// A ring of this process that is understood.
pub(crate) struct Uring {
    numbers: Lock<Numbers>,
    ring: Mapping,
    entries: Mapping,
    at: Offsets,
    has_array: bool,
    entry_size: usize,
    /// The program believes that the kernel looks for entries by itself.
    polled: bool,
}

impl Uring {
    fn new(fd: c_int, params: &Params) -> Option<Uring> {
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

    /// Entries that the kernel has not taken.
    fn waiting(&self) -> u32 {
        let head = self.word(self.at.head).load(Ordering::Acquire);
        self.word(self.at.tail).load(Ordering::Acquire).wrapping_sub(head)
    }

    /// Does what the first `count` entries that wait mean to the library, and changes those that
    /// the kernel is to see otherwise.
    fn prepare(&self, count: u32) -> Changed {
        let head = self.word(self.at.head).load(Ordering::Acquire);
        let mask = self.word(self.at.mask).load(Ordering::Relaxed);
        let mut changed = Changed::new();
        for before in 0..count.min(self.waiting()) {
            let mut index = head.wrapping_add(before) & mask;
            if self.has_array {
                index = self.word(self.at.array + index * 4).load(Ordering::Relaxed);
            }
            if index > mask {
                // The kernel drops it.
                continue;
            }
            let place = self.entries.entry(index as usize * self.entry_size);
            // SAFETY: inside the mapping; the program has written it, and leaves it alone until it
            // is submitted.
            let entry = unsafe { place.read() };
            if let Some(other) = prepare(&entry) {
                // SAFETY: as above.
                unsafe { place.write(other) };
                changed.push((before, place, entry));
            }
        }
        changed
    }
}

/// Does what an entry means to the library. What the kernel is to see instead, if anything.
fn prepare(entry: &Entry) -> Option<Entry> {
    match entry.operation {
        operation::EPOLL_CTL => {
            let fd = entry.offset as c_int;
            if !table::is_entered(fd) {
                return None;
            }
            let event = entry.address as *mut epoll_event;
            // SAFETY: the arguments that the program has given to the kernel.
            let result = unsafe { calls::epoll_ctl(entry.fd, entry.len as c_int, fd, event) };
            match result {
                0 => Some(nothing(entry)),
                _ if errno() == libc::ENOENT => {
                    empty_set().map(|epfd| Entry { fd: epfd, ..*entry })
                }
                // The kernel finds the same.
                _ => None,
            }
        }
        operation::CLOSE => {
            if entry.other_fd == 0 && table::is_entered(entry.fd) {
                socket::untrack_closing(entry.fd);
            }
            None
        }
        operation::FILES_UPDATE => {
            hand_over_all(entry.address, entry.len);
            None
        }
        operation::EPOLL_WAIT if table::set(entry.fd).is_some() => {
            // It would find the library's own events in the set. A program that uses it has to do
            // without on most kernels.
            Some(Entry { operation: operation::NONE, ..nothing(entry) })
        }
        other => {
            if matches!(other, operation::SENDMSG | operation::SENDMSG_ZC) {
                // SAFETY: the message that the program has given to the kernel.
                let _ = unsafe { passed::prepare(entry.address as *const libc::msghdr) };
            }
            if matches!(other, operation::SPLICE | operation::TEE) {
                hand_over(entry.other_fd);
            }
            if operation::uses_fd(other) && entry.flags & FIXED_FILE == 0 {
                match table::lookup(entry.fd) {
                    Some(Known::Socket(_)) => hand_over(entry.fd),
                    Some(Known::Set(set)) if other == operation::POLL_ADD => {
                        guarded(|| set.set_watched());
                    }
                    _ => {}
                }
            }
            None
        }
    }
}

/// An entry that does nothing and succeeds.
fn nothing(entry: &Entry) -> Entry {
    Entry {
        operation: operation::NOP,
        flags: entry.flags & !FIXED_FILE,
        user_data: entry.user_data,
        personality: entry.personality,
        fd: -1,
        priority: 0,
        offset: 0,
        address: 0,
        len: 0,
        operation_flags: 0,
        buffer: 0,
        other_fd: 0,
        rest: [0; 2],
    }
}

/// An epoll set in which nothing is found.
fn empty_set() -> Option<c_int> {
    static EMPTY: OnceLock<Option<Placed>> = OnceLock::new();
    let make = || Placed::new(epoll::create(epoll::CreateFlags::CLOEXEC).ok()?).ok();
    EMPTY.get_or_init(make).as_ref().map(|set| set.as_fd().as_raw_fd())
}

/// The kernel alone will use the socket `fd`, if it is one of ours.
fn hand_over(fd: c_int) {
    if let Some(socket) = table::socket(fd)
        && !socket.is_listening()
    {
        let _ = passed::to_tcp(&socket, Reason::Bypassed);
        drop(socket);
        if process::kind() != process::Kind::Vfork {
            socket::untrack(fd, Last::Kept);
        }
    }
}

/// As [`hand_over`], for the address of so many numbers.
fn hand_over_all(array: u64, count: u32) {
    let array = array as *const c_int;
    if !pointers::can_read(array, count as usize) {
        // The kernel refuses it.
        return;
    }
    for at in 0..count as usize {
        // SAFETY: it can be read.
        hand_over(unsafe { array.add(at).read_unaligned() });
    }
}

/// Makes a system call by its number.
pub(crate) type Next = unsafe fn(c_long, [usize; 6]) -> c_long;

/// io_uring_setup(2)
///
/// # Safety
///
/// As the manual page says.
pub(crate) unsafe fn setup(entries: u32, params: *mut Params, next: Next) -> c_long {
    let arguments = [entries as usize, params.expose_provenance(), 0, 0, 0, 0];
    if !pointers::can_write(params, 1) {
        // SAFETY: the caller's own arguments, which the kernel refuses.
        return unsafe { next(libc::SYS_io_uring_setup, arguments) };
    }
    // SAFETY: it can be read; the kernel does not ask that it be aligned.
    let mut now = unsafe { params.read_unaligned() };
    let asked_for = now.flags;
    let is_known = asked_for & !SETUP_KNOWN == 0;
    if is_known && asked_for & SETUP_SQPOLL != 0 {
        now.flags &= !(SETUP_SQPOLL | SETUP_SQ_AFF);
        // SAFETY: it can be written to.
        unsafe { params.write_unaligned(now) };
    }
    // SAFETY: the caller's own arguments.
    let fd = unsafe { next(libc::SYS_io_uring_setup, arguments) };
    // SAFETY: as above.
    unsafe {
        now = params.read_unaligned();
        now.flags |= asked_for;
        params.write_unaligned(now);
    }
    if fd >= 0 {
        keeping_errno(|| match Uring::new(fd as c_int, &now).filter(|_| is_known) {
            Some(uring) => drop(guarded(|| socket::enter(fd as c_int, Object::uring(uring)))),
            None => {
                socket::fresh(fd as c_int);
                give_up();
            }
        });
    }
    fd
}

/// io_uring_enter(2)
///
/// # Safety
///
/// As the manual page says.
pub(crate) unsafe fn enter(arguments: [usize; 6], next: Next) -> c_long {
    let [fd, wanted, least, flags, argument, size] = arguments;
    let (wanted, mut flags) = (wanted as u32, flags as u32);
    let enter = |submit: u32, least, flags: u32, argument, size| {
        let arguments = [fd, submit as usize, least, flags as usize, argument, size];
        // SAFETY: the caller's own arguments, or a part of what they ask for.
        unsafe { next(libc::SYS_io_uring_enter, arguments) }
    };
    let uring = table::uring(fd as c_int).filter(|_| flags & ENTER_REGISTERED_RING == 0);
    let Some(uring) = uring else { return enter(wanted, least, flags, argument, size) };
    let mut submit = wanted;
    if uring.polled {
        submit = uring.waiting();
        flags &= !(ENTER_SQ_WAKEUP | ENTER_SQ_WAIT);
    }
    let changed =
        if submit == 0 { Changed::new() } else { keeping_errno(|| uring.prepare(submit)) };
    let result = if changed.is_empty() {
        enter(submit, least, flags, argument, size)
    } else {
        // They are put back before anybody can write new ones in their place.
        let result = enter(submit, 0, flags & !(ENTER_GETEVENTS | ENTER_EXT_ARG), 0, 0);
        for (before, place, entry) in changed {
            if c_long::from(before) < result {
                // SAFETY: inside the mapping, and taken by the kernel.
                unsafe { place.write(entry) };
            }
        }
        if result == c_long::from(submit) && flags & ENTER_GETEVENTS != 0 {
            // What was submitted counts, whatever becomes of the wait.
            keeping_errno(|| enter(0, least, flags, argument, size));
        }
        result
    };
    if uring.polled && result >= 0 { c_long::from(wanted) } else { result }
}

/// io_uring_register(2)
///
/// # Safety
///
/// As the manual page says.
pub(crate) unsafe fn register(arguments: [usize; 6], next: Next) -> c_long {
    let [_, what, place, count, ..] = arguments;
    let count = count as u32;
    // struct io_uring_files_update, struct io_uring_rsrc_register, struct io_uring_rsrc_update2
    let word = |at: usize| {
        let word = (place as *const c_void as *const u64).wrapping_add(at);
        // SAFETY: a part of the structure that the program gives to the kernel, which can be read.
        if pointers::can_read(word, 1) { unsafe { word.read_unaligned() } } else { 0 }
    };
    keeping_errno(|| match what as u32 {
        REGISTER_FILES => hand_over_all(place as u64, count),
        REGISTER_FILES_UPDATE => hand_over_all(word(1), count),
        REGISTER_FILES2 => hand_over_all(word(2), word(0) as u32),
        REGISTER_FILES_UPDATE2 => hand_over_all(word(1), word(3) as u32),
        _ => {}
    });
    if what as u32 == REGISTER_RING_FDS {
        // Calls would name the ring by another number, which only saves time. Kernels before 5.18
        // refuse it in the same way.
        return fail::<c_int>(Errno::INVAL).into();
    }
    // SAFETY: the caller's own arguments.
    unsafe { next(libc::SYS_io_uring_register, arguments) }
}

/// There is a ring that is not understood: whatever is accelerated goes back to TCP, and nothing is
/// from now on.
#[cold]
fn give_up() {
    if permission::is_forbidden() {
        return;
    }
    permission::forbid();
    log::warn!("this program has an io_uring that is not understood: its connections stay on TCP");
    for fd in table::numbers() {
        if let Some(socket) = table::socket(fd)
            && socket.connection.is_attached()
        {
            let _ = passed::to_tcp(&socket, Reason::Bypassed);
        }
    }
}

/// A ring was made by somebody who may not have called libc for it.
pub(crate) fn look() {
    if process::is_tracking() {
        keeping_errno(|| {
            guarded(|| {
                if has_unknown() {
                    give_up();
                }
            })
        });
    }
}

/// To be called when the process starts.
pub(crate) fn start() {
    permission::look_before(|| {
        /// Connections that came to shared memory, and at how many to look again. A look costs the
        /// more, the more there are, so all of them get by with a few steps for each.
        static CONNECTIONS: AtomicU32 = AtomicU32::new(0);
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let connections = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        if connections < NEXT.load(Ordering::Relaxed) {
            return;
        }
        NEXT.store(connections + (connections / 8).max(1), Ordering::Relaxed);
        if has_unknown() {
            log::warn!(
                "this program has an io_uring that is not understood: its connections stay on TCP"
            );
            permission::forbid();
            // A connection that is about to be attached is asked for, and must not be waited for.
            for fd in table::numbers() {
                if let Some(socket) =
                    table::socket(fd).filter(|socket| socket.connection.is_attached())
                {
                    let _ = socket.connection.fall_back(Reason::Bypassed);
                }
            }
        }
    });
}

/// Whether this process has a ring that was made unseen.
fn has_unknown() -> bool {
    const NUMBERS: &str = "/proc/self/fd";
    let is_uring = |fd: c_int| {
        let name = std::fs::read_link(PathBuf::from(NUMBERS).join(fd.to_string()));
        name.is_ok_and(|name| name.as_os_str() == "anon_inode:[io_uring]")
    };
    let names = file::names(NUMBERS.as_ref()).unwrap_or_default();
    let mut numbers = names.iter().filter_map(|name| name.to_str()?.parse().ok());
    numbers.any(|fd| is_uring(fd) && table::uring(fd).is_none())
}
