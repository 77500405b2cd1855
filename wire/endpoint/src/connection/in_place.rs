//! Sending and receiving without a copy: the application works in the segment itself.

use std::io::IoSlice;
use std::sync::atomic::AtomicU8;

use seekwire_protocol::Carrier;
use seekwire_transport::Errno;
use seekwire_transport::mem::Claim;
use seekwire_transport::queue::{HeadBytes, PublishError};
use seekwire_transport::ring::Receiving;
use seekwire_transport::sys::poll::Deadline;

use super::call_limit::Limit;
use super::data_path::DataPath;
use super::state::Connection;
use super::types::SendFlags;

/// A segment of the ring, set aside to be filled.
#[derive(Debug)]
pub struct Reserved<'c> {
    connection: &'c Connection,
    data_path: &'c DataPath,
    /// Taken when committed.
    claim: Option<Claim<'c>>,
}

impl Reserved<'_> {
    /// The current content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.claim.as_deref().unwrap_or_default()
    }

    /// The whole segment, to be filled from its beginning.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.claim.as_deref_mut().unwrap_or_default()
    }

    /// Sends the first `len` bytes. A signal does not end the call: the caller could not tell how
    /// many of them were sent.
    ///
    /// # Errors
    /// As [`Connection::send`], without EINTR.
    pub fn commit(mut self, len: usize) -> Result<(), Errno> {
        let (data_path, connection) = (self.data_path, self.connection);
        let limit = Limit::at(Deadline::after(connection.settings.send_timeout()));
        let call = connection.begin_call();
        loop {
            let Some(claim) = self.claim.as_ref().filter(|_| len > 0) else { return Ok(()) };
            let q = &data_path.ring.queue;
            if !data_path.is_sound() || q.is_shut() || q.peer_refuses() {
                return self.copy(len);
            }
            let tx = connection.tx(data_path)?;
            let committed = match connection.due_carrier(data_path, &tx, tx.calls()) {
                Ok(Carrier::Tcp) => {
                    drop(tx);
                    return self.copy(len);
                }
                Ok(Carrier::Ring) => tx.commit(claim.unit(), len),
                Err(full) => Err(full),
            };
            if committed.is_ok() {
                self.claim = None;
            }
            drop(tx);
            match committed {
                Ok(()) => {
                    connection.show_sent(data_path);
                    return Ok(());
                }
                Err(PublishError::Violation(violation)) => {
                    return Err(connection.violated(data_path, violation));
                }
                Err(PublishError::NoRoom) => {
                    match connection.wait_to_send(data_path, Carrier::Ring, &limit, &call) {
                        Ok(()) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// The carrier has changed meanwhile: sends the bytes the ordinary way.
    fn copy(self, len: usize) -> Result<(), Errno> {
        let mut rest = &self.bytes()[..len];
        while !rest.is_empty() {
            let flags = SendFlags { no_signal: true, ..SendFlags::default() };
            match self.connection.send(&[IoSlice::new(rest)], flags) {
                Ok(n) => rest = &rest[n..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            let segment = claim.unit();
            drop(claim);
            self.data_path.ring.cancel(segment);
        }
    }
}

/// Bytes at the head of the ring on loan; the receiving half stays locked meanwhile.
#[derive(Debug)]
pub struct HeadLoan<'c> {
    data_path: &'c DataPath,
    rx: Receiving<'c>,
    head: HeadBytes,
}

impl HeadLoan<'_> {
    /// They belong to another process, which can change them at any time.
    #[must_use]
    pub fn bytes(&self) -> &[AtomicU8] {
        self.data_path.ring.queue.peer().bytes(self.head.offset, self.head.len)
    }

    /// Takes the first `len` bytes off the ring.
    ///
    /// # Errors
    /// ECONNRESET when the peer has violated the protocol.
    pub fn consume(self, len: usize) -> Result<(), Errno> {
        self.rx.discard(len.min(self.head.len)).map(drop).map_err(|_| Errno::CONNRESET)
    }
}

impl Connection {
    /// Sets a segment aside; `None` while sends travel by TCP. Waits for one unless the socket does
    /// not block.
    ///
    /// # Errors
    /// EAGAIN when the socket does not block; as [`Connection::send`].
    pub fn reserve(&self) -> Result<Option<Reserved<'_>>, Errno> {
        let Some(data_path) = self.attached() else { return Ok(None) };
        let q = &data_path.ring.queue;
        let limit = Limit::send();
        let call = self.begin_call();
        if q.tx_on_ring() && data_path.looks_lost() {
            self.check_peer(data_path)?;
        }
        loop {
            if !data_path.is_sound() || q.is_shut() || q.peer_refuses() {
                return Ok(None);
            }
            let tx = self.tx(data_path)?;
            let segment = match self.due_carrier(data_path, &tx, tx.calls()) {
                Ok(Carrier::Tcp) => return Ok(None),
                Ok(Carrier::Ring) => tx.reserve(),
                Err(full) => Err(full),
            };
            drop(tx);
            match segment {
                Ok(segment) => {
                    let claim = q.own().claim(segment);
                    return Ok(Some(Reserved { connection: self, data_path, claim }));
                }
                Err(PublishError::Violation(violation)) => {
                    return Err(self.violated(data_path, violation));
                }
                Err(PublishError::NoRoom) if limit.forbids(self, false) => {
                    return Err(Errno::AGAIN);
                }
                Err(PublishError::NoRoom) => {
                    self.wait_to_send(data_path, Carrier::Ring, &limit, &call)?
                }
            }
        }
    }

    /// Bytes at the head of the ring; `None` if the next byte does not come from there, or none is
    /// there now.
    ///
    /// # Errors
    /// ECONNRESET when the peer has violated the protocol; EAGAIN when this thread was interrupted
    /// in a receive.
    pub fn lend_head(&self) -> Result<Option<HeadLoan<'_>>, Errno> {
        let Some(data_path) = self.attached() else { return Ok(None) };
        if !data_path.is_sound()
            && self.totals().reason == Some(seekwire_protocol::Reason::PeerViolation)
        {
            return Err(Errno::CONNRESET);
        }
        let rx = self.rx(data_path)?;
        if self.is_seeking() {
            return Ok(None);
        }
        let head = match rx.step() {
            Ok(seekwire_protocol::switch::RxStep::Ring) => rx.head_bytes(),
            Ok(_) => Ok(None),
            Err(violation) => Err(violation),
        };
        match head {
            Ok(Some(head)) => Ok(Some(HeadLoan { data_path, rx, head })),
            Ok(None) => Ok(None),
            Err(violation) => {
                drop(rx);
                Err(self.violated(data_path, violation))
            }
        }
    }
}
