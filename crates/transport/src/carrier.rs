//! The two ways of moving bytes, behind one trait.
//!
//! A carrier never waits: it says EAGAIN, and [`Carrier::wait`] sleeps. `tests/conformance.rs` holds
//! every carrier to the same rules.

use std::io::{IoSlice, IoSliceMut};

use crate::Errno;
use crate::iov::{Gather, Scatter};
use crate::mem::{Own, Peer};
use crate::queue::{Full, QueuePair, Violation};
use crate::sys::Fd;
use crate::sys::bell::Bell;
use crate::sys::poll::{self, Deadline, Events};
use crate::sys::socket::{self, KernelRecv as RecvFlags, KernelSend as SendFlags};
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
        socket::send(self.0, from, SendFlags::NOSIGNAL)
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
    /// Asks the peer to ring for data, for space, or both; to be undone by [`Ring::disarm`]. Whoever
    /// sleeps after this has to look again first.
    pub fn arm(&self, want: Events) {
        if want.read {
            self.queue.arm_data();
        }
        if want.write {
            self.queue.arm_space();
        }
    }

    /// Undoes [`Ring::arm`], and wakes those of this end that still sleep and whose turn it is: the bell
    /// may have been silenced for them.
    pub fn disarm(&self, want: Events) {
        let q = &self.queue;
        if want.read {
            q.disarm_data();
        }
        if want.write {
            q.disarm_space();
        }
        let (data, space) = q.waiters();
        if (data && q.has_record()) || (space && q.has_room()) {
            self.bell.ring();
        }
    }

    /// Sleeps until `ready`, having armed for data (`want.read`), for space (`want.write`), or both; or
    /// until something happens to the socket: what is wanted of it is `of_socket`, and what came is
    /// returned.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR; those of poll(2).
    pub fn sleep(
        &self,
        want: Events,
        socket: Fd,
        of_socket: Events,
        until: Deadline,
        ready: impl Fn() -> bool,
    ) -> Result<Events, Errno> {
        self.arm(want);
        let result = loop {
            if ready() {
                break Ok(Events::default());
            }
            match poll::wait(self.bell.fd(), socket, of_socket, until) {
                Ok((true, Events { read: false, write: false, hangup: false, dead: false })) => {
                    self.bell.quiet();
                    if want.read {
                        self.queue.rearm_data();
                    }
                    if want.write {
                        self.queue.rearm_space();
                    }
                    if self.wakes_others(want) {
                        break Ok(Events::default());
                    }
                }
                Ok((_, events)) => break Ok(events),
                Err(error) => break Err(error),
            }
        };
        self.disarm(want);
        result
    }

    /// Whether the bell, now silent, may have rung for somebody else of this end. Then this waiter
    /// leaves, and [`Ring::disarm`] rings again.
    fn wakes_others(&self, want: Events) -> bool {
        let (data, space) = self.queue.waiters();
        (data && !want.read && self.queue.has_record()) || (space && !want.write && self.queue.has_room())
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
        let q = &self.queue;
        let ready = || (want.read && q.has_record()) || (want.write && q.has_room());
        self.sleep(want, Fd::new(-1), Events::default(), until, ready).map(drop)
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
