//! Taking back: the sender leaves the ring and sends again by TCP what the receiver has not taken.
//!
//! The receiver promises to take nothing more, says how far it came, and asks ([`Rx::ask_back`]). The
//! sender, in its next call, owes the bytes from there on, and answers ([`Tx::take_back`]). They stay where
//! they are in its memory, so a fork owes them as well, and are given to the kernel as it has room, before
//! any other ([`Tx::owed`], [`Tx::paid`]). A receiver that waits no longer withdraws ([`Rx::withdraw`]):
//! whoever of the two comes first, both know it.

use protocol::Carrier;
use protocol::record::{HEADER, Head, Record};

use super::{Memory, QueuePair, Rx, Tx, Violation};
use crate::layout::{self, control};
use crate::mem::PeerMemory;
use crate::sync::{Ordering, fence, store_fenced};
use crate::sys::thread::relax;

/// What is left of a record of one's own, from some byte on.
struct Rest {
    /// Where in this end's memory it begins, and how long it is; 0 for a record that is not data.
    at: usize,
    len: usize,
    /// Position of the record that follows.
    next: u64,
    is_switch_to_tcp: bool,
}

impl<O: Memory, P: PeerMemory> QueuePair<O, P> {
    /// Whether the peer wants what it has not taken off the ring to be sent again by TCP, and was not
    /// answered yet.
    #[must_use]
    pub fn is_asked_back(&self) -> bool {
        self.peer.load(layout::CONTROL, Ordering::Acquire) & control::TAKE_BACK != 0
            && self.get(layout::TAKEN_BACK) == 0
    }

    /// Bytes that were taken back and not yet given to the kernel.
    #[inline]
    #[must_use]
    pub fn owed(&self) -> usize {
        self.get(layout::OWED_BYTES) as usize
    }

    /// Whether the peer wants something of this end's sending half that does not need a send.
    #[inline]
    #[must_use]
    pub fn wants_attention(&self) -> bool {
        self.tcp_only().0 && (self.is_asked_back() || (self.tx_on_ring() && !self.is_shut()))
    }
}

impl<O: Memory, P: PeerMemory> Tx<'_, O, P> {
    /// When the peer has asked for it: leaves the ring for good, owes the bytes on it that the peer has not
    /// taken, and tells it so; or tells it that they cannot be sent again, because this end's direction was
    /// shut down or others went by TCP after them.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn take_back(&self) -> Result<(), Violation> {
        let q = self.queue;
        if !q.is_asked_back() {
            return Ok(());
        }
        // SYNC POINT "take back", sender: at work before the wish is looked at once more; see
        // `Rx::withdraw`.
        store_fenced(q.own.word(layout::TAKEN_BACK), layout::AT_WORK);
        let answer = if q.peer.load(layout::CONTROL, Ordering::SeqCst) & control::TAKE_BACK == 0 {
            0
        } else if self.owe()? {
            layout::TAKEN
        } else {
            layout::REFUSED
        };
        q.own.word(layout::TAKEN_BACK).store(answer, Ordering::SeqCst);
        Ok(())
    }

    fn owe(&self) -> Result<bool, Violation> {
        let q = self.queue;
        let from = q.peer.load(layout::BACK_FROM, Ordering::Acquire);
        let end = q.get(layout::TX_POSITION);
        let (first, offset) = self.locate(from).ok_or(Violation)?;
        if first < q.get(layout::CONSUMED_SEEN) {
            return Err(Violation);
        }
        // On TCP already, but nothing was sent by it: what was on the ring would still come first.
        let just_left = !q.tx_on_ring() && q.get(layout::LEFT_AT) == q.get(layout::TX_TCP_BYTES);
        let mut bytes = 0;
        let (mut position, mut skip) = (first, offset);
        while position < end {
            let rest = self.rest(position, skip)?;
            if rest.is_switch_to_tcp && bytes > 0 && !(just_left && rest.next == end) {
                return Ok(false);
            }
            bytes += rest.len;
            (position, skip) = (rest.next, 0);
        }
        let is_possible = bytes == 0 || (!q.is_shut() && (q.tx_on_ring() || just_left));
        if !is_possible {
            return Ok(false);
        }
        // Whatever the peer will say: what is owed would be overtaken on the ring.
        q.set_tcp_only();
        if q.tx_on_ring() && !q.is_shut() {
            q.set(layout::LEFT_AT, q.get(layout::TX_TCP_BYTES));
            let mut switch = q.tx_switch();
            switch.left_ring();
            q.set_tx_switch(switch);
        }
        let published = q.own.word(layout::PUBLISHED_BYTES);
        let left = published.load(Ordering::Relaxed).saturating_sub(bytes as u64);
        published.store(left, Ordering::Release);
        q.set(layout::OWED_FROM, from);
        q.set_in_order(layout::OWED_BYTES, bytes as u64);
        Ok(true)
    }

    /// The next bytes that are owed, at most those of one record, instead of what was in `into`; none when
    /// all is paid.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn owed(&self, into: &mut Vec<u8>) -> Result<(), Violation> {
        let q = self.queue;
        into.clear();
        if q.owed() == 0 {
            return Ok(());
        }
        let end = q.get(layout::TX_POSITION);
        let (mut position, mut offset) = self.locate(q.get(layout::OWED_FROM)).ok_or(Violation)?;
        while position < end {
            let rest = self.rest(position, offset)?;
            if rest.len > 0 {
                q.set_in_order(layout::OWED_FROM, position << 32 | offset as u64);
                into.resize(rest.len, 0);
                q.own.read_back(rest.at, into);
                return Ok(());
            }
            (position, offset) = (rest.next, 0);
        }
        q.set(layout::OWED_BYTES, 0);
        Ok(())
    }

    /// The kernel took the first `n` bytes of what [`Tx::owed`] gave.
    pub fn paid(&self, n: usize) {
        let q = self.queue;
        self.sent_by_tcp(n);
        q.set_in_order(layout::OWED_FROM, q.get(layout::OWED_FROM) + n as u64);
        q.set_in_order(layout::OWED_BYTES, q.get(layout::OWED_BYTES).saturating_sub(n as u64));
    }

    /// Nobody is there any more to be paid.
    pub fn forget_owed(&self) {
        self.queue.set(layout::OWED_BYTES, 0);
    }

    /// Puts in order what a sender left behind that died while it took bytes back.
    pub(super) fn recover_debt(&self) {
        let q = self.queue;
        if q.owed() > 0 {
            let end = q.get(layout::TX_POSITION);
            let mut bytes = 0;
            let mut place = self.locate(q.get(layout::OWED_FROM));
            while let Some((position, offset)) = place.filter(|(position, _)| *position < end) {
                let rest = self.rest(position, offset);
                bytes += rest.as_ref().map_or(0, |rest| rest.len);
                place = rest.ok().map(|rest| (rest.next, 0));
            }
            q.set(layout::OWED_BYTES, bytes as u64);
        }
        if q.get(layout::TAKEN_BACK) == layout::AT_WORK {
            // Without a debt the peer is answered by the next call: nothing was sent by TCP meanwhile.
            let answer = if q.owed() > 0 { layout::TAKEN } else { 0 };
            q.own.word(layout::TAKEN_BACK).store(answer, Ordering::SeqCst);
        }
    }

    /// The whole position, and the offset in its record, of a word with the low halves of both. `None`
    /// when it is not on the ring.
    fn locate(&self, word: u64) -> Option<(u64, usize)> {
        let q = self.queue;
        let end = q.get(layout::TX_POSITION);
        let behind = u64::from((end as u32).wrapping_sub((word >> 32) as u32));
        let position = end.checked_sub(behind)?;
        (behind <= q.geometry.cells() as u64).then_some((position, word as u32 as usize))
    }

    /// What is left of the record at `position` from byte `offset` on. The peer has said where to begin: in
    /// the middle of a record, payload is taken for a header.
    fn rest(&self, position: u64, offset: usize) -> Result<Rest, Violation> {
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
        Ok(Rest {
            at: at + offset,
            len: len.checked_sub(offset).ok_or(Violation)?,
            next: position + cells as u64,
            is_switch_to_tcp: record == Record::Tcp,
        })
    }
}

impl<O: Memory, P: PeerMemory> Rx<'_, O, P> {
    /// Promises to take nothing more off the ring, and asks the peer to send it again by TCP.
    pub fn ask_back(&self) {
        let q = self.queue;
        let position = q.get(layout::RX_POSITION);
        q.set(layout::BACK_FROM, position << 32 | q.offset_in(position) as u64);
        // In one word with the wish for TCP: a peer that leaves the ring for it sees both.
        q.own.word(layout::CONTROL).fetch_or(control::TAKE_BACK | control::TCP_ONLY, Ordering::SeqCst);
    }

    /// Whether the peer has done so (then the ring is done with) or refused; `None` before it answered.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn is_taken_back(&self) -> Result<Option<bool>, Violation> {
        let q = self.queue;
        match q.peer.load(layout::TAKEN_BACK, Ordering::SeqCst) {
            0 | layout::AT_WORK => return Ok(None),
            layout::TAKEN => {}
            _ => return Ok(Some(false)),
        }
        let end = q.peer.load(layout::TX_POSITION, Ordering::Relaxed);
        let left = end.checked_sub(q.get(layout::RX_POSITION)).ok_or(Violation)?;
        if left > q.peer_geometry.cells() as u64 {
            return Err(Violation);
        }
        let mut switch = q.rx_switch();
        switch.carrier = Carrier::Tcp;
        q.set_rx_switch(switch);
        self.advance(left);
        Ok(Some(true))
    }

    /// Gives up asking. Returns whether the peer has taken the bytes back after all; `None` while it is at
    /// it: then ask again.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn withdraw(&self) -> Result<Option<bool>, Violation> {
        let q = self.queue;
        // SYNC POINT "take back", receiver: the wish is gone before the peer's word is looked at; see
        // `Tx::take_back`.
        q.own.word(layout::CONTROL).fetch_and(!control::TAKE_BACK, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if q.peer.load(layout::TAKEN_BACK, Ordering::SeqCst) == layout::AT_WORK {
            return Ok(None);
        }
        Ok(Some(self.is_taken_back()? == Some(true)))
    }

    /// Puts in order what a receiver left behind that died while it asked. A peer is at work for
    /// microseconds.
    pub(super) fn recover_wish(&self) {
        const LOOKS: u32 = if cfg!(loom) { 1 } else { 1 << 20 };
        if self.queue.get(layout::CONTROL) & control::TAKE_BACK != 0 {
            for _ in 0..LOOKS {
                match self.withdraw() {
                    Ok(None) => relax(),
                    _ => return,
                }
            }
        }
    }
}
