//! seekwire_socket, and the type SOCK_SEEK_STREAM of socket(2).

use std::ffi::c_int;

use seekwire_transport::Errno;

use crate::calls::socket;
use crate::ffi::fail;
use crate::socket::SOCK_SEEK_STREAM;

/// Makes a TCP socket that is received from out of order.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn seekwire_socket(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    if kind & !FLAGS != 0 {
        return fail(Errno::INVAL);
    }
    // SAFETY: three integers.
    unsafe { socket(domain, SOCK_SEEK_STREAM | kind, protocol) }
}
