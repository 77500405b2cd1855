//! Sending on an attached connection: by TCP or on the ring.

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use seekwire_protocol::Carrier;
use seekwire_transport::Errno;
use seekwire_transport::iov::Gather;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{PublishError, Tx, Violation};
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::poll::{self, Deadline, Events};
use seekwire_transport::sys::socket::{self, KernelSend};
use seekwire_transport::sys::thread;

use super::call_limit::Limit;
use super::data_path::DataPath;
use super::state::Connection;
use super::types::SendFlags;

/// The receive window of a new connection. Linux acknowledges this many bytes even if they are not
/// read.
const ACKNOWLEDGED: usize = 64 << 10;

/// The outcome of one attempt to send.
pub(super) enum SendOutcome {
    /// Some bytes, or all.
    Some,
    /// Nothing now; wait for room on the ring or in the kernel's socket.
    Wait(Carrier),
    /// The receiver is inside a read that keeps this end from TCP, and sends no notification when
    /// it ends: try again soon.
    Later,
}

/// The outcome of one attempt to send while the sending half was held.
enum LockedSendOutcome {
    Ring(SendOutcome),
    Tcp(Result<SendOutcome, Errno>),
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
        let data_path = self.attached().ok_or(Errno::NOTCONN)?;
        let mut gather = Gather::new(bufs);
        let total = gather.remaining();
        let call = self.begin_call();
        let limit = Limit::send();
        if !data_path.ring.queue.fits(total) && !limit.forbids(self, flags.dont_wait) {
            call.hold_signals();
        }
        loop {
            let sent = total - gather.remaining();
            let tried = self.try_send(data_path, &mut gather, flags, sent > 0);
            // An error after some bytes were sent is left to the next call, as in the kernel.
            let stop = |error| if sent > 0 { Ok(sent) } else { Err(error) };
            let carrier = match tried {
                Ok(SendOutcome::Some) if gather.remaining() == 0 => return Ok(total),
                Ok(SendOutcome::Some) => {
                    call.moved();
                    continue;
                }
                Ok(SendOutcome::Wait(carrier)) => Some(carrier),
                Ok(SendOutcome::Later) => None,
                Err(error) => return stop(error),
            };
            if limit.forbids(self, flags.dont_wait) {
                if sent == 0
                    && carrier == Some(Carrier::Ring)
                    && self.overflow_if_due(data_path, flags.patient)?
                {
                    continue;
                }
                return stop(Errno::AGAIN);
            }
            let waited = match carrier {
                Some(carrier) => self.wait_to_send(data_path, carrier, &limit, &call),
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
        data_path: &DataPath,
        gather: &mut Gather<'_>,
        flags: SendFlags,
        begun: bool,
    ) -> Result<SendOutcome, Errno> {
        let q = &data_path.ring.queue;
        if q.tx_on_ring() && data_path.looks_lost() {
            self.check_peer(data_path)?;
        }
        let tried = data_path.ring.send_with(|tx, calls| {
            // Under the lock: another thread's shutdown comes before all of this send, or after it.
            let is_done = q.peer_is_done();
            if is_done && self.is_stale(data_path) {
                return LockedSendOutcome::Tcp(Err(Errno::STALE));
            }
            if !data_path.is_sound() || q.is_shut() || (is_done && q.peer_refuses()) {
                return LockedSendOutcome::Nobody;
            }
            match self.due_carrier(data_path, tx, calls) {
                Ok(Carrier::Ring) if data_path.is_still_full() => {
                    LockedSendOutcome::Ring(SendOutcome::Wait(Carrier::Ring))
                }
                Ok(Carrier::Ring) => {
                    let pushed = if flags.more || q.holds() {
                        self.push_held(data_path, tx, gather, flags)
                    } else {
                        tx.push(gather)
                    };
                    if gather.remaining() > 0 {
                        data_path.progress.refused.store(true, Ordering::Relaxed);
                    }
                    match pushed {
                        Ok(0) => LockedSendOutcome::Ring(SendOutcome::Wait(Carrier::Ring)),
                        Ok(_) => LockedSendOutcome::Ring(SendOutcome::Some),
                        Err(violation) => LockedSendOutcome::Violation(violation),
                    }
                }
                Ok(Carrier::Tcp) => {
                    LockedSendOutcome::Tcp(self.send_by_tcp(tx, data_path, gather, flags, begun))
                }
                Err(PublishError::NoRoom) => {
                    LockedSendOutcome::Ring(SendOutcome::Wait(Carrier::Ring))
                }
                Err(PublishError::Violation(violation)) => LockedSendOutcome::Violation(violation),
            }
        });
        let tried = tried.ok_or(Errno::AGAIN)?;
        if data_path.has_lost_memory() {
            return Err(self.violated(data_path, Violation));
        }
        match tried {
            LockedSendOutcome::Ring(sent) => {
                self.show_sent(data_path);
                Ok(sent)
            }
            LockedSendOutcome::Tcp(sent) => sent,
            LockedSendOutcome::Nobody => self.send_to_nobody(data_path, gather, flags, begun),
            LockedSendOutcome::Violation(violation) => Err(self.violated(data_path, violation)),
        }
    }

    #[cold]
    fn send_by_tcp(
        &self,
        tx: &Tx<'_, Own, Peer>,
        data_path: &DataPath,
        gather: &mut Gather<'_>,
        flags: SendFlags,
        begun: bool,
    ) -> Result<SendOutcome, Errno> {
        if !self.may_use_tcp(data_path, tx)? {
            return Ok(SendOutcome::Later);
        }
        if !self.retransmit(data_path, tx)? {
            return Ok(SendOutcome::Wait(Carrier::Tcp));
        }
        if begun && self.has_error() {
            return Err(Errno::PIPE);
        }
        // TCP sends the bytes that it holds back with the next acknowledgement. None may come from
        // a peer that answers by the ring.
        let flags = SendFlags { more: flags.more && data_path.ring.queue.is_tcp_only(), ..flags };
        match socket::send(self.fd(), &gather.rest(), kernel_flags(flags)) {
            Ok(n) => {
                let mut kept = 0;
                gather.take(n, |piece| {
                    tx.keep(kept, piece);
                    kept += piece.len();
                });
                tx.sent_by_tcp(n);
                self.show_sent(data_path);
                Ok(SendOutcome::Some)
            }
            Err(Errno::AGAIN) => Ok(SendOutcome::Wait(Carrier::Tcp)),
            Err(error) => Err(error),
        }
    }

    /// After the peer has gone or this direction was shut down, the kernel's socket returns the
    /// error and raises the signal that the application expects.
    #[cold]
    fn send_to_nobody(
        &self,
        data_path: &DataPath,
        gather: &mut Gather<'_>,
        flags: SendFlags,
        begun: bool,
    ) -> Result<SendOutcome, Errno> {
        if data_path.is_violated() {
            return Err(Errno::CONNRESET);
        }
        if begun {
            self.await_reset(data_path);
            if data_path.ring.queue.is_shut() || self.has_error() {
                return Err(Errno::PIPE);
            }
        }
        if data_path.ring.queue.is_shut() {
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
                Ok(SendOutcome::Some)
            }
            Err(Errno::AGAIN) => Ok(SendOutcome::Wait(Carrier::Tcp)),
            Err(error) => Err(error),
        }
    }

    /// A peer that closes with unread bytes reports that on the ring before its kernel resets the
    /// connection. A send that ends for this reason returns after the reset, so that the next one
    /// fails. The wait is limited, since an unknown process may also hold the peer's socket.
    fn await_reset(&self, data_path: &DataPath) {
        let q = &data_path.ring.queue;
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
        let Some(data_path) = self.attached() else { return Ok(Carrier::Tcp) };
        let tx = self.tx(data_path)?;
        let carrier = self.due_carrier(data_path, &tx, tx.calls());
        drop(tx);
        match carrier {
            Ok(carrier) => Ok(carrier),
            Err(PublishError::NoRoom) => Ok(Carrier::Tcp),
            Err(PublishError::Violation(violation)) => Err(self.violated(data_path, violation)),
        }
    }

    /// SIOCOUTQ: bytes sent that the peer's kernel has not acknowledged. With TCP alone, these are
    /// the bytes that do not fit into the peer's receive buffer. So those on the ring count from
    /// `ACKNOWLEDGED` on.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn unsent(&self) -> Result<usize, Errno> {
        let on_ring = self.attached().map_or(0, |data_path| {
            let q = &data_path.ring.queue;
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
