//! Opens and sets up the sockets of a measurement.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use crate::early_stop::Interrupted;
use crate::error::Error;
use crate::limits::{ANSWER_LIMIT, GLANCE};

/// Makes a listening socket with the options that its connections inherit.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = new(address, SocketFlags::empty())?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, 128)?;
    Ok(socket.into())
}

/// Makes connections of the listener begin with the default congestion control. One that has begun
/// with BBR stays paced even after a change.
pub(crate) fn prepare(listener: &TcpListener) -> io::Result<()> {
    Ok(set_congestion_of(listener, None)?)
}

/// Connects with the congestion control set before the handshake.
pub(crate) fn connect(
    address: SocketAddr,
    congestion: Option<&str>,
    interrupted: Interrupted<'_>,
) -> Result<TcpStream, Error> {
    let socket =
        new(address, SocketFlags::NONBLOCK).map_err(Error::host("cannot make a socket"))?;
    set_congestion(&socket, congestion)?;
    let failed = |errno: Errno| Error::Connect { address, reason: errno.into() };
    match net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let deadline = Instant::now() + ANSWER_LIMIT;
    loop {
        if interrupted() {
            return Err(Error::Interrupted);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(failed(Errno::TIMEDOUT));
        }
        let timeout = Timespec::try_from(left.min(GLANCE)).unwrap_or_default();
        match poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => break,
            Err(errno) => return Err(failed(errno)),
        }
    }
    sockopt::socket_error(&socket).and_then(|outcome| outcome).map_err(failed)?;
    rustix::io::ioctl_fionbio(&socket, false).map_err(failed)?;
    Ok(socket.into())
}

fn new(address: SocketAddr, flags: SocketFlags) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | flags, None)?)
}

/// Sets the named congestion control, or the default one.
pub(crate) fn set_congestion(socket: impl AsFd, name: Option<&str>) -> Result<(), Error> {
    set_congestion_of(socket, name).map_err(|errno| match (name, errno) {
        (Some(name), Errno::NOENT) => Error::Test(format!(
            "this kernel does not offer the TCP congestion control `{name}`; net.ipv4.tcp_available_congestion_control lists them"
        )),
        (Some(name), Errno::PERM) => Error::Test(format!("this user may not use the congestion control `{name}`")),
        (_, errno) => Error::host("cannot set the TCP congestion control")(errno.into()),
    })
}

fn set_congestion_of(socket: impl AsFd, name: Option<&str>) -> rustix::io::Result<()> {
    match name {
        Some(name) => sockopt::set_tcp_congestion(socket, name),
        // Every kernel has reno.
        None => sockopt::set_tcp_congestion(&socket, "cubic")
            .or_else(|_| sockopt::set_tcp_congestion(&socket, "reno")),
    }
}

/// The congestion control of the socket.
pub(crate) fn congestion(socket: impl AsFd) -> Result<String, Error> {
    sockopt::tcp_congestion(socket)
        .map_err(|errno| Error::host("cannot read the congestion control")(errno.into()))
}

/// Limits each call on the socket to [`ANSWER_LIMIT`], and lets the kernel end the connection when
/// the other host has not responded for about as long: a host that loses its power or its link
/// sends no FIN.
pub(crate) fn limit(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, ANSWER_LIMIT / 2)?;
    sockopt::set_tcp_keepintvl(stream, ANSWER_LIMIT / 10)?;
    // Overrides the number of probes (TCP_KEEPCNT).
    sockopt::set_tcp_user_timeout(stream, ANSWER_LIMIT.as_millis() as u32)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))
}
