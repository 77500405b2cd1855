//! Requests to the kernel that programs around streams make, and for which the standard library has
//! no safe function.

use std::io;
use std::os::fd::AsFd;

pub use seekwire_transport::sys::fd::inherited;
use seekwire_transport::sys::{Fd, socket};

/// Bytes in the send queue of a TCP socket: those that the kernel has not sent yet, and those that
/// the peer's kernel has not acknowledged (SIOCOUTQ, tcp(7)). Bytes on the ring are not among them.
///
/// # Errors
/// Those of ioctl(2).
pub fn unacknowledged(socket: &impl AsFd) -> io::Result<usize> {
    Ok(socket::unsent(Fd::from(&socket.as_fd()))?)
}
