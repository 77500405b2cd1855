//! The carrier switch: one direction of a connection is a sequence of spans of bytes, each on one
//! carrier, and the sender alone decides where one ends.
//!
//! Every switch is a record in the descriptor ring, in order with the data, so that no history can
//! be overwritten and the receiver needs no second channel:
//!
//! ```text
//!   ring:  [RingAt 5000] [data] [data] [Tcp] [RingAt 7200] [data] [Fin]
//!   tcp :  bytes 0..5000                     bytes 5000..7200
//! ```
//!
//! While the receiver is on TCP, the record at the head of the ring bounds what it may take from
//! the kernel. Only a read that began while the ring was empty is unbounded, and only while it
//! lasts does the sender have to hold back TCP bytes of a later span: the receiver announces such a
//! read (`unbounded read`), and the sender, having gone through the ring and back, waits for its
//! end unless the receiver has already taken the `RingAt` record. Such a read never blocks, so
//! neither does that wait for long.

use crate::Carrier;
use crate::record::Record;

/// The sender's half of the switch.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TxSwitch {
    /// The carrier of the next byte.
    pub carrier: Carrier,
    /// Bytes given to the kernel since the connection began.
    pub tcp_bytes: u64,
    /// Ring position just after the latest `RingAt` record.
    pub ring_since: u64,
}

/// The sender's knowledge of the receiver when it decides.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TxConditions {
    /// The receiver looks at its ring.
    pub ready: bool,
    /// The receiver, or the sender's own side, has ruled the ring out for good.
    pub tcp_only: bool,
}

/// The sender's step before its next byte.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TxStep {
    /// Send on the carrier.
    Send(Carrier),
    /// Publish `RingAt` with this position in the TCP stream, then call [`TxSwitch::entered_ring`].
    EnterRing(u64),
    /// Publish `Tcp`, then call [`TxSwitch::left_ring`].
    LeaveRing,
}

impl TxSwitch {
    /// The step before the next byte.
    #[must_use]
    pub fn step(&self, now: TxConditions) -> TxStep {
        match self.carrier {
            Carrier::Ring if now.tcp_only => TxStep::LeaveRing,
            Carrier::Tcp if now.ready && !now.tcp_only => TxStep::EnterRing(self.tcp_bytes),
            carrier => TxStep::Send(carrier),
        }
    }

    /// Notes that the `RingAt` record was published; the ring's next record goes to `position`.
    pub fn entered_ring(&mut self, position: u64) {
        self.carrier = Carrier::Ring;
        self.ring_since = position;
    }

    /// Notes that the `Tcp` record was published.
    pub fn left_ring(&mut self) {
        self.carrier = Carrier::Tcp;
    }

    /// Notes that the kernel took `n` bytes.
    pub fn sent_by_tcp(&mut self, n: u64) {
        self.tcp_bytes += n;
    }

    /// Whether bytes may be given to the kernel: the receiver has taken the records up to
    /// `consumed`, and `unbounded_read` says whether it is inside an unbounded read. Both must have
    /// been read after the latest record was published, with a full fence between.
    #[must_use]
    pub fn may_use_tcp(&self, consumed: u64, unbounded_read: bool) -> bool {
        consumed >= self.ring_since || !unbounded_read
    }
}

/// The receiver's half of the switch.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RxSwitch {
    /// The carrier of the next byte.
    pub carrier: Carrier,
    /// Bytes taken from the kernel since the connection began.
    pub tcp_bytes: u64,
}

/// The record at the head of the ring, as far as the switch is concerned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RxHead {
    /// The ring is empty.
    Empty,
    /// Bytes of the stream.
    Data,
    /// The direction left TCP at this position of the TCP stream.
    RingAt(u64),
    /// The direction goes on by TCP.
    Tcp,
    /// The sender shut its direction down.
    Fin,
}

impl RxHead {
    /// From a decoded record; `position` is the word that follows a `RingAt` header. `None` for a
    /// pad.
    #[must_use]
    pub fn from_record(record: Record, position: u64) -> Option<Self> {
        Some(match record {
            Record::Inline { .. } | Record::Segment { .. } => Self::Data,
            Record::RingAt => Self::RingAt(position),
            Record::Tcp => Self::Tcp,
            Record::Fin => Self::Fin,
            Record::Pad => return None,
        })
    }
}

/// The receiver's step for its next byte.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RxStep {
    /// Read from the kernel, at most this many bytes.
    Tcp(u64),
    /// Announce an unbounded read, look at the ring again, and if it is still empty read from the
    /// kernel without a bound. If the kernel says that the stream ended, look at the ring again.
    TcpUnbounded,
    /// Take the data at the head of the ring.
    Ring,
    /// The ring is empty: wait. The stream has ended if TCP has.
    RingEmpty,
    /// Take the head off the ring (it was a switch) and ask again.
    Advance,
    /// The stream has ended.
    End,
    /// The sender violated the protocol.
    Violation,
}

impl RxSwitch {
    /// The step for the next byte, given the head of the ring.
    pub fn step(&mut self, head: RxHead) -> RxStep {
        match (self.carrier, head) {
            (Carrier::Tcp, RxHead::Empty) => RxStep::TcpUnbounded,
            (Carrier::Tcp, RxHead::RingAt(x)) if x > self.tcp_bytes => {
                RxStep::Tcp(x - self.tcp_bytes)
            }
            (Carrier::Tcp, RxHead::RingAt(x)) if x == self.tcp_bytes => {
                self.carrier = Carrier::Ring;
                RxStep::Advance
            }
            (Carrier::Ring, RxHead::Empty) => RxStep::RingEmpty,
            (Carrier::Ring, RxHead::Data) => RxStep::Ring,
            (Carrier::Ring, RxHead::Fin) => RxStep::End,
            (Carrier::Ring, RxHead::Tcp) => {
                self.carrier = Carrier::Tcp;
                RxStep::Advance
            }
            (Carrier::Tcp, _) | (Carrier::Ring, RxHead::RingAt(_)) => RxStep::Violation,
        }
    }

    /// Notes that the kernel returned `n` bytes.
    pub fn received_by_tcp(&mut self, n: u64) {
        self.tcp_bytes += n;
    }
}
