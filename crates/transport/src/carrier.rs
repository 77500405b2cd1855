//! The two ways of moving bytes, behind one trait.
//!
//! A carrier never waits: it says EAGAIN, and [`Carrier::wait`] sleeps. `tests/conformance.rs` holds
//! every carrier to the same rules.

use std::io::{IoSlice, IoSliceMut};

use rustix::net::{RecvFlags, SendFlags};

use crate::Errno;
use crate::iov::{Gather, Scatter};
use crate::mem::{Own, Peer};
use crate::queue::{Full, QueuePair, Violation};
use crate::sys::bell::Bell;
use crate::sys::poll::{self, Deadline, Events};
use crate::sys::{Fd, socket};
use protocol::Carrier as Which;
use protocol::switch::RxStep;

/// A two-way stream of bytes. Any thread may call any method.
pub trait Carrier {
    /// Takes bytes from the front of `from` and returns how many, at least 1 unless `from` is empty.
    ///
    /// # Errors
    /// EAGAIN when there is no room; EPIPE after [`Carrier::shutdown`]; ECONNRESET or EPIPE when the
    /// peer is gone.
    fn send(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno>;

    /// Fills `into` from the front and returns how many bytes that was; 0 is the end of the stream.
    ///
    /// # Errors
    /// EAGAIN when there is nothing yet; ECONNRESET when the peer is gone or misbehaved.
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

    /// Bytes that [`Carrier::recv`] would give at once.
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
pub struct Tcp(pub Fd);

impl Carrier for Tcp {
    fn send(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        socket::send_vectored(self.0, from, SendFlags::NOSIGNAL)
    }

    fn recv(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        socket::recv_vectored(self.0, into, RecvFlags::empty())
    }

    fn peek(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        socket::recv_vectored(self.0, into, RecvFlags::PEEK)
    }

    fn shutdown(&self) -> Result<(), Errno> {
        socket::shutdown(self.0, false, true)
    }

    fn unread(&self) -> Result<usize, Errno> {
        socket::unread(self.0)
    }

    fn wait(&self, want: Events, until: Deadline) -> Result<(), Errno> {
        poll::wait(Fd::new(-1), self.0, want, until).map(drop)
    }
}

/// One end of a queue pair with its bells: its own, which it sleeps on, and its peer's, which it rings.
#[derive(Debug)]
pub struct Ring {
    /// The rings.
    pub queue: QueuePair<Own, Peer>,
    /// What this end sleeps on.
    pub bell: Bell,
    /// What the peer sleeps on.
    pub peer_bell: Bell,
}

impl Ring {
    /// Goes to sleep until `ready`, the bell having been armed for data, for space, or both; or until
    /// the socket has one of the wanted events, which are returned.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR; those of poll(2).
    pub fn sleep(
        &self,
        socket: Fd,
        want: Events,
        until: Deadline,
        ready: impl Fn() -> bool,
    ) -> Result<Events, Errno> {
        let q = &self.queue;
        let armed = Armed { ring: self, want };
        let mut there = (want.read && q.arm_data()) | (want.write && q.arm_space());
        let result = loop {
            if there || ready() {
                break Ok(Events::default());
            }
            match poll::wait(self.bell.fd(), socket, Events { write: false, ..want }, until) {
                Err(error) => break Err(error),
                Ok((_, events)) if events.read || events.dead => break Ok(events),
                Ok((rung, _)) => {
                    if rung {
                        self.bell.quiet();
                    }
                    there = (want.read && q.rearm_data()) | (want.write && q.rearm_space());
                }
            }
        };
        drop(armed);
        result
    }
}

/// Undoes the arming, and wakes those of this end that still sleep and whose turn it is: the bell may
/// have been silenced for them.
struct Armed<'r> {
    ring: &'r Ring,
    want: Events,
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        let q = &self.ring.queue;
        let readers = self.want.read && q.disarm_data();
        let writers = self.want.write && q.disarm_space();
        let (data_waiters, space_waiters) = q.waiters();
        if (readers || data_waiters) && q.has_record() || (writers || space_waiters) && q.has_room() {
            self.ring.bell.ring();
        }
    }
}

fn full(full: Full) -> Errno {
    match full {
        Full::NoRoom => Errno::AGAIN,
        Full::Violation(violation) => reset(violation),
    }
}

fn reset(_: Violation) -> Errno {
    Errno::CONNRESET
}

/// The ring alone, both ends ready: every byte travels on it, and no TCP socket is needed.
impl Carrier for Ring {
    fn send(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let tx = self.queue.tx();
        if self.queue.is_shut() || self.queue.peer_has_closed() {
            return Err(Errno::PIPE);
        }
        if tx.carrier().map_err(full)? == Which::Tcp {
            return Err(Errno::AGAIN);
        }
        let mut gather = Gather::new(from);
        let wanted = gather.remaining();
        let sent = tx.push(&mut gather).map_err(reset)?;
        if tx.should_ring() {
            self.peer_bell.ring();
        }
        if sent == 0 && wanted > 0 { Err(Errno::AGAIN) } else { Ok(sent) }
    }

    fn recv(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        self.receive(|rx| rx.pull(&mut Scatter::new(into)))
    }

    fn peek(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        self.receive(|rx| rx.peek(&mut Scatter::new(into)))
    }

    fn shutdown(&self) -> Result<(), Errno> {
        let tx = self.queue.tx();
        let result = tx.shutdown().map_err(full);
        if tx.should_ring() {
            self.peer_bell.ring();
        }
        result
    }

    fn unread(&self) -> Result<usize, Errno> {
        Ok(self.queue.unread())
    }

    fn wait(&self, want: Events, until: Deadline) -> Result<(), Errno> {
        self.sleep(Fd::new(-1), want, until, || false).map(drop)
    }
}

impl Ring {
    fn receive(
        &self,
        take: impl FnOnce(&crate::queue::Rx<'_, Own, Peer>) -> Result<usize, Violation>,
    ) -> Result<usize, Errno> {
        let rx = self.queue.rx();
        let result = match rx.step().map_err(reset)? {
            RxStep::Ring => take(&rx).map_err(reset),
            RxStep::End => Ok(0),
            RxStep::TcpUnbounded | RxStep::RingEmpty if self.queue.peer_has_closed() => Ok(0),
            _ => Err(Errno::AGAIN),
        };
        if rx.should_ring() {
            self.peer_bell.ring();
        }
        result
    }
}
