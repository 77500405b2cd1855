//! read, readv, preadv2, recv, recvfrom, recvmsg, recvmmsg and their checked variants.

use std::ffi::{c_int, c_uint, c_void};

use endpoint::{Plain, Reason, RecvFlags};
use libc::{
    MSG_DONTWAIT, MSG_ERRQUEUE, MSG_WAITFORONE, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t,
    ssize_t, timespec,
};
use transport::Errno;

use super::flags::{self, About};
use super::interpose;
use crate::border::{count, fail, guarded_raw};
use crate::buffers::{Buffers, is_possible};
use crate::table::SocketRef;
use crate::timeout::Timeout;
use crate::{cancel, real, signals, table};

/// Receives from a tracked socket. `kernel` makes the application's own call.
#[inline]
pub(crate) fn receive(
    socket: &SocketRef,
    into: Buffers,
    flags: c_int,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    let ours = match flags::of_receive(flags) {
        About::Stream(ours) => ours,
        About::Urgent => {
            let _ = socket.fall_back(Reason::OutOfBand);
            return kernel();
        }
        About::Other => return kernel(),
    };
    loop {
        match socket.enter_plain_to_receive() {
            Some(None) => match cancel::point(|| guarded_raw(|| from_connection(socket, into, ours))) {
                Some(Err(Errno::CANCELED)) => {}
                Some(Err(Errno::INTR)) if !socket.has_recv_timeout() && signals::restart() => {}
                Some(result) => {
                    socket.settle();
                    return count(result);
                }
                None => return kernel(),
            },
            Some(Some(plain)) => return by_kernel(socket, plain, flags, kernel),
            None => return kernel(),
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
    }
    socket.leave_plain(plain);
    socket.settle();
    result
}

fn from_connection(socket: &SocketRef, into: Buffers, ours: RecvFlags) -> Result<usize, Errno> {
    // SAFETY: the application's own array.
    if unsafe { into.len()? } == 0 {
        // TCP waits for a byte even where there is no room for one.
        let mut byte = 0u8;
        let one = Buffers::Flat((&raw mut byte).cast(), 1);
        // SAFETY: a live byte.
        return unsafe { one.lend_mut(|one| socket.connection.recv(one, RecvFlags { peek: true, ..ours })) }
            .map(|_| 0);
    }
    if ours.truncate && into.is_nowhere() {
        return discard(socket, into, ours);
    }
    // SAFETY: the application passes buffers that may be written.
    unsafe { into.lend_mut(|slices| socket.connection.recv(slices, ours)) }
}

/// MSG_TRUNC without memory: what would have been received goes nowhere.
fn discard(socket: &SocketRef, into: Buffers, flags: RecvFlags) -> Result<usize, Errno> {
    // SAFETY: not a vector.
    let wanted = unsafe { into.len()? };
    let mut nowhere = [0u8; 16 * 1024];
    let mut done = 0;
    while done < wanted {
        let len = nowhere.len().min(wanted - done);
        let flags = RecvFlags { dont_wait: flags.dont_wait || done > 0 && !flags.wait_all, ..flags };
        let piece = Buffers::Flat(nowhere.as_mut_ptr().cast(), len);
        // SAFETY: a live array.
        match unsafe { piece.lend_mut(|piece| socket.connection.recv(piece, flags)) } {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        if flags.peek {
            break;
        }
    }
    Ok(done)
}

/// Where TCP says who sent the bytes: nowhere.
fn no_address(result: ssize_t, address: *mut sockaddr, len: *mut socklen_t) -> ssize_t {
    if result >= 0 && !address.is_null() && !len.is_null() {
        // SAFETY: not null, and the application passes a valid length along with an address.
        unsafe { *len = 0 };
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
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    if message.is_null() || flags::refused_with_message(flags) {
        return kernel();
    }
    // SAFETY: not null, and valid as recvmsg demands.
    let header = unsafe { &mut *message };
    let into = match Buffers::message(header.msg_iov, header.msg_iovlen) {
        Ok(into) => into,
        Err(_) => return kernel(),
    };
    let by_kernel = std::cell::Cell::new(false);
    let result = receive(socket, into, flags, || {
        by_kernel.set(true);
        kernel()
    });
    if result >= 0 && !by_kernel.get() {
        header.msg_namelen = 0;
        header.msg_controllen = 0;
        header.msg_flags = flags::returned(flags);
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
    // SAFETY: valid or null, as recvmmsg demands.
    let limit =
        unsafe { timeout.as_ref() }.map(|timeout| Timeout::from_parts(timeout.tv_sec, timeout.tv_nsec));
    if limit.as_ref().is_some_and(Option::is_none) || messages.is_null() {
        return kernel();
    }
    let mut left = limit.flatten().unwrap_or(Timeout::ENDLESS);
    left.left();
    let mut done = 0;
    let mut flags_now = flags & !MSG_WAITFORONE;
    for at in 0..number.min(libc::UIO_MAXIOV as c_uint) as usize {
        // SAFETY: the application passes `number` messages.
        let message = unsafe { &mut *messages.add(at) };
        let header = &raw mut message.msg_hdr;
        // SAFETY: the application's own message.
        let result =
            unsafe { receive_message(socket, header, flags_now, || real::recvmsg(fd, header, flags_now)) };
        if result < 0 {
            break;
        }
        message.msg_len = result as c_uint;
        done += 1;
        if flags & MSG_WAITFORONE != 0 {
            flags_now |= MSG_DONTWAIT;
        }
        if left.is_over() {
            break;
        }
    }
    // SAFETY: as above.
    if let (Some(timeout), Some(left)) = (unsafe { timeout.as_mut() }, left.left()) {
        *timeout = crate::timeout::timespec(left);
    }
    if done > 0 || number == 0 { done } else { -1 }
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
            // As for files, reading nothing does not wait.
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
    ) -> ssize_t = table::socket(fd) => |socket, kernel| {
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
    ) -> ssize_t = table::socket(fd) => |socket, kernel| {
        let result = receive(&socket, Buffers::Flat(buf, len), flags, kernel);
        if flags & MSG_ERRQUEUE == 0 { no_address(result, address, address_len) } else { result }
    };
    /// recvmsg(2)
    fn recvmsg(
        fd: c_int,
        message: *mut msghdr,
        flags: c_int,
    ) -> ssize_t = table::socket(fd) => |socket, kernel| {
        // SAFETY: the caller's own message.
        unsafe { receive_message(&socket, message, flags, kernel) }
    };
    /// recvmmsg(2)
    fn recvmmsg(
        fd: c_int,
        messages: *mut mmsghdr,
        number: c_uint,
        flags: c_int,
        timeout: *mut timespec,
    ) -> c_int = table::socket(fd) => |socket, kernel| {
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
    ) -> ssize_t = table::socket(fd).filter(|_| len <= size) => |socket, kernel| {
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
    ) -> ssize_t = table::socket(fd).filter(|_| len <= size) => |socket, kernel| {
        let result = receive(&socket, Buffers::Flat(buf, len), flags, kernel);
        if flags & MSG_ERRQUEUE == 0 { no_address(result, address, address_len) } else { result }
    };
}
