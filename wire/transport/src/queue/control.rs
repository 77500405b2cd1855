//! Single bits and words by which an end informs its peer, and all processes that share it.

use super::pair::{Memory, QueuePair};
use crate::layout::{self, control};
use crate::mem::PeerMemory;
use crate::sync::Ordering;

impl<O: Memory, P: PeerMemory> QueuePair<O, P> {
    /// Tells the peer that this end looks at its ring from now on.
    pub fn set_ready(&self) {
        self.own.set_bits(layout::CONTROL, control::READY);
    }

    /// Asks the peer to send by TCP from now on, and rules the ring out for this end's own sends.
    pub fn set_tcp_only(&self) {
        self.own.set_bits(layout::CONTROL, control::TCP_ONLY);
    }

    /// Marks the sending direction as shut down without publishing a record, for a caller that
    /// cannot take the half: the end of TCP tells the peer.
    pub fn set_shut(&self) {
        self.set_in_order(layout::TX_SHUT, 1);
    }

    /// Tells the peer that this end has closed.
    pub fn set_closed(&self) {
        self.own.set_bits(layout::CONTROL, control::CLOSED);
    }

    /// Whether the peer looks at its ring.
    #[must_use]
    pub fn peer_is_ready(&self) -> bool {
        self.peer.load(layout::CONTROL, Ordering::Acquire) & control::READY != 0
    }

    /// Whether the peer has closed the connection.
    #[inline]
    #[must_use]
    pub fn peer_has_closed(&self) -> bool {
        self.peer.load(layout::CONTROL, Ordering::Acquire) & control::CLOSED != 0
    }

    /// Tells the peer that TCP has ended without a record on the ring.
    pub fn set_saw_end(&self) {
        self.own.set_bits(layout::CONTROL, control::SAW_END);
    }

    /// SO_RCVLOWAT as one of the processes that share this end has set it since; 0 if none has.
    #[inline]
    #[must_use]
    pub fn low_water(&self) -> u64 {
        self.own.word(layout::LOW_WATER).load(Ordering::Relaxed)
    }

    /// Tells all processes that share this end the new SO_RCVLOWAT.
    pub fn set_low_water(&self, bytes: u64) {
        self.own.word(layout::LOW_WATER).store(bytes, Ordering::Relaxed);
    }

    /// Corrects SO_RCVLOWAT from `known` to `bytes`, unless a process has set it meanwhile.
    pub fn correct_low_water(&self, known: u64, bytes: u64) {
        let word = self.own.word(layout::LOW_WATER);
        let _ = word.compare_exchange(known, bytes, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The control messages that a receive returns: bits of [`layout::messages`].
    #[inline]
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.own.word(layout::MESSAGES).load(Ordering::Relaxed)
    }

    /// A process that shares this end has asked for messages, or does not want them any more.
    pub fn set_messages(&self, bits: u64, on: bool) {
        let word = self.own.word(layout::MESSAGES);
        if on {
            word.fetch_or(bits, Ordering::Relaxed);
        } else {
            word.fetch_and(!bits, Ordering::Relaxed);
        }
    }

    /// Tells all processes that share this end that it was shut down for reading.
    pub fn set_receive_shut(&self) {
        self.set(layout::RX_SHUT, 1);
    }

    /// Whether a process that shares this end has shut it down for reading.
    #[must_use]
    pub fn is_receive_shut(&self) -> bool {
        self.get(layout::RX_SHUT) != 0
    }

    /// Number of bytes that were taken off the ring and left for all holders of the socket.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> u64 {
        self.get(layout::REST)
    }

    /// Sets that number. To be called with the receiving half held.
    pub fn set_rest(&self, bytes: u64) {
        self.set_in_order(layout::REST, bytes);
    }

    /// Tells the peer that this end is shut down both ways. TCP knows it already.
    pub fn set_refuses(&self) {
        self.own.set_bits(layout::CONTROL, control::REFUSES);
    }

    /// Whether this end has called [`Self::set_refuses`].
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.get(layout::CONTROL) & control::REFUSES != 0
    }

    /// Whether the peer takes nothing more: it has closed the connection, or shut it down both
    /// ways.
    #[must_use]
    pub fn peer_refuses(&self) -> bool {
        self.peer.load(layout::CONTROL, Ordering::Acquire) & (control::CLOSED | control::REFUSES)
            != 0
    }

    /// Whether the peer takes nothing more, or believes that this end has closed.
    #[inline]
    #[must_use]
    pub fn peer_is_done(&self) -> bool {
        const DONE: u64 = control::CLOSED | control::SAW_END | control::REFUSES;
        self.peer.load(layout::CONTROL, Ordering::Acquire) & DONE != 0
    }

    /// Whether either end has ruled the ring out for this end's sends.
    #[inline]
    #[must_use]
    pub fn is_tcp_only(&self) -> bool {
        let peer = self.peer_wants_tcp();
        peer || self.wants_tcp()
    }

    /// Whether this end has asked for TCP.
    #[must_use]
    #[inline]
    pub fn wants_tcp(&self) -> bool {
        self.get(layout::CONTROL) & control::TCP_ONLY != 0
    }

    /// Whether the peer has asked for TCP.
    #[inline]
    #[must_use]
    pub fn peer_wants_tcp(&self) -> bool {
        self.peer.load(layout::CONTROL, Ordering::SeqCst) & control::TCP_ONLY != 0
    }

    /// Whether a sender of the peer may have checked for this end's wish for TCP before it was
    /// expressed, and be about to publish. Once this is false after [`Self::set_tcp_only`], nothing
    /// more comes by the ring: the peer takes its lock first and checks then, both in one
    /// sequentially consistent order with the wish and this load.
    #[must_use]
    pub fn peer_is_sending(&self) -> bool {
        self.peer.load(layout::TX_LOCK, Ordering::SeqCst) != 0
    }

    /// Notes the processor on which this thread runs; the peer does not spin for a thread on its
    /// own processor.
    #[inline]
    pub fn note_processor(&self, processor: u64) {
        if self.get(layout::PROCESSOR) != processor + 1 {
            self.set(layout::PROCESSOR, processor + 1);
        }
    }

    /// The processor that the peer noted last.
    #[inline]
    #[must_use]
    pub fn peer_processor(&self) -> Option<u64> {
        self.peer.load(layout::PROCESSOR, Ordering::Relaxed).checked_sub(1)
    }
}
