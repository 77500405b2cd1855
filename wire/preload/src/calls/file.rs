//! sendfile and splice: between a socket and another kind of file.

use std::ffi::{c_int, c_uint};
use std::os::fd::BorrowedFd;

use libc::{off_t, size_t, ssize_t};
use rustix::fs::{FileType, SeekFrom};
use seekwire_transport::Errno;
use seekwire_transport::buffer::zeros;

use super::interpose::interpose;
use super::receive;
use super::send::{by_kernel, by_tcp, transmit_part};
use crate::buffers::Buffers;
use crate::call_path::{CallPath, Parts};
use crate::ffi::{errno, fail, guarded, keeping_errno, set_errno};
use crate::hazard::outside;
use crate::table::{self, SocketRef};
use crate::{pointers, real, signals, unload};

/// Number of bytes of the file to copy at a time.
const PIECE: usize = 64 * 1024;
/// The flags that the kernel's splice accepts.
const SPLICE_FLAGS: c_uint =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

/// sendfile and sendfile64 to a tracked socket.
fn send_file(
    socket: &SocketRef,
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    len: usize,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    match socket.enter() {
        CallPath::Plain(plain) => return by_kernel(socket, plain, kernel),
        CallPath::Library => {}
        CallPath::Unseen => return kernel(),
    }
    // SAFETY: the caller's own number; one that is not open gives EBADF.
    let file = if from < 0 { return kernel() } else { unsafe { BorrowedFd::borrow_raw(from) } };
    let is_regular = rustix::fs::fstat(file)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    if !is_regular {
        // Bytes that were read from a pipe or a device could not be put back if there were no room
        // for them.
        return by_tcp(socket, kernel);
    }
    if !offset.is_null() && !pointers::can_read(offset, 1) {
        return kernel();
    }
    let begin = match offset.is_null() {
        // SAFETY: it can be read.
        false => u64::try_from(unsafe { offset.read_unaligned() }).map_err(|_| Errno::INVAL),
        true => rustix::fs::tell(file),
    };
    let begin = match begin {
        Ok(begin) => begin,
        Err(error) => return fail(error),
    };
    // All pieces count as one call.
    let parts = Parts::new(len > PIECE);
    let _holding = socket.connection.hold_file();
    let (sent, error) = copy(socket, out, &parts, file, begin, len);
    if sent == 0
        && let Some(error) = error
    {
        return fail(error);
    }
    let end = begin + sent as u64;
    if offset.is_null() {
        let _ = rustix::fs::seek(file, SeekFrom::Start(end));
    } else if pointers::can_write(offset, 1) {
        // SAFETY: it can be written to.
        unsafe { offset.write_unaligned(end as off_t) };
    } else {
        // The kernel notices the bad pointer when it sends bytes.
        return fail(Errno::FAULT);
    }
    sent as ssize_t
}

/// Sends `len` bytes of `file` from `begin` on, until there is no room; returns their number, and
/// the reason for sending fewer.
///
/// The bytes are read by position, so those without room simply stay in the file.
fn copy(
    socket: &SocketRef,
    out: c_int,
    parts: &Parts,
    file: BorrowedFd<'_>,
    begin: u64,
    len: usize,
) -> (usize, Option<Errno>) {
    let Some(mut piece) = guarded(|| zeros(PIECE.min(len)).ok()).flatten() else {
        return (0, Some(Errno::NOMEM));
    };
    let mut sent = 0;
    while sent < len {
        let want = piece.len().min(len - sent);
        let read = match rustix::io::pread(file, &mut piece[..want], begin + sent as u64) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) => return (sent, Some(error)),
        };
        let (base, room) = (piece.as_mut_ptr().cast(), read);
        let result = transmit_part(socket, Buffers::Flat(base, room), 0, parts.next(), || {
            parts.leave_to_kernel();
            // SAFETY: the call of an application that had read the piece itself.
            unsafe { real::send(out, base, room, 0) }
        });
        let Ok(bytes) = usize::try_from(result) else {
            return (sent, Some(Errno::from_raw_os_error(errno())));
        };
        sent += bytes;
        if bytes < read {
            break;
        }
    }
    (sent, None)
}

/// splice from a tracked socket to a pipe.
/// The kernel's socket does not have the bytes that came by the ring, and some of those that it has
/// may come after the ring's, or were already taken. So the bytes of an attached or seeking
/// connection are copied.
fn splice_out(
    socket: &SocketRef,
    from: c_int,
    pipe: c_int,
    len: usize,
    flags: c_uint,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    match socket.enter_to_receive() {
        CallPath::Plain(plain) => return receive::by_kernel(socket, plain, 0, kernel),
        CallPath::Library if len > 0 => {}
        _ => return kernel(),
    }
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0 && !is_nonblocking(pipe);
    let room = match room_in(pipe, waits) {
        Ok(0) => return kernel(),
        Ok(room) => room.min(len).min(PIECE),
        Err(error) => return fail(error),
    };
    let Some(mut piece) = guarded(|| zeros(room).ok()).flatten() else { return fail(Errno::NOMEM) };
    let base = piece.as_mut_ptr().cast();
    let receive = |room, flags| {
        // SAFETY: a live array of at least that size.
        receive::receive(socket, Buffers::Flat(base, room), flags, || unsafe {
            outside(|| real::recv(from, base, room, flags))
        })
    };
    // splice ignores SO_RCVLOWAT.
    let received = match socket.low_water() {
        ..=1 => receive(room, 0),
        _ => loop {
            match receive(0, 0) {
                0 => {}
                failed => break failed,
            }
            let received = receive(room, libc::MSG_DONTWAIT);
            let nothing = received < 0 && errno() == Errno::AGAIN.raw_os_error();
            if !nothing || socket.connection.settings().receives_for_a_time() {
                break received;
            }
            // A signal has ended the sleep, or another receiver has taken the bytes.
            if !signals::restart() {
                break fail(Errno::INTR);
            }
        },
    };
    if received <= 0 {
        return received;
    }
    match write_all(pipe, &piece[..received as usize]) {
        0 => -1,
        written => written as ssize_t,
    }
}

/// Writes bytes that were received and must not be lost: another thread may have taken the room.
/// Returns their number, which is smaller if writing has failed: then errno says how.
fn write_all(pipe: c_int, bytes: &[u8]) -> usize {
    let mut entry = libc::pollfd { fd: pipe, events: libc::POLLOUT, revents: 0 };
    let before = errno();
    let mut written = 0;
    while written < bytes.len() {
        let rest = &bytes[written..];
        // SAFETY: a live slice.
        match unsafe { real::write(pipe, rest.as_ptr().cast(), rest.len()) } {
            -1 if errno() == libc::EINTR => {}
            // SAFETY: one live entry.
            -1 if errno() == libc::EAGAIN => _ = unsafe { real::poll(&raw mut entry, 1, -1) },
            -1 => return written,
            more => written += more as usize,
        }
    }
    set_errno(before);
    written
}

fn is_nonblocking(pipe: c_int) -> bool {
    // SAFETY: takes no argument.
    let flags = keeping_errno(|| unsafe { real::fcntl(pipe, libc::F_GETFL, 0) });
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// Number of bytes that `pipe` takes without waiting, after having waited for some; 0 if it is not
/// a writable pipe.
fn room_in(pipe: c_int, wait: bool) -> Result<usize, Errno> {
    /// In milliseconds. Limits each sleep, which otherwise only new room ends.
    const LOOK_UP: c_int = 100;
    let mut entry = libc::pollfd { fd: pipe, events: libc::POLLOUT, revents: 0 };
    let before = errno();
    loop {
        // SAFETY: one live entry.
        match unsafe { real::poll(&raw mut entry, 1, if wait { LOOK_UP } else { 0 }) } {
            0 if !wait => return Err(Errno::AGAIN),
            0 if unload::has_begun() => return Ok(0),
            0 => {}
            // Nothing has been moved yet.
            -1 if errno() == libc::EINTR && signals::restart() => set_errno(before),
            -1 => return Err(Errno::from_raw_os_error(errno())),
            _ => break,
        }
    }
    // SAFETY: takes no argument.
    let capacity = unsafe { real::fcntl(pipe, libc::F_GETPIPE_SZ, 0) };
    let mut queued: c_int = 0;
    // SAFETY: writes to a live integer.
    let asked = unsafe { real::ioctl(pipe, libc::FIONREAD, &raw mut queued as usize) };
    if entry.revents != libc::POLLOUT || asked < 0 {
        return Ok(0);
    }
    // A pipe that is not empty may have little room left, but poll guarantees this much.
    Ok(if queued == 0 { usize::try_from(capacity).unwrap_or(0) } else { libc::PIPE_BUF })
}

interpose! {
    /// sendfile(2)
    fn sendfile(
        out: c_int,
        from: c_int,
        offset: *mut off_t,
        len: size_t,
    ) -> ssize_t = Some((table::socket(out), table::socket(from))) => |ends, kernel| {
        match ends {
            (Some(socket), _) => send_file(&socket, out, from, offset, len, kernel),
            // To a pipe, it is the same as splice.
            (None, Some(socket)) if offset.is_null() => splice_out(&socket, from, out, len, 0, kernel),
            _ => kernel(),
        }
    };
    /// sendfile(2) in programs built with 64-bit off_t
    fn sendfile64(
        out: c_int,
        from: c_int,
        offset: *mut off_t,
        len: size_t,
    ) -> ssize_t = Some((table::socket(out), table::socket(from))) => |ends, kernel| {
        match ends {
            (Some(socket), _) => send_file(&socket, out, from, offset, len, kernel),
            // To a pipe, it is the same as splice.
            (None, Some(socket)) if offset.is_null() => splice_out(&socket, from, out, len, 0, kernel),
            _ => kernel(),
        }
    };
    /// splice(2)
    fn splice(
        from: c_int,
        from_offset: *mut i64,
        to: c_int,
        to_offset: *mut i64,
        len: size_t,
        flags: c_uint,
    ) -> ssize_t = Some((table::socket(from), table::socket(to))) => |ends, kernel| {
        match ends {
            // With an offset or an unknown flag the kernel moves no bytes.
            _ if !from_offset.is_null() || !to_offset.is_null() || flags & !SPLICE_FLAGS != 0 => kernel(),
            (Some(socket), _) => splice_out(&socket, from, to, len, flags, kernel),
            (None, Some(socket)) => by_tcp(&socket, kernel),
            (None, None) => kernel(),
        }
    };
}
