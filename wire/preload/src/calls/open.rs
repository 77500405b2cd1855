//! socket, connect, listen, accept, accept4, shutdown, close, close_range and closefrom.

use std::ffi::{c_int, c_uint};
use std::net::Shutdown;

use libc::{
    AF_INET, AF_INET6, AF_UNSPEC, SO_PROTOCOL, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET, sockaddr,
    socklen_t,
};
use seekwire_endpoint::{Reason, Role};
use seekwire_transport::Errno;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::fd::{is_placed, placed_in};

use super::descriptor::before_numbers_part;
use super::interpose::interpose;
use crate::fd_numbers::Last;
use crate::ffi::{errno, fail, guarded, keeping_errno, status};
use crate::socket::SOCK_SEEK_STREAM;
use crate::table::SocketRef;
use crate::track::{self, fresh};
use crate::{cancel, handover, pointers, process, real, start, stdio_streams, table};

/// The lower bits of socket()'s type; the others are flags.
const KIND: c_int = 0xf;

/// True if socket() with these arguments makes a TCP socket.
fn is_tcp(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    matches!(domain, AF_INET | AF_INET6)
        && kind & KIND == SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP)
}

/// Called after the kernel's accept, successful or not.
fn accepted(listener: Option<&SocketRef>, fd: c_int, flags: c_int) -> c_int {
    if let Some(listener) = listener
        && fd >= 0
        && !process::is_closing_down()
        && (listener.is_seekable() || !stdio_streams::stands_at(fd))
    {
        guarded(|| {
            track::track(fd, Role::Accepted, flags & SOCK_NONBLOCK != 0, Some(listener));
            if listener.is_seekable()
                && let Some(socket) = table::socket(fd)
            {
                socket.set_seekable();
            }
        });
    } else {
        fresh(fd);
    }
    fd
}

/// The listener behind `fd`. A listener that this process has not made, such as systemd's, is
/// examined once.
fn listener(fd: c_int) -> Option<SocketRef> {
    if let Some(socket) = table::socket(fd) {
        return socket.is_listening().then_some(socket);
    }
    if !start::is_on()
        || option(fd, SO_PROTOCOL)? != libc::IPPROTO_TCP
        || option(fd, libc::SO_ACCEPTCONN)? == 0
    {
        return None;
    }
    guarded(|| track::track(fd, Role::Accepted, false, None));
    let socket = table::socket(fd)?;
    socket.set_listening();
    crate::socket_options::read_inherited(&socket, fd);
    Some(socket)
}

fn option(fd: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: a live integer and its size.
    let result = keeping_errno(|| unsafe {
        libc::getsockopt(fd, SOL_SOCKET, name, (&raw mut value).cast(), &raw mut len)
    });
    (result == 0).then_some(value)
}

/// socket(2), with an additional type
///
/// # Safety
///
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn socket(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    let before = cancel::defer();
    let fd = open(domain, kind, protocol);
    cancel::restore(before);
    fd
}

#[inline(never)]
fn open(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let stream = kind & !KIND | SOCK_STREAM;
    let seekable = kind & KIND == SOCK_SEEK_STREAM && is_tcp(domain, stream, protocol);
    // SAFETY: three integers.
    let fd = unsafe { real::socket(domain, if seekable { stream } else { kind }, protocol) };
    let is_tracked =
        is_tcp(domain, kind, protocol) && start::is_on() && !stdio_streams::stands_at(fd);
    if fd >= 0 && (seekable || is_tracked) {
        guarded(|| {
            if seekable {
                start::prepare();
            }
            track::track(fd, Role::Connected, kind & SOCK_NONBLOCK != 0, None);
            if seekable && let Some(socket) = table::socket(fd) {
                socket.set_seekable();
            }
        });
    } else {
        fresh(fd);
    }
    fd
}

interpose! {
    /// accept(2)
    fn accept(
        fd: c_int,
        address: *mut sockaddr,
        len: *mut socklen_t,
    ) -> c_int = Some(listener(fd)) => |listener, kernel| {
        accepted(listener.as_ref(), kernel(), 0)
    };
    /// accept4(2)
    fn accept4(
        fd: c_int,
        address: *mut sockaddr,
        len: *mut socklen_t,
        flags: c_int,
    ) -> c_int = Some(listener(fd)) => |listener, kernel| {
        accepted(listener.as_ref(), kernel(), flags)
    };
    /// connect(2)
    fn connect(
        fd: c_int,
        address: *const sockaddr,
        len: socklen_t,
    ) -> c_int = table::socket(fd) => |socket, kernel| {
        let family = address.cast::<libc::sa_family_t>();
        let is_there = len as usize >= size_of::<libc::sa_family_t>() && pointers::can_read(family, 1);
        // SAFETY: it can be read.
        if is_there && c_int::from(unsafe { family.read_unaligned() }) == AF_UNSPEC {
            // This dissolves the connection. The library does not follow what the socket does
            // afterwards.
            let _ = socket.fall_back(Reason::Bypassed);
            drop(socket);
            track::untrack(fd, Last::Kept);
        }
        kernel()
    };
    /// listen(2)
    fn listen(fd: c_int, backlog: c_int) -> c_int = table::socket(fd) => |socket, kernel| {
        let result = kernel();
        if result == 0 {
            socket.set_listening();
        }
        result
    };
    /// shutdown(2)
    fn shutdown(fd: c_int, how: c_int) -> c_int = table::socket(fd) => |socket, kernel| {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return kernel(),
        };
        if socket.is_listening() {
            return kernel();
        }
        socket.note_shutdown();
        let result = guarded(|| {
            let result = socket.connection.shutdown(how);
            socket.announce_shutdown();
            result
        });
        socket.update_sets();
        result.map_or_else(kernel, status)
    };
    /// close(2)
    fn close(fd: c_int) -> c_int = owner(fd) => |owner, kernel| {
        match owner {
            FdOwner::Tracked => {
                keeping_errno(|| track::untrack_closing(fd));
                kernel()
            }
            // Typical of a program that closes all possible numbers.
            FdOwner::Own => match process::kind() {
                // It may be a number of the child's own, which must survive until exec.
                process::ProcessKind::Vfork if handover::survives_exec(fd) => kernel(),
                _ => fail(Errno::BADF),
            },
        }
    };
}

enum FdOwner {
    Tracked,
    /// A descriptor of this library.
    Own,
}

fn owner(fd: c_int) -> Option<FdOwner> {
    if table::get(fd).is_some() {
        Some(FdOwner::Tracked)
    } else {
        is_placed(Fd::new(fd)).then_some(FdOwner::Own)
    }
}

/// close_range(2): closes all descriptors but those of this library.
///
/// # Safety
///
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn close_range(
    first: c_uint,
    last: c_uint,
    flags: c_int,
) -> c_int {
    let before = cancel::defer();
    let result = close_all(first, last, flags);
    cancel::restore(before);
    result
}

#[inline(never)]
fn close_all(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const UNSHARE: c_int = libc::CLOSE_RANGE_UNSHARE as c_int;
    const CLOEXEC: c_int = libc::CLOSE_RANGE_CLOEXEC as c_int;
    if flags & UNSHARE != 0
        && let Err(error) = before_numbers_part()
    {
        return fail(error);
    }
    // SAFETY: three integers.
    let close = |first, last| unsafe { real::close_range(first, last, flags) };
    let (Ok(low), high) = (c_int::try_from(first), c_int::try_from(last).unwrap_or(c_int::MAX))
    else {
        return close(first, last);
    };
    if first > last || flags & !UNSHARE != 0 || flags & CLOEXEC != 0 {
        return close(first, last);
    }
    for fd in table::numbers().start.max(low)..table::numbers().end.min(high.saturating_add(1)) {
        keeping_errno(|| track::untrack_closing(fd));
    }
    let mut from = first;
    for own in placed_in(low, high).filter(|own| (low..=high).contains(&own.raw())) {
        let own = own.raw() as c_uint;
        if own > from {
            let result = close(from, own - 1);
            if result < 0 {
                return result;
            }
        }
        from = own + 1;
    }
    if from <= last { close(from, last) } else { 0 }
}

/// closefrom(3)
///
/// # Safety
///
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn closefrom(first: c_int) {
    let first = first.max(0);
    let before = errno();
    // SAFETY: integers.
    if unsafe { close_range(first as c_uint, c_uint::MAX, 0) } == 0 {
        return;
    }
    crate::ffi::set_errno(before);
    // For a kernel or sandbox without close_range.
    // SAFETY: sysconf takes a constant.
    let end = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) }.clamp(0, c_int::MAX.into()) as c_int;
    for fd in first..end {
        // SAFETY: closing a number that is not open gives EBADF.
        keeping_errno(|| unsafe { close(fd) });
    }
}
