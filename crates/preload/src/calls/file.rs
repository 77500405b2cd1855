//! sendfile and splice: between a socket and something that is not one.

use std::ffi::{c_int, c_uint};
use std::os::fd::BorrowedFd;

use endpoint::Reason;
use libc::{off_t, size_t, ssize_t};
use rustix::fs::{FileType, SeekFrom};
use transport::Errno;

use super::interpose;
use super::receive::{receive, receive_by_kernel};
use super::send::{by_kernel, transmit};
use crate::border::{fail, guarded};
use crate::buffers::Buffers;
use crate::table::{self, SocketRef};

/// Bytes of the file that are copied at once.
const PIECE: usize = 64 * 1024;

/// sendfile and sendfile64 to a tracked socket.
fn send_file(
    socket: &SocketRef,
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    len: usize,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    match socket.enter_plain() {
        Some(Some(plain)) => return by_kernel(socket, plain, kernel),
        Some(None) => {}
        None => return kernel(),
    }
    // SAFETY: the caller's own number; one that is not open gives EBADF.
    let file = if from < 0 { return kernel() } else { unsafe { BorrowedFd::borrow_raw(from) } };
    let is_regular = rustix::fs::fstat(file)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    if !is_regular {
        // What is read from a pipe or a device and then finds no room cannot be put back.
        return splice_in(socket, kernel);
    }
    // SAFETY: valid or null, as sendfile demands.
    let place = unsafe { offset.as_mut() };
    let begin = match &place {
        Some(place) => u64::try_from(**place).map_err(|_| Errno::INVAL),
        None => rustix::fs::tell(file),
    };
    let begin = match begin {
        Ok(begin) => begin,
        Err(error) => return fail(error),
    };
    let (sent, error) = copy(socket, out, file, begin, len);
    if sent == 0
        && let Some(error) = error
    {
        return fail(error);
    }
    let end = begin + sent as u64;
    match place {
        Some(place) => *place = end as off_t,
        None => {
            let _ = rustix::fs::seek(file, SeekFrom::Start(end));
        }
    }
    sent as ssize_t
}

/// Sends `len` bytes of `file` from `begin` on, as far as there is room; returns how many, and why not more.
///
/// What is read is taken from the file by position, so what finds no room is simply not taken.
fn copy(
    socket: &SocketRef,
    out: c_int,
    file: BorrowedFd<'_>,
    begin: u64,
    len: usize,
) -> (usize, Option<Errno>) {
    let Some(mut piece) = guarded(|| vec![0u8; PIECE.min(len)]) else { return (0, Some(Errno::NOMEM)) };
    let mut sent = 0;
    while sent < len {
        let want = piece.len().min(len - sent);
        let read = match rustix::io::pread(file, &mut piece[..want], begin + sent as u64) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) => return (sent, Some(error)),
        };
        let (base, room) = (piece.as_mut_ptr().cast(), read);
        // SAFETY: the call of an application that had read the piece itself.
        let result = transmit(socket, Buffers::Flat(base, room), 0, || unsafe {
            crate::real::send(out, base, room, 0)
        });
        let Ok(bytes) = usize::try_from(result) else {
            return (sent, Some(Errno::from_raw_os_error(crate::border::errno())));
        };
        sent += bytes;
        if bytes < read {
            break;
        }
    }
    (sent, None)
}

/// splice from a tracked socket to a pipe.
fn splice_out(
    socket: &SocketRef,
    pipe: c_int,
    len: usize,
    flags: c_uint,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    // What fits into a pipe that poll calls writable.
    const PIECE: usize = libc::PIPE_BUF;
    if socket.fall_back(Reason::Spliced).is_ok() {
        return receive_by_kernel(socket, kernel);
    }
    // Bytes that came by the ring: the kernel does not have them.
    let wait = flags & libc::SPLICE_F_NONBLOCK == 0;
    let mut room = libc::pollfd { fd: pipe, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one live entry.
    let ready = unsafe { crate::real::poll(&raw mut room, 1, if wait { -1 } else { 0 }) };
    if ready <= 0 || room.revents & libc::POLLOUT == 0 {
        return match ready {
            0 => fail(Errno::AGAIN),
            -1 => -1,
            _ => kernel(),
        };
    }
    let mut piece = [0u8; PIECE];
    let (base, len) = (piece.as_mut_ptr().cast(), len.min(PIECE));
    // SAFETY: a live array.
    let received = receive(socket, Buffers::Flat(base, len), 0, || unsafe {
        crate::real::recv(socket.connection.fd().raw(), base, len, 0)
    });
    if received <= 0 {
        return received;
    }
    // SAFETY: bytes that were just received.
    unsafe { crate::real::write(pipe, base, received as usize) }
}

/// splice from a pipe to a tracked socket, or sendfile from something that cannot be read twice.
fn splice_in(socket: &SocketRef, kernel: impl Fn() -> ssize_t) -> ssize_t {
    socket.send_by_tcp(Reason::UnknownOption);
    match socket.enter_plain() {
        Some(Some(plain)) => by_kernel(socket, plain, kernel),
        // The switch itself found no room on the ring.
        Some(None) if socket.connection.tx_on_ring() => fail(Errno::AGAIN),
        _ => kernel(),
    }
}

interpose! {
    /// sendfile(2)
    fn sendfile(out: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t = table::socket(out) => |socket, kernel| {
        send_file(&socket, out, from, offset, len, kernel)
    };
    /// sendfile(2) in programs built with 64-bit off_t
    fn sendfile64(out: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t = table::socket(out) => |socket, kernel| {
        send_file(&socket, out, from, offset, len, kernel)
    };
    /// splice(2)
    fn splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, len: size_t, flags: c_uint) -> ssize_t = Some((table::socket(from), table::socket(to))) => |ends, kernel| {
        match ends {
            (Some(from), _) => splice_out(&from, to, len, flags, kernel),
            (None, Some(to)) => splice_in(&to, kernel),
            (None, None) => kernel(),
        }
    };
}
