//! The two ways of moving bytes, behind one trait.
//!
//! A carrier never waits: it says EAGAIN, and [`Carrier::wait`] sleeps. `tests/conformance.rs` holds
//! every carrier to the same rules.

use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::time::Duration;

use crate::Errno;
use crate::iov::{Gather, Scatter};
use crate::mem::{Own, Peer};
use crate::queue::{Full, QueuePair, Violation};
use crate::sys::Fd;
use crate::sys::doorbell::{Doorbell, Ear};
use crate::sys::poll::{self, Deadline, Events};
use crate::sys::socket::{self, KernelRecv as RecvFlags, KernelSend as SendFlags};
use seekwire_protocol::Carrier as Which;
use seekwire_protocol::switch::RxStep;

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
        socket::shutdown(self.0, Shutdown::Write)
    }

    fn unread(&self) -> Result<usize, Errno> {
        socket::unread(self.0)
    }

    fn wait(&self, want: Events, until: Deadline) -> Result<(), Errno> {
        poll::wait(Fd::new(-1), self.0, want, until).map(drop)
    }
}

/// One end of a queue pair with its doorbells: its own, which it sleeps on, and its peer's, which it rings.
#[derive(Debug)]
pub struct Ring {
    /// The rings.
    pub queue: QueuePair<Own, Peer>,
    /// What this end sleeps on.
    pub doorbell: Doorbell,
    /// What the peer sleeps on.
    pub peer_doorbell: Doorbell,
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

    /// Undoes [`Ring::arm`], and wakes those of this end that still sleep and whose turn it is: the doorbell
    /// may have been silenced for them.
    pub fn disarm(&self, want: Events) {
        let q = &self.queue;
        if want.read {
            q.disarm_data();
        }
        if want.write {
            q.disarm_space();
        }
        if (q.has_readers() && q.has_record()) || (q.has_writers() && self.may_send()) {
            self.doorbell.ring();
        }
    }

    /// Gives a reserved segment back unused, and wakes those of this end that wait for room.
    pub fn cancel(&self, segment: usize) {
        // A signal handler that interrupted a send of this thread cannot: the segment stays reserved.
        if let Some(tx) = self.queue.try_tx() {
            tx.cancel(segment);
            drop(tx);
            self.disarm(Events::default());
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
        self.sleep_for(want, 0, socket, of_socket, until, ready)
    }

    /// As [`Ring::sleep`], for somebody who needs nothing before the peer has published so many bytes in all, if nobody
    /// else waits for data: then the peer does not ring before.
    ///
    /// # Errors
    /// Those of [`Ring::sleep`].
    pub fn sleep_for(
        &self,
        want: Events,
        published: u64,
        socket: Fd,
        of_socket: Events,
        until: Deadline,
        ready: impl Fn() -> bool,
    ) -> Result<Events, Errno> {
        self.sleep_beside(want, published, socket, of_socket, until, ready, || false)
    }

    /// As [`Ring::sleep_for`], beside others who sleep on the same doorbell for reasons that the ring does not know.
    /// `are_called` tells whether they have such a reason, true before the doorbell is rung for it, and until they have
    /// come round: so long the doorbell is left rung.
    ///
    /// # Errors
    /// Those of [`Ring::sleep_for`].
    #[expect(clippy::too_many_arguments, reason = "those of `sleep_for`, and one more")]
    pub fn sleep_beside(
        &self,
        want: Events,
        published: u64,
        socket: Fd,
        of_socket: Events,
        until: Deadline,
        ready: impl Fn() -> bool,
        are_called: impl Fn() -> bool,
    ) -> Result<Events, Errno> {
        // Whoever is armed now is another one, for whom it may have rung again.
        if self.queue.number_of_waiters() == 0 && self.doorbell.take_heard() {
            self.silence(want, &are_called);
        }
        if want.read && self.queue.arm_data_for(published) {
            self.doorbell.ring();
        }
        if want.write {
            self.queue.arm_space();
        }
        let mut ear = None;
        let result = loop {
            // If it rings on for others, it is listened to, for the next time that it is rung.
            let is_deaf = self.doorbell.times_left() >= MOST_LEFT;
            if is_deaf {
                ear = ear.or_else(|| Ear::new(self.doorbell.fd()).ok());
                ear.iter().for_each(Ear::forget);
            }
            if ready() {
                break Ok(Events::default());
            }
            // What a sleep has to be: a signal, or the end of the time, ends it.
            let slept = match &ear {
                _ if !is_deaf => poll::wait(self.doorbell.fd(), socket, of_socket, until),
                Some(ear) => poll::wait(ear.fd(), socket, of_socket, until),
                None => poll::wait(Fd::new(-1), socket, of_socket, until.at_most(NAP)),
            };
            match slept {
                Ok((true, Events { read: false, write: false, hangup: false, dead: false })) => {
                    if self.is_alone(want) && ready() {
                        self.doorbell.quiet_later();
                        break Ok(Events::default());
                    }
                }
                Err(Errno::TIMEDOUT) if is_deaf => {}
                Ok((_, events)) => break Ok(events),
                Err(error) => break Err(error),
            }
            if until.is_over() {
                break Err(Errno::TIMEDOUT);
            }
            self.answer(want, &are_called);
            if want.read && self.queue.rearm_data_for(published) {
                self.doorbell.ring();
            }
            if want.write {
                self.queue.rearm_space();
            }
        };
        self.disarm(want);
        result
    }

    /// Silences the doorbell for a waiter that it woke, unless it rang for those who wait for the other
    /// thing: they share the doorbell, and once silent it would let them sleep on.
    fn answer(&self, want: Events, are_called: &impl Fn() -> bool) {
        let may_leave = self.doorbell.times_left() < MOST_LEFT;
        // What lies on the ring is not all that it rings for: bytes of others may have been moved to library memory.
        let others = self.queue.number_of_readers() > u64::from(want.read);
        if !(self.is_for_others(want) || are_called() || (others && may_leave)) {
            self.silence(want, are_called);
            return;
        }
        // They are awake already and take a moment to come round. Only if one of them died, or is a loop
        // that is busy elsewhere, does it take long.
        self.doorbell.leave();
        if may_leave {
            std::thread::yield_now();
        }
    }

    fn silence(&self, want: Events, are_called: &impl Fn() -> bool) {
        self.doorbell.quiet();
        if self.is_for_others(want) || are_called() {
            // It rang for them, at the latest just before the silence.
            self.doorbell.ring();
        }
    }

    /// Whether nobody sleeps here but the caller.
    fn is_alone(&self, want: Events) -> bool {
        self.queue.number_of_waiters() == u64::from(want.read) + u64::from(want.write)
    }

    fn is_for_others(&self, want: Events) -> bool {
        let q = &self.queue;
        // One who needs bytes of the middle leaves those at the head to the others.
        let readers = q.number_of_readers() > u64::from(want.read);
        (readers && q.has_record()) || (!want.write && q.has_writers() && self.may_send())
    }

    /// Whether a waiter for space has a reason to try.
    fn may_send(&self) -> bool {
        let q = &self.queue;
        // Once the ring was left, room on it has no meaning.
        q.has_room() || !q.tx_on_ring() || q.peer_has_closed() || q.is_shut()
    }
}

/// How often waiters leave the doorbell to others before they sleep though it is rung.
const MOST_LEFT: u32 = 100;
/// How long they sleep at a time where there are no descriptors to listen by.
const NAP: Duration = Duration::from_millis(1);

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
        let tx = self.queue.try_tx().ok_or(Errno::AGAIN)?;
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
            self.peer_doorbell.ring();
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
        let tx = self.queue.try_tx().ok_or(Errno::AGAIN)?;
        // An end that never sent enters the ring to say so.
        let result = tx.carrier().and_then(|_| tx.shutdown()).map_err(full);
        if tx.should_ring() {
            self.peer_doorbell.ring();
        }
        result
    }

    fn unread(&self) -> Result<usize, Errno> {
        Ok(self.queue.unread())
    }

    fn wait(&self, want: Events, until: Deadline) -> Result<(), Errno> {
        let q = &self.queue;
        let ready = || (want.read && q.has_record()) || (want.write && q.has_room()) || q.peer_has_closed();
        self.sleep(want, Fd::new(-1), Events::default(), until, ready).map(drop)
    }
}

impl Ring {
    fn receive(
        &self,
        take: impl FnOnce(&crate::queue::Rx<'_, Own, Peer>) -> Result<usize, Violation>,
    ) -> Result<usize, Errno> {
        let rx = self.queue.try_rx().ok_or(Errno::AGAIN)?;
        // Asked before the ring is: what the peer published before it closed is still to be read.
        let closed = self.queue.peer_has_closed();
        let result = match rx.step().map_err(reset)? {
            RxStep::Ring => take(&rx).map_err(reset),
            RxStep::End => Ok(0),
            RxStep::TcpUnbounded | RxStep::RingEmpty if closed => Ok(0),
            _ => Err(Errno::AGAIN),
        };
        if rx.should_ring() {
            self.peer_doorbell.ring();
        }
        result
    }
}
