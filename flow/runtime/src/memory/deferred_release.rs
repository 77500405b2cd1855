//! Collects the memory and room of blocks that a copy drops while it has several in its batch.
//!
//! Several threads write the ledger's counter of returned bytes and the allocator's locks. While a
//! thread has several blocks in its batch, which mostly take no longer than `BATCH`, dropped blocks
//! are kept here and released together: at the end, before the thread waits, as soon as a caller
//! that waits for room would have enough, and before they are many.

use std::cell::RefCell;

use bytes::Bytes;

use crate::memory::ledger::Ledger;

/// Most blocks that are kept.
const MOST_BLOCKS: usize = 32;

/// At most this fraction of the limit is kept: one part in so many.
const PARTS: usize = 16;

/// Dropped blocks of one ledger.
struct PendingRelease {
    ledger: &'static Ledger,
    room: usize,
    memory: Vec<Bytes>,
}

thread_local! {
    /// `Some` if this thread has several blocks in its batch.
    static PENDING: RefCell<Option<PendingRelease>> = const { RefCell::new(None) };
}

/// Collects dropped blocks until it is dropped.
pub(crate) struct DeferredRelease;

impl DeferredRelease {
    /// Collects dropped blocks of that ledger.
    pub(crate) fn begin(ledger: &'static Ledger) -> Self {
        let memory = Vec::with_capacity(MOST_BLOCKS);
        PENDING.set(Some(PendingRelease { ledger, room: 0, memory }));
        Self
    }
}

impl Drop for DeferredRelease {
    fn drop(&mut self) {
        settle();
        PENDING.set(None);
    }
}

impl PendingRelease {
    /// True if the blocks should be released.
    fn add(&mut self, room: usize, bytes: Bytes) -> bool {
        self.room += room;
        self.memory.push(bytes);
        self.memory.len() >= MOST_BLOCKS
            || self.room >= self.ledger.limit() / PARTS
            || self.ledger.is_enough(self.room)
    }
}

/// Releases the collected blocks.
pub(crate) fn settle() {
    let kept = PENDING.with_borrow_mut(|pending| {
        let pending = pending.as_mut().filter(|pending| pending.room > 0)?;
        let room = std::mem::take(&mut pending.room);
        Some((pending.ledger, room, std::mem::take(&mut pending.memory)))
    });
    // Freeing memory may drop other blocks meanwhile.
    let Some((ledger, room, mut memory)) = kept else { return };
    memory.clear();
    ledger.give(room);
    PENDING.with_borrow_mut(|pending| {
        if let Some(pending) = pending.as_mut().filter(|pending| pending.memory.is_empty()) {
            pending.memory = memory;
        }
    });
}

/// Releases the memory of a dropped block, and then its room.
pub(crate) fn drop_block(ledger: &'static Ledger, room: usize, bytes: Bytes) {
    let mut bytes = Some(bytes);
    // When a thread ends, its thread-local blocks are also dropped.
    let is_much = PENDING.try_with(|pending| {
        let mut pending = pending.borrow_mut();
        let pending = pending.as_mut().filter(|pending| std::ptr::eq(pending.ledger, ledger))?;
        Some(pending.add(room, bytes.take().unwrap_or_default()))
    });
    match is_much {
        Ok(Some(false)) => {}
        Ok(Some(true)) => settle(),
        _ => {
            drop(bytes);
            ledger.give(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::wakeup::Wakeup;

    #[test]
    fn what_is_kept_is_let_go_before_it_is_much_and_at_the_end() {
        let [ledger, other] = [(); 2].map(|()| Ledger::new(1600));
        let held = || ledger.held().0;
        assert!(ledger.reserve(1000, usize::MAX) && other.reserve(10, usize::MAX));
        drop_block(ledger, 10, Bytes::new());
        assert_eq!(held(), 990, "nothing is in the batch");
        let deferred = DeferredRelease::begin(ledger);
        drop_block(ledger, 50, Bytes::from_static(b"x"));
        drop_block(other, 10, Bytes::new());
        assert_eq!((held(), other.held().0), (990, 0));
        drop_block(ledger, 50, Bytes::new());
        assert_eq!(held(), 890, "a part of the limit");
        (0..MOST_BLOCKS).for_each(|_| drop_block(ledger, 1, Bytes::new()));
        assert_eq!(held(), 890 - MOST_BLOCKS);
        drop_block(ledger, 3, Bytes::new());
        drop(deferred);
        assert_eq!(held(), 887 - MOST_BLOCKS);
    }

    #[test]
    fn who_waits_gets_what_is_kept() {
        let ledger = Ledger::new(1600);
        let own = Arc::<Wakeup>::default();
        assert!(ledger.reserve(1600, usize::MAX));
        let _deferred = DeferredRelease::begin(ledger);
        drop_block(ledger, 40, Bytes::new());
        assert!(!ledger.reserve_or_wait(60, usize::MAX, 0, &own));
        drop_block(ledger, 19, Bytes::new());
        assert!(ledger.is_waited_for());
        drop_block(ledger, 1, Bytes::new());
        own.wait();
        assert!(ledger.reserve(60, usize::MAX));
    }
}
