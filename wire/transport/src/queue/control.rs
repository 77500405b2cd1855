//! Single bits and words by which an end informs its peer, and all processes that share it.

use super::pair::{QueueMemory, QueuePair};
use crate::layout::{self, control};
use crate::lock::WAITERS;
use crate::mem::PeerMemory;
use crate::sync::Ordering;
use crate::sys::thread::ThreadId;

impl<O: QueueMemory, P: PeerMemory> QueuePair<O, P> {
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
    pub fn correct_low_water(&self, expected: u64, bytes: u64) {
        let word = self.own.word(layout::LOW_WATER);
        let _ = word.compare_exchange(expected, bytes, Ordering::Relaxed, Ordering::Relaxed);
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

    /// Number of bytes in the [spill](crate::sys::spill): taken off the ring, and left for all
    /// holders of the socket.
    #[inline]
    #[must_use]
    pub fn spill_len(&self) -> u64 {
        self.get(layout::SPILL_LEN)
    }

    /// Sets that number. To be called with the receiving half held.
    pub fn set_spill_len(&self, bytes: u64) {
        self.set_in_order(layout::SPILL_LEN, bytes);
    }

    /// How processes that share this end have given it to other programs: bits of
    /// [`layout::given`].
    #[must_use]
    pub fn given(&self) -> u64 {
        self.own.word(layout::GIVEN).load(Ordering::SeqCst)
    }

    /// Notes such a gift for all of them. Returns what they knew before.
    pub fn note_given(&self, how: u64) -> u64 {
        self.own.word(layout::GIVEN).fetch_or(how, Ordering::SeqCst)
    }

    /// Notes that it was not given in these ways after all.
    pub fn note_kept(&self, how: u64) {
        self.own.word(layout::GIVEN).fetch_and(!how, Ordering::SeqCst);
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

    /// Whether a sender of the peer may have checked for this end's request for TCP before it was
    /// made, and be about to publish. Once this is false after [`Self::set_tcp_only`], nothing
    /// more comes by the ring: the peer takes its lock first and checks then, both in one
    /// sequentially consistent order with the request and this load.
    #[must_use]
    pub fn peer_is_sending(&self) -> bool {
        self.peer.load(layout::TX_LOCK, Ordering::SeqCst) != 0
    }

    /// Whether no receiver of the peer can be inside a read: one that was there has died.
    #[must_use]
    pub fn peer_reader_is_dead(&self) -> bool {
        match self.peer.load(layout::RX_LOCK, Ordering::SeqCst) & !WAITERS {
            0 => true,
            holder => !ThreadId(holder).is_stranger() && !ThreadId(holder).is_alive(),
        }
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
