//! io_uring(7): the entries that a program submits there concern the library like the calls of the
//! same names.
//!
//! The library learns about a ring when the program makes it with libc's syscall(). Its entries are
//! in memory that this process shares with the kernel; the library reads them when they are
//! submitted, before the kernel does. Registrations with an epoll set are made as with epoll_ctl,
//! and the kernel gets an empty operation instead; closing is noted; a socket that the kernel uses,
//! or could use, directly goes back to TCP first.
//!
//! If the kernel would poll for entries by itself (IORING_SETUP_SQPOLL), that flag is removed, and
//! the program always sees the request to wake the kernel, which leads it to this library.

use std::ffi::{c_int, c_long, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use libc::epoll_event;
use rustix::event::epoll;
use seekwire_endpoint::{HandedOver, Reason};
use seekwire_transport::Errno;
use seekwire_transport::sys::fd::PrivateFd;
use smallvec::SmallVec;

use super::epoll::epoll_ctl;
use crate::fallback::to_tcp;
use crate::fd_numbers::Last;
use crate::ffi::{errno, fail, guarded, guarded_own, keeping_errno};
use crate::process::{self, ProcessKind};
use crate::table::{self, Object, TableEntry as Known};
use crate::unknown_rings::give_up;
use crate::uring::{
    Params, SETUP_NO_MMAP, SETUP_REGISTERED_FD_ONLY, SETUP_SQ_AFF, SETUP_SQPOLL, Sqe, Uring,
};
use crate::{passed_sockets, pointers, relay, replacement, track};

/// Up to IORING_SETUP_HYBRID_IOPOLL, but without the two flags with which the program provides the
/// memory, or gets no number.
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
    /// Not an operation of the kernel.
    pub(super) const NONE: u8 = 255;

    /// True if an operation uses the socket behind its fd: READV, WRITEV, READ_FIXED, WRITE_FIXED,
    /// POLL_ADD, SENDMSG, RECVMSG, CONNECT, READ, WRITE, SEND, RECV, SPLICE, TEE, SHUTDOWN,
    /// URING_CMD, SEND_ZC, SENDMSG_ZC, READ_MULTISHOT, RECV_ZC, READV_FIXED, WRITEV_FIXED.
    pub(super) fn uses_fd(operation: u8) -> bool {
        matches!(
            operation,
            1 | 2 | 4 | 5 | 6 | 9 | 10 | 16 | 22 | 23 | 26 | 27 | 30 | 33 | 34 | 46
                ..=49 | 58 | 60 | 61
        )
    }
}

/// Makes a system call by its number.
pub(crate) type SyscallFn = unsafe fn(c_long, [usize; 6]) -> c_long;

/// io_uring_setup(2)
///
/// # Safety
///
/// As the manual page says.
pub(crate) unsafe fn setup(entries: u32, params: *mut Params, next: SyscallFn) -> c_long {
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
            Some(uring) => drop(guarded(|| track::enter(fd as c_int, Object::uring(uring)))),
            None => {
                track::fresh(fd as c_int);
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
pub(crate) unsafe fn enter(arguments: [usize; 6], next: SyscallFn) -> c_long {
    let [fd, wanted, least, flags, argument, size] = arguments;
    let (wanted, mut flags) = (wanted as u32, flags as u32);
    let enter = |submit: u32, least, flags: u32, argument, size| {
        let arguments = [fd, submit as usize, least, flags as usize, argument, size];
        // SAFETY: the caller's own arguments, or those for a part of the request.
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
        if submit == 0 { Changed::new() } else { keeping_errno(|| prepare_all(&uring, submit)) };
    let result = if changed.is_empty() {
        enter(submit, least, flags, argument, size)
    } else {
        // The entries are restored before the program can write new ones in their place.
        let result = enter(submit, 0, flags & !(ENTER_GETEVENTS | ENTER_EXT_ARG), 0, 0);
        for (before, place, entry) in changed {
            if c_long::from(before) < result {
                // SAFETY: inside the mapping, and taken by the kernel.
                unsafe { place.write(entry) };
            }
        }
        if result == c_long::from(submit) && flags & ENTER_GETEVENTS != 0 {
            // The number of submitted entries counts, whatever the wait returns.
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
pub(crate) unsafe fn register(arguments: [usize; 6], next: SyscallFn) -> c_long {
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
        // With a registered ring, calls would pass another number for it, which only saves time.
        // Kernels before 5.18 reject it in the same way.
        return fail::<c_int>(Errno::INVAL).into();
    }
    // SAFETY: the caller's own arguments.
    unsafe { next(libc::SYS_io_uring_register, arguments) }
}

/// Entries replaced for the kernel: the number of entries before each, its place, and its original
/// value.
type Changed = SmallVec<[(u32, *mut Sqe, Sqe); 4]>;

/// Performs the library's part of the first `count` waiting entries, and replaces those that the
/// kernel must see differently.
fn prepare_all(uring: &Uring, count: u32) -> Changed {
    let mut changed = Changed::new();
    for (before, place) in uring.waiting_entries(count) {
        // SAFETY: inside the mapping; the program has written it, and leaves it alone until it is
        // submitted.
        let entry = unsafe { place.read() };
        if let Some(other) = prepare(&entry) {
            // SAFETY: as above.
            unsafe { place.write(other) };
            changed.push((before, place, entry));
        }
    }
    changed
}

/// Performs the library's part of an entry. Returns the entry that the kernel is to see instead, if
/// any.
fn prepare(entry: &Sqe) -> Option<Sqe> {
    match entry.operation {
        operation::EPOLL_CTL => {
            let fd = entry.offset as c_int;
            if !table::is_entered(fd) {
                return None;
            }
            let event = entry.address as *mut epoll_event;
            // SAFETY: the arguments that the program has given to the kernel.
            let result = unsafe { epoll_ctl(entry.fd, entry.len as c_int, fd, event) };
            match result {
                0 => Some(nothing(entry)),
                _ if errno() == libc::ENOENT => empty_set().map(|epfd| Sqe { fd: epfd, ..*entry }),
                // The kernel reports the same error.
                _ => None,
            }
        }
        operation::CLOSE => {
            if entry.other_fd == 0 && table::is_entered(entry.fd) {
                track::untrack_closing(entry.fd);
            }
            None
        }
        operation::FILES_UPDATE => {
            hand_over_all(entry.address, entry.len);
            None
        }
        operation::EPOLL_WAIT if table::set(entry.fd).is_some() => {
            // The kernel would find the library's own events in the set. Most kernels do not have
            // this operation, so a program has to cope without it.
            Some(Sqe { operation: operation::NONE, ..nothing(entry) })
        }
        other => {
            let mut has_all = true;
            if matches!(other, operation::SENDMSG | operation::SENDMSG_ZC) {
                // A message with the ends of relays would have to last until the kernel has sent it.
                // SAFETY: the message that the program has given to the kernel.
                has_all = matches!(
                    unsafe { passed_sockets::prepare(entry.address as *const libc::msghdr) },
                    Ok(None)
                );
            }
            if matches!(other, operation::SPLICE | operation::TEE) {
                has_all &= hand_over(entry.other_fd);
            }
            if operation::uses_fd(other) && entry.flags & FIXED_FILE == 0 {
                match table::lookup(entry.fd) {
                    Some(Known::Socket(_)) => has_all &= hand_over(entry.fd),
                    Some(Known::Set(set)) if other == operation::POLL_ADD => {
                        guarded(|| set.set_watched());
                    }
                    _ => {}
                }
            }
            // An error in place of a stream that lacks bytes.
            (!has_all).then(|| Sqe { operation: operation::NONE, ..nothing(entry) })
        }
    }
}

/// An entry that succeeds and does nothing.
fn nothing(entry: &Sqe) -> Sqe {
    Sqe {
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

/// An empty epoll set.
fn empty_set() -> Option<c_int> {
    static EMPTY: OnceLock<Option<PrivateFd>> = OnceLock::new();
    let make = || PrivateFd::new(epoll::create(epoll::CreateFlags::CLOEXEC).ok()?).ok();
    EMPTY.get_or_init(make).as_ref().map(|set| set.as_fd().as_raw_fd())
}

/// From now on only the kernel uses the socket `fd`, if the library tracks it. False if the kernel
/// would never find some unread bytes, and no relay can bring these.
fn hand_over(fd: c_int) -> bool {
    let Some(socket) = table::socket(fd).filter(|socket| !socket.is_listening()) else {
        return true;
    };
    let handed_over = to_tcp(&socket, Reason::Bypassed);
    let is_missed = handed_over == Ok(HandedOver::Later) && relay::would_miss(&socket);
    let is_vfork = process::kind() == ProcessKind::Vfork;
    if is_missed && !is_vfork {
        drop(socket);
        return guarded_own(|| replacement::goes_on_in_place(fd)) == Ok(true);
    }
    guarded(|| socket.connection.stay_on_tcp());
    drop(socket);
    if is_vfork {
        return true;
    }
    track::untrack(fd, Last::Kept);
    true
}

/// Like [`hand_over`], for an array of numbers.
fn hand_over_all(array: u64, count: u32) {
    let array = array as *const c_int;
    if !pointers::can_read(array, count as usize) {
        // The kernel rejects it.
        return;
    }
    // SAFETY: they can be read.
    let numbers = (0..count as usize).map(|at| unsafe { array.add(at).read_unaligned() });
    // First all of them: one may be the other end of another one.
    for fd in numbers.clone() {
        match table::lookup(fd) {
            // The kernel will watch it by another number.
            Some(Known::Set(set)) => _ = guarded(|| set.set_watched()),
            Some(Known::Socket(socket)) if !socket.is_listening() => {
                let _ = to_tcp(&socket, Reason::Bypassed);
            }
            _ => {}
        }
    }
    numbers.for_each(|fd| _ = hand_over(fd));
}
