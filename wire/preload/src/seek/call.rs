//! How a seek finds its connection, and how it ends.

use std::ffi::c_int;

use libc::ssize_t;
use seekwire_transport::Errno;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::socket::unread;

use super::adopt::adopt;
use crate::api::check;
use crate::call_path::{Part, StartedCall};
use crate::ffi::{count, errno, fail, guarded, guarded_raw, keeping_errno};
use crate::table::{self, SocketRef};
use crate::{cancel, unload};

/// Makes a call on the connection behind `fd` in the way of a receive: it restarts after a signal
/// if the handler asks for that, and is a cancellation point. `prepare` checks the arguments before
/// `fd` is checked; `call` gets the same ones each time.
pub(super) fn answer<T>(
    fd: c_int,
    prepare: impl FnOnce() -> Result<T, Errno>,
    mut call: impl FnMut(&SocketRef, &mut T) -> Result<usize, Errno>,
) -> ssize_t {
    let begun = guarded_raw(|| {
        let arguments = prepare()?;
        let socket = find(fd)?;
        if !socket.connection.is_seeking() {
            if socket.connection.has_spill() {
                // Other programs may receive from it at the same time.
                return Err(Errno::BUSY);
            }
            // The epoll sets that contain it are updated now, because the call may take long.
            guarded(|| socket.connection.begin_to_seek());
            socket.update_sets();
        }
        Ok((socket, arguments))
    });
    let (socket, mut arguments) = match begun {
        Some(Ok(begun)) => begun,
        Some(Err(error)) => return fail(error),
        None => return fail(Errno::IO),
    };
    loop {
        let once = || attempt(&socket, || call(&socket, &mut arguments));
        match cancel::point(|| guarded_raw(once)) {
            Some(None) if unload::has_begun() => return fail(Errno::CANCELED),
            Some(None) => {}
            Some(Some(result)) => return count(result),
            None => return fail(Errno::IO),
        }
    }
}

/// Makes a call once; `None` if it has to be made again.
fn attempt(
    socket: &SocketRef,
    call: impl FnOnce() -> Result<usize, Errno>,
) -> Option<Result<usize, Errno>> {
    let begun = StartedCall::receive(socket, Part::First);
    match call() {
        Err(Errno::CANCELED) => None,
        Err(Errno::INTR) if begun.restarts(socket) => {
            if socket.begin_again() == Ok(true) {
                None
            } else {
                Some(Err(Errno::BADF))
            }
        }
        result => {
            socket.update_sets();
            Some(result)
        }
    }
}

/// The connection behind `fd`, tracked from now on.
pub(super) fn find(fd: c_int) -> Result<SocketRef, Errno> {
    if let Some(socket) = table::socket(fd) {
        return if socket.is_listening() { Err(Errno::NOTCONN) } else { Ok(socket) };
    }
    is_connected(fd)?;
    keeping_errno(|| adopt(fd))
}

/// Checks that `fd` is a connected TCP socket; returns the error of a seek if not.
pub(super) fn is_connected(fd: c_int) -> Result<(), Errno> {
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
        // A connection that has ended has no peer either, but bytes that had arrived can still be
        // received.
        libc::ENOTCONN if unread(Fd::new(fd)).is_ok_and(|unread| unread > 0) => Ok(()),
        error => Err(Errno::from_raw_os_error(error)),
    }
}
