//! The TCP connections of a network namespace, from /proc/PID/net (proc(5)).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{fs, io};

use crate::proc::Process;

/// An established (or half-closed) TCP connection of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TcpConnection {
    /// The inode of the socket.
    pub(crate) socket: u64,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    /// The user that created the socket.
    pub(crate) user: u32,
    /// Neither end has closed its side.
    pub(crate) is_established: bool,
}

/// The connections of one namespace.
#[derive(Debug, Default)]
pub(crate) struct TcpTable {
    by_socket: HashMap<u64, TcpConnection>,
    by_ends: HashMap<(SocketAddr, SocketAddr), TcpConnection>,
}

impl TcpTable {
    /// The table of the namespace of `process`.
    ///
    /// # Errors
    /// Those of reading it, if the process has ended.
    pub(crate) fn of(process: &Process) -> io::Result<Self> {
        // In this order: without IPv6 there is only the table of IPv4, and with it the process was
        // there.
        let v6 = fs::read_to_string(process.directory.join("net/tcp6")).unwrap_or_default();
        let v4 = fs::read_to_string(process.directory.join("net/tcp"))?;
        let mut table = Self::default();
        let lines = [&v4, &v6].into_iter().flat_map(|text| text.lines().skip(1));
        lines.filter_map(parse_line).for_each(|connection| table.add(connection));
        Ok(table)
    }

    pub(crate) fn add(&mut self, connection: TcpConnection) {
        // No process has accepted it yet, or none holds it any more.
        if connection.socket != 0 {
            self.by_socket.insert(connection.socket, connection);
        }
        self.by_ends.insert((connection.local, connection.peer), connection);
    }

    /// The connection with this socket.
    pub(crate) fn of_socket(&self, socket: u64) -> Option<TcpConnection> {
        self.by_socket.get(&socket).copied()
    }

    /// The connection whose own view this is.
    pub(crate) fn between(&self, local: SocketAddr, peer: SocketAddr) -> Option<TcpConnection> {
        self.by_ends.get(&(local, peer)).copied()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = TcpConnection> {
        self.by_ends.values().copied()
    }
}

/// One line of /proc/net/tcp or tcp6: `sl local remote state queues timer retransmits uid timeout
/// inode ...`.
fn parse_line(line: &str) -> Option<TcpConnection> {
    // Of include/net/tcp_states.h: the states in which both ends are known and bytes may move.
    const ESTABLISHED: &str = "01";
    const FIN_WAIT1: &str = "04";
    const FIN_WAIT2: &str = "05";
    const CLOSE_WAIT: &str = "08";

    let mut fields = line.split_ascii_whitespace().skip(1);
    let local = parse_address(fields.next()?)?;
    let peer = parse_address(fields.next()?)?;
    let state = fields.next()?;
    if ![ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT].contains(&state) {
        return None;
    }
    let user = fields.nth(3)?.parse().ok()?;
    let socket = fields.nth(1)?.parse().ok()?;
    Some(TcpConnection { socket, local, peer, user, is_established: state == ESTABLISHED })
}

/// `0100007F:1F90`: the address as hexadecimal words in the machine's byte order, the port as a
/// number.
fn parse_address(field: &str) -> Option<SocketAddr> {
    let (address, port) = field.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for word in address.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::proc;

    #[cfg(target_endian = "little")]
    #[test]
    fn lines_of_the_kernel_are_understood() {
        let v4 = "   1: 0100007F:1F90 0200007F:C350 01 00000000:00000000 00:00000000 00000000  1000 0 4711 1 ff 20 4 30 10 -1";
        let expected = TcpConnection {
            socket: 4711,
            local: "127.0.0.1:8080".parse().unwrap(),
            peer: "127.0.0.2:50000".parse().unwrap(),
            user: 1000,
            is_established: true,
        };
        assert_eq!(parse_line(v4), Some(expected));

        let v6 = "   0: 00000000000000000000000001000000:0016 00000000000000000000000001000000:D431 08 0:0 0:0 0 0 0 99 1";
        let connection = parse_line(v6).unwrap();
        assert_eq!((connection.socket, connection.local), (99, "[::1]:22".parse().unwrap()));
        assert!(!connection.is_established);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn mapped_addresses_are_written_as_ipv4() {
        let mapped = parse_address("0000000000000000FFFF00000100007F:0050");
        assert_eq!(mapped, Some("127.0.0.1:80".parse().unwrap()));
    }

    #[test]
    fn listening_sockets_and_nonsense_are_left_out() {
        let listening = "   1: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 1000 0 4711 1";
        for line in [
            "",
            "a b c d",
            listening,
            "1: 0100007F:1F90 0100007F 01",
            "1: é100007F:1F90 0100007F:1 01",
        ] {
            assert_eq!(parse_line(line), None, "{line:?}");
        }
    }

    #[test]
    fn own_connections_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_server, _) = listener.accept().unwrap();

        let pid = std::process::id();
        let process = proc::all().into_iter().find(|process| process.pid == pid).unwrap();
        let (local, peer) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let table = TcpTable::of(&process).unwrap();
        let found = table.between(local, peer).unwrap();
        assert_eq!(found.user, rustix::process::geteuid().as_raw());
        assert_eq!(table.of_socket(found.socket), Some(found));
        assert!(process.sockets().contains(&found.socket));
        assert!(table.between(peer, local).is_some());
    }
}
