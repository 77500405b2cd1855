//! Recall: the sender leaves the ring and retransmits by TCP the bytes that the receiver has not
//! taken.
//!
//! The receiver promises to take nothing more, publishes its position, and asks
//! ([`Rx::ask_recall`]). The sender, in its next call, has to retransmit the bytes from there on,
//! and answers ([`Tx::recall`]). They stay where they are in its memory, so a fork has to
//! retransmit them as well, and are given to the kernel as it has room, before any others
//! ([`Tx::to_retransmit`], [`Tx::retransmitted`]). A receiver that no longer waits withdraws
//! ([`Rx::withdraw`]); both ends then agree on which of the two came first. Or it leaves its
//! request standing ([`Rx::keep_asking`]).

use std::time::Duration;

use seekwire_protocol::Carrier;
use seekwire_protocol::record::{HEADER, Head, Record};

use super::pair::{QueueMemory, QueuePair, Violation};
use super::request::ask_recall;
use super::rx::Rx;
use super::tx::Tx;
use crate::layout::{self, control};
use crate::mem::PeerMemory;
use crate::sync::{Ordering, fence};
use crate::sys::thread::{nap, yield_now};

/// The remaining part of one of this end's own records, from some byte on.
struct RecordTail {
    record: Record,
    /// Offset in this end's memory and length; the length is 0 for a record that is not data.
    at: usize,
    len: usize,
    /// Position of the record that follows.
    next: u64,
}

/// A position in the stream, by both carriers.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    carrier: Carrier,
    position: u64,
    offset: usize,
    /// In the stream of TCP.
    tcp: u64,
}

/// Consecutive bytes on one carrier.
enum Span {
    /// On the ring, at an offset in this end's memory.
    Ring(usize, usize),
    /// By TCP, from one position of its stream to another.
    Tcp(u64, u64),
}

/// The answer to a recall.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RecallOutcome {
    /// The bytes come by TCP; nothing on the ring counts any more.
    Taken,
    /// The bytes stay on the ring.
    Refused,
    /// The peer has not answered yet.
    Pending,
    /// The peer is about to answer, within microseconds.
    AtWork,
}

/// Waits while the peer `is_at_work`, which takes only microseconds if it is alive and honest. True if
/// it still is.
fn await_work(mut is_at_work: impl FnMut() -> bool) -> bool {
    const LOOKS: u32 = if cfg!(loom) { 8 } else { 1000 };
    const NAPS: u32 = if cfg!(loom) { 0 } else { 2000 };
    for look in 0..LOOKS + NAPS {
        if !is_at_work() {
            return false;
        }
        if look < LOOKS { yield_now() } else { nap(Duration::from_millis(1)) }
    }
    true
}

impl<O: QueueMemory, P: PeerMemory> QueuePair<O, P> {
    /// Whether the peer has left its ring: bytes that it has sent by TCP since then may lie in the
    /// kernel while earlier bytes are on the ring.
    #[must_use]
    pub fn peer_has_left_ring(&self) -> bool {
        self.peer.load(layout::TX_CARRIER, Ordering::Relaxed) != Carrier::Ring as u64
    }

    /// Whether the peer wants the bytes that it has not taken off the ring to be retransmitted by
    /// TCP, and was not answered yet.
    #[must_use]
    pub fn is_recall_asked(&self) -> bool {
        self.peer.load(layout::CONTROL, Ordering::Acquire) & control::RECALL != 0
            && self.get(layout::RECALLED) == 0
    }

    /// This end's direction is about to end: it checks the peer's request once more, and then
    /// perhaps never again.
    pub fn begin_last_look(&self) {
        // SYNC POINT "last look", sender: said before the request is looked at; see
        // `QueuePair::peer_has_looked_last`.
        self.own.set_bits(layout::CONTROL, control::LAST_LOOK);
        fence(Ordering::SeqCst);
    }

    /// Whether a request made before this call may stay unseen.
    #[must_use]
    pub fn peer_has_looked_last(&self) -> bool {
        // SYNC POINT "last look", receiver: the request is there before this is looked at.
        fence(Ordering::SeqCst);
        self.peer.load(layout::CONTROL, Ordering::SeqCst) & control::LAST_LOOK != 0
    }

    /// Whether others may give bytes to the kernel on the peer's behalf, so that the peer does not
    /// retransmit the bytes on its ring, which would then follow these. If false, a request
    /// made before this call is served.
    #[must_use]
    pub fn peer_is_uncounted(&self) -> bool {
        // SYNC POINT "uncounted", receiver: the request is there before this is looked at.
        fence(Ordering::SeqCst);
        self.peer.load(layout::TX_UNCOUNTED, Ordering::SeqCst) != 0
    }

    /// Bytes that were recalled and not yet given to the kernel.
    #[inline]
    #[must_use]
    pub fn to_retransmit(&self) -> usize {
        self.get(layout::RETRANSMIT_BYTES) as usize
    }

    /// Whether the peer has yet to give the kernel bytes that this end has recalled: they are no
    /// longer among the [unread](Self::unread) ones. True also for a peer that stays at work.
    #[must_use]
    pub fn peer_retransmits(&self) -> bool {
        // SYNC POINT "recall", receiver: a peer that has taken bytes off the unread ones is at work
        // until it has counted them here.
        let is_at_work = || self.peer.load(layout::RECALLED, Ordering::SeqCst) == layout::AT_WORK;
        await_work(is_at_work) || self.peer.load(layout::RETRANSMIT_BYTES, Ordering::Acquire) > 0
    }

    /// Whether the peer wants something of this end's sending half that does not need a send.
    #[inline]
    #[must_use]
    pub fn wants_attention(&self) -> bool {
        self.is_tcp_only() && (self.is_recall_asked() || (self.tx_on_ring() && !self.is_shut()))
    }
}

impl<O: QueueMemory, P: PeerMemory> Tx<'_, O, P> {
    /// Serves the peer's request for a recall, and returns the carrier of the next byte. That is
    /// the ring if the peer has withdrawn a standing request while it looks at the ring: it will
    /// ask again when it releases the ring, and then also for this byte.
    ///
    /// # Errors
    /// [`Violation`].
    pub(super) fn serve_request(&self) -> Result<Carrier, Violation> {
        /// An honest peer changes its mind no more often than it receives.
        const LOOKS: u32 = 1000;
        let q = self.queue;
        for _ in 0..LOOKS {
            self.recall()?;
            // Loaded once. The peer could ask again between two loads: the first would miss the
            // request, and the second would find that it stands.
            let request = q.peer.load(layout::CONTROL, Ordering::SeqCst);
            if q.get(layout::RECALLED) != 0 || request & control::STANDING == 0 {
                break;
            }
            if request & control::RECALL == 0 {
                let wants_tcp = q.get(layout::CONTROL) & control::TCP_ONLY != 0;
                return Ok(if q.tx_on_ring() && !wants_tcp { Carrier::Ring } else { Carrier::Tcp });
            }
        }
        Ok(Carrier::Tcp)
    }

    /// If the peer has asked for it, leaves the ring for good. From then on this end has to
    /// retransmit the bytes on it that the peer has not taken, and tells the peer so. They cannot
    /// be retransmitted if this end's direction was shut down, or if later bytes went by TCP that
    /// are not kept, or were not counted: then it tells the peer that.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn recall(&self) -> Result<(), Violation> {
        self.recall_if(self.queue.get(layout::TX_UNCOUNTED) == 0)
    }

    /// `is_counted`: all bytes that the kernel has received from this end were counted.
    fn recall_if(&self, is_counted: bool) -> Result<(), Violation> {
        let q = self.queue;
        if !q.is_recall_asked() {
            return Ok(());
        }
        // SYNC POINT "recall", sender: at work before the request is looked at once more; see
        // `Rx::withdraw`.
        q.own.store_fenced(layout::RECALLED, layout::AT_WORK);
        let request = q.peer.load(layout::CONTROL, Ordering::SeqCst);
        let taken = match request & control::RECALL {
            0 => None,
            _ => Some(self.recall_from(request & control::STANDING == 0, is_counted)),
        };
        let answer = match taken {
            None => 0,
            Some(Ok(true)) => layout::TAKEN,
            Some(Ok(false) | Err(Violation)) => {
                // A peer that was refused does not ask again: kept bytes are no longer needed.
                self.keep_no_more();
                layout::REFUSED
            }
        };
        q.own.store(layout::RECALLED, answer, Ordering::SeqCst);
        taken.map_or(Ok(()), |taken| taken.map(drop))
    }

    /// The caller, or a program that gets the socket from it, is going to give bytes to the kernel,
    /// for good and without counting them. Serves a request of the peer for the last time.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn stop_counting(&self) -> Result<(), Violation> {
        let q = self.queue;
        let is_counted = q.get(layout::TX_UNCOUNTED) == 0;
        // SYNC POINT "uncounted", sender: said before the request is looked at; see
        // `QueuePair::peer_is_uncounted`.
        q.own.store_fenced(layout::TX_UNCOUNTED, 1);
        let recalled = self.recall_if(is_counted);
        self.keep_no_more();
        recalled
    }

    /// `is_awaited`: the receiver waits for the answer, so it can discard bytes that came by TCP
    /// before their turn. Returns false if the bytes cannot be retransmitted.
    fn recall_from(&self, is_awaited: bool, is_counted: bool) -> Result<bool, Violation> {
        let q = self.queue;
        let from = q.peer.load(layout::RECALL_FROM, Ordering::Acquire);
        let by = q.peer.load(layout::RECALL_TCP, Ordering::Acquire);
        let (position, offset) = self.locate(from).ok_or(Violation)?;
        if position < q.get(layout::CONSUMED_SEEN) {
            return Err(Violation);
        }
        let begin = Cursor { carrier: Carrier::from_code(by & 1), position, offset, tcp: by >> 1 };
        let sent = q.get(layout::TX_TCP_BYTES);
        let (mut ring, mut before, mut behind) = (0, 0, 0);
        let mut cursor = begin;
        while let Some((span, _, next)) = self.span(cursor, sent)? {
            match span {
                Span::Ring(_, len) => ring += len as u64,
                Span::Tcp(from, to) if ring == 0 => before += to - from,
                Span::Tcp(from, to) => behind += to - from,
            }
            cursor = next;
        }
        // Another process that was given the socket may have sent more than this end knows of, but
        // nothing that precedes the bytes on the ring.
        if is_counted && ring > 0 && begin.tcp > sent {
            return Err(Violation);
        }
        let all_kept = is_awaited && q.kept_from().is_some_and(|kept| kept <= begin.tcp);
        let is_possible = ring == 0 || (!q.is_shut() && is_counted && (behind == 0 || all_kept));
        if !is_possible {
            return Ok(false);
        }
        // For good, whatever the peer does: new bytes on the ring would overtake those to be
        // retransmitted.
        q.set_tcp_only();
        if q.tx_on_ring() && !q.is_shut() {
            self.release();
            q.set(layout::LEFT_AT, q.get(layout::TX_TCP_BYTES));
            // If this process dies, its successor must not repeat an earlier switch.
            q.set_in_order(layout::TX_SWITCHING, 0);
            let mut switch = q.tx_switch();
            switch.left_ring();
            q.set_tx_switch(switch);
        }
        if ring == 0 {
            return Ok(true);
        }
        let published = q.get(layout::PUBLISHED_BYTES);
        q.set_in_order(layout::PUBLISHED_BYTES, published.saturating_sub(ring));
        // Bytes that went by TCP before those of the ring are in order already. Those that followed
        // are retransmitted.
        let discards = behind > 0;
        q.set(layout::DISCARD_UNTIL, if discards { sent } else { 0 });
        self.set_to_retransmit(begin);
        q.set_in_order(
            layout::RETRANSMIT_BYTES,
            if discards { before + ring + behind } else { ring },
        );
        Ok(true)
    }

    /// The first bytes from `cursor` on, of one record or by TCP up to the next one, and where they
    /// begin and end; `until` is the end of the stream of TCP. `None` at the end.
    fn span(
        &self,
        mut cursor: Cursor,
        until: u64,
    ) -> Result<Option<(Span, Cursor, Cursor)>, Violation> {
        let q = self.queue;
        let end = q.get(layout::TX_POSITION);
        loop {
            let tail = if cursor.position < end {
                Some(self.record_tail(cursor.position, cursor.offset)?)
            } else {
                None
            };
            let bound = match &tail {
                Some(RecordTail { record: Record::RingAt, at, .. }) => q.get(*at + HEADER),
                _ => until,
            };
            if cursor.carrier == Carrier::Tcp && cursor.tcp < bound {
                let next = Cursor { tcp: bound, ..cursor };
                return Ok(Some((Span::Tcp(cursor.tcp, bound), cursor, next)));
            }
            let Some(tail) = tail else { return Ok(None) };
            let carrier = match tail.record {
                Record::RingAt => Carrier::Ring,
                Record::Tcp => Carrier::Tcp,
                _ => cursor.carrier,
            };
            let next = Cursor { carrier, position: tail.next, offset: 0, ..cursor };
            if tail.len > 0 {
                return Ok(Some((Span::Ring(tail.at, tail.len), cursor, next)));
            }
            cursor = next;
        }
    }

    fn cursor_to_retransmit(&self) -> Option<Cursor> {
        let q = self.queue;
        let (position, offset) = self.locate(q.get(layout::RETRANSMIT_FROM))?;
        let carrier = Carrier::from_code(q.get(layout::RETRANSMIT_CARRIER));
        Some(Cursor { carrier, position, offset, tcp: q.get(layout::RETRANSMIT_TCP) })
    }

    fn set_to_retransmit(&self, cursor: Cursor) {
        let q = self.queue;
        q.set(layout::RETRANSMIT_CARRIER, cursor.carrier as u64);
        q.set(layout::RETRANSMIT_TCP, cursor.tcp);
        q.set_in_order(layout::RETRANSMIT_FROM, cursor.position << 32 | cursor.offset as u64);
    }

    /// The next bytes to retransmit from `cursor` on. Bytes by TCP are included only if they have
    /// to be retransmitted.
    fn next_to_retransmit(&self, mut cursor: Cursor) -> Result<Option<(Span, Cursor)>, Violation> {
        let discard_until = self.queue.get(layout::DISCARD_UNTIL);
        let until = if discard_until > 0 { discard_until } else { cursor.tcp };
        while let Some((span, begin, next)) = self.span(cursor, until.max(cursor.tcp))? {
            match span {
                Span::Tcp(..) if discard_until == 0 => cursor = next,
                span => {
                    self.set_to_retransmit(begin);
                    return Ok(Some((span, next)));
                }
            }
        }
        Ok(None)
    }

    /// Replaces `into` with the next bytes to retransmit, at most those of one record; empty when
    /// all are retransmitted.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn to_retransmit(&self, into: &mut Vec<u8>) -> Result<(), Violation> {
        /// Maximum bytes at a time: memory may be scarce.
        const PIECE: usize = 32 << 10;
        let q = self.queue;
        into.clear();
        if q.to_retransmit() == 0 {
            return Ok(());
        }
        match self.next_to_retransmit(self.cursor_to_retransmit().ok_or(Violation)?)? {
            Some((Span::Ring(at, len), _)) => {
                into.resize(len.min(PIECE), 0);
                q.own.read_back(at, into);
            }
            Some((Span::Tcp(from, to), _)) => {
                into.resize((to - from).min(PIECE as u64) as usize, 0);
                q.kept(from, into);
            }
            None => q.set(layout::RETRANSMIT_BYTES, 0),
        }
        Ok(())
    }

    /// Notes that the kernel took the first `n` bytes that [`Tx::to_retransmit`] returned.
    pub fn retransmitted(&self, n: usize) {
        let q = self.queue;
        self.sent_by_tcp(n);
        if let Some(cursor) = self.cursor_to_retransmit() {
            // The span that `next_to_retransmit` found.
            let by_ring = matches!(self.span(cursor, u64::MAX), Ok(Some((Span::Ring(..), ..))));
            self.set_to_retransmit(if by_ring {
                Cursor { offset: cursor.offset + n, ..cursor }
            } else {
                Cursor { tcp: cursor.tcp + n as u64, ..cursor }
            });
        }
        q.set_in_order(
            layout::RETRANSMIT_BYTES,
            q.get(layout::RETRANSMIT_BYTES).saturating_sub(n as u64),
        );
    }

    /// Drops the bytes to retransmit: no receiver is left.
    pub fn forget_retransmission(&self) {
        self.queue.set(layout::RETRANSMIT_BYTES, 0);
    }

    /// Repairs the state that a sender left when it died during a recall.
    pub(super) fn recover_recall(&self) {
        let q = self.queue;
        if q.to_retransmit() > 0 {
            let mut bytes = 0;
            let mut cursor = self.cursor_to_retransmit();
            while let Some(Ok(Some((span, next)))) =
                cursor.map(|cursor| self.next_to_retransmit(cursor))
            {
                bytes += match span {
                    Span::Ring(_, len) => len as u64,
                    Span::Tcp(from, to) => to - from,
                };
                cursor = Some(next);
            }
            q.set(layout::RETRANSMIT_BYTES, bytes);
        }
        if q.get(layout::RECALLED) == layout::AT_WORK {
            // With nothing to retransmit, the next call answers the peer: the dead sender has sent
            // nothing by TCP meanwhile.
            let answer = if q.to_retransmit() > 0 { layout::TAKEN } else { 0 };
            q.own.store(layout::RECALLED, answer, Ordering::SeqCst);
        }
    }

    /// The whole position, and the offset in its record, of a word with the low halves of both.
    /// `None` when it is not on the ring.
    fn locate(&self, word: u64) -> Option<(u64, usize)> {
        let q = self.queue;
        let end = q.get(layout::TX_POSITION);
        let behind = u64::from((end as u32).wrapping_sub((word >> 32) as u32));
        let position = end.checked_sub(behind)?;
        (behind <= q.geometry.cells() as u64).then_some((position, word as u32 as usize))
    }

    /// The remaining part of the record at `position` from byte `offset` on. The peer chose where
    /// to begin: in the middle of a record, payload is taken for a header.
    fn record_tail(&self, position: u64, offset: usize) -> Result<RecordTail, Violation> {
        let q = self.queue;
        let g = q.geometry;
        let cell = g.cell_at(position);
        let Head::Record(record) = Record::decode(q.get(cell), position, g.segment_size()) else {
            return Err(Violation);
        };
        let (at, len) = match record {
            Record::Inline { len } if g.lap_offset(position) + record.cells() <= g.cells() => {
                (cell + HEADER, len)
            }
            Record::Inline { .. } => return Err(Violation),
            Record::Segment { len } => {
                let segment = usize::try_from(q.get(cell + HEADER)).ok();
                let segment = segment.filter(|s| *s < g.segments()).ok_or(Violation)?;
                (g.segment_at(segment), len)
            }
            Record::Tcp | Record::Pad | Record::RingAt | Record::Fin => (cell, 0),
        };
        let cells = match record {
            Record::Pad => g.cells() - g.lap_offset(position),
            other => other.cells(),
        };
        Ok(RecordTail {
            record,
            at: at + offset,
            len: len.checked_sub(offset).ok_or(Violation)?,
            next: position + cells as u64,
        })
    }
}

impl<O: QueueMemory, P: PeerMemory> Rx<'_, O, P> {
    /// Promises to take nothing more off the ring, and asks the peer to retransmit it by TCP.
    pub fn ask_recall(&self) {
        ask_recall(&self.queue.own);
        self.stop_asking();
    }

    /// As [`Self::ask_recall`], for a caller that goes on to [keep asking](Self::keep_asking): from
    /// the first moment the peer sees that nobody discards bytes that come by TCP before their
    /// turn.
    pub fn ask_standing_recall(&self) {
        self.queue.own.set_bits(layout::CONTROL, control::STANDING);
        ask_recall(&self.queue.own);
    }

    /// The peer's answer so far.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn answer(&self) -> Result<RecallOutcome, Violation> {
        let q = self.queue;
        match q.peer.load(layout::RECALLED, Ordering::SeqCst) {
            0 => return Ok(RecallOutcome::Pending),
            layout::AT_WORK => return Ok(RecallOutcome::AtWork),
            layout::TAKEN => {}
            _ => return Ok(RecallOutcome::Refused),
        }
        let end = q.peer.load(layout::TX_POSITION, Ordering::Relaxed);
        let left = end.checked_sub(q.get(layout::RX_POSITION)).ok_or(Violation)?;
        if left > q.peer_geometry.cells() as u64 {
            return Err(Violation);
        }
        let mut switch = q.rx_switch();
        let discard_until = q.peer.load(layout::DISCARD_UNTIL, Ordering::Relaxed);
        // Only the first time: a later call finds nothing left on the ring.
        if left > 0 && discard_until > 0 {
            q.set(
                layout::RX_DISCARD,
                discard_until.checked_sub(switch.tcp_bytes).ok_or(Violation)?,
            );
        }
        switch.carrier = Carrier::Tcp;
        q.set_rx_switch(switch);
        self.advance(left);
        Ok(RecallOutcome::Taken)
    }

    /// Number of bytes that come next by TCP and have to be discarded: they come again.
    /// [`Self::note_discarded`] counts them.
    #[inline]
    #[must_use]
    pub fn discard_left(&self) -> u64 {
        self.queue.get(layout::RX_DISCARD)
    }

    /// Counts `n` bytes from the kernel that were discarded.
    pub fn note_discarded(&self, n: usize) {
        self.received_by_tcp(n);
        self.queue.set(layout::RX_DISCARD, self.discard_left().saturating_sub(n as u64));
    }

    /// Gives up asking. The peer may have recalled the bytes after all ([`RecallOutcome::Taken`]);
    /// while it is at work, call again.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn withdraw(&self) -> Result<RecallOutcome, Violation> {
        let q = self.queue;
        // SYNC POINT "recall", receiver: the request is gone before the peer's word is looked at;
        // see `Tx::recall`.
        q.own.clear_bits(layout::CONTROL, control::RECALL);
        fence(Ordering::SeqCst);
        if q.peer.load(layout::RECALLED, Ordering::SeqCst) == layout::AT_WORK {
            return Ok(RecallOutcome::AtWork);
        }
        Ok(if self.answer()? == RecallOutcome::Taken {
            RecallOutcome::Taken
        } else {
            RecallOutcome::Refused
        })
    }

    /// Stops waiting for the answer, but leaves the request standing: the peer may answer in its
    /// next call, whenever that is. A thread that takes this half before that can take the bytes on
    /// the ring; the others are asked for again when it releases the half. While the peer is at
    /// work, call again, or leave it to that thread to wait for the answer.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn keep_asking(&self) -> Result<RecallOutcome, Violation> {
        let q = self.queue;
        // SYNC POINT "recall", receiver: as in `Rx::withdraw`, a peer that has not seen it by then
        // is at work.
        q.own.set_bits(layout::CONTROL, control::STANDING);
        fence(Ordering::SeqCst);
        let recalled = q.peer.load(layout::RECALLED, Ordering::SeqCst);
        // Even if the caller does not wait for a peer at work, the next holder of this half must not
        // take bytes that the peer sends again.
        self.asks.set(matches!(recalled, 0 | layout::AT_WORK));
        match recalled {
            layout::AT_WORK => Ok(RecallOutcome::AtWork),
            0 => Ok(RecallOutcome::Pending),
            _ => Ok(if self.answer()? == RecallOutcome::Taken {
                RecallOutcome::Taken
            } else {
                RecallOutcome::Refused
            }),
        }
    }

    /// Withdraws a standing request for good: it is not made again when this half is released.
    pub fn stop_asking(&self) {
        self.queue.own.clear_bits(layout::CONTROL, control::STANDING);
        self.asks.set(false);
    }

    /// Handles a request that stands, or that was left by a holder that died: withdraws it while
    /// this half is held, unless the peer has served it. False if the peer stays at work, which
    /// takes only microseconds if it is alive and honest.
    pub(super) fn resume(&self) -> bool {
        let q = self.queue;
        let request = q.get(layout::CONTROL);
        let mut answer = Ok(RecallOutcome::Refused);
        if request & control::RECALL != 0 {
            await_work(|| {
                answer = self.withdraw();
                answer == Ok(RecallOutcome::AtWork)
            });
        }
        let is_taken = match answer {
            Ok(RecallOutcome::AtWork) | Err(_) => return false,
            Ok(answer) => answer == RecallOutcome::Taken,
        };
        q.set(layout::RX_CARRIER, q.get(layout::RX_CARRIER) & !layout::RX_STANDING);
        let is_refused = q.peer.load(layout::RECALLED, Ordering::Relaxed) == layout::REFUSED;
        self.asks.set(request & control::STANDING != 0);
        if is_taken || is_refused {
            self.stop_asking();
        }
        true
    }
}
