//! The bytes of a stream, and who waits for room in it.
//!
//! A limit in blocks fails both ways: with small ones it starves, with large ones it fills the
//! memory. So what is counted is bytes, from before a buffer is filled until the last use of the
//! block is over.
//!
//! What was ever taken and what was ever given back are two counters that only grow, so that those
//! who send and those who receive do not write to the same cache line for each block.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::unit::UnitId;
use crate::wakeup::Wakeup;

/// Nobody waits.
const NEVER: u64 = u64::MAX;

/// The account of one stream.
pub(crate) struct Ledger {
    limit: AtomicUsize,
    /// Room beyond it.
    lent: AtomicUsize,
    taken: Taken,
    given: Given,
    waiting: Mutex<Waiting>,
}

/// Written by those who take.
#[derive(Default)]
#[repr(align(128))]
struct Taken {
    ever: AtomicU64,
    /// What was given back at least: as somebody has seen it.
    given: AtomicU64,
    peak: AtomicU64,
}

/// Written by those who give back.
#[repr(align(128))]
struct Given {
    ever: AtomicU64,
    /// Those who wait are woken when so much was ever given back.
    wake_at: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    callers: Vec<Arc<Wakeup>>,
    /// The stream is no more, but there may be blocks of it.
    is_retired: bool,
    /// What is lent to each group of each unit.
    loans: BTreeMap<(UnitId, u64), usize>,
}

/// Ledgers of streams that are no more. A block points to its ledger as long as it lives, and a
/// count of references for that would cost two more atomic operations for each. So ledgers are not
/// freed, but used again: there are never more than there were streams at once.
static RETIRED: Mutex<Vec<&'static Ledger>> = Mutex::new(Vec::new());

impl Ledger {
    pub(crate) fn new(limit: usize) -> &'static Self {
        let used = RETIRED.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let ledger = used.unwrap_or_else(|| {
            let given = Given { ever: AtomicU64::new(0), wake_at: AtomicU64::new(NEVER) };
            Box::leak(Box::new(Self {
                limit: AtomicUsize::new(0),
                lent: AtomicUsize::new(0),
                taken: Taken::default(),
                given,
                waiting: Mutex::default(),
            }))
        });
        ledger.limit.store(limit, Ordering::Relaxed);
        ledger.taken.peak.store(0, Ordering::Relaxed);
        ledger
    }

    /// The stream is no more: when all is given back, another one may use this.
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

    /// What may be held with the group that everybody waits for: the limit, and what is lent.
    pub(crate) fn most(&self) -> usize {
        self.limit() + self.lent.load(Ordering::Relaxed)
    }

    /// What is held now, and the most that was.
    pub(crate) fn held(&self) -> (usize, usize) {
        // In this order: what is given back was taken before.
        let given = self.given.ever.load(Ordering::SeqCst);
        let taken = self.taken.ever.load(Ordering::SeqCst);
        let peak = self.taken.peak.load(Ordering::Relaxed) as usize;
        // Between the two, much may have been taken and given back.
        let held = (taken - given).min(self.limit().max(peak) as u64);
        (held as usize, peak)
    }

    /// Whether so much is held. What was given back is looked at only if it may be, not for each block.
    pub(crate) fn holds(&self, bytes: usize) -> bool {
        let ever = self.taken.ever.load(Ordering::Relaxed);
        let is_much = |given: u64| ever.saturating_sub(given) >= bytes as u64;
        if !is_much(self.taken.given.load(Ordering::Relaxed)) {
            return false;
        }
        let given = self.given.ever.load(Ordering::SeqCst);
        self.taken.given.store(given, Ordering::Relaxed);
        is_much(given)
    }

    /// Takes room for `bytes`, if no more than `most` are held then; false: there is none.
    pub(crate) fn reserve(&self, bytes: usize, most: usize) -> bool {
        self.lacks(bytes, most).is_none()
    }

    /// Takes room that there is not, for a block of that group of the unit, until it is the turn of
    /// the group or the unit ends. So much more may be held meanwhile, but only with what others wait
    /// for, which must find the room that is kept for it ([`Ledger::most`]).
    pub(crate) fn lend(&self, of: (UnitId, u64), bytes: usize) {
        let mut waiting = self.waiting();
        *waiting.loans.entry(of).or_default() += bytes;
        self.lent.fetch_add(bytes, Ordering::SeqCst);
        drop(waiting);
        self.add(bytes);
    }

    /// Takes back what was lent to that group of the unit and to those before it. Nobody has to wait for
    /// it: what is held beyond the limit is on its way, and nothing else was let in for it.
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

    /// It is the turn of that group.
    pub(crate) fn turn(&self, unit: UnitId, group: u64) {
        if self.lent.load(Ordering::Relaxed) > 0 {
            self.repay(unit, group);
        }
    }

    /// Takes room for what somebody else has found room for; what is held then.
    pub(crate) fn add(&self, bytes: usize) -> usize {
        let bytes = bytes as u64;
        let after = self.taken.ever.fetch_add(bytes, Ordering::SeqCst) + bytes;
        let held = after.saturating_sub(self.given.ever.load(Ordering::SeqCst));
        self.taken.peak.fetch_max(held, Ordering::Relaxed);
        held as usize
    }

    /// Takes room, or says how much has to be given back before there can be any, and how much was
    /// until now.
    fn lacks(&self, bytes: usize, most: usize) -> Option<(u64, u64)> {
        let most = most.min(self.most()) as u64;
        let mut taken = self.taken.ever.load(Ordering::SeqCst);
        loop {
            let after = taken + bytes as u64;
            let seen = self.taken.given.load(Ordering::Relaxed);
            let peak = self.taken.peak.load(Ordering::Relaxed);
            let mut held = after.saturating_sub(seen);
            if held > most.min(peak) {
                let given = self.given.ever.load(Ordering::SeqCst);
                self.taken.given.store(given, Ordering::Relaxed);
                held = after.saturating_sub(given);
                if held > most {
                    return Some((held - most, given));
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

    /// As [`Ledger::reserve`]; but if there is no room, the caller is woken when there may be, and
    /// when `patience` more has been given back.
    pub(crate) fn reserve_or_wait(
        &self,
        bytes: usize,
        most: usize,
        patience: usize,
        caller: &Arc<Wakeup>,
    ) -> bool {
        let Some((lack, given)) = self.lacks(bytes, most) else { return true };
        let mut waiting = self.waiting();
        if !waiting.callers.iter().any(|other| Arc::ptr_eq(other, caller)) {
            waiting.callers.push(Arc::clone(caller));
        }
        self.given.wake_at.fetch_min(given + lack.max(patience as u64), Ordering::SeqCst);
        drop(waiting);
        // Who gave back before that did not see it.
        self.reserve(bytes, most)
    }

    /// Gives back what was taken.
    pub(crate) fn give(&'static self, bytes: usize) {
        let bytes = bytes as u64;
        let ever = self.given.ever.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if ever >= self.given.wake_at.load(Ordering::SeqCst) {
            self.wake_all();
        }
    }

    /// Whether those who wait would be woken if so much were given back.
    pub(crate) fn is_enough(&self, bytes: usize) -> bool {
        let wake_at = self.given.wake_at.load(Ordering::Relaxed);
        wake_at != NEVER && self.given.ever.load(Ordering::Relaxed) + bytes as u64 >= wake_at
    }

    /// Whether somebody waits for room.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.given.wake_at.load(Ordering::SeqCst) != NEVER
    }

    /// Something has changed that those who wait have to know.
    pub(crate) fn wake_all(&'static self) {
        let mut waiting = self.waiting();
        let wake_at = match waiting.is_retired {
            true => self.taken.ever.load(Ordering::SeqCst),
            false => NEVER,
        };
        self.given.wake_at.store(wake_at, Ordering::SeqCst);
        let woken = std::mem::take(&mut waiting.callers);
        if waiting.is_retired && self.given.ever.load(Ordering::SeqCst) == wake_at {
            waiting.is_retired = false;
            self.given.wake_at.store(NEVER, Ordering::SeqCst);
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
    /// Of what was taken.
    pub(crate) fn new(ledger: &'static Ledger, bytes: usize) -> Self {
        Self { ledger, bytes }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What was taken, which is the caller's to give back.
    pub(crate) fn into_bytes(mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }

    /// A part of the share, for a part of the block.
    pub(crate) fn split(&mut self, bytes: usize) -> Charge {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Charge { ledger: self.ledger, bytes }
    }

    /// Both shares in one, of the same ledger.
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
        // Another test may have it by now.
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
        // Who has no turn gets nothing of it, and who has one what was kept for it.
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
        // When what was on its way has come, all is as before.
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
        // Without patience, as soon as there may be room.
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
