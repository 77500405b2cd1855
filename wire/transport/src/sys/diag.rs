//! The kernel's data on a TCP socket, whichever process holds it: sock_diag(7).

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use rustix::fd::AsFd;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use super::fd::{Fd, LibraryFd};
use super::socket;
use crate::Errno;

/// A connected TCP socket of this host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DiagSocket {
    /// Its inode in the file system of sockets.
    pub inode: u64,
    /// The user that created it.
    pub user: u32,
}

// linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 8 + ID;
const ID: usize = 48;
/// In the answer, after the header.
const ANSWER_ID: usize = HEADER + 4;
const USER: usize = ANSWER_ID + ID + 12;
const INODE: usize = USER + 4;
const ATTRIBUTES: usize = INODE + 4;
const TCP_LISTEN: u8 = 10;
const INET_DIAG_INFO: u8 = 2;
const INET_DIAG_SKMEMINFO: u8 = 7;
/// SK_MEMINFO_RCVBUF, an index into numbers of 4 bytes.
const RECEIVE_BUFFER: usize = 4;
/// In struct tcp_info.
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;
const DATA_SEGS_IN: usize = 152;
const DATA_SEGS_OUT: usize = 156;

/// The socket whose own view of its connection is `local` and `peer`, in the network namespace of
/// this process, which must be the one with the cookie `namespace`; `None` if nobody holds it.
///
/// # Errors
/// Those of socket(2), sendto(2) and recv(2); EXDEV if this process is in another network
/// namespace; the kernel's error if it has no sock_diag.
pub fn find(local: SocketAddr, peer: SocketAddr, namespace: u64) -> io::Result<Option<DiagSocket>> {
    Ok(ask_held(local, peer, namespace, 0)?.map(|(socket, _)| socket))
}

/// Whether the kernel has such a socket, even one that no process has accepted yet, or that none
/// holds any more.
///
/// # Errors
/// Those of [`find`].
pub fn exists(local: SocketAddr, peer: SocketAddr, namespace: u64) -> io::Result<bool> {
    Ok(ask(local, peer, namespace, 0)?.is_some())
}

/// The traffic of a connection so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Traffic {
    /// Bytes that were sent and acknowledged, and bytes that arrived.
    pub bytes: u64,
    /// Segments with data, sent and received.
    pub segments: u64,
}

/// The traffic of that connection; `None` if nobody holds it.
///
/// # Errors
/// Those of [`find`].
pub fn traffic(local: SocketAddr, peer: SocketAddr, namespace: u64) -> io::Result<Option<Traffic>> {
    let answer = ask_held(local, peer, namespace, 1 << (INET_DIAG_INFO - 1))?;
    let counts = |attributes: Vec<u8>| -> Result<Traffic, Errno> {
        let info = attribute(&attributes, INET_DIAG_INFO)?;
        let [sent, received] = [BYTES_ACKED, BYTES_RECEIVED].map(|at| take(info, at));
        let [arrived, left] = [DATA_SEGS_IN, DATA_SEGS_OUT].map(|at| take(info, at));
        let [arrived, left] = [u32::from_ne_bytes(arrived?), u32::from_ne_bytes(left?)];
        Ok(Traffic {
            bytes: u64::from_ne_bytes(sent?).saturating_add(u64::from_ne_bytes(received?)),
            segments: u64::from(arrived) + u64::from(left),
        })
    };
    Ok(answer.map(|(_, attributes)| counts(attributes)).transpose()?)
}

/// The size of that socket's receive buffer (SO_RCVBUF); `None` if nobody holds it.
///
/// # Errors
/// Those of [`find`].
pub fn receive_buffer(
    local: SocketAddr,
    peer: SocketAddr,
    namespace: u64,
) -> io::Result<Option<u32>> {
    let answer = ask_held(local, peer, namespace, 1 << (INET_DIAG_SKMEMINFO - 1))?;
    let size = |attributes: Vec<u8>| -> Result<u32, Errno> {
        let sizes = attribute(&attributes, INET_DIAG_SKMEMINFO)?;
        take(sizes, RECEIVE_BUFFER).map(u32::from_ne_bytes)
    };
    Ok(answer.map(|(_, attributes)| size(attributes)).transpose()?)
}

/// As [`ask`], if a process holds the socket.
fn ask_held(
    local: SocketAddr,
    peer: SocketAddr,
    namespace: u64,
    extensions: u8,
) -> io::Result<Option<(DiagSocket, Vec<u8>)>> {
    Ok(ask(local, peer, namespace, extensions)?.filter(|(socket, _)| socket.inode != 0))
}

/// The socket of that connection, and the attributes that the kernel adds.
fn ask(
    local: SocketAddr,
    peer: SocketAddr,
    namespace: u64,
    extensions: u8,
) -> io::Result<Option<(DiagSocket, Vec<u8>)>> {
    let flags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
    let kernel =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?;
    let kernel = LibraryFd::from(kernel);
    if socket::namespace(Fd::from(&kernel.as_fd()))? != namespace {
        return Err(Errno::XDEV.into());
    }
    let asked = id(local, peer);
    send(kernel.as_fd(), &request(&asked, local, extensions), SendFlags::DONTWAIT)?;
    // The answer is there once the question has been sent.
    let mut answer = [0; 1024];
    let (len, _) = recv(kernel.as_fd(), &mut answer, RecvFlags::DONTWAIT)?;
    let answer = &answer[..len.min(answer.len())];
    match read(answer) {
        Ok((state, addresses, socket)) => {
            // If no such connection exists, the kernel finds the listening socket.
            let is_it = state != TCP_LISTEN && addresses == mapped(asked, local.is_ipv4());
            Ok(is_it.then(|| (socket, answer.get(ATTRIBUTES..).unwrap_or_default().to_vec())))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// struct inet_diag_sockid, up to the addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Id {
    ports: [u8; 4],
    source: [u8; 16],
    destination: [u8; 16],
}

fn id(local: SocketAddr, peer: SocketAddr) -> Id {
    let address = |of: SocketAddr| match of {
        SocketAddr::V4(v4) => {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&v4.ip().octets());
            address
        }
        SocketAddr::V6(v6) => v6.ip().octets(),
    };
    let [[a, b], [c, d]] = [local, peer].map(|of| of.port().to_be_bytes());
    Id { ports: [a, b, c, d], source: address(local), destination: address(peer) }
}

/// A socket of both families reports mapped IPv4 addresses, and an IPv4 socket plain ones.
fn mapped(id: Id, is_ipv4: bool) -> Id {
    let mapped = |address: [u8; 16]| {
        let [a, b, c, d, ..] = address;
        Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().octets()
    };
    if is_ipv4 {
        Id { source: mapped(id.source), destination: mapped(id.destination), ..id }
    } else {
        id
    }
}

fn request(id: &Id, of: SocketAddr, extensions: u8) -> [u8; REQUEST] {
    let family = if of.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut bytes = Vec::with_capacity(REQUEST);
    bytes.extend((REQUEST as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and sender.
    bytes.extend([0; 8]);
    bytes.extend([family.as_raw() as u8, libc::IPPROTO_TCP as u8, extensions, 0]);
    // Every state.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(id.ports);
    bytes.extend(id.source);
    bytes.extend(id.destination);
    // No interface, and no cookie.
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend([0xff; 8]);
    let mut request = [0; REQUEST];
    request.copy_from_slice(&bytes);
    request
}

/// State, addresses (IPv4 ones mapped) and the socket itself.
fn read(answer: &[u8]) -> Result<(u8, Id, DiagSocket), Errno> {
    let kind = u16::from_ne_bytes(take(answer, 4)?);
    match kind {
        SOCK_DIAG_BY_FAMILY => {}
        NLMSG_ERROR => {
            let error = i32::from_ne_bytes(take(answer, HEADER)?).saturating_neg();
            return Err(if (1..4096).contains(&error) {
                Errno::from_raw_os_error(error)
            } else {
                Errno::PROTO
            });
        }
        _ => return Err(Errno::PROTO),
    }
    let [family, state] = take(answer, HEADER)?;
    let id = Id {
        ports: take(answer, ANSWER_ID)?,
        source: take(answer, ANSWER_ID + 4)?,
        destination: take(answer, ANSWER_ID + 20)?,
    };
    let socket = DiagSocket {
        user: u32::from_ne_bytes(take(answer, USER)?),
        inode: u32::from_ne_bytes(take(answer, INODE)?).into(),
    };
    Ok((state, mapped(id, u16::from(family) == AddressFamily::INET.as_raw()), socket))
}

/// The value of the attribute of that kind, rtnetlink(3).
fn attribute(mut attributes: &[u8], wanted: u8) -> Result<&[u8], Errno> {
    const HEAD: usize = 4;
    loop {
        let length = usize::from(u16::from_ne_bytes(take(attributes, 0)?));
        let kind = u16::from_ne_bytes(take(attributes, 2)?);
        let value = attributes.get(HEAD..length).ok_or(Errno::PROTO)?;
        if kind == u16::from(wanted) {
            return Ok(value);
        }
        attributes = attributes.get(length.next_multiple_of(HEAD)..).ok_or(Errno::PROTO)?;
    }
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Errno> {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().ok_or(Errno::PROTO)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::super::host;
    use super::*;

    fn ends(address: &str) -> (TcpListener, TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let mut to = listener.local_addr().unwrap();
        if to.ip().is_unspecified() {
            // One end is then of both families, and the other one IPv4.
            to.set_ip([127, 0, 0, 1].into());
        }
        let from = TcpStream::connect(to).unwrap();
        let (to, _) = listener.accept().unwrap();
        (listener, from, to)
    }

    fn find_other_end(of: &TcpStream) -> Option<DiagSocket> {
        let fd = Fd::from(of);
        let [local, peer] = [of.local_addr(), of.peer_addr()].map(|address| {
            let address = address.unwrap();
            SocketAddr::new(address.ip().to_canonical(), address.port())
        });
        find(peer, local, socket::namespace(fd).unwrap()).unwrap()
    }

    #[test]
    fn each_end_is_found_by_its_addresses() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let (_listener, from, to) = ends(address);
            for (end, other) in [(&from, &to), (&to, &from)] {
                let inode = rustix::fs::fstat(other).unwrap().st_ino;
                assert_eq!(
                    find_other_end(end),
                    Some(DiagSocket { inode, user: host::user() }),
                    "{address}"
                );
            }
        }
    }

    #[test]
    fn an_end_that_nobody_holds_is_not_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(find_other_end(&from), None, "it is not accepted yet");
        let [local, peer] = [from.local_addr(), from.peer_addr()].map(Result::unwrap);
        assert!(exists(peer, local, socket::namespace(Fd::from(&from)).unwrap()).unwrap());
        let stranger: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let namespace = socket::namespace(Fd::from(&from)).unwrap();
        assert_eq!(find(listener.local_addr().unwrap(), stranger, namespace).unwrap(), None);
        assert!(!exists(listener.local_addr().unwrap(), stranger, namespace).unwrap());
        assert!(
            find(stranger, stranger, namespace + 1).is_err(),
            "of another namespace nothing is known"
        );
    }

    #[test]
    fn the_bytes_of_both_directions_are_counted() {
        use std::io::{Read, Write};
        let (_listener, mut from, mut to) = ends("127.0.0.1:0");
        from.write_all(&[1; 1000]).unwrap();
        to.read_exact(&mut [0; 1000]).unwrap();
        to.write_all(&[2; 500]).unwrap();
        from.read_exact(&mut [0; 500]).unwrap();
        let namespace = socket::namespace(Fd::from(&to)).unwrap();
        let [local, peer] = [to.local_addr(), to.peer_addr()].map(Result::unwrap);
        let moved = traffic(local, peer, namespace).unwrap().unwrap();
        // The kernel may count the first acknowledgement as a byte.
        assert!((1500..=1502).contains(&moved.bytes), "{moved:?}");
        assert_eq!(moved.segments, 2);
    }

    #[test]
    fn a_receive_buffer_is_as_large_as_was_set() {
        let (_listener, from, to) = ends("127.0.0.1:0");
        rustix::net::sockopt::set_socket_recv_buffer_size(&to, 50_000).unwrap();
        let size = rustix::net::sockopt::socket_recv_buffer_size(&to).unwrap();
        let namespace = socket::namespace(Fd::from(&to)).unwrap();
        let [local, peer] = [from.peer_addr(), from.local_addr()].map(Result::unwrap);
        let buffer = receive_buffer(local, peer, namespace).unwrap();
        assert_eq!(buffer.map(|buffer| buffer as usize), Some(size));
    }

    #[test]
    fn attributes_that_are_cut_short_are_refused() {
        let attributes = [8, 0, 1, 0, 9, 9, 9, 9, 8, 0, 2, 0, 5, 6, 7, 8];
        assert_eq!(attribute(&attributes, INET_DIAG_INFO), Ok(&[5, 6, 7, 8][..]));
        for len in 0..attributes.len() {
            assert_eq!(attribute(&attributes[..len], INET_DIAG_INFO), Err(Errno::PROTO), "{len}");
        }
        assert_eq!(attribute(&[0; 8], INET_DIAG_INFO), Err(Errno::PROTO), "no length");
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let request = request(
            &id(listener.local_addr().unwrap(), "127.0.0.1:9".parse().unwrap()),
            "127.0.0.1:1".parse().unwrap(),
            0,
        );
        for len in 0..request.len() {
            assert!(read(&request[..len]).is_err());
        }
    }
}
