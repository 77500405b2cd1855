//! Two TCP sockets of this process that are connected to each other.

use std::io;
use std::net::SocketAddr;

use rustix::fd::AsFd;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, accept_with, bind, connect, getpeername, getsockname,
    listen, socket_with, sockopt,
};

use super::fd::{Fd, LibraryFd, PrivateFd};

/// Maximum number of strangers that may connect first.
const STRANGERS: usize = 16;

/// A pair on the local address of `like`: the library's end, and one for a program to which it has
/// to look like `like`, in its addresses, flags and the most usual options.
///
/// # Errors
/// Those of the calls that make it.
pub fn like(like: Fd) -> io::Result<(PrivateFd, LibraryFd)> {
    let mut local = SocketAddr::try_from(getsockname(like.borrow())?)?;
    local.set_port(0);
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let new = || -> io::Result<LibraryFd> {
        Ok(socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?.into())
    };
    let listener = new()?;
    bind(&listener, &local)?;
    listen(&listener, STRANGERS as i32)?;
    let theirs = new()?;
    // Between two sockets of one host, this does not wait.
    connect(&theirs, &getsockname(&listener)?)?;
    for _ in 0..=STRANGERS {
        let ours: LibraryFd = accept_with(&listener, SocketFlags::CLOEXEC)?.into();
        if getpeername(&ours)? == Some(getsockname(&theirs)?) {
            sockopt::set_tcp_nodelay(&ours, true)?;
            imitate(&theirs, like)?;
            return Ok((PrivateFd::place(ours)?, theirs));
        }
    }
    Err(io::ErrorKind::ConnectionRefused.into())
}

/// A socket like `like` that is not connected: all calls that move bytes fail.
///
/// # Errors
/// Those of socket(2).
pub fn unconnected(like: Fd) -> io::Result<LibraryFd> {
    let family = sockopt::socket_domain(like.borrow())?;
    Ok(socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?.into())
}

fn imitate(to: &LibraryFd, from: Fd) -> io::Result<()> {
    let from = from.borrow();
    sockopt::set_tcp_nodelay(to, sockopt::tcp_nodelay(from)?)?;
    sockopt::set_socket_keepalive(to, sockopt::socket_keepalive(from)?)?;
    for which in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        sockopt::set_socket_timeout(to, which, sockopt::socket_timeout(from, which)?)?;
    }
    let flags = fcntl_getfl(from)? & OFlags::NONBLOCK;
    Ok(fcntl_setfl(to.as_fd(), flags)?)
}
