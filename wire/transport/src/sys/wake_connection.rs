//! The TCP connections of wake channels: connections of the library's own to another machine, which
//! carry a short hello and then rings ([`Doorbell::remote_pair`](super::doorbell::Doorbell)). None
//! of these calls blocks.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, acceptfrom_with, bind, connect,
    getsockname, listen, recv, send, socket_with, sockopt,
};

use super::fd::PrivateFd;
use super::socket;
use crate::Errno;

/// Keepalive of an idle connection: it is probed after this time, and then this often before it is
/// closed. A firewall may drop a connection on which nothing moves, and notifies nobody.
const IDLE: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// How long a ring may go unacknowledged before the connection is closed, in milliseconds.
const UNACKNOWLEDGED_MS: u32 = 15_000;
/// Length of the queue of connections that were not accepted yet; the kernel allows no more by
/// default (net.core.somaxconn).
const BACKLOG: i32 = 4096;
/// The lowest port at which connections are accepted. Lower ones belong to system services, and
/// nobody may make this machine connect to those by naming their port.
pub const LEAST_PORT: u16 = 1024;
/// Number of ports below that which the kernel may choose before this gives up.
const TRIES: usize = 16;

fn new(address: IpAddr) -> io::Result<PrivateFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
    PrivateFd::new(socket_with(family, SocketType::STREAM, flags, None)?)
}

fn prepare(connection: &PrivateFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(connection, true)?;
    sockopt::set_socket_keepalive(connection, true)?;
    sockopt::set_tcp_keepidle(connection, IDLE)?;
    sockopt::set_tcp_keepintvl(connection, INTERVAL)?;
    sockopt::set_tcp_keepcnt(connection, PROBES)?;
    Ok(sockopt::set_tcp_user_timeout(connection, UNACKNOWLEDGED_MS)?)
}

/// Listens at an address of this machine, in the network namespace of this thread. Also returns the
/// port.
///
/// # Errors
/// Those of socket(2), bind(2) and listen(2); EMFILE if no number above the library's floor is
/// free; EADDRNOTAVAIL if the kernel chooses no port from [`LEAST_PORT`] on.
pub fn listen_at(address: IpAddr) -> io::Result<(PrivateFd, u16)> {
    // Kept meanwhile, so that the kernel chooses others.
    let mut too_low = Vec::new();
    for _ in 0..TRIES {
        let socket = new(address)?;
        bind(&socket, &SocketAddr::new(address, 0))?;
        let name = SocketAddr::try_from(getsockname(&socket)?).map_err(|_| Errno::AFNOSUPPORT)?;
        if name.port() >= LEAST_PORT {
            listen(&socket, BACKLOG)?;
            return Ok((socket, name.port()));
        }
        too_low.push(socket);
    }
    Err(Errno::ADDRNOTAVAIL.into())
}

/// Accepts the next connection, and returns it with its address; `None` if there is none.
///
/// # Errors
/// Those of accept(2); EMFILE as above.
pub fn accept(listener: &PrivateFd) -> io::Result<Option<(PrivateFd, SocketAddr)>> {
    let flags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
    loop {
        return match acceptfrom_with(listener, flags) {
            Ok((connection, from)) => {
                let connection = PrivateFd::new(connection)?;
                let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                prepare(&connection)?;
                Ok(Some((connection, from.ok_or(Errno::AFNOSUPPORT)?)))
            }
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            Err(error) => Err(error.into()),
        };
    }
}

/// Begins a connection from one address to another. Its port may be shared with connections that
/// go elsewhere.
///
/// # Errors
/// Those of socket(2), bind(2) and connect(2); EMFILE as above.
pub fn begin(from: IpAddr, to: SocketAddr) -> io::Result<PrivateFd> {
    let connection = new(from)?;
    // Otherwise, bind would reserve a port of this address exclusively. A kernel that lacks this
    // option does reserve one.
    let _ = socket::choose_port_at_connect(connection.fd());
    bind(&connection, &SocketAddr::new(from, 0))?;
    prepare(&connection)?;
    match connect(&connection, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(connection),
        Err(error) => Err(error.into()),
    }
}

/// Whether a connection that was begun is established; false while it is still connecting.
///
/// # Errors
/// The reason why it has failed: those of connect(2).
pub fn is_established(connection: &PrivateFd) -> io::Result<bool> {
    let want = super::poll::Events::WRITE;
    let events = super::poll::look(connection.fd(), want)?;
    match sockopt::socket_error(connection)? {
        Ok(()) => Ok(events.write && !events.dead),
        Err(error) => Err(error.into()),
    }
}

/// Sends the hello, on a connection on which nothing was sent yet, so that there is room for it.
///
/// # Errors
/// Those of send(2).
pub fn send_hello(connection: &PrivateFd, bytes: &[u8]) -> io::Result<()> {
    let flags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
    let sent = rustix::io::retry_on_intr(|| send(connection, bytes, flags))?;
    if sent == bytes.len() { Ok(()) } else { Err(Errno::NOBUFS.into()) }
}

/// Receives the bytes of the hello that have arrived, at most `into`; `None` if there are none.
///
/// # Errors
/// Those of recv(2); ECONNRESET if no more will come.
pub fn receive_hello(connection: &PrivateFd, into: &mut [u8]) -> io::Result<Option<usize>> {
    match rustix::io::retry_on_intr(|| recv(connection, &mut *into, RecvFlags::DONTWAIT)) {
        Ok((0, _)) => Err(Errno::CONNRESET.into()),
        Ok((len, _)) => Ok(Some(len)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn soon<T>(mut look: impl FnMut() -> io::Result<Option<T>>) -> T {
        loop {
            if let Some(result) = look().unwrap() {
                return result;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_connection_arrives_from_the_address_that_it_names_and_carries_the_hello() {
        let (listener, port) = listen_at(HERE).unwrap();
        assert!(accept(&listener).unwrap().is_none());
        let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
        let connection = begin(from, SocketAddr::new(HERE, port)).unwrap();
        soon(|| Ok(is_established(&connection)?.then_some(())));
        let (accepted, came_from) = soon(|| accept(&listener));
        assert_eq!(came_from.ip(), from);
        let mut bytes = [0; 8];
        assert!(receive_hello(&accepted, &mut bytes).unwrap().is_none());
        send_hello(&connection, b"hello").unwrap();
        assert_eq!(soon(|| receive_hello(&accepted, &mut bytes)), 5);
        drop(connection);
        let error = loop {
            match receive_hello(&accepted, &mut bytes) {
                Ok(None) => std::thread::yield_now(),
                Ok(Some(_)) => panic!("nothing more was sent"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(Errno::CONNRESET.raw_os_error()));
    }

    #[test]
    fn a_connection_to_where_nobody_listens_is_refused() {
        let (listener, port) = listen_at(HERE).unwrap();
        drop(listener);
        let error = match begin(HERE, SocketAddr::new(HERE, port)) {
            Ok(connection) => loop {
                match is_established(&connection) {
                    Ok(false) => std::thread::yield_now(),
                    Ok(true) => panic!("it arrived"),
                    Err(error) => break error,
                }
            },
            Err(error) => error,
        };
        assert_eq!(error.raw_os_error(), Some(Errno::CONNREFUSED.raw_os_error()));
    }
}
