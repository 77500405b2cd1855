//! UNIX sockets that carry descriptors: how two processes find each other, and exchange messages in
//! private.

use std::io::{self, IoSlice};
use std::mem::size_of;
use std::path::Path;

use libc::{SCM_CREDENTIALS, SCM_RIGHTS, SOL_SOCKET, cmsghdr, msghdr, ucred};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};

use super::fd::{Fd, LibraryFd, PrivateFd};
use super::{call, proof, socket};
use crate::Errno;

/// A bound UNIX datagram socket.
#[derive(Debug)]
pub struct DatagramSocket(PrivateFd);

/// One end of a pair of connected sockets.
#[derive(Debug)]
pub struct Channel(PrivateFd);

/// One datagram as it arrived.
#[derive(Debug)]
pub struct Delivery {
    /// Bytes in the buffer.
    pub len: usize,
    /// Descriptors that came along, except those for which this process had no number left.
    pub descriptors: Vec<PrivateFd>,
    /// The sender, as the kernel attests.
    pub sender: Option<Sender>,
}

/// A process that has sent a message.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// Its user.
    pub user: u32,
    /// Its id; 0 if it is in a pid namespace that is not visible to this process.
    pub pid: u32,
    /// Identifies it, see [`proof::identity`].
    pub identity: Option<u64>,
}

/// Maximum number of descriptors in a datagram.
pub const DESCRIPTORS: usize = 3;

const TYPE_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn socket() -> io::Result<PrivateFd> {
    PrivateFd::new(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        TYPE_FLAGS,
        None,
    )?)
}

impl DatagramSocket {
    /// Binds a new socket to `path`, which must not exist.
    ///
    /// # Errors
    /// Those of socket(2) and bind(2).
    pub fn bind(path: &Path) -> io::Result<Self> {
        let socket = socket()?;
        ask_for_senders(&socket)?;
        rustix::net::bind(socket.as_fd(), &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    /// Creates a socket without a name: nobody can send to it.
    ///
    /// # Errors
    /// Those of socket(2).
    pub fn nameless() -> io::Result<Self> {
        Ok(Self(socket()?))
    }

    /// The descriptor to wait on for the next datagram.
    #[must_use]
    pub fn fd(&self) -> Fd {
        self.0.fd()
    }

    /// Takes the next datagram, without waiting; `None` if there is none.
    ///
    /// # Errors
    /// Those of recvmsg(2).
    pub fn receive(&self, into: &mut [u8]) -> io::Result<Option<Delivery>> {
        receive(&self.0, into, CONTROL)
    }

    /// As [`Self::receive`], but takes only one descriptor of each datagram. The kernel closes the
    /// others before this returns, which can take any time.
    ///
    /// # Errors
    /// Those of recvmsg(2).
    pub fn receive_one(&self, into: &mut [u8]) -> io::Result<Option<Delivery>> {
        receive(&self.0, into, CONTROL_OF_ONE)
    }

    /// Sends a datagram with descriptors to the socket at `path`, without waiting.
    ///
    /// # Errors
    /// ECONNREFUSED or ENOENT if nobody listens there, EAGAIN if its queue is full; others, such as
    /// ETOOMANYREFS, whether or not somebody listens.
    pub fn send(
        &self,
        path: &Path,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let address = SocketAddrUnix::new(path)?;
        with_rights(descriptors, |control, flags| {
            rustix::net::sendmsg_addr(
                self.0.as_fd(),
                &address,
                &[IoSlice::new(bytes)],
                control,
                flags,
            )
        })
    }
}

impl Channel {
    /// Creates a pair: this end, and the other one for the peer.
    ///
    /// # Errors
    /// Those of socketpair(2); EMFILE if no number above the library's floor is free.
    pub fn pair() -> io::Result<(Self, PrivateFd)> {
        let (here, there) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, TYPE_FLAGS, None)?;
        let (here, there) = (PrivateFd::new(here), PrivateFd::new(there));
        let here = here?;
        ask_for_senders(&here)?;
        Ok((Self(here), there?))
    }

    /// The end that a peer sent. If it is anything else, sending on it fails, or no message ever
    /// comes.
    #[must_use]
    pub fn from_peer(end: PrivateFd) -> Self {
        Self(end)
    }

    /// The descriptor to wait on for the next message.
    #[must_use]
    pub fn fd(&self) -> Fd {
        self.0.fd()
    }

    /// Takes the next message, without waiting; `None` if there is none.
    ///
    /// # Errors
    /// Those of recvmsg(2); EPIPE if the other end is closed.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<Option<Delivery>> {
        match receive(&self.0, into, CONTROL)? {
            Some(delivery) if delivery.len == 0 => Err(Errno::PIPE.into()),
            other => Ok(other),
        }
    }

    /// Sends a message with descriptors, without waiting.
    ///
    /// # Errors
    /// Those of sendmsg(2).
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        with_rights(descriptors, |control, flags| {
            rustix::net::sendmsg(self.0.as_fd(), &[IoSlice::new(bytes)], control, flags)
        })
    }
}

fn with_rights(
    descriptors: &[BorrowedFd<'_>],
    send: impl FnOnce(&mut SendAncillaryBuffer<'_, '_, '_>, SendFlags) -> rustix::io::Result<usize>,
) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG.into());
    }
    send(&mut control, SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL))?;
    Ok(())
}

// asm-generic/socket.h, linux/socket.h: Linux 6.5.
const SO_PASSPIDFD: i32 = 76;
const SCM_PIDFD: i32 = 4;

/// Makes received messages identify their sender.
fn ask_for_senders(socket: &PrivateFd) -> io::Result<()> {
    sockopt::set_socket_passcred(socket.as_fd(), true)?;
    let on = 1i32.to_ne_bytes();
    match socket::setsockopt_bytes(Fd::from(&socket.as_fd()), SOL_SOCKET, SO_PASSPIDFD, &on) {
        // Older kernels only have the credentials.
        Ok(()) | Err(Errno::NOPROTOOPT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Room for all requested control messages.
const CONTROL: usize = 256;
/// Room for the credentials, which come first, and one descriptor (cmsg(3)).
const CONTROL_OF_ONE: usize = size_of::<cmsghdr>()
    + size_of::<ucred>().next_multiple_of(size_of::<usize>())
    + size_of::<cmsghdr>()
    + size_of::<i32>();

/// recvmsg(2), without waiting, with room for `room` bytes of control messages. By hand, because
/// rustix leaves out SCM_PIDFD, and its type for a pid cannot be 0.
fn receive(socket: &PrivateFd, into: &mut [u8], room: usize) -> io::Result<Option<Delivery>> {
    // In words, because a header must be aligned.
    let mut control = [0u64; CONTROL / 8];
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: plain data, for which zero is a value.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = room.min(CONTROL) as _;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    let number = socket.as_fd().as_raw_fd() as usize;
    let arguments = [number, (&raw mut message).addr(), flags as usize, 0, 0, 0];
    // SAFETY: all that the message names is live and has the stated length; exposed for the kernel
    // to write to.
    let received = unsafe {
        (&raw mut message).expose_provenance();
        call(libc::SYS_recvmsg, arguments)
    };
    let len = match received {
        Ok(len) => len,
        Err(Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let (mut descriptors, mut credentials, mut pidfd) = (Vec::new(), None, None);
    // SAFETY: the kernel has written whole headers into the buffer and set its length; the macros
    // stay inside. A received descriptor belongs to this process, and nothing else refers to it.
    unsafe {
        let mut header: *const cmsghdr = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(about) = header.as_ref() {
            let data = libc::CMSG_DATA(header);
            let bytes = about.cmsg_len.saturating_sub(data.addr() - header.addr());
            let numbers =
                || (0..bytes / 4).map(|index| data.cast::<i32>().add(index).read_unaligned());
            match (about.cmsg_level, about.cmsg_type) {
                (SOL_SOCKET, SCM_RIGHTS) => {
                    let placed =
                        numbers().map(|number| PrivateFd::new(OwnedFd::from_raw_fd(number)));
                    descriptors.extend(placed.flatten());
                }
                (SOL_SOCKET, SCM_CREDENTIALS) if bytes >= size_of::<ucred>() => {
                    credentials = Some(data.cast::<ucred>().read_unaligned());
                }
                // A negative number is the reason why there is none.
                (SOL_SOCKET, SCM_PIDFD) => {
                    for number in numbers().filter(|number| *number >= 0) {
                        pidfd = Some(LibraryFd::from(OwnedFd::from_raw_fd(number)));
                    }
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    let sender = credentials.map(|by| {
        let pid = by.pid.unsigned_abs();
        Sender {
            user: by.uid,
            pid,
            identity: proof::identity(pidfd.as_ref().map(AsFd::as_fd), pid),
        }
    });
    Ok(Some(Delivery { len, descriptors, sender }))
}

/// Whether it is certain that nobody listens at `path`: the socket of a process that is gone
/// refuses. False if this process cannot ask, for lack of a descriptor or of memory.
#[must_use]
pub fn is_abandoned(path: &Path) -> bool {
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    let Ok(probe) = socket() else { return false };
    matches!(rustix::net::connect(probe.as_fd(), &address), Err(Errno::CONNREFUSED | Errno::NOENT))
}
