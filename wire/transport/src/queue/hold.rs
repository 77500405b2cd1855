//! Holding bytes back until more follow, as TCP does for TCP_CORK and MSG_MORE (tcp(7)): less than
//! a full segment waits for the rest of it, for at most 200 ms.
//!
//! The sender publishes records as always, so nothing is lost if it dies. But first it writes the
//! position from which on records are held back, and the end of the hold. The receiver finds
//! nothing there ([`QueuePair::look_at`]) until the hold ends: the sender clears the position, its
//! direction ends or leaves the ring, or the limit expires. A hold for MSG_MORE also ends when the
//! receiver sends bytes: TCP goes on at the next acknowledgement, which may come with them.
//!
//! Nobody rings when the limit expires, so a receiver that sleeps has to know of the hold. The
//! sender rings for the first record that it holds back. A receiver that goes to sleep arms, notes
//! the hold ([`QueuePair::note_hold`]), looks, and sleeps no longer than the hold lasts.
//!
//! Bytes that were seen are never hidden again: poll may have called them readable, and a receive
//! must find them. So no hold is prolonged, and the receiver reads all words of one and the same
//! hold.
//!
//! Both ends must read the same clock: ends on two machines hold nothing back. A receiver that
//! finds that the clocks differ, as those of two time namespaces do (time_namespaces(7)), holds
//! nothing back any more. A peer that lies about the time can make its bytes visible early, or 200
//! ms late, as if it had sent them then.

use std::time::Duration;

use super::pair::{QueueMemory, QueuePair, Violation};
use super::tx::Tx;
use crate::iov::Gather;
use crate::layout::{self, holds};
use crate::mem::PeerMemory;
use crate::sync::Ordering;

/// The longest time for which the kernel's TCP holds bytes back.
const LIMIT: Duration = Duration::from_millis(200);

/// Set in the word of the known hold if not all waiters know of it.
const NOT_BY_ALL: u64 = 1 << 63;

/// If a peer's hold changes this often during one look, nothing is held back.
const MOST_CHANGES: usize = 8;

/// The records that the peer holds back.
pub(super) struct HeldRecords {
    /// Where it begins.
    pub(super) position: u64,
    /// Bytes published before it.
    pub(super) bytes: u64,
    left: Duration,
}

/// The clock of this machine. In a model, no time passes, and each hold lasts.
fn now() -> Duration {
    if cfg!(loom) { Duration::ZERO } else { Duration::from_nanos(crate::sys::host::nanoseconds()) }
}

impl<O: QueueMemory, P: PeerMemory> QueuePair<O, P> {
    /// Whether a record at this position is held back. The sender begins a hold before it publishes
    /// the records, and ends the previous one first: a receiver that has seen the record sees its
    /// hold, a later one, or none.
    #[inline]
    pub(super) fn is_held(&self, position: u64) -> bool {
        self.hold().is_some_and(|hold| position >= hold.position)
    }

    #[inline]
    pub(super) fn hold(&self) -> Option<HeldRecords> {
        let from = self.peer.load(layout::HELD_FROM, Ordering::Acquire);
        if from == 0 { None } else { self.hold_from(from) }
    }

    #[cold]
    fn hold_from(&self, mut from: u64) -> Option<HeldRecords> {
        let is_over = self.get(layout::RX_UNHELD) != 0
            || self.peer_is_shut()
            || self.peer_has_closed()
            || self.peer_has_left_ring();
        if is_over {
            return None;
        }
        let load = |word| self.peer.load(word, Ordering::Acquire);
        for _ in 0..MOST_CHANGES {
            let of = [layout::HELD_UNTIL, layout::HELD_BYTES, layout::HELD_ANSWER].map(load);
            // All words must be of one hold: the next one would prolong one that has expired.
            let again = load(layout::HELD_FROM);
            if again == from {
                return self.hold_of(from - 1, of);
            }
            from = again;
            if from == 0 {
                break;
            }
        }
        None
    }

    fn hold_of(&self, position: u64, [until, bytes, answer]: [u64; 3]) -> Option<HeldRecords> {
        // Answers that other programs give to the kernel are not counted.
        if self.sent_mark() >= answer || (answer != u64::MAX && self.get(layout::TX_UNCOUNTED) != 0)
        {
            return None;
        }
        let left = Duration::from_nanos(until).checked_sub(now())?;
        if left > LIMIT {
            // The clocks differ. Bytes that became visible because of that must not be hidden when
            // the time looks right again.
            self.set(layout::RX_UNHELD, 1);
            return None;
        }
        (!left.is_zero()).then_some(HeldRecords { position, bytes, left })
    }

    /// From now on, this end sees the records that the peer holds back.
    pub fn end_hold(&self) {
        self.set(layout::RX_UNHELD, 1);
    }

    /// For a caller that is armed for data and looks once more before it sleeps: the longest time
    /// that the sleep may last, if the peer holds bytes back.
    pub fn note_hold(&self) -> Option<Duration> {
        let Some(hold) = self.hold() else {
            if self.get(layout::KNOWN_HOLD) != 0 {
                // Fenced: either the peer sees this, or the look that follows sees its records.
                self.own.store_fenced(layout::KNOWN_HOLD, 0);
            }
            return None;
        };
        let from = hold.position + 1;
        // Another waiter may have gone to sleep before the hold began, and not know of it.
        let is_only_one = self.number_of_readers() == 1;
        if is_only_one || self.get(layout::KNOWN_HOLD) != from {
            let known = if is_only_one { from } else { from | NOT_BY_ALL };
            // Fenced: either a send of this end that ends the hold sees this, or the look that follows
            // sees its bytes.
            self.own.store_fenced(layout::KNOWN_HOLD, known);
        }
        Some(hold.left)
    }

    /// Whether the peer holds bytes back, and a waiter that sleeps may not know it.
    #[must_use]
    pub fn has_unnoted_hold(&self) -> bool {
        self.hold().is_some_and(|hold| self.get(layout::KNOWN_HOLD) != hold.position + 1)
    }

    /// Grows with the bytes that this end has sent and does not hold back; for the peer's view, see
    /// [`Self::peer_sent_mark`].
    fn sent_mark(&self) -> u64 {
        self.shown_bytes() + self.get(layout::TX_TCP_BYTES) + u64::from(self.is_shut())
    }

    /// Total bytes that this end has published and does not hold back.
    fn shown_bytes(&self) -> u64 {
        let load = |word| self.own.word(word).load(Ordering::Acquire);
        // In the reverse order of `Tx::begin_hold`.
        let is_held = load(layout::TX_HOLDS) & holds::HELD != 0
            && Duration::from_nanos(load(layout::HELD_UNTIL)) > now();
        load(if is_held { layout::HELD_BYTES } else { layout::PUBLISHED_BYTES })
    }

    /// As [`Self::unsent`], without the bytes that this end holds back, which the peer could not
    /// take.
    #[must_use]
    pub fn unsent_and_shown(&self) -> usize {
        let consumed = self.peer.load(layout::CONSUMED_BYTES, Ordering::Acquire);
        self.shown_bytes().saturating_sub(consumed) as usize + self.to_retransmit()
    }

    fn peer_sent_mark(&self) -> u64 {
        let by_tcp = self.peer.load(layout::TX_TCP_BYTES, Ordering::Relaxed);
        self.released_bytes().wrapping_add(by_tcp).wrapping_add(self.peer_is_shut().into())
    }

    /// Whether the peer holds bytes back.
    #[inline]
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.hold().is_some()
    }

    /// The peer has gone: from now on this end sees all records. True if one is there that it may
    /// not have seen before.
    pub fn unhold(&self) -> bool {
        if self.is_holding() {
            self.set(layout::RX_UNHELD, 1);
        }
        // In any case: the hold may have ended since the caller found nothing.
        self.has_record()
    }

    /// Whether the next send of this end may have to hold its bytes back, or to end a hold.
    #[inline]
    #[must_use]
    pub fn holds(&self) -> bool {
        self.own.word(layout::TX_HOLDS).load(Ordering::Relaxed) != 0
    }

    fn has_hold(&self, bit: u64) -> bool {
        self.own.word(layout::TX_HOLDS).load(Ordering::Relaxed) & bit != 0
    }
}

impl<O: QueueMemory, P: PeerMemory> Tx<'_, O, P> {
    /// As [`Tx::push`], if the socket is corked, `more` follows, or bytes are held back already.
    /// Full segments of `segment` bytes are not held back, and nothing is when the ring is full.
    ///
    /// # Errors
    /// [`Violation`].
    #[cold]
    pub fn push_held(
        &self,
        from: &mut Gather<'_>,
        more: bool,
        segment: usize,
    ) -> Result<usize, Violation> {
        let q = self.queue;
        if from.remaining() == 0 {
            return Ok(0);
        }
        let is_corked = q.has_hold(holds::CORKED);
        let has_ended = q.has_hold(holds::ENDED) && self.release();
        if !more && !is_corked {
            let pushed = self.push(from);
            self.release();
            return pushed;
        }
        let held = self.held();
        let total = held + from.remaining();
        let full = total - total % segment.max(1);
        let mut done = 0;
        if full > 0 {
            done += self.push_front(from, full.saturating_sub(held))?;
            self.release();
        }
        if from.remaining() > 0 {
            // Bytes that are released now are acknowledged at once. TCP then sends the rest, unless
            // the socket is corked.
            if is_corked || !(has_ended || full > 0) {
                self.begin_hold();
            }
            done += self.push_front(from, from.remaining())?;
        }
        if from.remaining() > 0 || !q.has_room() {
            self.release();
        }
        Ok(done)
    }

    fn push_front(&self, from: &mut Gather<'_>, len: usize) -> Result<usize, Violation> {
        let pushed = self.push(&mut from.front(len))?;
        from.take(pushed, |_| ());
        Ok(pushed)
    }

    /// Tells all processes that share this end whether the application has corked the socket.
    pub fn set_corked(&self, corked: bool) {
        let q = self.queue;
        let word = q.own.word(layout::TX_HOLDS);
        if corked {
            // A hold for MSG_MORE still ends at an answer, which may be there already.
            word.fetch_or(holds::CORKED, Ordering::Relaxed);
        } else {
            word.fetch_and(!holds::CORKED, Ordering::Relaxed);
        }
    }

    /// Notes that more bytes release those that are held back now.
    pub fn end_record(&self) {
        if self.is_holding() {
            self.queue.own.word(layout::TX_HOLDS).fetch_or(holds::ENDED, Ordering::Relaxed);
        }
    }

    /// Whether bytes are still held back.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.held() > 0
    }

    fn held(&self) -> usize {
        let q = self.queue;
        if !q.has_hold(holds::HELD) {
            return 0;
        }
        if Duration::from_nanos(q.get(layout::HELD_UNTIL)) <= now()
            || q.peer_sent_mark() >= q.get(layout::HELD_ANSWER)
        {
            self.release();
            return 0;
        }
        q.get(layout::PUBLISHED_BYTES).saturating_sub(q.get(layout::HELD_BYTES)) as usize
    }

    /// Holds back records that are published from now on, if nothing is held back yet.
    fn begin_hold(&self) {
        let q = self.queue;
        if q.has_hold(holds::HELD) {
            return;
        }
        let is_corked = q.has_hold(holds::CORKED);
        let answer = if is_corked { u64::MAX } else { q.peer_sent_mark().saturating_add(1) };
        // A reader that sees one of these words also sees that the previous hold has ended.
        q.set_in_order(layout::HELD_BYTES, q.get(layout::PUBLISHED_BYTES));
        q.set_in_order(layout::HELD_UNTIL, (now() + LIMIT).as_nanos() as u64);
        q.set_in_order(layout::HELD_ANSWER, answer);
        q.own.word(layout::TX_HOLDS).fetch_or(holds::HELD, Ordering::Release);
        q.set_in_order(layout::HELD_FROM, q.get(layout::TX_POSITION) + 1);
    }

    /// Whether the bytes that this end has sent end a hold of the peer that other threads of this
    /// end have noted and may sleep on.
    #[inline]
    #[must_use]
    pub fn ends_noted_hold(&self) -> bool {
        self.queue.get(layout::KNOWN_HOLD) != 0 && self.ends_hold()
    }

    #[cold]
    fn ends_hold(&self) -> bool {
        let q = self.queue;
        let known = q.get(layout::KNOWN_HOLD) & !NOT_BY_ALL;
        let is_noted = q.peer.load(layout::HELD_FROM, Ordering::Acquire) == known;
        is_noted && q.has_readers() && !QueuePair::is_holding(q)
    }

    /// Makes all published records visible to the receiver. True if any were held back.
    #[inline]
    pub fn release(&self) -> bool {
        let q = self.queue;
        let was_held = q.has_hold(holds::HELD);
        if was_held {
            q.set_in_order(layout::HELD_FROM, 0);
            let none = !(holds::HELD | holds::ENDED);
            q.own.word(layout::TX_HOLDS).fetch_and(none, Ordering::Relaxed);
        }
        was_held
    }

    /// Whether records are held back, and their only waiter has noted it.
    #[cold]
    pub(super) fn is_known_hold(&self) -> bool {
        let q = self.queue;
        let from = q.get(layout::HELD_FROM);
        from != 0 && q.peer.load(layout::KNOWN_HOLD, Ordering::Relaxed) == from
    }
}
