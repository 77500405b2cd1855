//! read, readv, preadv2, recv, recvfrom, recvmsg, recvmmsg and their checked variants.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::io::IoSliceMut;

use libc::{
    MSG_DONTWAIT, MSG_ERRQUEUE, MSG_WAITFORONE, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec,
};
use seekwire_endpoint::{Plain, Reason, RecvFlags};
use seekwire_transport::Errno;
use seekwire_transport::buffer::zeros;
use seekwire_transport::sys::socket::Control;

use super::control::Messages;
use super::flags::{self, CallSubject};
use super::interpose::interpose;
use crate::buffers::{Buffers, is_possible};
use crate::call_path::{CallPath, Part, Parts, StartedCall};
use crate::ffi::{count, errno, fail, guarded, guarded_raw, set_errno};
use crate::hazard::outside;
use crate::table::SocketRef;
use crate::timeout::Timeout;
use crate::{cancel, look, passed_sockets, pointers, real, table, unload};

/// Receives from a tracked socket. `kernel` makes the application's own call.
#[inline]
pub(crate) fn receive(
    socket: &SocketRef,
    into: Buffers,
    flags: c_int,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    receive_with(socket, into, flags, Part::First, None, kernel)
}

/// Like [`receive`], with room for the kernel's control messages.
#[inline]
fn receive_with(
    socket: &SocketRef,
    into: Buffers,
    flags: c_int,
    part: Part,
    mut control: Option<&mut Control>,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    let ours = match flags::of_receive(flags) {
        CallSubject::Stream(ours) => ours,
        CallSubject::Urgent => {
            let _ = socket.fall_back(Reason::OutOfBand);
            return kernel();
        }
        CallSubject::Other => return kernel(),
    };
    loop {
        let begun = StartedCall::receive(socket, part);
        match socket.enter_to_receive() {
            CallPath::Library => match cancel::point(|| {
                guarded_raw(|| from_connection(socket, into, ours, control.as_deref_mut()))
            }) {
                Some(Err(Errno::CANCELED)) if unload::has_begun() => return kernel(),
                Some(Err(Errno::CANCELED)) => {}
                Some(Err(Errno::STALE)) => {
                    if !socket.untrack_stale() {
                        return kernel();
                    }
                }
                Some(Err(Errno::INTR)) if begun.restarts(socket) => match socket.begin_again() {
                    Ok(true) => {}
                    Ok(false) => return kernel(),
                    Err(error) => return fail(error),
                },
                Some(result) => {
                    if !socket.end_call(result.err()) {
                        return count(result);
                    }
                }
                None => return kernel(),
            },
            CallPath::Plain(plain) => return by_kernel(socket, plain, flags, kernel),
            CallPath::Unseen => return kernel(),
        }
    }
}

/// Receives inside the bracket of a plain connection.
#[inline]
pub(super) fn by_kernel(
    socket: &SocketRef,
    plain: Plain<'_>,
    flags: c_int,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    let result = kernel();
    if result > 0 && !flags::leaves_stream(flags) {
        plain.received(result as usize);
    } else if result < 0 && errno() == libc::EAGAIN {
        socket.connection.note_empty_receive();
    }
    socket.leave_plain(plain);
    socket.update_sets();
    result
}

fn from_connection(
    socket: &SocketRef,
    into: Buffers,
    ours: RecvFlags,
    control: Option<&mut Control>,
) -> Result<usize, Errno> {
    // SAFETY: the application's own array.
    let wanted = unsafe { into.len()? };
    if wanted == 0 {
        return socket.connection.recv_nothing(ours);
    }
    if ours.truncate {
        // The buffers are not touched, so any address will do.
        return if ours.peek {
            count_only(socket, wanted, ours)
        } else {
            discard(socket, wanted, ours)
        };
    }
    // SAFETY: the application passes buffers that may be written.
    match unsafe {
        into.lend_mut(|slices| Ok(socket.connection.recv_message(slices, ours, control)))
    } {
        Ok(result) => result,
        Err(Errno::FAULT) => as_far_as_reachable(socket, into, ours),
        Err(error) => Err(error),
    }
}

/// The kernel notices a bad pointer when it has a byte to store, and then takes none of the bytes
/// that it copied in the same step.
#[cold]
fn as_far_as_reachable(
    socket: &SocketRef,
    into: Buffers,
    flags: RecvFlags,
) -> Result<usize, Errno> {
    if look(socket, flags, 1)? == 0 {
        return Ok(0);
    }
    let unread = socket.connection.unread()?;
    // SAFETY: the application passes buffers of which the accessible part may be written.
    unsafe {
        into.lend_reachable(|slices| {
            let room = slices.iter().map(|slice| slice.len()).sum::<usize>();
            if room < unread {
                return Err(Errno::FAULT);
            }
            socket.connection.recv(slices, RecvFlags { dont_wait: true, ..flags })
        })
    }
}

/// Waits for this many bytes, or as many as a receive of that length waits for, and leaves them.
#[inline(never)]
fn look(socket: &SocketRef, flags: RecvFlags, len: usize) -> Result<usize, Errno> {
    let flags = RecvFlags { peek: true, truncate: false, ..flags };
    let mut few = [0u8; 1024];
    let mut many;
    let place = if len <= few.len() {
        &mut few[..len]
    } else {
        many = zeros(len)?;
        &mut many[..]
    };
    socket.connection.recv(&mut [IoSliceMut::new(place)], flags)
}

/// MSG_TRUNC and MSG_PEEK: the number of bytes that could be received.
#[cold]
fn count_only(socket: &SocketRef, wanted: usize, flags: RecvFlags) -> Result<usize, Errno> {
    let enough = if flags.wait_all { wanted } else { wanted.min(socket.low_water()) };
    match look(socket, flags, enough)? {
        0 => Ok(0),
        seen => Ok(socket.connection.unread().unwrap_or(0).min(wanted).max(seen)),
    }
}

/// MSG_TRUNC: discards the bytes that would have been received.
#[cold]
fn discard(socket: &SocketRef, wanted: usize, flags: RecvFlags) -> Result<usize, Errno> {
    let mut nowhere = zeros(wanted.min(16 * 1024))?;
    let _holding = socket.connection.hold_file();
    let mut done = 0;
    while done < wanted {
        let piece = nowhere.len().min(wanted - done);
        let flags =
            RecvFlags { dont_wait: flags.dont_wait || done > 0 && !flags.wait_all, ..flags };
        match socket.connection.recv(&mut [IoSliceMut::new(&mut nowhere[..piece])], flags) {
            Ok(0) => break,
            Ok(bytes) => {
                done += bytes;
                // An error after the bytes is left to the next call.
                if bytes < piece {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes the sender's address, which is empty with TCP.
///
/// Like the kernel, it looks at the length only after the bytes have been taken.
fn no_address(result: ssize_t, address: *mut sockaddr, len: *mut socklen_t) -> ssize_t {
    if result < 0 || address.is_null() {
        return result;
    }
    if !pointers::can_write(len, 1) {
        return fail(Errno::FAULT);
    }
    // SAFETY: the integer can be written to; the kernel does not ask that it be aligned.
    unsafe {
        if len.read_unaligned().cast_signed() < 0 {
            return fail(Errno::INVAL);
        }
        len.write_unaligned(0);
    }
    result
}

/// # Safety
///
/// As for recvmsg.
unsafe fn receive_message(
    socket: &SocketRef,
    message: *mut msghdr,
    flags: c_int,
    part: Part,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    if !pointers::can_read(message, 1) || flags::refused_with_message(flags) {
        return kernel();
    }
    // SAFETY: it can be read.
    let header = unsafe { message.read_unaligned() };
    if !header.msg_name.is_null() && header.msg_namelen.cast_signed() < 0 {
        return kernel();
    }
    let into = match Buffers::message(header.msg_iov, header.msg_iovlen) {
        Ok(into) => into,
        Err(_) => return kernel(),
    };
    let by_kernel = Cell::new(false);
    let kernel = || {
        by_kernel.set(true);
        kernel()
    };
    let mut control = Messages::asked_for(socket, &header);
    let room = control.as_mut().and_then(Messages::room);
    let result = receive_with(socket, into, flags, part, room, kernel);
    if result < 0 || by_kernel.get() {
        return result;
    }
    if !pointers::can_write(message, 1) {
        // The kernel notices the bad pointer when it takes bytes.
        return fail(Errno::FAULT);
    }
    // A receive of nothing does not tell the end of the stream.
    // SAFETY: the application's own array.
    let came = result > 0 || unsafe { into.len() } == Ok(0);
    let received = control.and_then(|control| guarded(|| control.deliver(socket, came)));
    let received = received.unwrap_or_default();
    // SAFETY: it can be written to.
    unsafe {
        if !header.msg_name.is_null() {
            (&raw mut (*message).msg_namelen).write_unaligned(0);
        }
        (&raw mut (*message).msg_controllen).write_unaligned(received.len);
        (&raw mut (*message).msg_flags).write_unaligned(flags::returned(flags) | received.flags);
    }
    result
}

/// # Safety
///
/// As for recvmmsg.
unsafe fn receive_messages(
    socket: &SocketRef,
    fd: c_int,
    messages: *mut mmsghdr,
    number: c_uint,
    flags: c_int,
    timeout: *mut timespec,
    kernel: impl Fn() -> c_int,
) -> c_int {
    if !timeout.is_null() && !pointers::can_read(timeout, 1) {
        return kernel();
    }
    // SAFETY: null, or can be read.
    let limit = unsafe { timeout.as_ref() }
        .map(|timeout| Timeout::from_parts(timeout.tv_sec, timeout.tv_nsec));
    if limit.as_ref().is_some_and(Option::is_none) {
        return kernel();
    }
    let mut left = limit.flatten().unwrap_or(Timeout::ENDLESS);
    left.left();
    let parts = Parts::new(number > 1);
    let _holding = socket.connection.hold_file();
    let mut done = 0;
    let mut flags_now = flags & !MSG_WAITFORONE;
    for at in 0..number.min(libc::UIO_MAXIOV as c_uint) as usize {
        let held = socket.connection.fd();
        let has_error =
            || look::state(held, 0) & libc::POLLERR as u32 != 0 || socket.connection.keeps_error();
        if flags & MSG_ERRQUEUE == 0 && has_error() {
            // An error before the bytes is returned; one after some messages is kept for the next
            // call.
            if done > 0 {
                break;
            }
            if let Some(error) = socket.connection.take_error() {
                return fail(error);
            }
        }
        let message = messages.wrapping_add(at);
        let header: *mut msghdr = message.cast();
        let part = parts.next();
        // SAFETY: the application's own message, or nothing, which gives EFAULT.
        let result = unsafe {
            receive_message(socket, header, flags_now, part, || {
                parts.leave_to_kernel();
                outside(|| real::recvmsg(fd, header, flags_now))
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
        if flags & MSG_WAITFORONE != 0 {
            flags_now |= MSG_DONTWAIT;
        }
        if left.is_over() {
            break;
        }
    }
    if let Some(left) = left.left().filter(|_| !timeout.is_null()) {
        if !pointers::can_write(timeout, 1) {
            return fail(Errno::FAULT);
        }
        // SAFETY: it can be written to.
        unsafe { timeout.write_unaligned(crate::timeout::timespec(left)) };
    }
    if done > 0 || number == 0 { done } else { -1 }
}

/// recvmmsg on a plain connection: the kernel's own call, whose parts the kernel knows. `None`
/// where the library has to make it.
fn receive_plain(
    socket: &SocketRef,
    messages: *const mmsghdr,
    flags: c_int,
    kernel: &impl Fn() -> c_int,
) -> Option<c_int> {
    let flags = flags & !MSG_WAITFORONE;
    if !matches!(flags::of_receive(flags), CallSubject::Stream(_))
        || socket.connection.wants_kernel_messages()
    {
        return None;
    }
    let CallPath::Plain(plain) = socket.enter_to_receive() else { return None };
    let result = Cell::new(0);
    by_kernel(socket, plain, flags, || {
        result.set(kernel());
        // SAFETY: the application's own messages, of which the kernel has filled in so many.
        unsafe { bytes_of(messages, result.get()) }
    });
    Some(result.get())
}

/// The number of bytes in the first `count` messages, or `count` if it is none.
///
/// # Safety
///
/// `count` messages can be read.
pub(super) unsafe fn bytes_of(messages: *const mmsghdr, count: c_int) -> ssize_t {
    let Ok(number) = usize::try_from(count) else { return -1 };
    // SAFETY: as the caller promises; the messages need not be aligned.
    let len = |at| unsafe { (&raw const (*messages.add(at)).msg_len).read_unaligned() };
    (0..number).map(|at| len(at) as ssize_t).sum()
}

/// readv and preadv2.
fn receive_vector(
    socket: &SocketRef,
    iov: *const iovec,
    number: c_int,
    flags: c_int,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    match Buffers::vector(iov, number) {
        // SAFETY: the application's own array.
        Ok(into) => match unsafe { into.len() } {
            // As with files, reading 0 bytes does not wait.
            Ok(0) | Err(_) => kernel(),
            Ok(_) => receive(socket, into, flags, kernel),
        },
        Err(error) => fail(error),
    }
}

interpose! {
    /// read(2)
    fn read(
        fd: c_int,
        buf: *mut c_void,
        len: size_t,
    ) -> ssize_t = table::socket(fd).filter(|_| len > 0 && is_possible(buf, len)) => |socket, kernel| {
        receive(&socket, Buffers::Flat(buf, len), 0, kernel)
    };
    /// readv(2)
    fn readv(fd: c_int, iov: *const iovec, number: c_int) -> ssize_t = table::socket(fd) => |socket, kernel| {
        receive_vector(&socket, iov, number, 0, kernel)
    };
    /// preadv2(2)
    fn preadv2(
        fd: c_int,
        iov: *const iovec,
        number: c_int,
        offset: off_t,
        flags: c_int,
    ) -> ssize_t = table::socket(fd) => |socket, kernel| {
        match flags::of_file(offset, flags) {
            Some(flags) => receive_vector(&socket, iov, number, flags, kernel),
            None => kernel(),
        }
    };
    /// preadv2(2) where off_t has 32 bits by default
    fn preadv64v2(
        fd: c_int,
        iov: *const iovec,
        number: c_int,
        offset: off_t,
        flags: c_int,
    ) -> ssize_t = table::socket(fd) => |socket, kernel| {
        match flags::of_file(offset, flags) {
            Some(flags) => receive_vector(&socket, iov, number, flags, kernel),
            None => kernel(),
        }
    };
    /// recv(2)
    fn recv(
        fd: c_int,
        buf: *mut c_void,
        len: size_t,
        flags: c_int,
    ) -> ssize_t = table::socket(fd).filter(|_| is_possible(buf, len)) => |socket, kernel| {
        receive(&socket, Buffers::Flat(buf, len), flags, kernel)
    };
    /// recvfrom(2)
    fn recvfrom(
        fd: c_int,
        buf: *mut c_void,
        len: size_t,
        flags: c_int,
        address: *mut sockaddr,
        address_len: *mut socklen_t,
    ) -> ssize_t = table::socket(fd).filter(|_| is_possible(buf, len)) => |socket, kernel| {
        let result = receive(&socket, Buffers::Flat(buf, len), flags, kernel);
        if flags & MSG_ERRQUEUE == 0 { no_address(result, address, address_len) } else { result }
    };
    /// recvmsg(2)
    fn recvmsg(
        fd: c_int,
        message: *mut msghdr,
        flags: c_int,
    ) -> ssize_t = Some(table::socket(fd)) => |socket, kernel| {
        let Some(socket) = socket else {
            let result = kernel();
            // SAFETY: the caller's own message.
            unsafe { passed_sockets::arrived(result, message) };
            return result;
        };
        // SAFETY: the caller's own message.
        unsafe { receive_message(&socket, message, flags, Part::First, kernel) }
    };
    /// recvmmsg(2)
    fn recvmmsg(
        fd: c_int,
        messages: *mut mmsghdr,
        number: c_uint,
        flags: c_int,
        timeout: *mut timespec,
    ) -> c_int = Some(table::socket(fd)) => |socket, kernel| {
        let Some(socket) = socket else {
            let result = kernel();
            for at in 0..usize::try_from(result).unwrap_or(0) {
                // SAFETY: the caller's own messages, of which the kernel has filled in this many.
                unsafe { passed_sockets::arrived(0, &raw mut (*messages.add(at)).msg_hdr) };
            }
            return result;
        };
        if let Some(result) = receive_plain(&socket, messages, flags, &kernel) {
            return result;
        }
        // SAFETY: the caller's own messages.
        unsafe { receive_messages(&socket, fd, messages, number, flags, timeout, kernel) }
    };
    /// read(2) in programs built with _FORTIFY_SOURCE
    fn __read_chk(
        fd: c_int,
        buf: *mut c_void,
        len: size_t,
        size: size_t,
    ) -> ssize_t = table::socket(fd).filter(|_| 0 < len && len <= size && is_possible(buf, len)) => |socket, kernel| {
        receive(&socket, Buffers::Flat(buf, len), 0, kernel)
    };
    /// recv(2) in programs built with _FORTIFY_SOURCE
    fn __recv_chk(
        fd: c_int,
        buf: *mut c_void,
        len: size_t,
        size: size_t,
        flags: c_int,
    ) -> ssize_t = table::socket(fd).filter(|_| len <= size && is_possible(buf, len)) => |socket, kernel| {
        receive(&socket, Buffers::Flat(buf, len), flags, kernel)
    };
    /// recvfrom(2) in programs built with _FORTIFY_SOURCE
    fn __recvfrom_chk(
        fd: c_int,
        buf: *mut c_void,
        len: size_t,
        size: size_t,
        flags: c_int,
        address: *mut sockaddr,
        address_len: *mut socklen_t,
    ) -> ssize_t = table::socket(fd).filter(|_| len <= size && is_possible(buf, len)) => |socket, kernel| {
        let result = receive(&socket, Buffers::Flat(buf, len), flags, kernel);
        if flags & MSG_ERRQUEUE == 0 { no_address(result, address, address_len) } else { result }
    };
}
