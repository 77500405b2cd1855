//! The sending half of a queue pair, held under its lock.

use protocol::Carrier;
use protocol::record::{CELL, HEADER, INLINE_MAX, MAX_CELLS, Record};
use protocol::switch::{TxConditions, TxStep};

use super::{Memory, QueuePair, Violation};
use crate::iov::Gather;
use crate::layout;
use crate::lock::{Acquired, Held};
use crate::mem::PeerMemory;
use crate::sync::Ordering;

/// Free descriptors that let a record of any kind in: one that does not fit into the rest of the lap
/// wastes that rest, and the header after it must be free to be cleared.
pub(super) const ANY_RECORD: usize = 2 * MAX_CELLS;

/// A segment that is allotted but not published.
const RESERVED: u64 = u64::MAX;

/// Why nothing could be published.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Full {
    /// No descriptor or segment is free: wait for space.
    #[error("the ring is full")]
    NoRoom,
    /// The peer's memory said something impossible.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// The sending half.
#[derive(Debug)]
pub struct Tx<'q, O: Memory, P> {
    queue: &'q QueuePair<O, P>,
    _held: Held<'q, O>,
}

impl<'q, O: Memory, P: PeerMemory> Tx<'q, O, P> {
    pub(super) fn new(queue: &'q QueuePair<O, P>, held: Held<'q, O>, acquired: Acquired) -> Self {
        let tx = Self { queue, _held: held };
        if acquired == Acquired::FromTheDead {
            tx.recover();
        }
        tx
    }

    // ---- the switch ---------------------------------------------------------------------------

    /// Makes the switch between carriers that is due and says where the next byte goes.
    ///
    /// # Errors
    /// [`Full::NoRoom`] when the record that announces the switch has no room.
    #[inline]
    pub fn carrier(&self) -> Result<Carrier, Full> {
        let q = self.queue;
        let (tcp_only, _) = q.tcp_only();
        if q.tx_on_ring() && !tcp_only {
            return Ok(Carrier::Ring);
        }
        self.switch(TxConditions { ready: q.peer_is_ready(), tcp_only })
    }

    fn switch(&self, now: TxConditions) -> Result<Carrier, Full> {
        let q = self.queue;
        let mut switch = q.tx_switch();
        match switch.step(now) {
            TxStep::Send(carrier) => return Ok(carrier),
            TxStep::EnterRing(at) => {
                self.control(Record::RingAt, at)?;
                switch.entered_ring(q.get(layout::TX_POSITION));
            }
            TxStep::LeaveRing => {
                self.control(Record::Tcp, 0)?;
                switch.left_ring();
            }
        }
        q.set_tx_switch(switch);
        Ok(switch.carrier)
    }

    /// Whether bytes may be given to the kernel now, when the carrier is TCP. If not, the receiver is
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

    /// The kernel took `n` bytes.
    pub fn sent_by_tcp(&self, n: usize) {
        let q = self.queue;
        q.set(layout::TX_TCP_BYTES, q.get(layout::TX_TCP_BYTES) + n as u64);
    }

    /// Marks the direction as shut down, and says so in the ring if it is the carrier. The first call
    /// counts.
    ///
    /// # Errors
    /// [`Full`] when the record has no room; the direction is shut all the same, and the end of TCP
    /// tells the receiver.
    pub fn shutdown(&self) -> Result<(), Full> {
        let q = self.queue;
        if q.is_shut() {
            return Ok(());
        }
        q.set(layout::TX_SHUT, 1);
        if q.tx_on_ring() { self.control(Record::Fin, 0) } else { Ok(()) }
    }

    // ---- data ---------------------------------------------------------------------------------

    /// Publishes as much of `from` as there is room for and returns how many bytes that was, 0 when
    /// there is no room at all.
    ///
    /// # Errors
    /// [`Violation`].
    #[inline]
    pub fn push(&self, from: &mut Gather<'_>) -> Result<usize, Violation> {
        let mut done = 0;
        while from.remaining() > 0 {
            let record =
                if from.remaining() <= INLINE_MAX { self.push_inline(from) } else { self.push_segment(from) };
            match record {
                Ok(n) => done += n,
                Err(Full::NoRoom) => break,
                Err(Full::Violation(violation)) => return Err(violation),
            }
        }
        let bytes = self.queue.own.word(layout::PUBLISHED_BYTES);
        bytes.store(bytes.load(Ordering::Relaxed) + done as u64, Ordering::Release);
        Ok(done)
    }

    #[inline]
    fn push_inline(&self, from: &mut Gather<'_>) -> Result<usize, Full> {
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

    fn push_segment(&self, from: &mut Gather<'_>) -> Result<usize, Full> {
        let q = self.queue;
        let position = self.place(1)?;
        let segment = self.allot(position + 1)?;
        let len = from.remaining().min(q.geometry.segment_size());
        let mut at = q.geometry.segment_at(segment);
        from.take(len, |piece| {
            q.own.write(at, piece);
            at += piece.len();
        });
        self.publish_segment(segment, len, position);
        Ok(len)
    }

    fn publish_segment(&self, segment: usize, len: usize, position: u64) {
        let q = self.queue;
        q.set(q.geometry.cell_at(position) + HEADER, segment as u64);
        self.publish(Record::Segment { len }, position);
    }

    /// Publishes a record that carries no data but one word.
    fn control(&self, record: Record, word: u64) -> Result<(), Full> {
        let position = self.place(1)?;
        self.queue.set(self.queue.geometry.cell_at(position) + HEADER, word);
        self.publish(record, position);
        Ok(())
    }

    // ---- in place -----------------------------------------------------------------------------

    /// Sets a segment aside, to be filled in place without the lock.
    ///
    /// # Errors
    /// [`Full`].
    pub fn reserve(&self) -> Result<usize, Full> {
        self.allot(RESERVED)
    }

    /// Publishes the first `len` bytes, at least 1, of a reserved segment.
    ///
    /// # Errors
    /// [`Full`]; the segment stays reserved.
    pub fn commit(&self, segment: usize, len: usize) -> Result<(), Full> {
        let q = self.queue;
        let position = self.place(1)?;
        q.set(q.geometry.state_at(segment), position + 1);
        self.publish_segment(segment, len, position);
        let bytes = q.own.word(layout::PUBLISHED_BYTES);
        bytes.store(bytes.load(Ordering::Relaxed) + len as u64, Ordering::Release);
        Ok(())
    }

    /// Gives a reserved segment back unused.
    pub fn cancel(&self, segment: usize) {
        let q = self.queue;
        q.set(layout::ALLOTTED, q.get(layout::ALLOTTED) - 1);
        self.put_free(segment);
    }

    // ---- descriptors --------------------------------------------------------------------------

    /// Finds room for a record of `cells` consecutive descriptors and returns its position, having
    /// padded the lap if it does not fit into the rest of it.
    #[inline]
    fn place(&self, cells: usize) -> Result<u64, Full> {
        let q = self.queue;
        let position = q.get(layout::TX_POSITION);
        let rest = q.geometry.cells() - q.geometry.lap_offset(position);
        let pad = if cells > rest { rest } else { 0 };
        let need = (pad + cells + 1) as u64;
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
    fn look_at_consumed(&self, position: u64, need: u64) -> Result<(), Full> {
        let q = self.queue;
        let consumed = q.peer.load(layout::CONSUMED, Ordering::Acquire);
        if consumed < q.get(layout::CONSUMED_SEEN) || consumed > position {
            return Err(Full::Violation(Violation));
        }
        q.set(layout::CONSUMED_SEEN, consumed);
        if position - consumed + need > q.geometry.cells() as u64 { Err(Full::NoRoom) } else { Ok(()) }
    }

    /// Makes the record at `position` visible: what it says has been written already.
    #[inline]
    fn publish(&self, record: Record, position: u64) {
        let q = self.queue;
        let cells = match record {
            Record::Pad => q.geometry.cells() - q.geometry.lap_offset(position),
            other => other.cells(),
        };
        let next = position + cells as u64;
        // The receiver polls the next header as soon as it has this record: it must not find payload
        // of an earlier lap there, which the application chose.
        q.set(q.geometry.cell_at(next), 0);
        q.own.word(q.geometry.cell_at(position)).store(record.encode(position), Ordering::Release);
        q.set(layout::TX_POSITION, next);
    }

    /// Whether the bell must be rung for what was published since the last call.
    #[inline]
    #[must_use]
    pub fn should_ring(&self) -> bool {
        let q = self.queue;
        let position = q.get(layout::TX_POSITION);
        // SYNC POINT "data", sender: the published position is stored before the arm is loaded, both
        // sequentially consistent; see `QueuePair::rearm_data`.
        q.own.word(layout::PUBLISHED).swap(position, Ordering::SeqCst);
        let armed = q.peer.load(layout::ARM_DATA, Ordering::SeqCst);
        let ring = armed != 0 && armed != q.get(layout::RUNG_DATA);
        if ring {
            q.set(layout::RUNG_DATA, armed);
        }
        ring
    }

    // ---- segments -----------------------------------------------------------------------------

    /// Takes the most recently freed segment; `state` says what for.
    fn allot(&self, state: u64) -> Result<usize, Full> {
        let q = self.queue;
        self.pull_returned()?;
        let Some(left) = q.get(layout::FREE_COUNT).checked_sub(1) else { return Err(Full::NoRoom) };
        let segment = q.get(q.geometry.free_at(left as usize)) as usize;
        q.set(q.geometry.state_at(segment), state);
        q.set(layout::FREE_COUNT, left);
        q.set(layout::ALLOTTED, q.get(layout::ALLOTTED) + 1);
        Ok(segment)
    }

    /// Puts what the receiver has returned on the free stack.
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
            let published = published.filter(|s| !matches!(q.get(q.geometry.state_at(*s)), 0 | RESERVED));
            self.put_free(published.ok_or(Violation)?);
            q.set(layout::PULLED, count + 1);
        }
        Ok(())
    }

    fn put_free(&self, segment: usize) {
        let q = self.queue;
        let count = q.get(layout::FREE_COUNT);
        q.set(q.geometry.state_at(segment), 0);
        q.set(q.geometry.free_at(count as usize), segment as u64);
        q.set(layout::FREE_COUNT, count + 1);
    }

    /// Puts in order what a sender left behind that died under the lock. What it had published counts;
    /// a record without its header does not. The free stack is built anew from the segments' states.
    fn recover(&self) {
        let q = self.queue;
        let mut position = q.get(layout::TX_POSITION);
        let word = q.own.word(q.geometry.cell_at(position)).load(Ordering::Relaxed);
        use protocol::record::Head;
        if let Head::Record(record) = Record::decode(word, position, q.geometry.segment_size()) {
            position += match record {
                Record::Pad => (q.geometry.cells() - q.geometry.lap_offset(position)) as u64,
                other => other.cells() as u64,
            };
            q.set(layout::TX_POSITION, position);
        }
        let mut free = 0;
        for segment in 0..q.geometry.segments() {
            let state = q.get(q.geometry.state_at(segment));
            if state == 0 || (state != RESERVED && state > position) {
                q.set(q.geometry.state_at(segment), 0);
                q.set(q.geometry.free_at(free), segment as u64);
                free += 1;
            }
        }
        q.set(layout::FREE_COUNT, free as u64);
        let outstanding = (q.geometry.segments() - free) as u64;
        q.set(layout::ALLOTTED, q.get(layout::PULLED) + outstanding);
    }
}

const _: () = assert!(MAX_CELLS * CELL == INLINE_MAX + HEADER);
