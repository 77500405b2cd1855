//! The processes that hold an end: the one that joined the memories, and its forks.

use super::pair::{Memory, QueuePair};
use crate::layout;
use crate::mem::{OwnMemory, PeerMemory};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::thread::process_is_alive;

/// Set in the word of a holder that has begun an exec: the program that it becomes may not have the
/// socket.
const EXECUTES: u64 = 1 << 32;

/// In the upper half of the word of pending forks: children for which there was no place among the
/// holders.
const UNLISTED: u64 = 1 << 32;

/// Enters a process among the holders of an end, which the peer may see before the two are joined:
/// if necessary, in place of one that has ended without leaving. False if no place is left.
pub fn add_holder(own: &impl OwnMemory, pid: u32) -> bool {
    enter_process(
        || (0..layout::HOLDER_SLOTS).map(|slot| own.word(layout::HOLDERS + slot * 8)),
        pid,
    )
}

/// As [`add_holder`], among these words.
pub fn enter_process<'w, W: Iterator<Item = &'w AtomicU64>>(
    words: impl Fn() -> W,
    pid: u32,
) -> bool {
    let take = |word: &AtomicU64, from: u64| {
        word.compare_exchange(from, pid.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    words().any(|word| take(word, 0))
        || words().any(|word| {
            let holder = word.load(Ordering::Acquire);
            !process_is_alive(holder as u32) && take(word, holder)
        })
}

impl<O: Memory, P: PeerMemory> QueuePair<O, P> {
    /// Enters a process among the holders of this end. False if no place is left.
    pub fn add_holder(&self, pid: u32) -> bool {
        add_holder(&self.own, pid)
    }

    /// A fork is about to happen: an unknown process may hold this end from now on.
    pub fn fork_pending(&self) {
        self.own.word(layout::FORKS_PENDING).fetch_add(1, Ordering::AcqRel);
    }

    /// The child of a fork, which must have been announced, holds this end.
    pub fn fork_arrived(&self, pid: u32) {
        let pending = self.own.word(layout::FORKS_PENDING);
        if self.add_holder(pid) {
            pending.fetch_sub(1, Ordering::AcqRel);
        } else {
            pending.fetch_add(UNLISTED - 1, Ordering::AcqRel);
        }
    }

    /// Whether children hold this end, or did, for which there was no place among the holders.
    #[must_use]
    pub fn has_unlisted_holders(&self) -> bool {
        self.own.word(layout::FORKS_PENDING).load(Ordering::Acquire) >= UNLISTED
    }

    /// Forgets the children for which there was no place, unless the socket is `held_elsewhere`, or
    /// another one comes meanwhile. `pid`, which holds it, may be one of them, and is listed.
    pub fn forget_unlisted(&self, pid: u32, held_elsewhere: impl FnOnce() -> bool) {
        let word = self.own.word(layout::FORKS_PENDING);
        let seen = word.load(Ordering::Acquire);
        let is_other = |holder: u32| holder != 0 && holder != pid && process_is_alive(holder);
        if seen >= UNLISTED
            && seen % UNLISTED == 0
            && !self.holders().any(|(_, holder)| is_other(holder))
            && !held_elsewhere()
            && (self.holders().any(|(_, holder)| holder == pid) || self.add_holder(pid))
        {
            let _ = word.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The fork that was announced failed.
    pub fn fork_failed(&self) {
        let lower = |now: u64| (now % UNLISTED != 0).then(|| now - 1);
        let pending = self.own.word(layout::FORKS_PENDING);
        let _ = pending.fetch_update(Ordering::AcqRel, Ordering::Relaxed, lower);
    }

    /// Whether a process that the peer lists as a holder of its end can hold it, by its number, or
    /// is about to be forked.
    #[must_use]
    pub fn peer_has_holder(&self, can_hold: impl Fn(u32) -> bool) -> bool {
        let holders = || (0..layout::HOLDER_SLOTS).map(|slot| layout::HOLDERS + slot * 8);
        self.peer.load(layout::FORKS_PENDING, Ordering::Acquire) != 0
            || holders().any(|holder| match self.peer.load(holder, Ordering::Acquire) as u32 {
                0 => false,
                pid => can_hold(pid),
            })
    }

    /// Whether no other process can hold this end.
    #[must_use]
    pub fn is_only_holder(&self, pid: u32) -> bool {
        let others = || self.holders().filter(|(_, holder)| *holder != 0 && *holder != pid);
        self.own.word(layout::FORKS_PENDING).load(Ordering::Acquire) == 0
            && !others().any(|(_, holder)| process_is_alive(holder))
    }

    /// The processes that hold this end.
    #[must_use]
    pub fn all_holders(&self) -> Vec<u32> {
        self.holders().map(|(_, holder)| holder).filter(|holder| *holder != 0).collect()
    }

    /// Whether one of these processes still holds this end.
    #[must_use]
    pub fn is_held_by(&self, pids: &[u32]) -> bool {
        self.holders().any(|(_, holder)| pids.contains(&holder) && process_is_alive(holder))
    }

    /// A holder begins an exec.
    pub fn exec_begins(&self, pid: u32) {
        for (word, _) in self.holders().filter(|(_, holder)| *holder == pid) {
            word.fetch_or(EXECUTES, Ordering::AcqRel);
        }
    }

    /// The exec of a holder failed.
    pub fn exec_failed(&self, pid: u32) {
        for (word, _) in self.holders().filter(|(_, holder)| *holder == pid) {
            word.fetch_and(!EXECUTES, Ordering::AcqRel);
        }
    }

    /// Removes from the holders those other than `pid` that have executed programs without the
    /// socket.
    pub fn remove_successors(&self, pid: u32, has_socket: impl Fn(u32) -> bool) {
        for (word, holder) in self.holders().filter(|(_, holder)| *holder != pid) {
            let seen = word.load(Ordering::Acquire);
            if seen == u64::from(holder) | EXECUTES && !has_socket(holder) {
                let _ = word.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Removes a process from the holders. Returns whether it was the last one that can be alive.
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
