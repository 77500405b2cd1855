//! dup, dup2, dup3, pidfd_getfd, unshare, fcntl and ioctl.

use std::ffi::{c_int, c_uint, c_ulong};
use std::os::fd::BorrowedFd;

use libc::{F_DUPFD, F_DUPFD_CLOEXEC, F_SETFL, FIONBIO, FIONREAD, O_ASYNC, O_NONBLOCK};
use seekwire_endpoint::{Carrier, HandedOver, Reason};
use seekwire_transport::Errno;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::fd::is_placed;
use seekwire_transport::sys::{socket as kernel, thread};

use super::interpose::interpose;
use crate::fallback::{to_holder_of, to_tcp_or_relay};
use crate::fd_numbers::Last;
use crate::ffi::{fail, guarded, guarded_own, keeping_errno};
use crate::process::{self, ProcessKind};
use crate::socket::Socket;
use crate::table::{self, SocketRef, TableEntry};
use crate::track::{self, fresh};
use crate::{pointers, relay, replacement, stdio_streams, tracking};

/// The name of TIOCOUTQ for sockets.
const SIOCOUTQ: c_ulong = 0x5411;
/// Asks whether the next byte is the urgent one.
pub(super) const SIOCATMARK: c_ulong = 0x8905;
/// Asks for signals instead of waiting.
const FIOASYNC: c_ulong = 0x5452;

/// Enters `to`, which the kernel has made another number for `entry`.
fn duplicated(entry: &TableEntry, to: c_int) {
    if to < 0 {
        return;
    }
    keeping_errno(|| match (process::kind(), entry) {
        // It will most likely become the standard input of another program.
        (ProcessKind::Vfork, TableEntry::Socket(socket)) => {
            let _ = to_holder_of(socket, Reason::Exec, to);
        }
        (ProcessKind::Vfork, TableEntry::Set(_) | TableEntry::Uring(_)) => {}
        // The C library does not use a listener; a socket that cannot be handed over is not handed
        // over. Bytes left on the ring are still found through this number, which may become
        // another program's standard input.
        (_, TableEntry::Socket(socket))
            if stdio_streams::stands_at(to)
                && !socket.is_listening()
                && to_holder_of(socket, Reason::Stdio, to) == Ok(false) =>
        {
            fresh(to);
        }
        (_, TableEntry::Socket(socket)) => {
            guarded(|| track::duplicate(socket.share().into_object(), to));
        }
        (_, TableEntry::Set(set)) => {
            guarded(|| track::duplicate(set.share().into_object(), to));
        }
        (_, TableEntry::Uring(uring)) => {
            guarded(|| track::duplicate(uring.share().into_object(), to));
        }
    });
}

/// Looks up a number that is about to be duplicated. A child of vfork uses its parent's table,
/// which does not have the socket that the child got as its standard output.
fn stands_for(from: c_int) -> Option<TableEntry> {
    let entry = table::lookup(from);
    let is_known = entry.is_some() || table::is_unused() || relay::reads_from(from);
    if is_known || process::kind() != ProcessKind::Vfork {
        return entry;
    }
    table::socket_of(kernel::identity(Fd::new(from))?, Socket::is_handed_over)
        .map(TableEntry::Socket)
}

/// dup2 and dup3: the kernel also closes the file that `to` stood for.
fn duplicate_over(from: c_int, to: c_int, kernel: impl Fn() -> c_int) -> c_int {
    if from == to {
        return kernel();
    }
    // SAFETY: F_GETFD takes no argument.
    let is_open = |fd| keeping_errno(|| unsafe { crate::real::fcntl(fd, libc::F_GETFD, 0) }) >= 0;
    if is_placed(Fd::new(to)) && process::kind() != ProcessKind::Vfork {
        return fail(Errno::BUSY);
    }
    if table::get(to).is_some() && is_open(from) {
        keeping_errno(|| track::untrack_closing(to));
    }
    let result = kernel();
    if let Some(entry) = stands_for(from) {
        duplicated(&entry, result);
    }
    result
}

/// fcntl and fcntl64.
fn control(
    entry: Option<&TableEntry>,
    command: c_int,
    argument: usize,
    kernel: impl Fn() -> c_int,
) -> c_int {
    let result = kernel();
    if result < 0 {
        return result;
    }
    let Some(entry) = entry else {
        return if matches!(command, F_DUPFD | F_DUPFD_CLOEXEC) { fresh(result) } else { result };
    };
    match (command, entry) {
        (F_DUPFD | F_DUPFD_CLOEXEC, entry) => duplicated(entry, result),
        (F_SETFL, TableEntry::Socket(socket)) => {
            let flags = argument as c_int;
            socket.connection.settings().set_nonblocking(flags & O_NONBLOCK != 0);
            if flags & O_ASYNC != 0 {
                signalled(socket);
            }
        }
        _ => {}
    }
    result
}

/// The application wants SIGIO, which only the kernel can send: not for bytes that are on the ring
/// now, but for all that follow.
fn signalled(socket: &SocketRef) {
    keeping_errno(|| {
        let _ = socket.fall_back(Reason::UnknownOption);
        guarded(|| socket.connection.await_peers_send());
    });
}

/// True if the next byte to be received is on the ring.
fn is_ring_next(socket: &SocketRef) -> bool {
    socket.connection.carriers().1 == Carrier::Ring && socket.connection.readiness().read
}

/// FIONREAD and SIOCOUTQ of a connection.
fn report(
    socket: &SocketRef,
    into: *mut c_int,
    kernel: impl Fn() -> c_int,
    ask: impl FnOnce() -> Result<usize, Errno>,
) -> c_int {
    if !socket.connection.receives_by_library() || !pointers::can_write(into, 1) {
        return kernel();
    }
    let answer = guarded(ask);
    // The question may have attached a connection that seeks.
    socket.update_sets();
    match answer {
        Some(Ok(bytes)) => {
            let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
            // SAFETY: it can be written to; the kernel does not ask that it be aligned, and
            // CPython's is not.
            unsafe { into.write_unaligned(bytes) };
            0
        }
        Some(Err(error)) => fail(error),
        None => kernel(),
    }
}

/// A thread is about to get a descriptor table of its own. The library's table, which all threads
/// share, can no longer tell what a number stands for, so the process does without the library from
/// now on.
///
/// # Errors
///
/// EBUSY if a socket would lose bytes that are still to be received.
pub(super) fn before_numbers_part() -> Result<(), Errno> {
    if thread::is_only_one() || process::kind() == ProcessKind::Vfork {
        return Ok(());
    }
    tracking::stand_back();
    table::numbers().filter(|&fd| table::is_entered(fd)).try_for_each(|fd| {
        match table::socket(fd) {
            Some(socket) if socket.is_listening() => {
                drop(socket);
                keeping_errno(|| track::untrack(fd, Last::Kept));
                Ok(())
            }
            Some(_) => hand_to_libc(fd),
            None => Ok(()),
        }
    })
}

/// True if two numbers stand for the same file.
fn are_same(one: c_int, other: c_int) -> bool {
    let identity = |fd| {
        // SAFETY: the caller's own number; one that is not open gives EBADF.
        let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

interpose! {
    /// unshare(2)
    fn unshare(flags: c_int) -> c_int = Some(()) => |_any, kernel| {
        if flags & libc::CLONE_FILES != 0 && let Err(error) = before_numbers_part() {
            return fail(error);
        }
        kernel()
    };
    /// pidfd_getfd(2), with which a process can also duplicate a number of its own
    fn pidfd_getfd(pidfd: c_int, target: c_int, flags: c_uint) -> c_int = Some(()) => |_any, kernel| {
        let result = kernel();
        match table::lookup(target).filter(|_| result >= 0 && are_same(target, result)) {
            Some(entry) => duplicated(&entry, result),
            None => drop(fresh(result)),
        }
        result
    };
    /// dup(2)
    fn dup(fd: c_int) -> c_int = Some(stands_for(fd)) => |entry, kernel| {
        let result = kernel();
        match entry {
            Some(entry) => duplicated(&entry, result),
            None => drop(fresh(result)),
        }
        result
    };
    /// dup2(2)
    fn dup2(from: c_int, to: c_int) -> c_int = Some(()) => |_any, kernel| {
        duplicate_over(from, to, kernel)
    };
    /// dup3(2)
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int = Some(()) => |_any, kernel| {
        if flags & !libc::O_CLOEXEC == 0 { duplicate_over(from, to, kernel) } else { kernel() }
    };
    /// fcntl(2). Variadic in C: its third argument is an integer or a pointer, which on x86-64 and
    /// aarch64 travel as this does.
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = Some(table::lookup(fd)) => |entry, kernel| {
        control(entry.as_ref(), command, argument, kernel)
    };
    /// fcntl(2) in programs built with 64-bit off_t
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int = Some(table::lookup(fd)) => |entry, kernel| {
        control(entry.as_ref(), command, argument, kernel)
    };
    /// ioctl(2). Variadic in C, as fcntl is.
    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int = table::socket(fd) => |socket, kernel| {
        let place = argument as *mut c_int;
        // Only the lower half of a request counts, because some programs pass it sign-extended.
        match request & 0xffff_ffff {
            FIONREAD => report(&socket, place, kernel, || socket.connection.unread()),
            SIOCOUTQ => report(&socket, place, kernel, || socket.connection.unsent()),
            // The urgent byte comes after the bytes on the ring.
            SIOCATMARK if is_ring_next(&socket) => report(&socket, place, kernel, || Ok(0)),
            FIONBIO => {
                let result = kernel();
                if result == 0 {
                    // SAFETY: the kernel has just read an integer from there, aligned or not.
                    socket.connection.settings().set_nonblocking(unsafe { place.read_unaligned() } != 0);
                }
                result
            }
            FIOASYNC => {
                signalled(&socket);
                kernel()
            }
            _ => kernel(),
        }
    };
}

/// fdopen(3) and the like: the number stays open, and from now on libc uses it without calling the
/// library.
///
/// # Errors
///
/// EBUSY if libc would not find the bytes that are still to be received.
pub(super) fn hand_to_libc(fd: c_int) -> Result<(), Errno> {
    if let Some(socket) = table::socket(fd) {
        let handed_over = to_tcp_or_relay(&socket, Reason::Stdio)?;
        if handed_over == HandedOver::Later {
            if guarded_own(|| replacement::goes_on_in_place(fd))? {
                return Ok(());
            }
            if relay::would_miss(&socket) {
                return Err(Errno::BUSY);
            }
        }
        keeping_errno(|| {
            if process::kind() != ProcessKind::Vfork {
                track::untrack(fd, Last::Kept);
            }
        });
    }
    Ok(())
}
