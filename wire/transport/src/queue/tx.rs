//! The sending half of a queue pair, held under its lock.

use seekwire_protocol::Carrier;
use seekwire_protocol::record::{CELL, HEADER, Head, INLINE_MAX, MAX_CELLS, Record};
use seekwire_protocol::switch::{TxConditions, TxStep, TxSwitch};

use super::pair::{QueueMemory, QueuePair, Violation};
use super::room::END_RECORD;
use crate::iov::Gather;
use crate::layout;
use crate::lock::{self, Acquired, LockGuard};
use crate::mem::PeerMemory;
use crate::sync::Ordering;

/// States of a segment. 0: free, and never used or cancelled. Up to this value: published; the
/// position of its record, plus 1.
const LAST_PUBLISHED: u64 = RESERVED - 1;
/// Allotted but not published.
const RESERVED: u64 = 1 << 62;
/// Free again; with the count of returned segments up to this one. One store sets both, so that the
/// death of a sender comes before or after it.
const RETURNED: u64 = 1 << 63;

fn is_published(state: u64) -> bool {
    (1..=LAST_PUBLISHED).contains(&state)
}

/// Why nothing was published.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PublishError {
    /// No descriptor or segment is free: wait for space.
    #[error("the ring is full")]
    NoRoom,
    /// The peer's memory had an impossible value.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// The sending half.
#[derive(Debug)]
pub struct Tx<'q, O: QueueMemory, P> {
    pub(super) queue: &'q QueuePair<O, P>,
    _lock: LockGuard<'q, O>,
    acquired: Acquired,
}

impl<O: QueueMemory, P: PeerMemory> QueuePair<O, P> {
    /// Takes the sending half; `None` in a signal handler that has interrupted its holder.
    #[inline]
    pub fn try_tx(&self) -> Option<Tx<'_, O, P>> {
        let (held, acquired) = lock::acquire(&self.own, layout::TX_LOCK)?;
        Some(Tx::new(self, held, acquired))
    }

    /// Takes the sending half, where no signal handler can run.
    ///
    /// # Panics
    /// If this thread holds it already.
    #[inline]
    pub fn tx(&self) -> Tx<'_, O, P> {
        self.try_tx().expect("this thread has the sending half already")
    }
}

impl<'q, O: QueueMemory, P: PeerMemory> Tx<'q, O, P> {
    fn new(queue: &'q QueuePair<O, P>, lock: LockGuard<'q, O>, acquired: Acquired) -> Self {
        let tx = Self { queue, _lock: lock, acquired };
        if acquired == Acquired::OwnerDied {
            tx.recover();
        }
        tx
    }

    /// Whether the previous holder died while the kernel was to be given bytes again: it may have
    /// taken some that are not counted, and would be given these twice.
    #[must_use]
    pub fn owner_died_retransmitting(&self) -> bool {
        self.acquired == Acquired::OwnerDied && self.queue.to_retransmit() > 0
    }

    // ---- the switch ---------------------------------------------------------------------------

    /// Makes the switch between carriers that is due, and returns the carrier of the next byte. If
    /// the peer has asked for its unread bytes to be retransmitted, that is due from now on
    /// ([`Tx::to_retransmit`]), and they go by TCP before any others.
    ///
    /// # Errors
    /// [`PublishError::NoRoom`] if the record that announces a switch to the ring does not fit; the
    /// one that leaves the ring always does.
    #[inline]
    pub fn carrier(&self) -> Result<Carrier, PublishError> {
        let q = self.queue;
        let tcp_only = q.is_tcp_only();
        if q.tx_on_ring() && !tcp_only {
            return Ok(Carrier::Ring);
        }
        self.leave_or_enter(tcp_only)
    }

    #[cold]
    fn leave_or_enter(&self, tcp_only: bool) -> Result<Carrier, PublishError> {
        let q = self.queue;
        // The peer makes its request for a recall together with the one for TCP, or after it:
        // nothing goes by TCP before the bytes that the peer wants back.
        if tcp_only && self.serve_request()? == Carrier::Ring {
            return Ok(Carrier::Ring);
        }
        if q.is_shut() {
            return Ok(q.carriers().0);
        }
        self.switch(TxConditions { ready: q.peer_is_ready() && self.may_enter(), tcp_only })
    }

    /// Leaves the ring because it is full, or because nothing is taken off it: TCP has room of its
    /// own, and reports what the ring cannot, such as the death of a peer, or that TCP_USER_TIMEOUT
    /// has expired. The ring is entered again once the receiver takes from it and half of it is
    /// free.
    ///
    /// # Errors
    /// [`PublishError::Violation`]; the record always fits.
    #[cold]
    pub fn overflow(&self) -> Result<Carrier, PublishError> {
        let q = self.queue;
        if !q.tx_on_ring() || q.is_shut() {
            return Ok(q.carriers().0);
        }
        q.set(layout::OVERFLOWED_AT, q.consumed_mark().wrapping_add(1));
        // As if the peer had asked for TCP. It learns of the switch from the record.
        match self.switch(TxConditions { ready: true, tcp_only: true })? {
            Carrier::Tcp => Ok(Carrier::Tcp),
            Carrier::Ring => Err(PublishError::NoRoom),
        }
    }

    /// False while the ring that was left is still as full as it was.
    fn may_enter(&self) -> bool {
        let q = self.queue;
        match q.get(layout::OVERFLOWED_AT).checked_sub(1) {
            None => true,
            Some(left_at) => q.consumed_mark() != left_at && q.has_ample_room(),
        }
    }

    fn switch(&self, now: TxConditions) -> Result<Carrier, PublishError> {
        let q = self.queue;
        let mut switch = q.tx_switch();
        let (record, word, carrier) = match switch.step(now) {
            TxStep::Send(carrier) => return Ok(carrier),
            TxStep::EnterRing(at) => (Record::RingAt, at, Carrier::Ring),
            TxStep::LeaveRing => (Record::Tcp, 0, Carrier::Tcp),
        };
        if carrier == Carrier::Tcp {
            self.release();
            self.begin_to_keep();
        }
        // A switch to TCP may use the last free descriptor, and so may the end of the stream: no
        // record follows it before the receiver has freed others.
        let position =
            self.place_leaving(1, if carrier == Carrier::Tcp { 0 } else { END_RECORD })?;
        // If this process dies after the record was published, the recovering process finishes the
        // switch.
        q.set_in_order(layout::TX_SWITCHING, (position + 1) << 1 | carrier as u64);
        self.publish_word(record, word, position);
        self.finish_switch(&mut switch, carrier, position);
        Ok(carrier)
    }

    fn finish_switch(&self, switch: &mut TxSwitch, carrier: Carrier, position: u64) {
        match carrier {
            Carrier::Ring => {
                self.queue.set(layout::OVERFLOWED_AT, 0);
                switch.entered_ring(position + 1);
            }
            Carrier::Tcp => {
                self.queue.set(layout::LEFT_AT, switch.tcp_bytes);
                switch.left_ring();
            }
        }
        self.queue.set_tx_switch(*switch);
    }

    /// Whether bytes may be given to the kernel now, if the carrier is TCP. If not, the receiver is
    /// inside a read that does not block: try again.
    #[must_use]
    pub fn may_use_tcp(&self) -> bool {
        let q = self.queue;
        let switch = q.tx_switch();
        if switch.ring_since == 0 {
            return true;
        }
        // SYNC POINT "unbounded read", sender: our records were published before this fence; see
        // `Rx::begin_unbounded_read`.
        crate::sync::fence(Ordering::SeqCst);
        let unbounded_read = q.peer.load(layout::UNBOUNDED_READ, Ordering::SeqCst) != 0;
        switch.may_use_tcp(q.peer.load(layout::CONSUMED, Ordering::SeqCst), unbounded_read)
    }

    /// Counts `n` bytes that the kernel took.
    pub fn sent_by_tcp(&self, n: usize) {
        let q = self.queue;
        q.set(layout::TX_TCP_BYTES, q.get(layout::TX_TCP_BYTES) + n as u64);
    }

    /// Marks the direction as shut down, and publishes that on the ring if it is the carrier. Only
    /// the first call counts.
    ///
    /// # Errors
    /// [`PublishError::Violation`]; the record always fits.
    pub fn shutdown(&self) -> Result<(), PublishError> {
        let q = self.queue;
        if q.is_shut() {
            return Ok(());
        }
        self.release();
        q.set(layout::TX_SHUT, 1);
        if q.tx_on_ring() {
            self.publish_end()?;
        }
        Ok(())
    }

    fn publish_end(&self) -> Result<(), PublishError> {
        let position = self.place_leaving(1, 0)?;
        self.publish_word(Record::Fin, 0, position);
        Ok(())
    }

    // ---- data ---------------------------------------------------------------------------------

    /// Publishes as much of `from` as there is room for and returns the number of bytes, 0 if there
    /// is no room at all.
    ///
    /// # Errors
    /// [`Violation`].
    #[inline]
    pub fn push(&self, from: &mut Gather<'_>) -> Result<usize, Violation> {
        let mut done = 0;
        while from.remaining() > 0 {
            let record = if from.remaining() <= INLINE_MAX {
                self.push_inline(from)
            } else {
                self.push_segment(from)
            };
            match record {
                Ok(n) => done += n,
                Err(PublishError::NoRoom) => break,
                Err(PublishError::Violation(violation)) => return Err(violation),
            }
        }
        let q = self.queue;
        q.set_in_order(layout::PUBLISHED_BYTES, q.get(layout::PUBLISHED_BYTES) + done as u64);
        Ok(done)
    }

    #[inline]
    fn push_inline(&self, from: &mut Gather<'_>) -> Result<usize, PublishError> {
        let q = self.queue;
        let len = from.remaining();
        let record = Record::Inline { len };
        let position = self.place(record.cells())?;
        let mut at = q.geometry.cell_at(position) + HEADER;
        from.take(len, |piece| {
            q.own.write(at, piece);
            at += piece.len();
        });
        self.publish(record, position);
        Ok(len)
    }

    fn push_segment(&self, from: &mut Gather<'_>) -> Result<usize, PublishError> {
        let q = self.queue;
        let position = self.place(1)?;
        let segment = self.allot(position + 1)?;
        let len = from.remaining().min(q.geometry.segment_size());
        let mut at = q.geometry.segment_at(segment);
        from.take(len, |piece| {
            q.own.write(at, piece);
            at += piece.len();
        });
        self.publish_word(Record::Segment { len }, segment as u64, position);
        Ok(len)
    }

    /// Publishes a record that carries one word and no data.
    fn publish_word(&self, record: Record, word: u64, position: u64) {
        self.queue.set(self.queue.geometry.cell_at(position) + HEADER, word);
        self.publish(record, position);
    }

    // ---- in place -----------------------------------------------------------------------------

    /// Sets a segment aside, to be filled in place without the lock.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn reserve(&self) -> Result<usize, PublishError> {
        let segment = self.allot(RESERVED)?;
        self.queue.set(layout::RESERVED_COUNT, self.queue.get(layout::RESERVED_COUNT) + 1);
        Ok(segment)
    }

    /// Publishes the first `len` bytes, at least 1, of a reserved segment.
    ///
    /// # Errors
    /// [`PublishError`]; the segment stays reserved.
    pub fn commit(&self, segment: usize, len: usize) -> Result<(), PublishError> {
        let q = self.queue;
        self.release();
        let position = self.place(1)?;
        q.set(layout::RESERVED_COUNT, q.get(layout::RESERVED_COUNT) - 1);
        q.set_in_order(q.geometry.state_at(segment), position + 1);
        self.publish_word(Record::Segment { len }, segment as u64, position);
        q.set_in_order(layout::PUBLISHED_BYTES, q.get(layout::PUBLISHED_BYTES) + len as u64);
        Ok(())
    }

    /// Gives a reserved segment back unused. Other threads of this end may wait for it, which the
    /// receiver does not know: see [`Ring::cancel`](crate::ring::Ring::cancel).
    pub fn cancel(&self, segment: usize) {
        let q = self.queue;
        q.set(layout::RESERVED_COUNT, q.get(layout::RESERVED_COUNT) - 1);
        self.put_free(segment, 0);
        // Fenced: either the caller sees the waiter, or the waiter sees the room.
        q.own.store_fenced(layout::ALLOTTED, q.get(layout::ALLOTTED) - 1);
    }

    // ---- descriptors --------------------------------------------------------------------------

    /// Finds room for a record of `cells` consecutive descriptors and returns its position, having
    /// padded the lap if it does not fit into the rest of it.
    #[inline]
    fn place(&self, cells: usize) -> Result<u64, PublishError> {
        self.place_leaving(cells, END_RECORD)
    }

    #[inline]
    fn place_leaving(&self, cells: usize, free: usize) -> Result<u64, PublishError> {
        let q = self.queue;
        let position = q.get(layout::TX_POSITION);
        let rest = q.geometry.cells() - q.geometry.lap_offset(position);
        let pad = if cells > rest { rest } else { 0 };
        // The header after the record is cleared, so that descriptor must be free as well.
        let need = (pad + cells + 1 + free) as u64;
        let used = position - q.get(layout::CONSUMED_SEEN);
        if used + need > q.geometry.cells() as u64 {
            self.look_at_consumed(position, need)?;
        }
        if pad > 0 {
            self.publish(Record::Pad, position);
        }
        Ok(position + pad as u64)
    }

    #[cold]
    fn look_at_consumed(&self, position: u64, need: u64) -> Result<(), PublishError> {
        let q = self.queue;
        let consumed = q.peer.load(layout::CONSUMED, Ordering::Acquire);
        if consumed < q.get(layout::CONSUMED_SEEN) || consumed > position {
            return Err(PublishError::Violation(Violation));
        }
        q.set(layout::CONSUMED_SEEN, consumed);
        if position - consumed + need > q.geometry.cells() as u64 {
            Err(PublishError::NoRoom)
        } else {
            Ok(())
        }
    }

    /// Makes the record at `position` visible, after its content was written.
    #[inline]
    fn publish(&self, record: Record, position: u64) {
        let q = self.queue;
        let cells = match record {
            Record::Pad => q.geometry.cells() - q.geometry.lap_offset(position),
            other => other.cells(),
        };
        let next = position + cells as u64;
        // Once the receiver has this record, it polls the next header: it must not find the payload
        // of an earlier lap there, which the application chose.
        q.set(q.geometry.cell_at(next), 0);
        q.set_in_order(q.geometry.cell_at(position), record.encode(position));
        q.set_in_order(layout::TX_POSITION, next);
    }

    /// Whether the doorbell must be rung for the records published since the last call.
    #[inline]
    #[must_use]
    pub fn announce(&self) -> bool {
        let q = self.queue;
        let position = q.get(layout::TX_POSITION);
        // SYNC POINT "data", sender: publish, fence, look at the arm; see `QueuePair::rearm_data`.
        q.own.store_fenced(layout::PUBLISHED, position);
        let armed = q.peer.load(layout::ARM_DATA, Ordering::SeqCst);
        let ring = armed != 0
            && armed != q.get(layout::RUNG_DATA)
            && self.is_enough()
            && !self.is_known_hold();
        if ring {
            q.set(layout::RUNG_DATA, armed);
        }
        ring
    }

    /// Whether the peer's waiter has all the bytes that it waits for, or no more can come.
    #[cold]
    fn is_enough(&self) -> bool {
        let q = self.queue;
        let wanted = q.peer.load(layout::WANT_PUBLISHED, Ordering::Relaxed);
        q.get(layout::PUBLISHED_BYTES) >= wanted || !q.has_room() || q.is_shut() || !q.tx_on_ring()
    }

    // ---- segments -----------------------------------------------------------------------------

    /// Takes a free segment; `state` is its new state.
    fn allot(&self, state: u64) -> Result<usize, PublishError> {
        let q = self.queue;
        self.pull_returned()?;
        let Some(left) = q.get(layout::FREE_COUNT).checked_sub(1) else {
            return Err(PublishError::NoRoom);
        };
        let first = q.get(layout::FREE_FIRST);
        let place = if self.is_long_run() {
            q.set(layout::FREE_FIRST, first + 1);
            first
        } else {
            first + left
        };
        let segment = q.get(q.geometry.free_at(place)) as usize;
        q.set_in_order(q.geometry.state_at(segment), state);
        q.set(layout::FREE_COUNT, left);
        q.set(layout::ALLOTTED, q.get(layout::ALLOTTED) + 1);
        Ok(segment)
    }

    /// Counts a segment, and returns whether this end has sent a quarter of its pool without
    /// receiving anything. Then segments are used in turn: a segment that has just come back is in
    /// the other processor's cache, and fetching it from there costs more than passing the whole
    /// pool through the shared cache (lab/experiments/ring-size.md). Until then the most recently
    /// freed one is used, so that a connection with requests and answers touches few pages and
    /// little cache.
    fn is_long_run(&self) -> bool {
        let q = self.queue;
        // Both only grow, so the sum changes whenever anything is received by either carrier.
        let mark = q.get(layout::RX_POSITION).wrapping_add(q.get(layout::RX_TCP_BYTES));
        let before = if q.get(layout::RUN_MARK) == mark { q.get(layout::RUN_BYTES) } else { 0 };
        q.set(layout::RUN_MARK, mark);
        q.set(layout::RUN_BYTES, before + q.geometry.segment_size() as u64);
        before >= (q.geometry.segments() * q.geometry.segment_size() / 4) as u64
    }

    /// Puts the segments that the receiver has returned on the free list.
    fn pull_returned(&self) -> Result<(), Violation> {
        let q = self.queue;
        let pulled = q.get(layout::PULLED);
        let returned = q.peer.load(layout::RETURNED, Ordering::Acquire);
        let outstanding = q.geometry.segments() as u64 - q.get(layout::FREE_COUNT);
        if returned < pulled || returned - pulled > outstanding {
            return Err(Violation);
        }
        for count in pulled..returned {
            let entry = q.peer_geometry.return_at(count, q.geometry);
            let segment = q.peer.load(entry, Ordering::Relaxed);
            let published = usize::try_from(segment).ok().filter(|s| *s < q.geometry.segments());
            let published = published.filter(|s| is_published(q.get(q.geometry.state_at(*s))));
            self.put_free(published.ok_or(Violation)?, RETURNED | (count + 1));
            q.set_in_order(layout::PULLED, count + 1);
        }
        Ok(())
    }

    fn put_free(&self, segment: usize, state: u64) {
        let q = self.queue;
        let count = q.get(layout::FREE_COUNT);
        q.set_in_order(q.geometry.state_at(segment), state);
        q.set(q.geometry.free_at(q.get(layout::FREE_FIRST) + count), segment as u64);
        q.set(layout::FREE_COUNT, count + 1);
    }

    /// Repairs the state that a sender left when it died under the lock. Published records count; a
    /// record without its header does not. The free list is rebuilt from the segments' states.
    fn recover(&self) {
        self.release();
        let position = self.recover_position();
        self.show_again(position);
        self.recover_switch(position);
        self.recover_segments(position);
        self.recover_recall();
        let q = self.queue;
        if q.is_shut() && q.tx_on_ring() {
            // The dead sender may not have published the end. If it has, a second one does no harm:
            // the receiver stops at the first.
            let _ = self.publish_end();
        }
        q.recount_published();
        // It may have died between noting its ring and ringing.
        q.set(layout::RUNG_DATA, 0);
    }

    fn recover_position(&self) -> u64 {
        let q = self.queue;
        let mut position = q.get(layout::TX_POSITION);
        let word = q.get(q.geometry.cell_at(position));
        if let Head::Record(record) = Record::decode(word, position, q.geometry.segment_size()) {
            position += match record {
                Record::Pad => (q.geometry.cells() - q.geometry.lap_offset(position)) as u64,
                other => other.cells() as u64,
            };
            q.set(layout::TX_POSITION, position);
        }
        position
    }

    /// Shows the records that the peer may not have taken, and the other words of this half that it
    /// reads.
    fn show_again(&self, end: u64) {
        let q = self.queue;
        q.show(self.words_of_records(q.get(layout::CONSUMED_SEEN), end));
        q.show(layout::OF_SENDER.into_iter().flatten().step_by(8));
        // A signal handler may set it meanwhile: only the shut state is shown.
        if q.is_shut() {
            q.show([layout::TX_SHUT]);
        }
    }

    fn recover_switch(&self, position: u64) {
        let q = self.queue;
        let switching = q.get(layout::TX_SWITCHING);
        let mut switch = q.tx_switch();
        match (switching >> 1).checked_sub(1) {
            Some(at) if at < position => {
                self.finish_switch(&mut switch, Carrier::from_code(switching & 1), at)
            }
            _ => q.set(layout::TX_SWITCHING, 0),
        }
        if !q.tx_on_ring() {
            // A switch to the ring would have to state how many bytes went by TCP before it. That
            // is not known for sure: the sender may have died before it counted the last ones. For the
            // same reason, bytes on the ring cannot be retransmitted: they might follow later ones.
            q.set_tcp_only();
            q.set(layout::TX_UNCOUNTED, 1);
            self.keep_no_more();
        }
    }

    fn recover_segments(&self, position: u64) {
        let q = self.queue;
        let (mut free, mut reserved, mut pulled) = (0, 0, q.get(layout::PULLED));
        for segment in 0..q.geometry.segments() {
            let state = q.get(q.geometry.state_at(segment));
            if state == RESERVED {
                reserved += 1;
            } else if state >= RETURNED {
                pulled = pulled.max(state - RETURNED);
            }
            if !(state == RESERVED || is_published(state) && state <= position) {
                q.set(q.geometry.state_at(segment), 0);
                q.set(q.geometry.free_at(free as u64), segment as u64);
                free += 1;
            }
        }
        q.set(layout::FREE_FIRST, 0);
        q.set(layout::FREE_COUNT, free as u64);
        q.set(layout::RESERVED_COUNT, reserved);
        q.set(layout::PULLED, pulled);
        q.set(layout::ALLOTTED, pulled + (q.geometry.segments() - free) as u64);
    }
}

const _: () = assert!(MAX_CELLS * CELL == INLINE_MAX + HEADER);
