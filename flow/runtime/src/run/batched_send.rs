//! Batches the output of a copy while it has several blocks in its batch: sends it together, and
//! takes room for it together.
//!
//! Several threads write an inbox and the counters of a ledger, so each use of them costs as much
//! as a short block. A batch mostly takes no longer than [`BATCH`](crate::policy::dealing::BATCH), and no
//! other copy can have its blocks until then anyway. An idle copy gets a block at once, and
//! everything is sent before the thread waits.

use std::sync::atomic::Ordering;

use crate::memory::block::Queued;
use crate::run::output::Outputs;
use crate::run::stream_ends::StreamTarget;
use crate::stream::owned::Stream;

/// Most blocks that are kept.
const AT_ONCE: usize = 16;

/// A copy takes at most this fraction of the limit ahead: one part in so many.
const AHEAD_PARTS: usize = 32;

impl<'a> Outputs<'a> {
    /// The stream, if blocks are sent together and room is taken for them together.
    pub(crate) fn batches(&self, port: usize, at: usize) -> Option<&'a Stream> {
        match &self.senders[port][at].stream {
            // If sizes are chosen, each block is timed.
            StreamTarget::Here(stream)
                if self.in_batch > 0 && stream.has_inboxes() && stream.sizing.is_none() =>
            {
                Some(stream)
            }
            _ => None,
        }
    }

    /// Sends the kept blocks and returns the room that was taken ahead: the batch is empty, or the
    /// thread is about to wait.
    pub(crate) fn settle(&mut self) {
        for (sender, slot) in self.senders.iter().flatten().zip(self.filling.0.iter_mut().flatten())
        {
            if let StreamTarget::Here(stream) = &sender.stream {
                if !slot.outbox.is_empty() {
                    stream.send_all(self.unit, self.copy, &mut slot.outbox);
                }
                if slot.ahead > 0 {
                    stream.ledger.give(std::mem::take(&mut slot.ahead));
                }
            }
        }
    }

    /// Takes available room, also for the output of the other blocks in the batch.
    pub(crate) fn reserve_ahead(&mut self, port: usize, at: usize, bytes: usize) -> bool {
        let Some(ledger) = self.batches(port, at).map(|stream| stream.ledger) else { return false };
        let slot = &mut self.filling.0[port][at];
        if slot.ahead < bytes {
            let limit = ledger.limit();
            let more = self.in_batch.min(limit / AHEAD_PARTS / bytes) * bytes;
            if more == 0 || !ledger.reserve(more, limit - limit / AHEAD_PARTS) {
                return false;
            }
            slot.ahead += more;
        }
        slot.ahead -= bytes;
        true
    }

    /// Keeps the block for the next send, unless a consumer waits for it.
    pub(crate) fn send_later(&mut self, stream: &Stream, port: usize, at: usize, block: Queued) {
        let slot = &mut self.filling.0[port][at];
        slot.outbox.push(block);
        if slot.outbox.len() >= AT_ONCE || stream.has_idle.load(Ordering::Relaxed) {
            stream.send_all(self.unit, self.copy, &mut slot.outbox);
        }
    }
}
