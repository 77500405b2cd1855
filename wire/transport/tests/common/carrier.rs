//! The two carriers, behind one trait. A carrier never waits: it returns EAGAIN, and
//! [`Carrier::wait`] sleeps.

use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;

use seekwire_protocol::Carrier as Which;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::Errno;
use seekwire_transport::iov::{Gather, Scatter};
use seekwire_transport::queue::{PublishError, Violation};
use seekwire_transport::ring::{Receiving, Ring, Wait};
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::poll::{self, Deadline, Events};
use seekwire_transport::sys::socket::{self, KernelRecv as RecvFlags, KernelSend as SendFlags};

/// A two-way stream of bytes. Any thread may call any method.
pub(crate) trait Carrier {
    /// Takes bytes from the front of `from` and returns their number, at least 1 unless `from` is
    /// empty.
    ///
    /// # Errors
    /// EAGAIN if there is no room; EPIPE after [`Carrier::shutdown`]; ECONNRESET or EPIPE if the
    /// peer is gone.
    fn send(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno>;

    /// Fills `into` from the front and returns the number of bytes; 0 is the end of the stream.
    ///
    /// # Errors
    /// EAGAIN if there are none yet; ECONNRESET if the peer is gone or violated the protocol.
    fn recv(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno>;

    /// As [`Carrier::recv`], but the bytes stay.
    ///
    /// # Errors
    /// As [`Carrier::recv`].
    fn peek(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno>;

    /// Ends the sending direction: the peer reads what was sent and then the end of the stream.
    ///
    /// # Errors
    /// Those of shutdown(2).
    fn shutdown(&self) -> Result<(), Errno>;

    /// Bytes that [`Carrier::recv`] would return at once.
    ///
    /// # Errors
    /// Those of ioctl(2) FIONREAD.
    fn unread(&self) -> Result<usize, Errno>;

    /// Sleeps until one of the wanted events may have come; may return early.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR.
    fn wait(&self, want: Events, until: Deadline) -> Result<(), Errno>;
}

/// The kernel's TCP socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tcp(pub Fd);

impl Carrier for Tcp {
    fn send(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        socket::send(self.0, from, SendFlags::NOSIGNAL)
    }

    fn recv(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        socket::recv_vectored(self.0, into, RecvFlags::empty())
    }

    fn peek(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        socket::recv_vectored(self.0, into, RecvFlags::PEEK)
    }

    fn shutdown(&self) -> Result<(), Errno> {
        socket::shutdown(self.0, Shutdown::Write)
    }

    fn unread(&self) -> Result<usize, Errno> {
        socket::unread(self.0)
    }

    fn wait(&self, want: Events, until: Deadline) -> Result<(), Errno> {
        poll::wait(Fd::new(-1), self.0, want, until).map(drop)
    }
}

fn full(full: PublishError) -> Errno {
    match full {
        PublishError::NoRoom => Errno::AGAIN,
        PublishError::Violation(violation) => reset(violation),
    }
}

fn reset(_: Violation) -> Errno {
    Errno::CONNRESET
}

/// The ring alone, both ends ready: every byte travels on it, and no TCP socket is needed.
impl Carrier for Ring {
    fn send(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let tx = self.sending().ok_or(Errno::AGAIN)?;
        if self.queue.is_shut() || self.queue.peer_has_closed() {
            return Err(Errno::PIPE);
        }
        if tx.carrier().map_err(full)? == Which::Tcp {
            return Err(Errno::AGAIN);
        }
        let mut gather = Gather::new(from);
        let wanted = gather.remaining();
        let sent = tx.push(&mut gather).map_err(reset)?;
        if sent == 0 && wanted > 0 { Err(Errno::AGAIN) } else { Ok(sent) }
    }

    fn recv(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        receive(self, |rx| rx.pull(&mut Scatter::new(into)))
    }

    fn peek(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        receive(self, |rx| rx.peek(&mut Scatter::new(into)))
    }

    fn shutdown(&self) -> Result<(), Errno> {
        let tx = self.sending().ok_or(Errno::AGAIN)?;
        // An end that never sent enters the ring to publish its end.
        tx.carrier().and_then(|_| tx.shutdown()).map_err(full)
    }

    fn unread(&self) -> Result<usize, Errno> {
        Ok(self.queue.unread())
    }

    fn wait(&self, want: Events, until: Deadline) -> Result<(), Errno> {
        let q = &self.queue;
        let ready =
            || (want.read && q.has_record()) || (want.write && q.has_room()) || q.peer_has_closed();
        let wait = Wait { want, ..Wait::for_space(Fd::new(-1), until) };
        self.sleep(&wait, ready, || false).map(drop)
    }
}

fn receive(
    ring: &Ring,
    take: impl FnOnce(&Receiving<'_>) -> Result<usize, Violation>,
) -> Result<usize, Errno> {
    let rx = ring.receiving().ok_or(Errno::AGAIN)?;
    // Asked before the ring: bytes that the peer published before it closed still have to be read.
    let closed = ring.queue.peer_has_closed();
    match rx.step().map_err(reset)? {
        RxStep::Ring => take(&rx).map_err(reset),
        RxStep::End => Ok(0),
        RxStep::TcpUnbounded | RxStep::RingEmpty if closed => Ok(0),
        _ => Err(Errno::AGAIN),
    }
}
