//! write, writev, pwritev2, send, sendto, sendmsg and sendmmsg.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};

use libc::{MSG_ZEROCOPY, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};
use seekwire_endpoint::{Plain, Reason, SendFlags};
use seekwire_transport::{Errno, sys};

use super::flags::{self, CallSubject};
use super::interpose::interpose;
use super::receive::bytes_of;
use crate::buffers::{Buffers, is_possible};
use crate::call_path::{CallPath, Part, Parts, StartedCall};
use crate::ffi::{count, fail, guarded_raw, keeping_errno, set_errno};
use crate::hazard::outside;
use crate::table::SocketRef;
use crate::{
    cancel,
    passed_sockets::{self, RelayedMessage},
    pointers, real, table, unload,
};

/// Sends on a tracked socket. `kernel` makes the application's own call.
#[inline]
pub(crate) fn transmit(
    socket: &SocketRef,
    from: Buffers,
    flags: c_int,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    transmit_part(socket, from, flags, Part::First, kernel)
}

/// As [`transmit`], for a part of the application's call.
#[inline]
pub(super) fn transmit_part(
    socket: &SocketRef,
    from: Buffers,
    flags: c_int,
    part: Part,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    let ours = match flags::of_send(flags) {
        CallSubject::Stream(_) if flags & MSG_ZEROCOPY != 0 && is_zerocopy(socket) => {
            // The kernel reports when it no longer needs the memory, once for each of its calls.
            return by_tcp(socket, kernel);
        }
        CallSubject::Stream(ours) => ours,
        CallSubject::Urgent => {
            if !socket.send_by_tcp(Reason::OutOfBand) {
                return fail(Errno::AGAIN);
            }
            return kernel();
        }
        CallSubject::Other => {
            if !socket.connection.is_attached() {
                // It may connect the socket and then send.
                _ = socket.send_by_tcp(Reason::UnknownOption);
            }
            return kernel();
        }
    };
    loop {
        let begun = StartedCall::send(socket, part);
        match socket.enter() {
            CallPath::Library => {
                match cancel::point(|| guarded_raw(|| to_ring(socket, from, ours))) {
                    Some(Err(Errno::CANCELED)) if unload::has_begun() => return kernel(),
                    Some(Err(Errno::CANCELED)) => {}
                    Some(Err(Errno::STALE)) => {
                        if !socket.untrack_stale() {
                            return kernel();
                        }
                    }
                    // The kernel's call does not move a byte either.
                    Some(Ok(None)) => return kernel(),
                    Some(Err(Errno::INTR)) if begun.restarts(socket) => {
                        match socket.begin_again() {
                            Ok(true) => {}
                            Ok(false) => return kernel(),
                            Err(error) => return fail(error),
                        }
                    }
                    Some(Ok(Some(bytes))) => {
                        socket.update_sets();
                        return count(Ok(bytes));
                    }
                    Some(Err(error)) => {
                        if !socket.end_call(Some(error)) {
                            return fail(error);
                        }
                    }
                    None => return kernel(),
                }
            }
            CallPath::Plain(plain) => return by_kernel(socket, plain, kernel),
            CallPath::Unseen => return kernel(),
        }
    }
}

#[cold]
fn is_zerocopy(socket: &SocketRef) -> bool {
    keeping_errno(|| sys::socket::is_zerocopy(socket.connection.fd()) == Ok(true))
}

/// Sends inside the bracket of a plain connection.
#[inline]
pub(super) fn by_kernel(
    socket: &SocketRef,
    plain: Plain<'_>,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    let result = kernel();
    if result > 0 {
        plain.sent(result as usize);
    }
    socket.leave_plain(plain);
    socket.update_sets();
    result
}

/// Sends data that the ring cannot take: from a pipe or another source that cannot be read twice,
/// with control messages, or from memory that is not copied.
pub(super) fn by_tcp(socket: &SocketRef, kernel: impl Fn() -> ssize_t) -> ssize_t {
    if !socket.send_by_tcp(Reason::UnknownOption) {
        return fail(Errno::AGAIN);
    }
    match socket.enter() {
        CallPath::Plain(plain) => by_kernel(socket, plain, kernel),
        // There is no room on the ring for the switch itself.
        CallPath::Library if socket.connection.tx_on_ring() => fail(Errno::AGAIN),
        _ => kernel(),
    }
}

/// `None` if there are no bytes to send, or the first one is inaccessible.
fn to_ring(socket: &SocketRef, from: Buffers, ours: SendFlags) -> Result<Option<usize>, Errno> {
    // SAFETY: the application's own array.
    let wanted = unsafe { from.len()? };
    if wanted == 0 {
        return Ok(None);
    }
    // SAFETY: the application passes buffers that may be read.
    let result = match unsafe { from.lend(|slices| Ok(socket.connection.send(slices, ours))) } {
        Ok(result) => result,
        // For a socket that cannot send, the kernel reports errors other than a bad pointer.
        // SAFETY: the application's own array.
        Err(Errno::FAULT) if unsafe { from.begins_nowhere() } => return Ok(None),
        Err(error) => return Err(error),
    };
    // Room means nothing to a connection that has ended.
    if result != Ok(wanted) && !matches!(result, Err(Errno::PIPE | Errno::CONNRESET)) {
        socket.note_starved();
    }
    result.map(Some)
}

/// True if the kernel rejects a call because of its address, although a connected TCP socket
/// ignores the address.
fn is_bad_address(address: *const sockaddr, len: socklen_t, may_be_longer: bool) -> bool {
    const LONGEST: usize = size_of::<libc::sockaddr_storage>();
    if address.is_null() || len == 0 {
        return false;
    }
    let len = match usize::try_from(len.cast_signed()) {
        Ok(len) if len <= LONGEST || may_be_longer => len.min(LONGEST),
        _ => return true,
    };
    !pointers::can_read(address.cast::<u8>(), len)
}

/// # Safety
///
/// As for sendmsg.
unsafe fn send_message(
    socket: &SocketRef,
    message: *const msghdr,
    flags: c_int,
    part: Part,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    if !pointers::can_read(message, 1) || flags::refused_with_message(flags) {
        return kernel();
    }
    // SAFETY: it can be read.
    let header = unsafe { message.read_unaligned() };
    if is_bad_address(header.msg_name.cast(), header.msg_namelen, true) {
        return kernel();
    }
    if header.msg_controllen != 0 && !header.msg_control.is_null() {
        // For example time stamps, which only the kernel can provide.
        return by_tcp(socket, kernel);
    }
    match Buffers::message(header.msg_iov, header.msg_iovlen) {
        Ok(from) => transmit_part(socket, from, flags, part, kernel),
        Err(_) => kernel(),
    }
}

/// True if a message has more bytes than were sent of it.
///
/// # Safety
///
/// As for sendmsg, with a readable message.
unsafe fn is_longer_than(message: *const msghdr, sent: ssize_t) -> bool {
    // SAFETY: as the caller promises.
    let header = unsafe { message.read_unaligned() };
    let from = Buffers::message(header.msg_iov, header.msg_iovlen);
    // SAFETY: the application's own array.
    from.and_then(|from| unsafe { from.len() }).is_ok_and(|len| sent.unsigned_abs() < len)
}

/// # Safety
///
/// As for sendmmsg.
unsafe fn send_messages(
    socket: &SocketRef,
    fd: c_int,
    messages: *mut mmsghdr,
    number: c_uint,
    flags: c_int,
) -> c_int {
    let parts = Parts::new(number > 1);
    let _holding = socket.connection.hold_file();
    let mut done = 0;
    for at in 0..number.min(libc::UIO_MAXIOV as c_uint) as usize {
        let message = messages.wrapping_add(at);
        let header: *const msghdr = message.cast();
        let part = parts.next();
        // SAFETY: the application's own message, or nothing, which gives EFAULT.
        let result = unsafe {
            send_message(socket, header, flags, part, || {
                parts.leave_to_kernel();
                outside(|| real::sendmsg(fd, header, flags))
            })
        };
        if result < 0 {
            break;
        }
        if !pointers::can_write(message, 1) {
            set_errno(libc::EFAULT);
            break;
        }
        // SAFETY: it can be written to.
        unsafe { (&raw mut (*message).msg_len).write_unaligned(result as c_uint) };
        done += 1;
        // The rest of a message comes before the next message.
        // SAFETY: the message was just read.
        if unsafe { is_longer_than(header, result) } {
            break;
        }
    }
    if done > 0 || number == 0 { done } else { -1 }
}

/// sendmmsg on a plain connection: the kernel's own call, whose parts the kernel knows. `None`
/// where the library has to make it.
fn send_plain(
    socket: &SocketRef,
    messages: *const mmsghdr,
    number: c_uint,
    flags: c_int,
    kernel: &impl Fn() -> c_int,
) -> Option<c_int> {
    let has_control = |at| {
        let message = messages.wrapping_add(at);
        // SAFETY: it can be read; it need not be aligned.
        !pointers::can_read(message, 1)
            || unsafe { (&raw const (*message).msg_hdr.msg_controllen).read_unaligned() } != 0
    };
    if !matches!(flags::of_send(flags), CallSubject::Stream(_))
        || flags & MSG_ZEROCOPY != 0
        || (0..number.min(libc::UIO_MAXIOV as c_uint) as usize).any(has_control)
    {
        return None;
    }
    let CallPath::Plain(plain) = socket.enter() else { return None };
    let result = Cell::new(0);
    by_kernel(socket, plain, || {
        result.set(kernel());
        // SAFETY: the application's own messages, of which the kernel has sent so many.
        unsafe { bytes_of(messages, result.get()) }
    });
    Some(result.get())
}

/// sendmmsg with some messages replaced. Messages after the last replaced one are left for the
/// caller's next call.
///
/// # Safety
///
/// As for sendmmsg.
unsafe fn send_replaced(
    fd: c_int,
    messages: *mut mmsghdr,
    replaced: Vec<(usize, RelayedMessage)>,
    flags: c_int,
) -> c_int {
    let count = replaced.last().map_or(0, |(at, _)| at + 1);
    // SAFETY: this many messages can be read, and those that were sent can be written to.
    unsafe {
        let mut copies: Vec<_> = (0..count).map(|at| messages.add(at).read_unaligned()).collect();
        for (at, message) in &replaced {
            copies[*at].msg_hdr = *message.header();
        }
        let sent = real::sendmmsg(fd, copies.as_mut_ptr(), count as c_uint, flags);
        for (at, copy) in copies.iter().enumerate().take(usize::try_from(sent).unwrap_or(0)) {
            (&raw mut (*messages.add(at)).msg_len).write_unaligned(copy.msg_len);
        }
        guarded_raw(|| {
            let is_sent = |at: usize| i64::try_from(at).is_ok_and(|at| at < i64::from(sent));
            replaced.into_iter().filter(|(at, _)| is_sent(*at)).for_each(|(_, it)| it.sent());
        });
        sent
    }
}

/// writev and pwritev2.
fn send_vector(
    socket: &SocketRef,
    iov: *const iovec,
    number: c_int,
    flags: c_int,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    match Buffers::vector(iov, number) {
        Ok(from) => transmit(socket, from, flags, kernel),
        Err(_) => kernel(),
    }
}

interpose! {
    /// write(2)
    fn write(
        fd: c_int,
        buf: *const c_void,
        len: size_t,
    ) -> ssize_t = table::socket(fd).filter(|_| is_possible(buf, len)) => |socket, kernel| {
        transmit(&socket, Buffers::Flat(buf.cast_mut(), len), 0, kernel)
    };
    /// writev(2)
    fn writev(
        fd: c_int,
        iov: *const iovec,
        number: c_int,
    ) -> ssize_t = table::socket(fd) => |socket, kernel| {
        send_vector(&socket, iov, number, 0, kernel)
    };
    /// pwritev2(2)
    fn pwritev2(
        fd: c_int,
        iov: *const iovec,
        number: c_int,
        offset: off_t,
        flags: c_int,
    ) -> ssize_t = table::socket(fd) => |socket, kernel| {
        match flags::of_file(offset, flags) {
            Some(flags) => send_vector(&socket, iov, number, flags, kernel),
            None => kernel(),
        }
    };
    /// pwritev2(2) where off_t has 32 bits by default
    fn pwritev64v2(
        fd: c_int,
        iov: *const iovec,
        number: c_int,
        offset: off_t,
        flags: c_int,
    ) -> ssize_t = table::socket(fd) => |socket, kernel| {
        match flags::of_file(offset, flags) {
            Some(flags) => send_vector(&socket, iov, number, flags, kernel),
            None => kernel(),
        }
    };
    /// send(2)
    fn send(
        fd: c_int,
        buf: *const c_void,
        len: size_t,
        flags: c_int,
    ) -> ssize_t = table::socket(fd) => |socket, kernel| {
        transmit(&socket, Buffers::Flat(buf.cast_mut(), len), flags, kernel)
    };
    /// sendto(2); a connected TCP socket ignores the address
    fn sendto(
        fd: c_int,
        buf: *const c_void,
        len: size_t,
        flags: c_int,
        address: *const sockaddr,
        address_len: socklen_t,
    ) -> ssize_t = table::socket(fd).filter(|_| !is_bad_address(address, address_len, false)) => |socket, kernel| {
        transmit(&socket, Buffers::Flat(buf.cast_mut(), len), flags, kernel)
    };
    /// sendmsg(2); an untracked fd may carry tracked ones to another process
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = {
        // SAFETY: the caller's own message.
        match unsafe { passed_sockets::prepare(message) } {
            Ok(None) => table::socket(fd),
            Ok(Some(replaced)) => {
                // SAFETY: the caller's own arguments; the message is a copy of theirs.
                let sent = unsafe { real::sendmsg(fd, replaced.header(), flags) };
                if sent >= 0 {
                    guarded_raw(|| replaced.sent());
                }
                return sent;
            }
            Err(error) => return fail(error),
        }
    } => |socket, kernel| {
        // SAFETY: the caller's own message.
        unsafe { send_message(&socket, message, flags, Part::First, kernel) }
    };
    /// sendmmsg(2)
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, number: c_uint, flags: c_int) -> c_int = {
        let mut replaced = Vec::new();
        for at in 0..number.min(libc::UIO_MAXIOV as c_uint) as usize {
            // SAFETY: the caller passes `number` messages, or less.
            match unsafe { passed_sockets::prepare(messages.wrapping_add(at).cast()) } {
                Ok(None) => {}
                Ok(Some(message)) => replaced.push((at, message)),
                Err(error) => return fail(error),
            }
        }
        if !replaced.is_empty() {
            // SAFETY: the caller's own arguments, of which the last of these messages can be read.
            return unsafe { send_replaced(fd, messages, replaced, flags) };
        }
        table::socket(fd)
    } => |socket, kernel| {
        if let Some(result) = send_plain(&socket, messages, number, flags, &kernel) {
            return result;
        }
        // The kernel's own loop cannot be stopped between two messages.
        // SAFETY: the caller's own messages.
        unsafe { send_messages(&socket, fd, messages, number, flags) }
    };
}
