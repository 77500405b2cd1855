//! seek_recv and seekwire_recvmsg.

use std::ffi::{c_int, c_void};
use std::io::IoSliceMut;

use libc::{MSG_CMSG_CLOEXEC, MSG_PEEK, MSG_TRUNC, msghdr, size_t, ssize_t};
use seekwire_endpoint::LoanPiece;
use seekwire_transport::Errno;
use seekwire_transport::buffer::zeros;

use super::call::answer;
use super::lend::lend;
use super::request::SeekRequest;
use crate::buffers::{Buffers, is_possible};
use crate::pointers;
use crate::table::SocketRef;

/// Takes `len` bytes from the middle of the stream.
///
/// # Safety
///
/// As seekwire.h demands.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn seek_recv(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    offset: size_t,
) -> ssize_t {
    // The type is that of the papers; it has at most as many bits as a position.
    let prepare = || SeekRequest::new(flags, MSG_PEEK | MSG_TRUNC, offset as u64);
    answer(fd, prepare, |socket, request| take(socket, Buffers::Flat(buf, len), request))
}

/// Like seek_recv, into several buffers.
///
/// # Safety
///
/// As seekwire.h demands.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn seekwire_recvmsg(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
    offset: u64,
) -> ssize_t {
    let prepare = || {
        if !pointers::can_write(message, 1) {
            return Err(Errno::FAULT);
        }
        // SAFETY: memory, and valid as the caller says.
        let header = unsafe { &mut *message };
        let request = SeekRequest::new(flags, MSG_PEEK | MSG_TRUNC | MSG_CMSG_CLOEXEC, offset)?;
        let into = Buffers::message(header.msg_iov, header.msg_iovlen)
            // recvmsg(2) has this error for too many buffers.
            .map_err(|error| if error == Errno::INVAL { Errno::MSGSIZE } else { error })?;
        Ok((request, into, header))
    };
    answer(fd, prepare, |socket, (request, into, header)| {
        let taken = take(socket, *into, request)?;
        header.msg_namelen = 0;
        header.msg_controllen = 0;
        header.msg_flags = flags & MSG_CMSG_CLOEXEC;
        Ok(taken)
    })
}

/// A call that is repeated after a signal refers to the same bytes as before.
fn take(socket: &SocketRef, into: Buffers, request: &mut SeekRequest) -> Result<usize, Errno> {
    // SAFETY: the caller's own array.
    let len = request.most(unsafe { into.asked()? })?;
    if request.truncate {
        return discard(socket, len, request);
    }
    if let Buffers::Flat(base, len) = into
        && !is_possible(base, len)
    {
        return Err(Errno::FAULT);
    }
    let SeekRequest { at, options, dont_wait, .. } = request;
    // SAFETY: the caller passes buffers that may be written.
    unsafe {
        into.lend_mut(|slices| socket.connection.seek_again(slices, at, *options, *dont_wait))
    }
}

/// MSG_TRUNC: takes bytes and discards them.
fn discard(socket: &SocketRef, len: usize, request: &mut SeekRequest) -> Result<usize, Errno> {
    if request.options.peek {
        let mut nowhere = zeros(len)?;
        let SeekRequest { at, options, dont_wait, .. } = request;
        let into = &mut [IoSliceMut::new(&mut nowhere)];
        return socket.connection.seek_again(into, at, *options, *dont_wait);
    }
    let mut taken = 0;
    let mut loans = Vec::new();
    for piece in lend(socket, len, request)? {
        match piece {
            LoanPiece::Segment(loan) => {
                taken += loan.len;
                loans.push(loan);
            }
            LoanPiece::Copy(bytes) => taken += bytes.len(),
        }
    }
    // They are taken, even if returning the memory fails.
    let _ = socket.connection.return_loans(&loans);
    Ok(taken)
}
