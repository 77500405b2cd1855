//! The receiving half of a queue pair, held under its lock.

use std::cell::{Cell, LazyCell};

use seekwire_protocol::Carrier;
use seekwire_protocol::record::{HEADER, Head, Record};
use seekwire_protocol::switch::{RxHead, RxStep};

use super::pair::{QueueMemory, QueuePair, Violation};
use super::request::ask_standing;
use crate::iov::Scatter;
use crate::layout;
use crate::lock::{self, Acquired, LockGuard};
use crate::mem::PeerMemory;
use crate::sync::Ordering;

/// The receiving half.
#[derive(Debug)]
pub struct Rx<'q, O: QueueMemory, P> {
    pub(super) queue: &'q QueuePair<O, P>,
    _lock: LockGuard<'q, O>,
    acquired: Acquired,
    /// Asks for a recall again when this is dropped.
    pub(super) asks: Cell<bool>,
    /// The peer stays at work on a recall, or its answer is invalid: nothing may be taken off the
    /// ring.
    stuck: bool,
}

/// Contiguous bytes at the head of the ring, in the peer's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HeadBytes {
    /// Offset in the peer's memory.
    pub offset: usize,
    /// Bytes, at least 1.
    pub len: usize,
}

/// A segment whose last bytes are being taken: noted before the position moves, so that the sender
/// gets it back even if the receiver dies.
struct Returning {
    /// Position of its record, the low half.
    position: u32,
    /// Number of segments that had been returned before, the low 16 bits.
    count: u16,
    segment: u16,
}

impl Returning {
    fn encode(&self) -> u64 {
        u64::from(self.position) << 32 | u64::from(self.count) << 16 | u64::from(self.segment + 1)
    }

    fn decode(word: u64) -> Option<Self> {
        let segment = (word as u16).checked_sub(1)?;
        Some(Self { position: (word >> 32) as u32, count: (word >> 16) as u16, segment })
    }
}

/// A checked record and its location.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    pub(super) record: Record,
    pub(super) position: u64,
    /// Offset of its payload in the peer's memory, its length, and the segment in which it lies.
    pub(super) payload: usize,
    pub(super) len: usize,
    pub(super) segment: Option<u16>,
}

/// Copies at most `most` bytes from the front of `from`, and returns their number.
fn copy_front(from: &[u8], most: usize, into: &mut Scatter<'_, '_>) -> usize {
    let n = from.len().min(most).min(into.remaining());
    into.fill(n, |done, piece| piece.copy_from_slice(&from[done..][..piece.len()]));
    n
}

impl<O: QueueMemory, P> Drop for Rx<'_, O, P> {
    #[inline]
    fn drop(&mut self) {
        if self.asks.get() {
            ask_standing(&self.queue.own);
        }
    }
}

impl<O: QueueMemory, P: PeerMemory> QueuePair<O, P> {
    /// Takes the receiving half; `None` in a signal handler that has interrupted its holder.
    #[inline]
    pub fn try_rx(&self) -> Option<Rx<'_, O, P>> {
        let (held, acquired) = lock::acquire(&self.own, layout::RX_LOCK)?;
        Some(Rx::new(self, held, acquired))
    }

    /// Takes the receiving half, where no signal handler can run.
    ///
    /// # Panics
    /// If this thread holds it already.
    #[inline]
    pub fn rx(&self) -> Rx<'_, O, P> {
        self.try_rx().expect("this thread has the receiving half already")
    }
}

impl<'q, O: QueueMemory, P: PeerMemory> Rx<'q, O, P> {
    pub(super) fn new(
        queue: &'q QueuePair<O, P>,
        lock: LockGuard<'q, O>,
        acquired: Acquired,
    ) -> Self {
        let mut rx = Self { queue, _lock: lock, acquired, asks: Cell::new(false), stuck: false };
        if acquired == Acquired::OwnerDied
            || queue.get(layout::RX_CARRIER) & layout::RX_STANDING != 0
        {
            rx.stuck = !rx.resume();
        }
        if acquired == Acquired::OwnerDied {
            rx.recover();
        }
        rx
    }

    /// Repairs the state that a receiver left when it died under the lock. Its position tells which
    /// bytes it had taken; bytes that it was copying were not taken, and are there for the caller.
    fn recover(&self) {
        let q = self.queue;
        q.set(layout::UNBOUNDED_READ, 0);
        let last = q.get(layout::RETURNED).wrapping_sub(1);
        q.show([q.geometry.return_at(last, q.peer_geometry)]);
        q.show(layout::OF_RECEIVER.into_iter().flatten().step_by(8));
        let returning = Returning::decode(q.get(layout::RETURNING));
        let due = returning.filter(|r| {
            r.position != q.get(layout::RX_POSITION) as u32
                && r.count == q.get(layout::RETURNED) as u16
        });
        if let Some(due) = due {
            self.return_segment(due.segment.into());
        }
        q.recount_consumed();
        // It may have died between noting its ring and ringing.
        q.set(layout::RUNG_SPACE, 0);
    }

    // ---- the switch ---------------------------------------------------------------------------

    /// Takes switches and pads off the head of the ring and returns the step for the next byte.
    ///
    /// # Errors
    /// [`Violation`].
    #[inline]
    pub fn step(&self) -> Result<RxStep, Violation> {
        let q = self.queue;
        if self.stuck {
            return Err(Violation);
        }
        // An honest ring holds no more switches than it has descriptors.
        for _ in 0..=q.peer_geometry.cells() {
            let located = self.head()?;
            if q.rx_on_ring() && located.is_some_and(|l| l.len > 0) {
                return Ok(RxStep::Ring);
            }
            let head = match located {
                None => RxHead::Empty,
                Some(l) => {
                    let word = q
                        .peer
                        .load(q.peer_geometry.cell_at(l.position) + HEADER, Ordering::Relaxed);
                    RxHead::from_record(l.record, word).ok_or(Violation)?
                }
            };
            let mut switch = q.rx_switch();
            match switch.step(head) {
                RxStep::Advance => {
                    q.set_rx_switch(switch);
                    self.advance(1);
                }
                RxStep::Violation => return Err(Violation),
                step => return Ok(step),
            }
        }
        Err(Violation)
    }

    /// Announces an unbounded read from TCP. Returns whether the ring is still empty, that is,
    /// whether the read may go on. To be ended by [`Self::end_unbounded_read`].
    #[must_use]
    pub fn begin_unbounded_read(&self) -> bool {
        let q = self.queue;
        // SYNC POINT "unbounded read", receiver: announced before the ring is looked at; the sender
        // publishes before it looks for the announcement (`Tx::may_use_tcp`).
        q.own.store_fenced(layout::UNBOUNDED_READ, 1);
        !q.has_record()
    }

    /// Ends the announced read.
    pub fn end_unbounded_read(&self) {
        self.queue.set_in_order(layout::UNBOUNDED_READ, 0);
    }

    /// Whether something lies at the head of the ring.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.queue.has_record()
    }

    /// Counts `n` bytes from the kernel.
    pub fn received_by_tcp(&self, n: usize) {
        let q = self.queue;
        q.set(layout::RX_TCP_BYTES, q.get(layout::RX_TCP_BYTES) + n as u64);
    }

    /// Whether the previous holder has died: it may have taken bytes from the kernel without
    /// counting them.
    #[inline]
    #[must_use]
    pub fn owner_died(&self) -> bool {
        self.acquired == Acquired::OwnerDied
    }

    /// Corrects the count of bytes from the kernel to `n`.
    pub fn recount_tcp(&self, n: u64) {
        let q = self.queue;
        // No less than a holder has counted.
        q.set(layout::RX_TCP_BYTES, n.max(q.get(layout::RX_TCP_BYTES)));
    }

    // ---- data ---------------------------------------------------------------------------------

    /// Takes bytes off the ring until `into` is full or the head is no data record. Returns their
    /// number.
    ///
    /// # Errors
    /// [`Violation`]; bytes taken before stay taken.
    #[inline]
    pub fn pull(&self, into: &mut Scatter<'_, '_>) -> Result<usize, Violation> {
        self.pull_if(into, |_| true)
    }

    /// As [`Self::pull`], but only bytes that lie in the ring itself, not in a segment.
    ///
    /// # Errors
    /// Those of [`Self::pull`].
    pub fn pull_inline(&self, into: &mut Scatter<'_, '_>) -> Result<usize, Violation> {
        self.pull_if(into, |located| located.segment.is_none())
    }

    #[inline]
    fn pull_if(
        &self,
        into: &mut Scatter<'_, '_>,
        is_meant: impl Fn(&Located) -> bool,
    ) -> Result<usize, Violation> {
        let mut done = 0;
        while into.remaining() > 0 {
            let Some(located) = self.head()?.filter(|l| l.len > 0 && is_meant(l)) else { break };
            let offset = self.queue.offset_in(located.position);
            let n = (located.len - offset).min(into.remaining());
            let at = located.payload + offset;
            into.fill(n, |done, piece| self.queue.peer.read(at + done, piece));
            self.take(&located, offset, n);
            done += n;
        }
        self.count(done);
        Ok(done)
    }

    /// Whether [`Self::pull_inline`] would take any bytes.
    ///
    /// # Errors
    /// [`Violation`].
    #[inline]
    pub fn begins_inline(&self) -> Result<bool, Violation> {
        Ok(self.head()?.is_some_and(|located| located.len > 0 && located.segment.is_none()))
    }

    /// Takes up to `max` bytes off the ring without copying them anywhere.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn discard(&self, max: usize) -> Result<usize, Violation> {
        let mut done = 0;
        while done < max {
            let Some(located) = self.head()?.filter(|l| l.len > 0) else { break };
            let offset = self.queue.offset_in(located.position);
            let n = (located.len - offset).min(max - done);
            self.take(&located, offset, n);
            done += n;
        }
        self.count(done);
        Ok(done)
    }

    /// The end of a lap that begins here: no record after it is still to be taken.
    fn end_of_lap(&self, position: u64) -> u64 {
        position + self.queue.peer_geometry.cells() as u64
    }

    /// Copies bytes without taking them, up to the next record that is not data.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn peek(&self, into: &mut Scatter<'_, '_>) -> Result<usize, Violation> {
        let q = self.queue;
        let mut position = q.get(layout::RX_POSITION);
        let mut offset = q.offset_in(position);
        let begin = into.filled();
        let end = self.end_of_lap(position);
        while into.remaining() > 0 && position <= end {
            let Some(located) = self.find(position)? else { break };
            if located.len == 0 && located.record != Record::Pad {
                break;
            }
            if located.len > 0 {
                let n = (located.len - offset).min(into.remaining());
                let at = located.payload + offset;
                into.fill(n, |done, piece| q.peer.read(at + done, piece));
                offset = 0;
            }
            position += self.cells(&located);
        }
        Ok(into.filled() - begin)
    }

    /// As [`Self::peek`], but goes on into bytes that come by TCP between the records and after
    /// them: `by_tcp` peeks at those in the kernel. It is called before the search for the next
    /// switch on the ring, so its bytes were sent before any switch that the search misses.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn peek_both<'t>(
        &self,
        into: &mut Scatter<'_, '_>,
        by_tcp: impl FnOnce() -> &'t [u8],
    ) -> Result<usize, Violation> {
        let q = self.queue;
        let begin = into.filled();
        let mut position = q.get(layout::RX_POSITION);
        let mut offset = q.offset_in(position);
        let mut switch = q.rx_switch();
        let by_tcp = LazyCell::new(by_tcp);
        let mut tcp_seen = 0;
        let end = self.end_of_lap(position);
        while into.remaining() > 0 {
            // From here on, records repeat: a peer that writes there leads in circles.
            if position > end {
                return Err(Violation);
            }
            if switch.carrier == Carrier::Tcp {
                // Before the search for the record that tells how many of these bytes come first.
                LazyCell::force(&by_tcp);
            }
            let Some(located) = self.find(position)? else { break };
            if located.record == Record::Pad {
                position += self.cells(&located);
                continue;
            }
            if switch.carrier == Carrier::Ring && located.len > 0 {
                let n = (located.len - offset).min(into.remaining());
                let at = located.payload + offset;
                into.fill(n, |done, piece| q.peer.read(at + done, piece));
                offset = 0;
                position += self.cells(&located);
                continue;
            }
            let word = q.peer.load(q.peer_geometry.cell_at(position) + HEADER, Ordering::Relaxed);
            match switch.step(RxHead::from_record(located.record, word).ok_or(Violation)?) {
                RxStep::Advance => position += 1,
                RxStep::Tcp(bound) => {
                    let bound = usize::try_from(bound).unwrap_or(usize::MAX);
                    let n = copy_front(&by_tcp[tcp_seen..], bound, into);
                    if n < bound {
                        return Ok(into.filled() - begin);
                    }
                    tcp_seen += n;
                    switch.received_by_tcp(n as u64);
                }
                RxStep::Violation => return Err(Violation),
                _ => return Ok(into.filled() - begin),
            }
        }
        if switch.carrier == Carrier::Tcp {
            copy_front(&by_tcp[tcp_seen..], usize::MAX, into);
        }
        Ok(into.filled() - begin)
    }

    /// The contiguous bytes at the head, left where they are.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn head_bytes(&self) -> Result<Option<HeadBytes>, Violation> {
        let located = self.head()?.filter(|l| l.len > 0);
        Ok(located.map(|l| {
            let offset = self.queue.offset_in(l.position);
            HeadBytes { offset: l.payload + offset, len: l.len - offset }
        }))
    }

    /// Whether the doorbell must be rung for the space that was given back since the last call.
    #[inline]
    #[must_use]
    pub fn announce(&self) -> bool {
        let q = self.queue;
        let position = q.get(layout::RX_POSITION);
        // SYNC POINT "space", receiver: give back, fence, look at the arm; see
        // `QueuePair::rearm_space`.
        q.own.store_fenced(layout::CONSUMED, position);
        let armed = q.peer.load(layout::ARM_SPACE, Ordering::SeqCst);
        if armed == 0 || armed == q.get(layout::RUNG_SPACE) {
            return false;
        }
        let enough = position >= q.peer.load(layout::WANT_CONSUMED, Ordering::Relaxed)
            && q.get(layout::RETURNED) >= q.peer.load(layout::WANT_RETURNED, Ordering::Relaxed);
        if enough {
            q.set(layout::RUNG_SPACE, armed);
        }
        enough
    }

    // ---- records ------------------------------------------------------------------------------

    /// The record at the head, pads skipped.
    #[inline]
    pub(super) fn head(&self) -> Result<Option<Located>, Violation> {
        let position = self.queue.get(layout::RX_POSITION);
        match self.find(position)? {
            Some(pad) if pad.record == Record::Pad => {
                self.advance(self.cells(&pad));
                self.find(self.queue.get(layout::RX_POSITION))
            }
            other => Ok(other),
        }
    }

    /// Reads and checks the record at `position`: its header once, its segment once.
    #[inline]
    pub(super) fn find(&self, position: u64) -> Result<Option<Located>, Violation> {
        let q = self.queue;
        let g = q.peer_geometry;
        let cell = g.cell_at(position);
        let record = match q.look_at(position) {
            Head::Empty => return Ok(None),
            Head::Invalid => return Err(Violation),
            Head::Record(record) => record,
        };
        let (payload, len, segment) = match record {
            Record::Inline { len } => {
                if g.lap_offset(position) + record.cells() > g.cells() {
                    return Err(Violation);
                }
                (cell + HEADER, len, None)
            }
            Record::Segment { len } => {
                let index = q.peer.load(cell + HEADER, Ordering::Relaxed);
                let segment = u16::try_from(index).ok().filter(|s| usize::from(*s) < g.segments());
                let segment = segment.ok_or(Violation)?;
                (g.segment_at(segment.into()), len, Some(segment))
            }
            // A pad ends its lap; a pad that begins a lap would let a hostile sender lead us in
            // circles.
            Record::Pad if g.lap_offset(position) == 0 => return Err(Violation),
            _ => (cell, 0, None),
        };
        // The length of a partly taken record is read again, and a hostile sender may have
        // shortened it meanwhile.
        if len > 0 && q.offset_in(position) >= len {
            return Err(Violation);
        }
        Ok(Some(Located { record, position, payload, len, segment }))
    }

    pub(super) fn cells(&self, located: &Located) -> u64 {
        let g = self.queue.peer_geometry;
        match located.record {
            Record::Pad => (g.cells() - g.lap_offset(located.position)) as u64,
            record => record.cells() as u64,
        }
    }

    /// Counts `n` bytes of a record as taken, from `offset` on. A completely taken record goes back
    /// to the sender.
    #[inline]
    pub(super) fn take(&self, located: &Located, offset: usize, n: usize) {
        let q = self.queue;
        if offset + n < located.len {
            q.set(layout::RX_OFFSET, located.position << 32 | (offset + n) as u64);
            return;
        }
        if let Some(segment) = located.segment {
            let (position, count) = (located.position as u32, q.get(layout::RETURNED) as u16);
            q.set(layout::RETURNING, Returning { position, count, segment }.encode());
        }
        self.advance(self.cells(located));
        if let Some(segment) = located.segment {
            self.return_segment(segment.into());
        }
    }

    #[inline]
    pub(super) fn return_segment(&self, segment: u64) {
        let q = self.queue;
        let returned = q.get(layout::RETURNED);
        q.set(q.geometry.return_at(returned, q.peer_geometry), segment);
        q.set_in_order(layout::RETURNED, returned + 1);
    }

    #[inline]
    pub(super) fn advance(&self, cells: u64) {
        let q = self.queue;
        let position = q.get(layout::RX_POSITION) + cells;
        q.set_in_order(layout::RX_POSITION, position);
        if q.get(layout::RX_OFFSET) != 0 {
            // It belongs to a passed position; at a much later one with the same low half it would
            // count again.
            q.set_in_order(layout::RX_OFFSET, 0);
        }
        q.set_in_order(layout::CONSUMED, position);
    }

    #[inline]
    pub(super) fn count(&self, n: usize) {
        let q = self.queue;
        q.set_in_order(layout::CONSUMED_BYTES, q.get(layout::CONSUMED_BYTES) + n as u64);
    }
}
