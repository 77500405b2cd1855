//! Receiving out of the middle of a stream (Douglas and Pai, "Seekable sockets"), as
//! include/seekwire.h declares it.
//!
//! ```text
//!   receive    seek_recv, seek_recvmsg     lend       seek_recv_borrow, seek_recv_return
//!   open       seek_socket                 extent     seek_avail
//!   adopt      sockets that the library did not track before
//! ```

mod adopt;
mod extent;
mod lend;
mod open;
mod receive;

use std::ffi::c_int;

use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, ssize_t};
use seekwire_endpoint::{At, SeekOptions};
use seekwire_transport::Errno;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::socket::unread;

pub(crate) use lend::IovecLoan;
pub(crate) use open::{SOCK_SEEK_STREAM, mark};

use crate::api::check;
use crate::buffers::MAX_BYTES;
use crate::ffi::{self, count, errno, fail, guarded, guarded_raw, keeping_errno};
use crate::socket::Begun;
use crate::table::{self, SocketRef};
use crate::{cancel, signals};

use self::adopt::adopt;

/// Take what has arrived, up to the next hole.
const SEEK_PARTIAL: c_int = 0x0040_0000;
/// The offset is a position of the stream.
const SEEK_POSITION: c_int = 0x0080_0000;

/// Nothing that recvmsg(2) takes or gives.
const _: () = {
    let known =
        MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC | MSG_WAITALL | libc::MSG_OOB | libc::MSG_CMSG_CLOEXEC;
    let others = libc::MSG_ERRQUEUE
        | libc::MSG_NOSIGNAL
        | libc::MSG_MORE
        | libc::MSG_FASTOPEN
        | libc::MSG_WAITFORONE;
    assert!((SEEK_PARTIAL | SEEK_POSITION) & (known | others | libc::MSG_CTRUNC) == 0);
};

/// What a caller asks for.
#[derive(Clone, Copy)]
struct Request {
    at: At,
    options: SeekOptions,
    dont_wait: bool,
    truncate: bool,
}

impl Request {
    /// EINVAL for flags beyond `allowed`, and those that every seek knows.
    fn new(flags: c_int, allowed: c_int, offset: usize) -> Result<Request, Errno> {
        // A seek waits for all in any case.
        const ALWAYS: c_int = MSG_DONTWAIT | MSG_WAITALL | SEEK_PARTIAL | SEEK_POSITION;
        if flags & !(ALWAYS | allowed) != 0 {
            return Err(Errno::INVAL);
        }
        // No off_t is larger.
        let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?.unsigned_abs();
        Ok(Request {
            at: if flags & SEEK_POSITION == 0 { At::Offset(offset) } else { At::Position(offset) },
            options: SeekOptions::TAKE
                .peek(flags & MSG_PEEK != 0)
                .partial(flags & SEEK_PARTIAL != 0),
            dont_wait: flags & MSG_DONTWAIT != 0,
            truncate: flags & MSG_TRUNC != 0,
        })
    }

    /// How many of `len` bytes to ask for. No call moves more than the kernel's do, and a range
    /// that is taken whole cannot be cut.
    fn most(&self, len: usize) -> Result<usize, Errno> {
        match len {
            _ if len > isize::MAX as usize => Err(Errno::INVAL),
            _ if len > MAX_BYTES && !self.options.partial => Err(Errno::NOBUFS),
            _ => Ok(len.min(MAX_BYTES)),
        }
    }
}

/// Makes a call on the connection behind `fd`, as a receive is made: it starts again after a signal
/// whose handler says so, and is a cancellation point.
fn answer(fd: c_int, mut call: impl FnMut(&SocketRef) -> Result<usize, Errno>) -> ssize_t {
    let socket = match find(fd) {
        Ok(socket) => socket,
        Err(error) => return fail(error),
    };
    if !socket.connection.is_seeking() {
        // The epoll sets that it is in hear of it now, not when the call is over, which may be
        // long.
        keeping_errno(|| guarded(|| socket.connection.begin_to_seek()));
        socket.update_sets();
    }
    loop {
        let begun = Begun::receive(&socket);
        match cancel::point(|| guarded_raw(|| call(&socket))) {
            Some(Err(Errno::CANCELED)) => {}
            Some(Err(Errno::INTR)) if !begun.was_limited(&socket) && signals::restart() => {
                if socket.begin_again() != Ok(true) {
                    return fail(Errno::BADF);
                }
            }
            Some(result) => {
                socket.update_sets();
                return count(result);
            }
            None => return fail(Errno::IO),
        }
    }
}

/// The connection behind `fd`, tracked from now on.
fn find(fd: c_int) -> Result<SocketRef, Errno> {
    if let Some(socket) = table::socket(fd) {
        return if socket.is_listening() { Err(Errno::NOTCONN) } else { Ok(socket) };
    }
    is_connected(fd)?;
    keeping_errno(|| adopt(fd))
}

/// Whether `fd` is a connected TCP socket: the error of a seek if not.
fn is_connected(fd: c_int) -> Result<(), Errno> {
    keeping_errno(|| ask_whether_connected(fd))
}

fn ask_whether_connected(fd: c_int) -> Result<(), Errno> {
    check(fd).map_err(|error| if error == Errno::INVAL { Errno::OPNOTSUPP } else { error })?;
    let mut address = [0u64; 16];
    let mut len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: room for an address of any family, and its size.
    let result = unsafe { libc::getpeername(fd, address.as_mut_ptr().cast(), &raw mut len) };
    match if result == 0 { 0 } else { errno() } {
        0 => Ok(()),
        // One whose connection has ended has no peer either, but what had arrived can still be
        // received.
        libc::ENOTCONN if unread(Fd::new(fd)).is_ok_and(|unread| unread > 0) => Ok(()),
        error => Err(Errno::from_raw_os_error(error)),
    }
}

/// The answer of a call that returns 0 when it has done its work.
fn status(work: impl FnOnce() -> Result<(), Errno>) -> c_int {
    ffi::status(guarded_raw(work).unwrap_or(Err(Errno::IO)))
}
