//! Keeps bytes that went by TCP while earlier ones still lie on the ring, until the receiver has
//! taken those.
//!
//! The kernel has these bytes, while the receiver has yet to take earlier ones from the ring. If
//! the receiver wants those by TCP instead ([`super::recall`]), they would arrive in the wrong
//! order: so the receiver discards the bytes in the kernel, and all are retransmitted in order. For
//! that, this end keeps the bytes in its own memory, which a fork shares, in a ring of bytes
//! indexed by their position in the stream of TCP. When they no longer fit, they are not kept any
//! more, and can then not be retransmitted.

use super::pair::{QueueMemory, QueuePair};
use super::tx::Tx;
use crate::layout;
use crate::mem::PeerMemory;
use crate::sync::Ordering;

impl<O: QueueMemory, P: PeerMemory> QueuePair<O, P> {
    /// The position from which on all bytes given to the kernel are kept, if any are.
    pub(super) fn kept_from(&self) -> Option<u64> {
        self.get(layout::KEPT_FROM).checked_sub(1)
    }

    /// Copies kept bytes from the position `at` on.
    pub(super) fn kept(&self, at: u64, into: &mut [u8]) {
        let (first, rest) = self.geometry.kept_at(at, into.len());
        let (front, back) = into.split_at_mut(first.1);
        self.own.read_back(first.0, front);
        self.own.read_back(rest.0, back);
    }
}

impl<O: QueueMemory, P: PeerMemory> Tx<'_, O, P> {
    /// Keeps the bytes that go by TCP from now on, until none lie on the ring before them.
    pub(super) fn begin_to_keep(&self) {
        let q = self.queue;
        if q.unsent() == 0 || q.get(layout::TX_UNCOUNTED) != 0 {
            return self.keep_no_more();
        }
        let sent = q.get(layout::TX_TCP_BYTES);
        let received = q.peer.load(layout::RX_TCP_BYTES, Ordering::Acquire);
        if q.kept_from().is_none() || received >= sent {
            q.set(layout::KEPT_FROM, sent + 1);
        }
    }

    pub(super) fn keep_no_more(&self) {
        self.queue.set(layout::KEPT_FROM, 0);
    }

    /// Keeps bytes that the kernel took, before they are counted; a call may pass them in pieces,
    /// and `before` is the number of those that it passed already.
    pub fn keep(&self, before: usize, bytes: &[u8]) {
        let q = self.queue;
        let Some(from) = q.kept_from() else { return };
        if q.unsent() == 0 {
            return self.keep_no_more();
        }
        let at = q.get(layout::TX_TCP_BYTES) + before as u64;
        // Bytes that the receiver claims to have are no longer needed. If it claims too many, it
        // only harms itself.
        let from = from.max(q.peer.load(layout::RX_TCP_BYTES, Ordering::Acquire)).min(at);
        if at - from + bytes.len() as u64 > layout::KEPT_BYTES as u64 {
            return self.keep_no_more();
        }
        let (first, rest) = q.geometry.kept_at(at, bytes.len());
        let (front, back) = bytes.split_at(first.1);
        q.own.write(first.0, front);
        q.own.write(rest.0, back);
        q.set(layout::KEPT_FROM, from + 1);
    }
}
