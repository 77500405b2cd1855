//! seek_socket, and the type SOCK_SEEK_STREAM of socket(2).

use std::ffi::c_int;

use seekwire_transport::Errno;

use crate::calls::socket;
use crate::ffi::{fail, guarded_raw};
use crate::socket::Socket;

/// A type that socket(2) of every Linux refuses: the kernel's own end below it, and only four bits
/// are looked at.
pub(crate) const SOCK_SEEK_STREAM: c_int = 0xf;

/// Makes a TCP socket that is received from out of order.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn seek_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    if kind & !FLAGS != 0 {
        return fail(Errno::INVAL);
    }
    // SAFETY: three integers.
    unsafe { socket(domain, SOCK_SEEK_STREAM | kind, protocol) }
}

/// From its first byte on, every receive from the connection may find holes.
pub(crate) fn mark(socket: &Socket) {
    socket.set_seekable();
    // To ask is to begin.
    guarded_raw(|| socket.connection.extent());
}
