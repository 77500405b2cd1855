//! UNIX datagram sockets that carry descriptors: how two processes meet.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use super::fd::Placed;
use crate::Errno;

/// A bound UNIX datagram socket.
#[derive(Debug)]
pub struct Mailbox(Placed);

/// One datagram as it arrived.
#[derive(Debug)]
pub struct Delivery {
    /// Bytes in the buffer.
    pub len: usize,
    /// Descriptors that came along, at most [`DESCRIPTORS`]; those that this process had no number left for are
    /// missing.
    pub descriptors: Vec<Placed>,
    /// The sender's user and process, as the kernel attests.
    pub sender: Option<(u32, u32)>,
}

/// How many descriptors a datagram may carry.
pub const DESCRIPTORS: usize = 2;

const TYPE_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn socket() -> io::Result<Placed> {
    Placed::new(rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, TYPE_FLAGS, None)?)
}

impl Mailbox {
    /// Binds a new socket to `path`, which must not exist.
    ///
    /// # Errors
    /// Those of socket(2) and bind(2).
    pub fn bind(path: &Path) -> io::Result<Self> {
        let socket = socket()?;
        sockopt::set_socket_passcred(socket.as_fd(), true)?;
        rustix::net::bind(socket.as_fd(), &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    /// Takes the next datagram, without waiting; `None` when there is none.
    ///
    /// # Errors
    /// Those of recvmsg(2).
    pub fn receive(&self, into: &mut [u8]) -> io::Result<Option<Delivery>> {
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bufs = [IoSliceMut::new(into)];
        let flags = RecvFlags::CMSG_CLOEXEC.union(RecvFlags::DONTWAIT);
        let received = match rustix::net::recvmsg(self.0.as_fd(), &mut bufs, &mut control, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut delivery = Delivery { len: received.bytes, descriptors: Vec::new(), sender: None };
        for message in control.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(fds) => {
                    delivery.descriptors.extend(fds.filter_map(|fd| Placed::new(fd).ok()));
                }
                RecvAncillaryMessage::ScmCredentials(by) => {
                    let pid = by.pid.as_raw_nonzero().get().unsigned_abs();
                    delivery.sender = Some((by.uid.as_raw(), pid));
                }
                _ => {}
            }
        }
        Ok(Some(delivery))
    }

    /// Sends a datagram with descriptors to the mailbox at `path`, without waiting.
    ///
    /// # Errors
    /// ECONNREFUSED or ENOENT when nobody listens there, EAGAIN when its queue is full; others, such as ETOOMANYREFS, say nothing
    /// of who listens.
    pub fn send(&self, path: &Path, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::TOOBIG.into());
        }
        let address = SocketAddrUnix::new(path)?;
        let flags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
        rustix::net::sendmsg_addr(self.0.as_fd(), &address, &[IoSlice::new(bytes)], &mut control, flags)?;
        Ok(())
    }
}

/// Whether it is certain that nobody listens at `path`: the socket of a process that is gone refuses. Who cannot ask, for
/// lack of a descriptor or of memory, does not know.
#[must_use]
pub fn is_abandoned(path: &Path) -> bool {
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    let Ok(probe) = socket() else { return false };
    matches!(rustix::net::connect(probe.as_fd(), &address), Err(Errno::CONNREFUSED | Errno::NOENT))
}
