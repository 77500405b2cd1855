//! The bytes that a stream holds, and the callers that wait for room in it.
//!
//! A limit in blocks fails both ways: with small ones it starves, with large ones it fills the
//! memory. So the ledger counts bytes, from before a buffer is filled until the block is last used.
//!
//! It has two counters that only grow, of the bytes ever taken and the bytes ever given back, so
//! that senders and receivers do not write to the same cache line for each block.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory::wakeup::Wakeup;
use crate::policy::priority::UnitId;

/// No caller waits.
const NEVER: u64 = u64::MAX;

/// The account of one stream.
pub(crate) struct Ledger {
    limit: AtomicUsize,
    /// Room beyond it.
    lent: AtomicUsize,
    taken: TakenBytes,
    returned: ReturnedBytes,
    waiting: Mutex<Waiting>,
}

/// Written by those who take.
#[derive(Default)]
#[repr(align(128))]
struct TakenBytes {
    ever: AtomicU64,
    /// A lower bound of the bytes ever given back: the value last seen.
    returned: AtomicU64,
    peak: AtomicU64,
}

/// Written by those who give back.
#[repr(align(128))]
struct ReturnedBytes {
    ever: AtomicU64,
    /// Callers that wait are woken when this much was ever given back.
    wake_at: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    callers: Vec<Arc<Wakeup>>,
    /// The stream is gone, but there may still be blocks of it.
    is_retired: bool,
    /// Bytes lent to each group of each unit.
    loans: BTreeMap<(UnitId, u64), usize>,
}

/// Ledgers of streams that are gone. A block points to its ledger while it lives, and a reference
/// count for that would cost two more atomic operations for each block. So ledgers are not freed,
/// but reused: there are never more than there were streams at once.
static RETIRED: Mutex<Vec<&'static Ledger>> = Mutex::new(Vec::new());

impl Ledger {
    pub(crate) fn new(limit: usize) -> &'static Self {
        let used = RETIRED.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let ledger = used.unwrap_or_else(|| {
            let returned =
                ReturnedBytes { ever: AtomicU64::new(0), wake_at: AtomicU64::new(NEVER) };
            Box::leak(Box::new(Self {
                limit: AtomicUsize::new(0),
                lent: AtomicUsize::new(0),
                taken: TakenBytes::default(),
                returned,
                waiting: Mutex::default(),
            }))
        });
        ledger.limit.store(limit, Ordering::Relaxed);
        ledger.taken.peak.store(0, Ordering::Relaxed);
        ledger
    }

    /// The stream is gone: when everything is given back, another one may use this ledger.
    pub(crate) fn retire(&'static self) {
        let mut waiting = self.waiting();
        waiting.is_retired = true;
        waiting.loans.clear();
        self.lent.store(0, Ordering::SeqCst);
        drop(waiting);
        self.wake_all();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Bytes that may be held with the group that all others wait for: the limit, and what is lent.
    pub(crate) fn most(&self) -> usize {
        self.limit() + self.lent.load(Ordering::Relaxed)
    }

    /// Bytes held now, and the maximum so far.
    pub(crate) fn held(&self) -> (usize, usize) {
        // In this order: bytes given back were taken before.
        let returned = self.returned.ever.load(Ordering::SeqCst);
        let taken = self.taken.ever.load(Ordering::SeqCst);
        let peak = self.taken.peak.load(Ordering::Relaxed) as usize;
        // Between the two loads, much may have been taken and given back.
        let held = (taken - returned).min(self.limit().max(peak) as u64);
        (held as usize, peak)
    }

    /// Whether at least this much is held. Reads the counter of the other side only if needed, not
    /// for each block.
    pub(crate) fn holds(&self, bytes: usize) -> bool {
        let ever = self.taken.ever.load(Ordering::Relaxed);
        let is_much = |returned: u64| ever.saturating_sub(returned) >= bytes as u64;
        if !is_much(self.taken.returned.load(Ordering::Relaxed)) {
            return false;
        }
        let returned = self.returned.ever.load(Ordering::SeqCst);
        self.taken.returned.store(returned, Ordering::Relaxed);
        is_much(returned)
    }

    /// Takes room for `bytes`, if at most `most` are held then; false if there is none.
    pub(crate) fn reserve(&self, bytes: usize, most: usize) -> bool {
        self.lacks(bytes, most).is_none()
    }

    /// Takes room beyond the limit, for a block of that group of the unit, until the group's turn
    /// comes or the unit ends. Until then this much more may be held, but only for blocks that
    /// others wait for, which must find the room that is kept for them ([`Ledger::most`]).
    pub(crate) fn lend(&self, of: (UnitId, u64), bytes: usize) {
        let mut waiting = self.waiting();
        *waiting.loans.entry(of).or_default() += bytes;
        self.lent.fetch_add(bytes, Ordering::SeqCst);
        drop(waiting);
        self.add(bytes);
    }

    /// Takes back the loans to that group of the unit and to those before it. No caller has to
    /// wait: the bytes beyond the limit are about to be given back, and nothing else was admitted
    /// in their place.
    pub(crate) fn repay(&self, unit: UnitId, group: u64) {
        let mut waiting = self.waiting();
        let mut repaid = 0;
        waiting.loans.retain(|(of, lent), bytes| {
            let is_over = *of == unit && *lent <= group;
            repaid += if is_over { *bytes } else { 0 };
            !is_over
        });
        self.lent.fetch_sub(repaid, Ordering::SeqCst);
    }

    /// Notes that the turn of that group has come.
    pub(crate) fn turn(&self, unit: UnitId, group: u64) {
        if self.lent.load(Ordering::Relaxed) > 0 {
            self.repay(unit, group);
        }
    }

    /// Takes room that another process has found. Returns the bytes held then.
    pub(crate) fn add(&self, bytes: usize) -> usize {
        let bytes = bytes as u64;
        let after = self.taken.ever.fetch_add(bytes, Ordering::SeqCst) + bytes;
        let held = after.saturating_sub(self.returned.ever.load(Ordering::SeqCst));
        self.taken.peak.fetch_max(held, Ordering::Relaxed);
        held as usize
    }

    /// Takes room, or returns how much has to be given back before there can be any, and how much
    /// was given back so far.
    fn lacks(&self, bytes: usize, most: usize) -> Option<(u64, u64)> {
        let most = most.min(self.most()) as u64;
        let mut taken = self.taken.ever.load(Ordering::SeqCst);
        loop {
            let after = taken + bytes as u64;
            let seen = self.taken.returned.load(Ordering::Relaxed);
            let peak = self.taken.peak.load(Ordering::Relaxed);
            let mut held = after.saturating_sub(seen);
            if held > most.min(peak) {
                let returned = self.returned.ever.load(Ordering::SeqCst);
                self.taken.returned.store(returned, Ordering::Relaxed);
                held = after.saturating_sub(returned);
                if held > most {
                    return Some((held - most, returned));
                }
            }
            let ever = &self.taken.ever;
            match ever.compare_exchange_weak(taken, after, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    if held > peak {
                        self.taken.peak.fetch_max(held, Ordering::Relaxed);
                    }
                    return None;
                }
                Err(now) => taken = now,
            }
        }
    }

    /// As [`Ledger::reserve`]; but if there is no room, the caller is woken when there may be some,
    /// and at least `patience` more bytes have been given back.
    pub(crate) fn reserve_or_wait(
        &self,
        bytes: usize,
        most: usize,
        patience: usize,
        caller: &Arc<Wakeup>,
    ) -> bool {
        let Some((lack, returned)) = self.lacks(bytes, most) else { return true };
        let mut waiting = self.waiting();
        if !waiting.callers.iter().any(|other| Arc::ptr_eq(other, caller)) {
            waiting.callers.push(Arc::clone(caller));
        }
        self.returned.wake_at.fetch_min(returned + lack.max(patience as u64), Ordering::SeqCst);
        drop(waiting);
        // A giver that came before the store did not see it.
        self.reserve(bytes, most)
    }

    /// Gives back what was taken.
    pub(crate) fn give(&'static self, bytes: usize) {
        let bytes = bytes as u64;
        let ever = self.returned.ever.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if ever >= self.returned.wake_at.load(Ordering::SeqCst) {
            self.wake_all();
        }
    }

    /// Whether giving back this much would wake the callers that wait.
    pub(crate) fn is_enough(&self, bytes: usize) -> bool {
        let wake_at = self.returned.wake_at.load(Ordering::Relaxed);
        wake_at != NEVER && self.returned.ever.load(Ordering::Relaxed) + bytes as u64 >= wake_at
    }

    /// Whether a caller waits for room.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.returned.wake_at.load(Ordering::SeqCst) != NEVER
    }

    /// Wakes all callers that wait, because something has changed.
    pub(crate) fn wake_all(&'static self) {
        let mut waiting = self.waiting();
        let wake_at = match waiting.is_retired {
            true => self.taken.ever.load(Ordering::SeqCst),
            false => NEVER,
        };
        self.returned.wake_at.store(wake_at, Ordering::SeqCst);
        let woken = std::mem::take(&mut waiting.callers);
        if waiting.is_retired && self.returned.ever.load(Ordering::SeqCst) == wake_at {
            waiting.is_retired = false;
            self.returned.wake_at.store(NEVER, Ordering::SeqCst);
            RETIRED.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        }
        drop(waiting);
        woken.iter().for_each(|one| one.ring());
    }
}

/// A share of the limit, until it is dropped.
pub(crate) struct Charge {
    ledger: &'static Ledger,
    bytes: usize,
}

impl Charge {
    /// A charge for bytes that were taken.
    pub(crate) fn new(ledger: &'static Ledger, bytes: usize) -> Self {
        Self { ledger, bytes }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes taken, which the caller must give back.
    pub(crate) fn into_bytes(mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }

    /// Splits off a part of the share, for a part of the block.
    pub(crate) fn split(&mut self, bytes: usize) -> Charge {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Charge { ledger: self.ledger, bytes }
    }

    /// Joins two shares of the same ledger.
    pub(crate) fn join(&mut self, other: Charge) {
        debug_assert!(std::ptr::eq(self.ledger, other.ledger));
        self.bytes += other.into_bytes();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.ledger.give(self.bytes);
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (held, peak) = self.held();
        f.debug_struct("Ledger")
            .field("limit", &self.limit)
            .field("held", &held)
            .field("peak", &peak)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_is_taken_is_held_until_it_is_dropped() {
        let ledger = Ledger::new(100);
        let take = |bytes, most| ledger.reserve(bytes, most).then(|| Charge::new(ledger, bytes));
        let mut first = take(60, usize::MAX).unwrap();
        assert!(take(41, usize::MAX).is_none());
        assert!(take(10, 65).is_none(), "more than the caller may");
        let part = first.split(20);
        assert_eq!((first.bytes(), part.bytes()), (40, 20));
        drop(first);
        assert_eq!(ledger.held(), (20, 60));
        let rest = take(80, usize::MAX).unwrap();
        drop((part, rest));
        assert_eq!(ledger.held(), (0, 100));
    }

    #[test]
    fn a_ledger_is_used_again_when_all_is_given_back() {
        let is_free = |ledger: &Ledger| {
            RETIRED.lock().unwrap().iter().any(|other| std::ptr::eq(*other, ledger))
        };
        let ledger = Ledger::new(1 << 40);
        assert!(ledger.reserve(30, usize::MAX));
        let [first, second] = [10, 20].map(|bytes| Charge::new(ledger, bytes));
        drop(first);
        ledger.retire();
        assert!(ledger.waiting().is_retired && !is_free(ledger));
        drop(second);
        // Another test may be using it by now.
        assert!(is_free(ledger) || ledger.limit() != 1 << 40);
    }

    #[test]
    fn what_is_lent_is_taken_back() {
        let ledger = Ledger::new(100);
        assert!(ledger.reserve(75, 75));
        ledger.lend((UnitId(1), 5), 30);
        ledger.lend((UnitId(1), 7), 20);
        ledger.lend((UnitId(2), 0), 10);
        assert_eq!((ledger.limit(), ledger.most(), ledger.held().0), (100, 160, 135));
        // Without a turn there is none of it, and with one there is what was kept.
        assert!(!ledger.reserve(1, 75) && !ledger.reserve(26, ledger.most()));
        assert!(ledger.reserve(25, ledger.most()));
        ledger.give(25);
        ledger.turn(UnitId(1), 4);
        assert_eq!(ledger.most(), 160);
        ledger.turn(UnitId(1), 6);
        assert_eq!(ledger.most(), 130);
        ledger.repay(UnitId(1), u64::MAX);
        assert_eq!(ledger.most(), 110);
        ledger.repay(UnitId(2), u64::MAX);
        assert_eq!(ledger.most(), 100);
        // When everything on its way has arrived, the state is as before.
        assert!(!ledger.reserve(1, ledger.most()));
        ledger.give(60);
        assert!(ledger.reserve(25, ledger.most()) && !ledger.reserve(1, ledger.most()));
    }

    #[test]
    fn the_peak_is_what_was_held_and_not_what_was_seen() {
        let ledger = Ledger::new(1000);
        for _ in 0..100 {
            assert!(ledger.reserve(10, usize::MAX));
            ledger.give(10);
        }
        assert_eq!(ledger.held(), (0, 10));
        assert!(ledger.reserve(10, usize::MAX) && ledger.holds(10) && !ledger.holds(11));
        ledger.give(10);
        assert!(!ledger.holds(10));
    }

    #[test]
    fn who_waits_is_woken_when_it_pays() {
        let ledger = Ledger::new(100);
        let own = Arc::default();
        assert!(ledger.reserve(100, usize::MAX));
        assert!(!ledger.reserve_or_wait(10, usize::MAX, 25, &own));
        ledger.give(24);
        assert!(ledger.is_waited_for());
        ledger.give(1);
        assert!(!ledger.is_waited_for());
        own.wait();
        // Without patience, it is woken when there may be room.
        assert!(!ledger.reserve_or_wait(60, usize::MAX, 0, &own));
        ledger.give(34);
        assert!(ledger.is_waited_for());
        ledger.give(1);
        own.wait();
        assert!(ledger.reserve(60, usize::MAX));
    }

    #[test]
    fn no_room_is_overdrawn_and_nobody_forgotten() {
        let ledger = Ledger::new(100);
        let takers: Vec<_> = (0..3)
            .map(|at| {
                let own = Arc::<Wakeup>::default();
                let belongs = Arc::clone(&own);
                let thread = thread::spawn(move || {
                    for round in 0..20_000_u64 {
                        let bytes = 1 + (round * 7 + at) as usize % 60;
                        while !ledger.reserve_or_wait(bytes, usize::MAX, 0, &own) {
                            own.wait();
                        }
                        ledger.give(bytes);
                    }
                });
                belongs.belongs_to(thread.thread().clone());
                thread
            })
            .collect();
        takers.into_iter().for_each(|thread| thread.join().unwrap());
        let (held, peak) = ledger.held();
        assert!(held == 0 && peak <= 100, "{held} {peak}");
    }
}
