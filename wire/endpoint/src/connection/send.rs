//! Sending on an attached connection: by TCP or on the ring.

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use seekwire_protocol::Carrier;
use seekwire_transport::Errno;
use seekwire_transport::iov::Gather;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{Full, Tx, Violation};
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::poll::{self, Deadline, Events};
use seekwire_transport::sys::socket::{self, KernelSend};
use seekwire_transport::sys::thread;

use super::limit::Limit;
use super::link::Link;
use super::state::Connection;
use super::terms::SendFlags;

/// The receive window of a new connection. Linux acknowledges this many bytes even if they are not
/// read.
const ACKNOWLEDGED: usize = 64 << 10;

/// The outcome of one attempt to send.
pub(super) enum Sent {
    /// Some bytes, or all.
    Some,
    /// Nothing now; wait for room on the ring or in the kernel's socket.
    Wait(Carrier),
    /// The receiver is inside a read that keeps this end from TCP, and sends no notification when
    /// it ends: try again soon.
    Later,
}

/// The outcome of one attempt to send while the sending half was held.
enum Tried {
    Ring(Sent),
    Tcp(Result<Sent, Errno>),
    /// The peer has gone, or this direction was shut down.
    Nobody,
    Violation(Violation),
}

impl Connection {
    /// Sends from an attached connection as send(2) does: waits until everything is sent unless
    /// told not to, and returns how many bytes were.
    ///
    /// # Errors
    /// Those of send(2). EINTR and EAGAIN only when nothing was sent; EAGAIN, even where calls
    /// wait, in a signal handler that interrupted a send on this connection. ENOTCONN when it is
    /// not attached.
    pub fn send(&self, bufs: &[IoSlice<'_>], flags: SendFlags) -> Result<usize, Errno> {
        let link = self.attached().ok_or(Errno::NOTCONN)?;
        let mut gather = Gather::new(bufs);
        let total = gather.remaining();
        let call = self.begin_call();
        let limit = Limit::send();
        if !link.ring.queue.fits(total) && !limit.forbids(self, flags.dont_wait) {
            call.hold_signals();
        }
        loop {
            let sent = total - gather.remaining();
            let tried = self.try_send(link, &mut gather, flags, sent > 0);
            // An error after some bytes were sent is left to the next call, as in the kernel.
            let stop = |error| if sent > 0 { Ok(sent) } else { Err(error) };
            let carrier = match tried {
                Ok(Sent::Some) if gather.remaining() == 0 => return Ok(total),
                Ok(Sent::Some) => {
                    call.moved();
                    continue;
                }
                Ok(Sent::Wait(carrier)) => Some(carrier),
                Ok(Sent::Later) => None,
                Err(error) => return stop(error),
            };
            if limit.forbids(self, flags.dont_wait) {
                if sent == 0
                    && carrier == Some(Carrier::Ring)
                    && self.overflow_if_due(link, flags.patient)?
                {
                    continue;
                }
                return stop(Errno::AGAIN);
            }
            let waited = match carrier {
                Some(carrier) => self.wait_to_send(link, carrier, &limit, &call),
                None => self.wait_a_moment(&limit, &call, None),
            };
            if let Err(error) = waited {
                return stop(error);
            }
        }
    }

    /// One attempt. `begun` means that this call has already sent bytes: then any error returned
    /// only ends the call.
    #[inline]
    pub(super) fn try_send(
        &self,
        link: &Link,
        gather: &mut Gather<'_>,
        flags: SendFlags,
        begun: bool,
    ) -> Result<Sent, Errno> {
        let q = &link.ring.queue;
        if q.tx_on_ring() && link.looks_lost() {
            self.doubt_peer(link)?;
        }
        let tried = link.ring.send_with(|tx, calls| {
            // Under the lock: another thread's shutdown comes before all of this send, or after it.
            let is_done = q.peer_is_done();
            if is_done && self.is_stale(link) {
                return Tried::Tcp(Err(Errno::STALE));
            }
            if !link.is_sound() || q.is_shut() || (is_done && q.peer_refuses()) {
                return Tried::Nobody;
            }
            match self.due_carrier(link, tx, calls) {
                Ok(Carrier::Ring) if link.is_still_full() => Tried::Ring(Sent::Wait(Carrier::Ring)),
                Ok(Carrier::Ring) => {
                    let pushed = if flags.more || q.holds() {
                        self.push_held(link, tx, gather, flags)
                    } else {
                        tx.push(gather)
                    };
                    if gather.remaining() > 0 {
                        link.watch.refused.store(true, Ordering::Relaxed);
                    }
                    match pushed {
                        Ok(0) => Tried::Ring(Sent::Wait(Carrier::Ring)),
                        Ok(_) => Tried::Ring(Sent::Some),
                        Err(violation) => Tried::Violation(violation),
                    }
                }
                Ok(Carrier::Tcp) => Tried::Tcp(self.send_by_tcp(tx, link, gather, flags, begun)),
                Err(Full::NoRoom) => Tried::Ring(Sent::Wait(Carrier::Ring)),
                Err(Full::Violation(violation)) => Tried::Violation(violation),
            }
        });
        let tried = tried.ok_or(Errno::AGAIN)?;
        if link.has_lost_memory() {
            return Err(self.violated(link, Violation));
        }
        match tried {
            Tried::Ring(sent) => {
                self.show_sent(link);
                Ok(sent)
            }
            Tried::Tcp(sent) => sent,
            Tried::Nobody => self.send_to_nobody(link, gather, flags, begun),
            Tried::Violation(violation) => Err(self.violated(link, violation)),
        }
    }

    #[cold]
    fn send_by_tcp(
        &self,
        tx: &Tx<'_, Own, Peer>,
        link: &Link,
        gather: &mut Gather<'_>,
        flags: SendFlags,
        begun: bool,
    ) -> Result<Sent, Errno> {
        if !self.may_use_tcp(link, tx)? {
            return Ok(Sent::Later);
        }
        if !self.retransmit(link, tx)? {
            return Ok(Sent::Wait(Carrier::Tcp));
        }
        if begun && self.has_error() {
            return Err(Errno::PIPE);
        }
        // TCP sends the bytes that it holds back with the next acknowledgement. None may come from
        // a peer that answers by the ring.
        let flags = SendFlags { more: flags.more && link.ring.queue.is_tcp_only(), ..flags };
        match socket::send(self.fd(), &gather.rest(), kernel_flags(flags)) {
            Ok(n) => {
                let mut kept = 0;
                gather.take(n, |piece| {
                    tx.keep(kept, piece);
                    kept += piece.len();
                });
                tx.sent_by_tcp(n);
                self.show_sent(link);
                Ok(Sent::Some)
            }
            Err(Errno::AGAIN) => Ok(Sent::Wait(Carrier::Tcp)),
            Err(error) => Err(error),
        }
    }

    /// After the peer has gone or this direction was shut down, the kernel's socket returns the
    /// error and raises the signal that the application expects.
    #[cold]
    fn send_to_nobody(
        &self,
        link: &Link,
        gather: &mut Gather<'_>,
        flags: SendFlags,
        begun: bool,
    ) -> Result<Sent, Errno> {
        if link.is_violated() {
            return Err(Errno::CONNRESET);
        }
        if begun {
            self.await_reset(link);
            if link.ring.queue.is_shut() || self.has_error() {
                return Err(Errno::PIPE);
            }
        }
        if link.ring.queue.is_shut() {
            // The kernel's socket may not be shut down yet: that follows the bytes to be
            // retransmitted, or another thread is about to do it.
            if !self.has_error() {
                if !flags.no_signal {
                    thread::raise_broken_pipe();
                }
                return Err(Errno::PIPE);
            }
        }
        // A send that has begun returns the number of bytes that it sent, without a signal.
        let flags = SendFlags { no_signal: flags.no_signal || begun, ..flags };
        match socket::send(self.fd(), &gather.rest(), kernel_flags(flags)) {
            Ok(n) => {
                gather.take(n, |_| ());
                Ok(Sent::Some)
            }
            Err(Errno::AGAIN) => Ok(Sent::Wait(Carrier::Tcp)),
            Err(error) => Err(error),
        }
    }

    /// A peer that closes with unread bytes reports that on the ring before its kernel resets the
    /// connection. A send that ends for this reason returns after the reset, so that the next one
    /// fails. The wait is limited, since an unknown process may also hold the peer's socket.
    fn await_reset(&self, link: &Link) {
        let q = &link.ring.queue;
        if q.peer_has_closed() && q.unsent() > 0 {
            let until = Deadline::after(Some(Self::ANSWER_LIMIT));
            let _ = poll::wait(Fd::new(-1), self.fd(), Events::default(), until);
        }
    }

    /// Whether the kernel's socket has an error, which it reports once.
    pub(super) fn has_error(&self) -> bool {
        poll::look(self.fd(), Events::default()).is_ok_and(|events| events.dead)
    }

    /// The carrier of the next send, after the switch that is due.
    ///
    /// # Errors
    /// ECONNRESET if the peer violated the protocol; EAGAIN in a signal handler that interrupted a
    /// send.
    pub fn next_carrier(&self) -> Result<Carrier, Errno> {
        let Some(link) = self.attached() else { return Ok(Carrier::Tcp) };
        let tx = self.tx(link)?;
        let carrier = self.due_carrier(link, &tx, tx.calls());
        drop(tx);
        match carrier {
            Ok(carrier) => Ok(carrier),
            Err(Full::NoRoom) => Ok(Carrier::Tcp),
            Err(Full::Violation(violation)) => Err(self.violated(link, violation)),
        }
    }

    /// SIOCOUTQ: bytes sent that the peer's kernel has not acknowledged. With TCP alone, these are
    /// the bytes that do not fit into the peer's receive buffer. So those on the ring count from
    /// `ACKNOWLEDGED` on.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn unsent(&self) -> Result<usize, Errno> {
        let on_ring = self.attached().map_or(0, |link| {
            let q = &link.ring.queue;
            q.to_retransmit().max(q.unsent().saturating_sub(ACKNOWLEDGED))
        });
        Ok(socket::unsent(self.fd())? + on_ring)
    }
}

fn kernel_flags(flags: SendFlags) -> KernelSend {
    let mut how = KernelSend::empty();
    how.set(KernelSend::NOSIGNAL, flags.no_signal);
    how.set(KernelSend::MORE, flags.more);
    how.set(KernelSend::EOR, flags.end_of_record);
    how
}
