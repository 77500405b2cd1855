//! Kernel TCP sockets, by descriptor number.

use std::io::{IoSlice, IoSliceMut};
use std::mem::size_of;
use std::net::{Shutdown, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, SendAncillaryBuffer};
pub use rustix::net::{RecvFlags as KernelRecv, SendFlags as KernelSend};

use super::call;
use super::fd::Fd;
use crate::Errno;

/// recv(2) without waiting.
///
/// # Errors
/// Those of recv(2); EAGAIN if there is nothing.
#[inline]
pub fn recv(fd: Fd, into: &mut [u8], flags: KernelRecv) -> Result<usize, Errno> {
    rustix::net::recv(fd.borrow(), into, flags.union(KernelRecv::DONTWAIT)).map(|(n, _)| n)
}

/// The kernel's cookie of a socket, which no other socket gets.
///
/// # Errors
/// ENOTSOCK, EBADF.
pub fn cookie(fd: Fd) -> Result<u64, Errno> {
    sockopt::socket_cookie(fd.borrow())
}

/// recvmsg(2) without waiting.
///
/// # Errors
/// Those of recvmsg(2); EAGAIN if there is nothing.
pub fn recv_vectored(
    fd: Fd,
    into: &mut [IoSliceMut<'_>],
    flags: KernelRecv,
) -> Result<usize, Errno> {
    let mut control = RecvAncillaryBuffer::default();
    rustix::net::recvmsg(fd.borrow(), into, &mut control, flags.union(KernelRecv::DONTWAIT))
        .map(|r| r.bytes)
}

/// Room for control messages, and the kernel's messages on the bytes that were received last.
#[derive(Debug)]
pub struct Control {
    bytes: [u8; Self::ROOM],
    room: usize,
    filled: usize,
    flags: i32,
}

impl Control {
    /// More than TCP's messages need.
    const ROOM: usize = 512;

    /// For a caller with room for this many bytes.
    #[must_use]
    pub fn new(room: usize) -> Self {
        Self { bytes: [0; Self::ROOM], room: room.min(Self::ROOM), filled: 0, flags: 0 }
    }

    /// The messages.
    #[must_use]
    pub fn messages(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// The flags that the kernel returned, such as MSG_CTRUNC.
    #[must_use]
    pub fn flags(&self) -> i32 {
        self.flags
    }
}

/// recvmsg(2) with control messages, without waiting.
///
/// # Errors
/// Those of recvmsg(2); EAGAIN if there is nothing.
pub fn recv_message(
    fd: Fd,
    into: &mut [u8],
    flags: KernelRecv,
    control: &mut Control,
) -> Result<usize, Errno> {
    let mut piece = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut header = libc::msghdr {
        msg_name: std::ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: &raw mut piece,
        msg_iovlen: 1,
        msg_control: control.bytes.as_mut_ptr().cast(),
        msg_controllen: control.room,
        msg_flags: 0,
    };
    let flags = flags.union(KernelRecv::DONTWAIT).bits();
    let place = (&raw mut header).expose_provenance();
    // SAFETY: the header names slices that live and are borrowed mutably.
    let n = unsafe { call(libc::SYS_recvmsg, [number(fd), place, flags as usize, 0, 0, 0])? };
    control.filled = header.msg_controllen.min(control.room);
    control.flags = header.msg_flags;
    Ok(n)
}

/// sendmsg(2) without waiting.
///
/// # Errors
/// Those of sendmsg(2); EAGAIN if there is no room. EPIPE comes with SIGPIPE unless NOSIGNAL is
/// set.
#[inline]
pub fn send(fd: Fd, from: &[IoSlice<'_>], flags: KernelSend) -> Result<usize, Errno> {
    let flags = flags.union(KernelSend::DONTWAIT);
    match from {
        [one] => rustix::net::send(fd.borrow(), one, flags),
        many => rustix::net::sendmsg(fd.borrow(), many, &mut SendAncillaryBuffer::default(), flags),
    }
}

/// shutdown(2).
///
/// # Errors
/// Those of shutdown(2).
pub fn shutdown(fd: Fd, how: Shutdown) -> Result<(), Errno> {
    let how = match how {
        Shutdown::Both => rustix::net::Shutdown::Both,
        Shutdown::Read => rustix::net::Shutdown::Read,
        Shutdown::Write => rustix::net::Shutdown::Write,
    };
    rustix::net::shutdown(fd.borrow(), how)
}

/// getsockname(2) and getpeername(2).
///
/// # Errors
/// Those of the calls; EAFNOSUPPORT if the socket is not IPv4 or IPv6.
pub fn names(fd: Fd) -> Result<(SocketAddr, SocketAddr), Errno> {
    let local = rustix::net::getsockname(fd.borrow())?;
    let peer = rustix::net::getpeername(fd.borrow())?;
    let peer = peer.ok_or(Errno::NOTCONN)?;
    let local = SocketAddr::try_from(local).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok((local, SocketAddr::try_from(peer).map_err(|_| Errno::AFNOSUPPORT)?))
}

/// Identifies an open file; `None` for a number that is not open.
#[must_use]
pub fn identity(fd: Fd) -> Option<(u64, u64)> {
    rustix::fs::fstat(fd.borrow()).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// SO_NETNS_COOKIE (Linux 5.14): the network namespace that the socket belongs to.
///
/// # Errors
/// ENOPROTOOPT on older kernels.
pub fn namespace(fd: Fd) -> Result<u64, Errno> {
    const SO_NETNS_COOKIE: i32 = 71;
    let mut cookie = 0u64;
    let got = getsockopt(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut cookie)?;
    if got == size_of::<u64>() { Ok(cookie) } else { Err(Errno::NOPROTOOPT) }
}

const SO_BINDTOIFINDEX: i32 = 62;

/// Whether a socket sends and receives by one interface only: a program has asked for that, or its
/// addresses are link-local ones of IPv6.
#[must_use]
pub fn is_bound_to_device(fd: Fd) -> bool {
    let mut index: libc::c_int = 0;
    getsockopt(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX, &mut index).is_ok() && index != 0
}

/// The kernel's byte counts of a socket, each as a range because bytes move during the query.
#[derive(Clone, Debug)]
pub struct KernelCounts {
    /// Bytes that arrived and were given to a reader.
    pub received: RangeInclusive<u64>,
    /// Bytes that a writer gave to the kernel. Too high by one on the end that opened the
    /// connection, because the kernel counts its SYN.
    pub sent: RangeInclusive<u64>,
    /// Whether this end has shut its sending direction down.
    pub shut: bool,
    /// Whether both directions have ended and the kernel has forgotten the connection: then it is
    /// unknown whether the ends are among the bytes.
    pub over: bool,
}

/// The kernel's own account of the bytes that have passed through a socket (RFC 4898 octet
/// counters).
///
/// # Errors
/// Those of getsockopt(2) TCP_INFO and of the queue ioctls.
pub fn kernel_counts(fd: Fd) -> Result<KernelCounts, Errno> {
    let before = tcp_info(fd)?;
    let unread = unread(fd)? as u64;
    let unsent = unsent(fd)? as u64;
    let after = tcp_info(fd)?;
    let received = |info: &Info| (info.received - info.fin_received()).saturating_sub(unread);
    // An end that is not acknowledged yet counts among the unsent bytes.
    let sent = |info: &Info| (info.acked + unsent).saturating_sub(after.fin_sent());
    Ok(KernelCounts {
        received: received(&before)..=received(&after),
        sent: sent(&before)..=sent(&after),
        shut: after.fin_sent() > 0,
        // TCP_CLOSE.
        over: after.state == 7,
    })
}

/// The bytes that have arrived at a socket so far; the end of the stream counts as one.
///
/// # Errors
/// Those of getsockopt(2) TCP_INFO.
pub fn received(fd: Fd) -> Result<u64, Errno> {
    tcp_info(fd).map(|info| info.received)
}

/// Makes the kernel probe the peer from now on, as if bytes were on their way that the peer does
/// not acknowledge: for about as long as TCP would retransmit those, or for TCP_USER_TIMEOUT if
/// that is set (RFC 9293, 3.8.3 and 3.8.4; tcp(7)).
pub fn probe(fd: Fd) {
    let socket = fd.borrow();
    if sockopt::socket_keepalive(socket) == Ok(true) {
        // The program has configured the probes itself.
        return;
    }
    // If one of these fails, the connection is closed already.
    let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(1))
        .and_then(|()| sockopt::set_tcp_keepintvl(socket, Duration::from_secs(8)))
        .and_then(|()| sockopt::set_tcp_keepcnt(socket, 115))
        .and_then(|()| sockopt::set_socket_keepalive(socket, true));
}

/// The bytes that the peer's kernel has acknowledged; the beginning of the stream counts as one on
/// the end that opened the connection, and so does its end.
///
/// # Errors
/// Those of getsockopt(2) TCP_INFO.
pub fn acknowledged(fd: Fd) -> Result<u64, Errno> {
    tcp_info(fd).map(|info| info.acked)
}

/// The shortest recent time from a segment to its acknowledgement, in nanoseconds; `None` if there
/// was none yet, or the kernel does not report it.
#[must_use]
pub fn shortest_round_trip(fd: Fd) -> Option<u64> {
    let microseconds = tcp_info(fd).ok()?.shortest_round_trip;
    (microseconds != u32::MAX).then(|| u64::from(microseconds) * 1000)
}

/// The bytes that readers have taken from a socket so far. For a caller that keeps others from
/// reading.
///
/// # Errors
/// Those of [`kernel_counts`]; ENOTCONN if TCP has closed; EAGAIN if bytes arrive all the time.
pub fn bytes_taken(fd: Fd) -> Result<u64, Errno> {
    for _ in 0..1000 {
        let before = tcp_info(fd)?;
        let unread = unread(fd)? as u64;
        let after = tcp_info(fd)?;
        if before.is_over() {
            return Err(Errno::NOTCONN);
        }
        if (before.received, before.state) == (after.received, after.state) {
            return Ok(before.received.saturating_sub(unread + before.fin_received()));
        }
    }
    Err(Errno::AGAIN)
}

/// The state of a connection, and bytes including those that stand for the end of a direction
/// (FIN).
struct Info {
    state: u8,
    received: u64,
    acked: u64,
    /// Bytes that no segment has taken yet.
    not_sent: u32,
    /// Microseconds; all ones if none was seen.
    shortest_round_trip: u32,
}

impl Info {
    /// Whether the kernel has forgotten the connection. linux/tcp_states.h: all but ESTABLISHED,
    /// FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING.
    fn is_over(&self) -> bool {
        !matches!(self.state, 1 | 4 | 5 | 8 | 9 | 11)
    }

    /// 1 if the peer's end of stream has arrived, which the kernel counts as a byte; 0 if not.
    fn fin_received(&self) -> u64 {
        // TIME_WAIT, CLOSE_WAIT, LAST_ACK, CLOSING.
        u64::from(matches!(self.state, 6 | 8 | 9 | 11)).min(self.received)
    }

    /// As above, for this end's own.
    fn fin_sent(&self) -> u64 {
        // FIN_WAIT1, FIN_WAIT2, TIME_WAIT, LAST_ACK, CLOSING.
        u64::from(matches!(self.state, 4 | 5 | 6 | 9 | 11))
    }
}

/// The directions of a connection that have ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ClosedEnds {
    /// The peer's direction.
    pub peers: bool,
    /// All of it.
    pub both: bool,
}

/// The directions of a connection that have ended; none if that is not known.
#[must_use]
pub fn ends(fd: Fd) -> ClosedEnds {
    // linux/tcp_states.h: TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, CLOSING; and CLOSE.
    tcp_info(fd).map_or(ClosedEnds::default(), |info| ClosedEnds {
        peers: matches!(info.state, 6..=9 | 11),
        both: info.state == 7,
    })
}

/// tcpi_state, tcpi_bytes_received and tcpi_bytes_acked.
fn tcp_info(fd: Fd) -> Result<Info, Errno> {
    // linux/tcp.h, struct tcp_info: the state is its first byte, the counters are 64-bit fields at
    // these offsets.
    const BYTES_ACKED: usize = 120;
    const BYTES_RECEIVED: usize = 128;
    /// 32 bits, followed by 32 of tcpi_min_rtt.
    const NOTSENT_BYTES: usize = 144;
    let mut info = [0u64; 40];
    let got = getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    if got < NOTSENT_BYTES + 8 {
        return Err(Errno::NOPROTOOPT);
    }
    let [state, ..] = info[0].to_ne_bytes();
    let [a, b, c, d, trip @ ..] = info[NOTSENT_BYTES / 8].to_ne_bytes();
    Ok(Info {
        state,
        received: info[BYTES_RECEIVED / 8],
        acked: info[BYTES_ACKED / 8],
        not_sent: u32::from_ne_bytes([a, b, c, d]),
        shortest_round_trip: u32::from_ne_bytes(trip),
    })
}

pub(super) fn getsockopt<T: Copy>(
    fd: Fd,
    level: i32,
    name: i32,
    value: &mut T,
) -> Result<usize, Errno> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` and `len` are valid for writing, and the kernel writes at most `len` bytes of
    // plain data. At the level of tcp_seek it also writes to the memory that `value` names: only
    // sys::seek uses that level, and names a slice that it holds.
    unsafe {
        let value = std::ptr::from_mut(value).expose_provenance();
        let len = (&raw mut len).expose_provenance();
        call(libc::SYS_getsockopt, [number(fd), level as usize, name as usize, value, len, 0])?;
    }
    Ok(len as usize)
}

fn setsockopt(fd: Fd, level: i32, name: i32, value: &libc::c_int) -> Result<(), Errno> {
    setsockopt_bytes(fd, level, name, &value.to_ne_bytes())
}

pub(super) fn setsockopt_bytes(fd: Fd, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    let place = value.as_ptr().expose_provenance();
    let arguments = [number(fd), level as usize, name as usize, place, value.len(), 0];
    // SAFETY: the kernel reads `value`.
    unsafe { call(libc::SYS_setsockopt, arguments) }.map(drop)
}

fn ioctl_int(fd: Fd, request: libc::c_ulong) -> Result<usize, Errno> {
    let mut value: libc::c_int = 0;
    let place = (&raw mut value).expose_provenance();
    // SAFETY: all requests used here write one int.
    unsafe { call(libc::SYS_ioctl, [number(fd), request as usize, place, 0, 0, 0]) }?;
    Ok(value.max(0) as usize)
}

/// The descriptor as an argument of a system call.
fn number(fd: Fd) -> usize {
    fd.raw() as usize
}

/// IP_BIND_ADDRESS_NO_PORT: bind(2) to port 0 chooses the address alone, and connect(2) a port that
/// is free for that peer.
///
/// # Errors
/// Those of setsockopt(2).
pub fn choose_port_at_connect(fd: Fd) -> Result<(), Errno> {
    setsockopt(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &1)
}

/// FIONREAD: bytes in the kernel's receive queue.
///
/// # Errors
/// Those of ioctl(2).
pub fn unread(fd: Fd) -> Result<usize, Errno> {
    ioctl_int(fd, libc::FIONREAD)
}

/// SIOCATMARK: whether the kernel's queue has reached the urgent byte. A receive that has taken
/// bytes ends there (tcp(7)).
#[must_use]
pub fn is_at_mark(fd: Fd) -> bool {
    const SIOCATMARK: libc::c_ulong = 0x8905;
    ioctl_int(fd, SIOCATMARK).is_ok_and(|at_mark| at_mark != 0)
}

/// SIOCOUTQ: bytes in the kernel's send queue, sent and unacknowledged ones included.
///
/// # Errors
/// Those of ioctl(2).
pub fn unsent(fd: Fd) -> Result<usize, Errno> {
    ioctl_int(fd, libc::TIOCOUTQ)
}

/// Makes the kernel send bytes that it holds back for announced ones (MSG_MORE), unless the
/// application has corked the socket.
pub fn push(fd: Fd) {
    if tcp_info(fd).is_ok_and(|info| info.not_sent > 0) && !is_corked(fd) {
        // As when a cork is removed.
        let _ = setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CORK, &0);
    }
}

/// Whether the application has corked the socket (TCP_CORK).
#[must_use]
pub fn is_corked(fd: Fd) -> bool {
    let mut corked: libc::c_int = 0;
    getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CORK, &mut corked).is_ok() && corked != 0
}

/// Bytes that the kernel sends in one segment (TCP_MAXSEG).
///
/// # Errors
/// Those of getsockopt(2).
pub fn segment(fd: Fd) -> Result<usize, Errno> {
    let mut bytes: libc::c_int = 0;
    getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, &mut bytes)?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Whether O_NONBLOCK is set.
///
/// # Errors
/// EBADF.
pub fn is_nonblocking(fd: Fd) -> Result<bool, Errno> {
    Ok(rustix::fs::fcntl_getfl(fd.borrow())?.contains(rustix::fs::OFlags::NONBLOCK))
}

/// SO_RCVTIMEO; `None` waits for ever.
///
/// # Errors
/// Those of getsockopt(2).
pub fn receive_timeout(fd: Fd) -> Result<Option<Duration>, Errno> {
    sockopt::socket_timeout(fd.borrow(), Timeout::Recv)
}

/// SO_RCVTIMEO and SO_SNDTIMEO; `None` waits for ever.
///
/// # Errors
/// Those of getsockopt(2).
pub fn timeouts(fd: Fd) -> Result<(Option<Duration>, Option<Duration>), Errno> {
    Ok((receive_timeout(fd)?, sockopt::socket_timeout(fd.borrow(), Timeout::Send)?))
}

/// SO_SNDBUF: how many bytes the kernel keeps for which the peer has no room.
///
/// # Errors
/// Those of getsockopt(2).
pub fn send_buffer(fd: Fd) -> Result<usize, Errno> {
    let mut bytes: libc::c_int = 0;
    getsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &mut bytes)?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// TCP_USER_TIMEOUT, in milliseconds; 0 is the kernel's default.
///
/// # Errors
/// Those of getsockopt(2).
pub fn user_timeout(fd: Fd) -> Result<u32, Errno> {
    let mut milliseconds: libc::c_uint = 0;
    getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, &mut milliseconds)?;
    Ok(milliseconds)
}

/// TCP_INQ: whether recvmsg reports the number of unread bytes.
///
/// # Errors
/// Those of getsockopt(2).
pub fn reports_unread(fd: Fd) -> Result<bool, Errno> {
    let mut on: libc::c_int = 0;
    getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INQ, &mut on)?;
    Ok(on != 0)
}

/// SO_ZEROCOPY: whether MSG_ZEROCOPY has an effect.
///
/// # Errors
/// Those of getsockopt(2).
pub fn is_zerocopy(fd: Fd) -> Result<bool, Errno> {
    let mut on: libc::c_int = 0;
    getsockopt(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, &mut on)?;
    Ok(on != 0)
}

/// Whether poll may report POLLERR for messages in the kernel's error queue, which are no end of the
/// connection: those of SO_ZEROCOPY and SO_TIMESTAMPING.
#[must_use]
pub fn fills_error_queue(fd: Fd) -> bool {
    let options = [
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY),
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
        (libc::SOL_IP, libc::IP_RECVERR),
        (libc::SOL_IPV6, libc::IPV6_RECVERR),
    ];
    options.into_iter().any(|(level, name)| {
        let mut on: libc::c_int = 0;
        getsockopt(fd, level, name, &mut on).is_ok() && on != 0
    })
}

/// SO_RCVLOWAT.
///
/// # Errors
/// Those of getsockopt(2).
pub fn receive_low_water(fd: Fd) -> Result<usize, Errno> {
    let mut bytes: libc::c_int = 0;
    getsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &mut bytes)?;
    Ok(bytes.max(1) as usize)
}

/// Sets SO_RCVLOWAT.
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_receive_low_water(fd: Fd, bytes: u32) -> Result<(), Errno> {
    setsockopt(
        fd,
        libc::SOL_SOCKET,
        libc::SO_RCVLOWAT,
        &libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX),
    )
}

/// Sets SO_PEEK_OFF: the offset in the receive queue at which MSG_PEEK begins (TCP: Linux 6.9).
///
/// # Errors
/// EOPNOTSUPP on older kernels; EINVAL if the offset does not fit into an int.
pub fn set_peek_offset(fd: Fd, offset: u64) -> Result<(), Errno> {
    let offset = libc::c_int::try_from(offset).map_err(|_| Errno::INVAL)?;
    setsockopt(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, &offset)
}

/// Makes MSG_PEEK begin at the front again, as on a socket whose SO_PEEK_OFF was never set.
///
/// # Errors
/// Those of setsockopt(2).
pub fn forget_peek_offset(fd: Fd) -> Result<(), Errno> {
    setsockopt(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, &-1)
}

/// Discards up to `len` bytes at the front of a TCP receive queue without copying them (tcp(7),
/// MSG_TRUNC); does not wait.
///
/// # Errors
/// Those of recv(2).
pub fn discard(fd: Fd, len: usize) -> Result<usize, Errno> {
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: with MSG_TRUNC a TCP socket writes nothing to the buffer, and a null one makes any
    // other kind of socket fail with EFAULT instead of writing.
    unsafe { call(libc::SYS_recvfrom, [number(fd), 0, len, flags as usize, 0, 0]) }
}

/// Makes the coming close(2) send RST, as TCP does if data is left unread (RFC 1122, 4.2.2.13).
pub fn reset_on_close(fd: Fd) {
    // A failure leaves an orderly close, which is all that is possible then.
    let _ = sockopt::set_socket_linger(fd.borrow(), Some(Duration::ZERO));
}

/// Undoes [`reset_on_close`].
pub fn close_in_order(fd: Fd) {
    let _ = sockopt::set_socket_linger(fd.borrow(), None);
}

/// Whether SO_LINGER asks for RST at close(2).
#[must_use]
pub fn resets_on_close(fd: Fd) -> bool {
    sockopt::socket_linger(fd.borrow()).is_ok_and(|linger| linger == Some(Duration::ZERO))
}

/// SO_ERROR: the error of the socket, which it reports once.
#[must_use]
pub fn take_error(fd: Fd) -> Option<Errno> {
    let mut error: libc::c_int = 0;
    getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, &mut error).ok()?;
    (error != 0).then(|| Errno::from_raw_os_error(error))
}

/// Sends RST now (connect(2) to AF_UNSPEC disconnects). The descriptor stays open, and behaves as
/// if the peer had reset the connection: ECONNRESET once, then the end of the stream and EPIPE.
pub fn reset(fd: Fd) {
    let address = libc::sockaddr { sa_family: AddressFamily::UNSPEC.as_raw(), sa_data: [0; 14] };
    let place = (&raw const address).expose_provenance();
    // SAFETY: `address` is a valid sockaddr of the given length. A failure means that the
    // connection is gone already.
    let _ = unsafe {
        call(libc::SYS_connect, [number(fd), place, size_of::<libc::sockaddr>(), 0, 0, 0])
    };
    // Otherwise it could be connected anew. The kernel also does this on a socket that is not
    // connected.
    let _ = shutdown(fd, Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no sockets")]
    fn a_socket_that_is_bound_to_a_device_is_told_from_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Fd::from(&listener);
        assert!(!is_bound_to_device(socket));
        // The first interface is loopback.
        setsockopt(socket, libc::SOL_SOCKET, SO_BINDTOIFINDEX, &1).unwrap();
        assert!(is_bound_to_device(socket));
    }
}
