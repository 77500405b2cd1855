//! What a copy has dropped of the blocks in its hand: their memory and their room.
//!
//! The counter of what was given back and the allocator's locks are written by several threads. While
//! a thread has several blocks in its hand, which take no longer than a batch does, what it drops is
//! kept here, and let go together: at the end, before the thread waits, as soon as somebody who waits
//! for room would have enough, and before it is much.

use std::cell::RefCell;

use bytes::Bytes;

use crate::ledger::Ledger;

/// No more blocks than this are kept.
const MOST_BLOCKS: usize = 32;

/// Nor more than one part in so many of the limit.
const PARTS: usize = 16;

/// Of one ledger.
struct Spent {
    ledger: &'static Ledger,
    room: usize,
    memory: Vec<Bytes>,
}

thread_local! {
    /// Of this thread, if it has several blocks in its hand.
    static SPENT: RefCell<Option<Spent>> = const { RefCell::new(None) };
}

/// From now on, until the value is dropped.
pub(crate) struct Spending;

impl Spending {
    /// What is dropped of that ledger.
    pub(crate) fn begin(ledger: &'static Ledger) -> Self {
        let memory = Vec::with_capacity(MOST_BLOCKS);
        SPENT.set(Some(Spent { ledger, room: 0, memory }));
        Self
    }
}

impl Drop for Spending {
    fn drop(&mut self) {
        settle();
        SPENT.set(None);
    }
}

impl Spent {
    /// Room that has to be given back now, of all.
    fn add(&mut self, room: usize, bytes: Bytes) -> bool {
        self.room += room;
        self.memory.push(bytes);
        self.memory.len() >= MOST_BLOCKS
            || self.room >= self.ledger.limit() / PARTS
            || self.ledger.is_enough(self.room)
    }
}

/// Lets go what was kept.
pub(crate) fn settle() {
    // Who frees memory may drop other blocks meanwhile.
    let (ledger, room, mut memory) = {
        let kept = SPENT.with_borrow_mut(|spent| {
            let spent = spent.as_mut().filter(|spent| spent.room > 0)?;
            Some((spent.ledger, std::mem::take(&mut spent.room), std::mem::take(&mut spent.memory)))
        });
        let Some(kept) = kept else { return };
        kept
    };
    memory.clear();
    ledger.give(room);
    SPENT.with_borrow_mut(|spent| {
        if let Some(spent) = spent.as_mut().filter(|spent| spent.memory.capacity() == 0) {
            spent.memory = memory;
        }
    });
}

/// Of a block that is dropped: its memory is free, and then its room.
pub(crate) fn drop_block(ledger: &'static Ledger, room: usize, bytes: Bytes) {
    let mut bytes = Some(bytes);
    // What a thread has kept is dropped when it ends, too.
    let is_much = SPENT.try_with(|spent| {
        let mut spent = spent.borrow_mut();
        let spent = spent.as_mut().filter(|spent| std::ptr::eq(spent.ledger, ledger))?;
        Some(spent.add(room, bytes.take().unwrap_or_default()))
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
