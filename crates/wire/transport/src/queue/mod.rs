//! The queue pair: two rings of descriptors in shared memory, one per direction, after the virtual
//! interface architecture.
//!
//! ```text
//!   this end's memory (we write)                 the peer's memory (we read)
//!   +----------------------------+               +----------------------------+
//!   | descriptors, segments      | --- data ---> |                            |
//!   | consumed, returned         |               | descriptors, segments      |
//!   |                            | <-- data ---  | consumed, returned         |
//!   +----------------------------+               +----------------------------+
//! ```
//!
//! Sending: [`Tx`] writes a record (small payload inline, larger in a segment: the most recently
//! freed one, so that many quiet connections share the caches; the longest free one within a long
//! run of sends), clears the header of the descriptor after it, and publishes by writing the
//! record's header last. Receiving: [`Rx`] looks at the one header at its position; nothing else
//! has to change hands for a small message. What was consumed goes back by position (descriptors)
//! and by number (segments, in any order).
//!
//! Sleeping: a waiter arms (a new number in its arm word), fences, looks again, and sleeps on its
//! doorbell; the other end, having published, fences, and rings only for an arm number that it has
//! not rung for (SYNC POINT "data" and "space" below). Nobody writes into the other's memory.
//!
//! Trust: every word of the peer's is loaded once and range-checked; [`Violation`] is what a caller
//! answers with a reset.

mod enough;
mod kept;
mod recall;
mod recount;
mod rx;
#[cfg(not(loom))]
mod seek;
mod tx;

use seekwire_protocol::Carrier;
use seekwire_protocol::record::{Head, Record};
use seekwire_protocol::switch::{RxSwitch, TxSwitch};

pub use recall::Answer;
pub use rx::{HeadBytes, Rx};
#[cfg(not(loom))]
pub use seek::Part;
pub use tx::{Full, Tx};

use crate::layout::{self, Geometry, GeometryError, control};
use crate::lock;
use crate::mem::{OwnMemory, PeerMemory};
use crate::sync::{AtomicU64, Ordering, store_fenced};
use crate::sys::futex::Futex;
use crate::sys::thread::process_is_alive;

/// The peer's memory said something that no honest end says.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the peer violated the shared-memory protocol")]
pub struct Violation;

/// Memory that a queue can run on.
pub trait Memory: OwnMemory + Futex {}
impl<M: OwnMemory + Futex> Memory for M {}

/// One end of a queue pair. All methods may be called by any thread, and by forks of this process.
#[derive(Debug)]
pub struct QueuePair<O, P> {
    own: O,
    peer: P,
    geometry: Geometry,
    peer_geometry: Geometry,
}

/// Where a new queue pair takes over: what went by TCP before it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Start {
    /// Bytes that this end has given to the kernel.
    pub tx_tcp_bytes: u64,
    /// Bytes that this end has taken from the kernel.
    pub rx_tcp_bytes: u64,
    /// This end has shut its sending direction down already.
    pub is_shut: bool,
}

/// Writes the header and the free stack of a new end into its zeroed memory, before it is shown to
/// a peer.
pub fn format(own: &impl OwnMemory, geometry: Geometry) {
    let words = geometry.encode();
    for (index, segment) in (0..geometry.segments()).rev().enumerate() {
        own.word(geometry.free_at(index as u64)).store(segment as u64, Ordering::Relaxed);
    }
    own.word(layout::FREE_COUNT).store(geometry.segments() as u64, Ordering::Relaxed);
    own.word(layout::LAYOUT_WORD).store(words[1], Ordering::Relaxed);
    own.word(layout::SEGMENTS_WORD).store(words[2], Ordering::Relaxed);
    own.word(layout::MAGIC_WORD).store(words[0], Ordering::Release);
}

/// Enters a process among the holders of an end, which the peer may see before the two are joined.
/// False when there is no place left.
pub fn add_holder(own: &impl OwnMemory, pid: u32) -> bool {
    (0..layout::HOLDER_SLOTS).any(|slot| {
        let word = own.word(layout::HOLDERS + slot * 8);
        word.compare_exchange(0, pid.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

/// Reads the geometry that a peer announces in its memory of `mapped` bytes.
///
/// # Errors
/// [`GeometryError`] when it is impossible.
pub fn peer_geometry(peer: &impl PeerMemory, mapped: usize) -> Result<Geometry, GeometryError> {
    let magic = peer.load(layout::MAGIC_WORD, Ordering::Acquire);
    let words = [
        magic,
        peer.load(layout::LAYOUT_WORD, Ordering::Relaxed),
        peer.load(layout::SEGMENTS_WORD, Ordering::Relaxed),
    ];
    Geometry::decode(words, mapped)
}

impl<O: Memory, P: PeerMemory> QueuePair<O, P> {
    /// Joins this end's memory, which was [`format()`]ted, and its peer's.
    #[must_use]
    pub fn new(own: O, geometry: Geometry, peer: P, peer_geometry: Geometry) -> Self {
        Self { own, peer, geometry, peer_geometry }
    }

    /// Says where TCP stands, once, before the queue pair is used.
    pub fn start(&self, at: Start) {
        self.set(layout::TX_TCP_BYTES, at.tx_tcp_bytes);
        self.set(layout::RX_TCP_BYTES, at.rx_tcp_bytes);
        self.set(layout::TX_SHUT, at.is_shut.into());
    }

    /// This end's own memory.
    pub fn own(&self) -> &O {
        &self.own
    }

    /// The peer's memory.
    pub fn peer(&self) -> &P {
        &self.peer
    }

    /// This end's geometry.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Takes the sending half; `None` in a signal handler that has interrupted its holder.
    #[inline]
    pub fn try_tx(&self) -> Option<Tx<'_, O, P>> {
        let (held, acquired) = lock::acquire(&self.own, layout::TX_LOCK)?;
        Some(Tx::new(self, held, acquired))
    }

    /// Takes the receiving half; `None` in a signal handler that has interrupted its holder.
    #[inline]
    pub fn try_rx(&self) -> Option<Rx<'_, O, P>> {
        let (held, acquired) = lock::acquire(&self.own, layout::RX_LOCK)?;
        Some(Rx::new(self, held, acquired))
    }

    /// Takes the sending half, where no signal handler can be.
    ///
    /// # Panics
    /// When this thread has it already.
    #[inline]
    pub fn tx(&self) -> Tx<'_, O, P> {
        self.try_tx().expect("this thread has the sending half already")
    }

    /// Takes the receiving half, where no signal handler can be.
    ///
    /// # Panics
    /// When this thread has it already.
    #[inline]
    pub fn rx(&self) -> Rx<'_, O, P> {
        self.try_rx().expect("this thread has the receiving half already")
    }

    #[inline]
    fn get(&self, offset: usize) -> u64 {
        self.own.word(offset).load(Ordering::Relaxed)
    }

    #[inline]
    fn set(&self, offset: usize, value: u64) {
        self.own.word(offset).store(value, Ordering::Relaxed);
    }

    /// How many bytes of the record at `position` the receiver has taken. Kept together with the
    /// position it is of, so that moving on is one store.
    #[inline]
    fn offset_in(&self, position: u64) -> usize {
        layout::offset_at(self.get(layout::RX_OFFSET), position)
    }

    /// Stores a word so that whoever takes over after the death of this process finds it only
    /// together with everything that was stored before it.
    #[inline]
    fn set_in_order(&self, offset: usize, value: u64) {
        self.own.word(offset).store(value, Ordering::Release);
    }

    // ---- control bits -------------------------------------------------------------------------

    /// Tells the peer that this end looks at its ring from now on.
    pub fn set_ready(&self) {
        self.own.word(layout::CONTROL).fetch_or(control::READY, Ordering::SeqCst);
    }

    /// Asks the peer to send by TCP from now on, and rules the ring out for this end's own sends.
    pub fn set_tcp_only(&self) {
        self.own.word(layout::CONTROL).fetch_or(control::TCP_ONLY, Ordering::SeqCst);
    }

    /// Marks the sending direction as shut down without a record that says so, for a caller that
    /// cannot take the half: the end of TCP tells the peer.
    pub fn set_shut(&self) {
        self.own.word(layout::TX_SHUT).store(1, Ordering::Release);
    }

    /// Tells the peer that this end has closed.
    pub fn set_closed(&self) {
        self.own.word(layout::CONTROL).fetch_or(control::CLOSED, Ordering::SeqCst);
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

    /// Tells the peer that TCP has ended without a word from it.
    pub fn set_saw_end(&self) {
        self.own.word(layout::CONTROL).fetch_or(control::SAW_END, Ordering::SeqCst);
    }

    /// SO_RCVLOWAT as one of the processes that share this end has set it since; 0 if none has.
    #[inline]
    #[must_use]
    pub fn low_water(&self) -> u64 {
        self.own.word(layout::LOW_WATER).load(Ordering::Relaxed)
    }

    /// Tells all processes that share this end.
    pub fn set_low_water(&self, bytes: u64) {
        self.own.word(layout::LOW_WATER).store(bytes, Ordering::Relaxed);
    }

    /// Corrects SO_RCVLOWAT from `known` to `bytes`, unless a process has set it meanwhile.
    pub fn correct_low_water(&self, known: u64, bytes: u64) {
        let word = self.own.word(layout::LOW_WATER);
        let _ = word.compare_exchange(known, bytes, Ordering::Relaxed, Ordering::Relaxed);
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

    /// Tells the peer that this end is shut down both ways. TCP knows already.
    pub fn set_refuses(&self) {
        self.own.word(layout::CONTROL).fetch_or(control::REFUSES, Ordering::SeqCst);
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
        peer || self.get(layout::CONTROL) & control::TCP_ONLY != 0
    }

    /// Whether the peer has asked for TCP.
    #[inline]
    #[must_use]
    pub fn peer_wants_tcp(&self) -> bool {
        self.peer.load(layout::CONTROL, Ordering::SeqCst) & control::TCP_ONLY != 0
    }

    /// Whether a sender of the peer's may have looked at this end's wish for TCP before it was
    /// expressed, and be about to publish. Once this is false after [`Self::set_tcp_only`], nothing
    /// more comes by the ring: the peer takes its lock first and looks then, both in one
    /// sequentially consistent order with the wish and this load.
    #[must_use]
    pub fn peer_is_sending(&self) -> bool {
        self.peer.load(layout::TX_LOCK, Ordering::SeqCst) != 0
    }

    /// Notes where this thread runs; the peer does not spin for somebody on its own processor.
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

    // ---- without the locks --------------------------------------------------------------------

    /// Whether something that the receiver has not taken lies at its position: data, a switch, or
    /// nonsense. A hint when taken without the lock.
    #[inline]
    #[must_use]
    pub fn has_record(&self) -> bool {
        self.look_at(self.get(layout::RX_POSITION)) != Head::Empty
    }

    #[inline]
    fn look_at(&self, position: u64) -> Head {
        let word = self.peer.load(self.peer_geometry.cell_at(position), Ordering::Acquire);
        Record::decode(word, position, self.peer_geometry.segment_size())
    }

    /// Bytes that are left of the record at the receiver's position, if it is one of data.
    fn head_bytes_left(&self) -> usize {
        let mut position = self.get(layout::RX_POSITION);
        let mut head = self.look_at(position);
        if head == Head::Record(Record::Pad) {
            position +=
                (self.peer_geometry.cells() - self.peer_geometry.lap_offset(position)) as u64;
            head = self.look_at(position);
        }
        match head {
            Head::Record(Record::Inline { len } | Record::Segment { len }) => {
                len.saturating_sub(self.offset_in(position))
            }
            _ => 0,
        }
    }

    /// Whether the receiver has bytes, or the end of the stream, before it on the ring. No is
    /// certain only under the lock: a switch may have to be taken off the ring first.
    #[inline]
    #[must_use]
    pub fn has_data(&self) -> bool {
        let head = self.look_at(self.get(layout::RX_POSITION));
        let data = matches!(
            head,
            Head::Record(Record::Inline { .. } | Record::Segment { .. } | Record::Fin)
        );
        data && self.rx_on_ring()
    }

    /// Whether the end of the stream is what lies before the receiver.
    #[must_use]
    pub fn has_end(&self) -> bool {
        self.rx_on_ring()
            && self.look_at(self.get(layout::RX_POSITION)) == Head::Record(Record::Fin)
    }

    /// Whether the peer has shut its sending direction down.
    #[must_use]
    pub fn peer_is_shut(&self) -> bool {
        self.peer.load(layout::TX_SHUT, Ordering::Acquire) != 0
    }

    /// Whether the sender has room for another record of any kind. A hint when taken without the
    /// lock.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        let position = self.get(layout::TX_POSITION);
        let consumed = self.peer.load(layout::CONSUMED, Ordering::Acquire);
        let segments = self
            .get(layout::ALLOTTED)
            .wrapping_sub(self.peer.load(layout::RETURNED, Ordering::Acquire));
        position.wrapping_sub(consumed) <= tx::most_used(self.geometry) as u64
            && segments < self.geometry.segments() as u64
    }

    /// Whether the receiver cannot see a part of so many bytes before all of them are published:
    /// they make one record, or the ring has room for all. A hint when taken without the lock.
    #[inline]
    #[must_use]
    pub fn fits(&self, bytes: usize) -> bool {
        bytes <= self.geometry.segment_size() || (self.tx_on_ring() && self.has_room_for(bytes))
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        let used = self.get(layout::TX_POSITION).wrapping_sub(self.consumed_mark());
        let out = self
            .get(layout::ALLOTTED)
            .wrapping_sub(self.peer.load(layout::RETURNED, Ordering::Acquire));
        let records = bytes.div_ceil(self.geometry.segment_size()) as u64;
        used.saturating_add(records) <= tx::most_used(self.geometry) as u64
            && out.saturating_add(records) <= self.geometry.segments() as u64
    }

    /// Whether half of the ring is free, and half of the segments that the application has not
    /// reserved. A hint when taken without the lock.
    #[must_use]
    pub fn has_ample_room(&self) -> bool {
        let used = self.get(layout::TX_POSITION).wrapping_sub(self.consumed_mark());
        let out = self
            .get(layout::ALLOTTED)
            .wrapping_sub(self.peer.load(layout::RETURNED, Ordering::Acquire));
        used <= (self.geometry.cells() / 2) as u64
            && out.saturating_sub(self.get(layout::RESERVED_COUNT))
                <= (self.geometry.segments() / 2) as u64
    }

    /// Changes whenever the peer has taken a record off the ring.
    #[inline]
    #[must_use]
    pub fn consumed_mark(&self) -> u64 {
        self.peer.load(layout::CONSUMED, Ordering::Acquire)
    }

    /// Where the data of either direction flows now.
    #[must_use]
    pub fn carriers(&self) -> (Carrier, Carrier) {
        let rx = self.get(layout::RX_CARRIER) & !layout::RX_STANDING;
        (Carrier::from_code(self.get(layout::TX_CARRIER)), Carrier::from_code(rx))
    }

    /// Whether this end's next byte goes on the ring.
    #[inline]
    #[must_use]
    pub fn tx_on_ring(&self) -> bool {
        self.get(layout::TX_CARRIER) == Carrier::Ring as u64
    }

    /// Whether this end's next byte comes from the ring, as far as it knows.
    #[inline]
    #[must_use]
    pub fn rx_on_ring(&self) -> bool {
        self.get(layout::RX_CARRIER) == Carrier::Ring as u64
    }

    /// Whether this end's sending direction was shut down.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        self.get(layout::TX_SHUT) != 0
    }

    /// Changes whenever the peer publishes.
    #[inline]
    #[must_use]
    pub fn published_mark(&self) -> u64 {
        self.peer.load(layout::PUBLISHED, Ordering::Acquire)
    }

    /// Changes whenever the peer publishes bytes or the end of the stream, and with no other
    /// record.
    #[inline]
    #[must_use]
    pub fn data_mark(&self) -> u64 {
        self.peer.load(layout::PUBLISHED_BYTES, Ordering::Acquire) << 1
            | u64::from(self.peer_is_shut())
    }

    /// Whether the peer has given bytes to the kernel that this end has not received from there. A
    /// hint when taken without the lock.
    #[inline]
    #[must_use]
    pub fn peer_has_sent_by_tcp(&self) -> bool {
        self.peer.load(layout::TX_TCP_BYTES, Ordering::Acquire) != self.get(layout::RX_TCP_BYTES)
    }

    /// Bytes in the ring that this end has not taken; what the peer claims, bounded by what fits.
    #[must_use]
    pub fn unread(&self) -> usize {
        let published = self.peer.load(layout::PUBLISHED_BYTES, Ordering::Acquire);
        let most = self.peer_geometry.cells() * seekwire_protocol::record::CELL
            + self.peer_geometry.segments() * self.peer_geometry.segment_size();
        let unread =
            (published.saturating_sub(self.get(layout::CONSUMED_BYTES)) as usize).min(most);
        // The peer counts bytes after it has published them: what is readable must not look empty.
        unread.max(self.head_bytes_left())
    }

    /// Bytes in the ring that the peer has not taken, or that were recalled and wait for the
    /// kernel.
    #[must_use]
    pub fn unsent(&self) -> usize {
        let consumed = self.peer.load(layout::CONSUMED_BYTES, Ordering::Acquire);
        let published = self.get(layout::PUBLISHED_BYTES);
        // The peer may have taken bytes that are being published and not counted yet.
        published.saturating_sub(consumed) as usize + self.to_retransmit()
    }

    /// Ring bytes sent and received so far.
    #[must_use]
    pub fn ring_bytes(&self) -> (u64, u64) {
        (self.get(layout::PUBLISHED_BYTES), self.get(layout::CONSUMED_BYTES))
    }

    /// TCP bytes sent and received so far.
    #[must_use]
    pub fn tcp_bytes(&self) -> (u64, u64) {
        (self.get(layout::TX_TCP_BYTES), self.get(layout::RX_TCP_BYTES))
    }

    fn tx_switch(&self) -> TxSwitch {
        TxSwitch {
            carrier: Carrier::from_code(self.get(layout::TX_CARRIER)),
            tcp_bytes: self.get(layout::TX_TCP_BYTES),
            ring_since: self.get(layout::TX_RING_SINCE),
        }
    }

    fn set_tx_switch(&self, switch: TxSwitch) {
        self.set(layout::TX_CARRIER, switch.carrier as u64);
        self.set(layout::TX_TCP_BYTES, switch.tcp_bytes);
        self.set(layout::TX_RING_SINCE, switch.ring_since);
    }

    fn rx_switch(&self) -> RxSwitch {
        RxSwitch {
            carrier: Carrier::from_code(self.get(layout::RX_CARRIER) & !layout::RX_STANDING),
            tcp_bytes: self.get(layout::RX_TCP_BYTES),
        }
    }

    fn set_rx_switch(&self, switch: RxSwitch) {
        self.set(layout::RX_CARRIER, switch.carrier as u64);
        self.set(layout::RX_TCP_BYTES, switch.tcp_bytes);
    }

    // ---- arming -------------------------------------------------------------------------------

    /// Asks the peer to ring when it publishes. Returns whether something is there already. To be
    /// undone by [`Self::disarm_data`], once each.
    pub fn arm_data(&self) -> bool {
        self.own.word(layout::DATA_WAITERS).fetch_add(1, Ordering::SeqCst);
        self.rearm_data()
    }

    /// A new arm number for a waiter that goes back to sleep.
    pub fn rearm_data(&self) -> bool {
        self.set(layout::WANT_PUBLISHED, 0);
        self.arm_for_data();
        self.has_record()
    }

    fn arm_for_data(&self) {
        let number = self.own.word(layout::DATA_SEQUENCE).fetch_add(1, Ordering::Relaxed) + 1;
        // SYNC POINT "data", waiter: arm, fence, look at the ring; see `Tx::announce`.
        store_fenced(self.own.word(layout::ARM_DATA), number);
    }

    /// The waiter has woken; the last one takes the arm away.
    pub fn disarm_data(&self) {
        self.disarm(layout::ARM_DATA, layout::DATA_WAITERS);
    }

    /// Asks the peer to ring when half of what is missing has come back. Returns whether there is
    /// room already. To be undone by [`Self::disarm_space`], once each.
    pub fn arm_space(&self) -> bool {
        self.own.word(layout::SPACE_WAITERS).fetch_add(1, Ordering::Relaxed);
        self.rearm_space()
    }

    /// A new arm number for a waiter that goes back to sleep.
    pub fn rearm_space(&self) -> bool {
        // Waking for every freed segment would cost a switch of context each; half a ring at a time
        // keeps the receiver busy meanwhile.
        let used = (self.geometry.cells() / 2).min(tx::most_used(self.geometry));
        let cells = self.get(layout::TX_POSITION).saturating_sub(used as u64);
        // Reserved segments do not come back from the receiver.
        let missing = self.get(layout::RESERVED_COUNT).max(self.geometry.segments() as u64 / 2);
        let segments = self.get(layout::ALLOTTED).saturating_sub(missing);
        self.set(layout::WANT_CONSUMED, cells);
        self.set(layout::WANT_RETURNED, segments);
        let number = self.own.word(layout::SPACE_SEQUENCE).fetch_add(1, Ordering::Relaxed) + 1;
        // SYNC POINT "space", waiter: arm, fence, look for room; see `Rx::announce`.
        store_fenced(self.own.word(layout::ARM_SPACE), number);
        self.has_room()
    }

    /// The waiter has woken; the last one takes the arm away.
    pub fn disarm_space(&self) {
        self.disarm(layout::ARM_SPACE, layout::SPACE_WAITERS);
    }

    fn disarm(&self, arm: usize, waiters: usize) {
        // Somebody may arm meanwhile, and must stay armed. A waiter is counted before it arms:
        // either its number is seen here, and then it is counted among the others, or the number
        // has changed.
        let number = self.own.word(arm).load(Ordering::Acquire);
        if self.own.word(waiters).fetch_sub(1, Ordering::Relaxed) == 1 {
            let _ = self.own.word(arm).compare_exchange(
                number,
                0,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Whether threads of this end wait for data.
    #[must_use]
    pub fn has_readers(&self) -> bool {
        self.number_of_readers() > 0
    }

    /// Whether threads of this end wait for space.
    #[must_use]
    pub fn has_writers(&self) -> bool {
        self.get(layout::SPACE_WAITERS) > 0
    }

    /// How often this end is armed for data.
    #[must_use]
    pub fn number_of_readers(&self) -> u64 {
        self.get(layout::DATA_WAITERS)
    }

    /// How often this end is armed now.
    #[must_use]
    pub fn number_of_waiters(&self) -> u64 {
        self.get(layout::DATA_WAITERS) + self.get(layout::SPACE_WAITERS)
    }

    // ---- who holds this end -------------------------------------------------------------------

    /// Enters a process among the holders of this end. False when there is no place left.
    pub fn add_holder(&self, pid: u32) -> bool {
        add_holder(&self.own, pid)
    }

    /// A fork is about to happen: somebody unknown may hold this end from now on.
    pub fn fork_pending(&self) {
        self.own.word(layout::FORKS_PENDING).fetch_add(1, Ordering::AcqRel);
    }

    /// The child of a fork, which must have been announced, holds this end.
    pub fn fork_arrived(&self, pid: u32) {
        if self.add_holder(pid) {
            self.own.word(layout::FORKS_PENDING).fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The fork that was announced failed.
    pub fn fork_failed(&self) {
        let lower = |now: u64| now.checked_sub(1);
        let pending = self.own.word(layout::FORKS_PENDING);
        let _ = pending.fetch_update(Ordering::AcqRel, Ordering::Relaxed, lower);
    }

    /// Whether a process that the peer says holds its end can do so, by its number, or is about to
    /// be forked.
    #[must_use]
    pub fn peer_has_holder(&self, can_hold: impl Fn(u32) -> bool) -> bool {
        let holders = || (0..layout::HOLDER_SLOTS).map(|slot| layout::HOLDERS + slot * 8);
        self.peer.load(layout::FORKS_PENDING, Ordering::Acquire) != 0
            || holders().any(|holder| match self.peer.load(holder, Ordering::Acquire) as u32 {
                0 => false,
                pid => can_hold(pid),
            })
    }

    /// Whether nobody else can hold this end.
    #[must_use]
    pub fn is_only_holder(&self, pid: u32) -> bool {
        let others = || self.holders().filter(|(_, holder)| *holder != 0 && *holder != pid);
        self.own.word(layout::FORKS_PENDING).load(Ordering::Acquire) == 0
            && !others().any(|(_, holder)| process_is_alive(holder))
    }

    /// Takes a process off the holders. Returns whether it was the last one that can be alive.
    pub fn remove_holder(&self, pid: u32) -> bool {
        let last = self.is_only_holder(pid);
        for (word, _) in self.holders().filter(|(_, holder)| *holder == pid) {
            word.store(0, Ordering::Release);
        }
        last
    }

    fn holders(&self) -> impl Iterator<Item = (&AtomicU64, u32)> {
        let words = (0..layout::HOLDER_SLOTS).map(|slot| self.own.word(layout::HOLDERS + slot * 8));
        words.map(|word| (word, word.load(Ordering::Acquire) as u32))
    }
}
