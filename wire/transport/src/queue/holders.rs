//! The processes that hold an end: the one that joined the memories, and its forks.

use super::pair::{QueueMemory, QueuePair};
use crate::layout;
use crate::mem::{OwnMemory, PeerMemory};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::thread;

/// Set in the word of a holder that has begun an exec: the program that it becomes may not have the
/// socket.
const EXECUTES: u64 = 1 << 32;
/// With [`EXECUTES`]: it does not have the socket.
const LEAVES: u64 = 1 << 33;
/// Above these are the low bits of the number of the namespace in which the holder's id counts; 0 if
/// that is unknown.
const NAMESPACE: u32 = 34;

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
    let own = process_word(pid);
    let take = |word: &AtomicU64, from: u64| {
        word.compare_exchange(from, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    words().any(|word| take(word, 0))
        || words().any(|word| {
            let holder = Holder::of(word);
            !holder.can_live() && take(word, holder.0)
        })
}

/// The word for a process of this namespace.
#[must_use]
pub fn process_word(pid: u32) -> u64 {
    u64::from(pid) | thread::namespace() << NAMESPACE
}

/// Takes a process of this namespace off these words.
pub fn remove_process<'w>(words: impl Iterator<Item = &'w AtomicU64>, pid: u32) {
    words.filter(|word| Holder::of(word).is(pid)).for_each(|word| word.store(0, Ordering::Release));
}

/// Whether this word has a process that may be alive, and is not `pid`.
#[must_use]
pub fn is_other_process(word: u64, pid: u32) -> bool {
    let holder = Holder(word);
    holder.is_somebody() && !holder.is(pid) && holder.can_live()
}

/// The word of a holder, or 0.
#[derive(Clone, Copy)]
struct Holder(u64);

impl Holder {
    fn of(word: &AtomicU64) -> Self {
        Self(word.load(Ordering::Acquire))
    }

    fn is_somebody(self) -> bool {
        self.0 != 0
    }

    fn pid(self) -> u32 {
        self.0 as u32
    }

    /// Whether its id means nothing here, or another process.
    fn is_stranger(self) -> bool {
        let (here, there) = (thread::namespace() << NAMESPACE >> NAMESPACE, self.0 >> NAMESPACE);
        here != 0 && there != 0 && here != there
    }

    /// Whether it is this process of this namespace.
    fn is(self, pid: u32) -> bool {
        self.pid() == pid && !self.is_stranger()
    }

    fn can_live(self) -> bool {
        self.is_stranger() || thread::process_is_alive(self.pid())
    }
}

impl<O: QueueMemory, P: PeerMemory> QueuePair<O, P> {
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
        let unlisted = if self.add_holder(pid) { 0 } else { UNLISTED };
        let arrive = |now: u64| Some(now - u64::from(now % UNLISTED != 0) + unlisted);
        let _ = pending.fetch_update(Ordering::AcqRel, Ordering::Relaxed, arrive);
    }

    /// Whether processes hold this end, or did, that are not to be found by their ids: children for
    /// which there was no place among the holders, and those in another namespace.
    #[must_use]
    pub fn has_unlisted_holders(&self) -> bool {
        self.own.word(layout::FORKS_PENDING).load(Ordering::Acquire) >= UNLISTED
            || self.holders().any(|(_, holder)| holder.is_somebody() && holder.is_stranger())
    }

    /// Forgets the children for which there was no place, unless the socket is `held_elsewhere`, or
    /// another one comes meanwhile. `pid`, which holds it, may be one of them, and is listed. Those
    /// that have not begun yet, or have died before, are forgotten `with_pending` alone: mostly they
    /// begin at once.
    pub fn forget_unlisted(
        &self,
        pid: u32,
        with_pending: impl FnOnce() -> bool,
        held_elsewhere: impl FnOnce() -> bool,
    ) {
        let word = self.own.word(layout::FORKS_PENDING);
        let seen = word.load(Ordering::Acquire);
        if seen > 0
            && !self.has_other_holder(pid)
            && (seen % UNLISTED == 0 || with_pending())
            && !held_elsewhere()
            && (self.holders().any(|(_, holder)| holder.is(pid)) || self.add_holder(pid))
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
        self.peer_has_unlisted()
            || self.peer_lists(|holder| holder.is_stranger() || can_hold(holder.pid()))
    }

    /// As [`Self::peer_has_holder`], where TCP has ended: without those that have become programs
    /// which do not have the socket.
    #[must_use]
    pub fn peer_has_holder_left(&self, can_hold: impl Fn(u32) -> bool) -> bool {
        let stays = |holder: Holder| {
            holder.0 & LEAVES == 0 && (holder.is_stranger() || can_hold(holder.pid()))
        };
        self.peer_has_unlisted() || self.peer_lists(stays)
    }

    fn peer_has_unlisted(&self) -> bool {
        self.peer.load(layout::FORKS_PENDING, Ordering::Acquire) != 0
    }

    fn peer_lists(&self, is_holder: impl Fn(Holder) -> bool) -> bool {
        (0..layout::HOLDER_SLOTS).any(|slot| {
            let holder = Holder(self.peer.load(layout::HOLDERS + slot * 8, Ordering::Acquire));
            holder.is_somebody() && is_holder(holder)
        })
    }

    /// Whether no other process can hold this end.
    #[must_use]
    pub fn is_only_holder(&self, pid: u32) -> bool {
        self.own.word(layout::FORKS_PENDING).load(Ordering::Acquire) == 0
            && !self.has_other_holder(pid)
    }

    fn has_other_holder(&self, pid: u32) -> bool {
        self.holders().any(|(_, holder)| is_other_process(holder.0, pid))
    }

    /// The processes that hold this end.
    #[must_use]
    pub fn all_holders(&self) -> Vec<u32> {
        let holders = self.holders().map(|(_, holder)| holder);
        holders.filter(|holder| holder.is_somebody()).map(Holder::pid).collect()
    }

    /// Whether one of these processes still holds this end.
    #[must_use]
    pub fn is_held_by(&self, pids: &[u32]) -> bool {
        self.holders().any(|(_, holder)| pids.contains(&holder.pid()) && holder.can_live())
    }

    /// A holder begins an exec, after which it `has_socket` or not.
    pub fn exec_begins(&self, pid: u32, has_socket: bool) {
        let bits = if has_socket { EXECUTES } else { EXECUTES | LEAVES };
        for (word, _) in self.holders().filter(|(_, holder)| holder.is(pid)) {
            word.fetch_or(bits, Ordering::AcqRel);
        }
    }

    /// The exec of a holder failed.
    pub fn exec_failed(&self, pid: u32) {
        for (word, _) in self.holders().filter(|(_, holder)| holder.is(pid)) {
            word.fetch_and(!(EXECUTES | LEAVES), Ordering::AcqRel);
        }
    }

    /// Removes from the holders those other than `pid` that have executed programs without the
    /// socket.
    pub fn remove_successors(&self, pid: u32, has_socket: impl Fn(u32) -> bool) {
        let is_successor =
            |holder: &Holder| holder.0 & EXECUTES != 0 && !holder.is(pid) && !holder.is_stranger();
        for (word, holder) in self.holders().filter(|(_, holder)| is_successor(holder)) {
            if !has_socket(holder.pid()) {
                let _ = word.compare_exchange(holder.0, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Removes a process from the holders. Returns whether it was the last one that can be alive.
    pub fn remove_holder(&self, pid: u32) -> bool {
        let last = self.is_only_holder(pid);
        remove_process(self.holders().map(|(word, _)| word), pid);
        last
    }

    fn holders(&self) -> impl Iterator<Item = (&AtomicU64, Holder)> {
        let words = (0..layout::HOLDER_SLOTS).map(|slot| self.own.word(layout::HOLDERS + slot * 8));
        words.map(|word| (word, Holder::of(word)))
    }
}
