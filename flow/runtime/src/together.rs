//! Batches the output of a copy while it has several blocks in its hand: sends it together, and
//! takes room for it together.
//!
//! Several threads write an inbox and the counters of a ledger, so each use of them costs as much
//! as a short block. A hand mostly takes no longer than a batch, and no other copy can have its
//! blocks until then anyway. An idle copy gets a block at once, and everything is sent before the
//! thread waits.

use std::sync::atomic::Ordering;

use super::{Outputs, Way};
use crate::block::Queued;
use crate::stream::Stream;

/// Most blocks that are kept.
const AT_ONCE: usize = 16;

/// A copy takes at most this fraction of the limit ahead: one part in so many.
const AHEAD_PARTS: usize = 32;

impl<'a> Outputs<'a> {
    /// The stream, if blocks are sent together and room is taken for them together.
    pub(super) fn batches(&self, port: usize, at: usize) -> Option<&'a Stream> {
        match &self.outlets[port][at].stream {
            // If sizes are chosen, each block is timed.
            Way::Here(stream)
                if self.in_hand > 0 && stream.has_inboxes() && stream.sizing.is_none() =>
            {
                Some(stream)
            }
            _ => None,
        }
    }

    /// Sends the kept blocks and returns the room that was taken ahead: the hand is empty, or the
    /// thread is about to wait.
    pub(crate) fn settle(&mut self) {
        for (outlet, slot) in self.outlets.iter().flatten().zip(self.filling.0.iter_mut().flatten())
        {
            if let Way::Here(stream) = &outlet.stream {
                if !slot.outbox.is_empty() {
                    stream.send_all(self.unit, self.copy, &mut slot.outbox);
                }
                if slot.ahead > 0 {
                    stream.ledger.give(std::mem::take(&mut slot.ahead));
                }
            }
        }
    }

    /// Takes available room, also for the output of the other blocks in the hand.
    pub(super) fn reserve_ahead(&mut self, port: usize, at: usize, bytes: usize) -> bool {
        let Some(ledger) = self.batches(port, at).map(|stream| stream.ledger) else { return false };
        let slot = &mut self.filling.0[port][at];
        if slot.ahead < bytes {
            let limit = ledger.limit();
            let more = self.in_hand.min(limit / AHEAD_PARTS / bytes) * bytes;
            if more == 0 || !ledger.reserve(more, limit - limit / AHEAD_PARTS) {
                return false;
            }
            slot.ahead += more;
        }
        slot.ahead -= bytes;
        true
    }

    /// Keeps the block for the next send, unless a consumer waits for it.
    pub(super) fn send_later(&mut self, stream: &Stream, port: usize, at: usize, block: Queued) {
        let slot = &mut self.filling.0[port][at];
        slot.outbox.push(block);
        if slot.outbox.len() >= AT_ONCE || stream.has_idle.load(Ordering::Relaxed) {
            stream.send_all(self.unit, self.copy, &mut slot.outbox);
        }
    }
}
