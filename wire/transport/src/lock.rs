//! A lock in shared memory that survives the death of its holder.
//!
//! Threads of one process and processes that forked share an end of a connection; each direction
//! has one lock. The word holds the thread id of the holder, so that a waiter can see whether the
//! holder is still alive; taking a free lock is one compare-and-swap and giving it back one
//! exchange. A lock is held while bytes are copied, or one non-blocking system call moves them: no
//! doorbell is rung and nobody sleeps under it. There are two exceptions, both on the receiving
//! half, which make only other receivers of this end wait. A hand-over to TCP rings the peer and
//! keeps the lock until the peer has answered or its time has expired: bytes received meanwhile
//! must not come again. And bytes that are lent in place keep it until they are consumed. So a
//! waiter sleeps, and now and then suspects that the holder is dead.
//!
//! A signal handler may interrupt the holder and want the same lock, which cannot be released
//! before the handler returns: acquiring it fails instead of waiting for itself. A handler may also
//! wait for a process that it forked, and that wants the lock: [`within`] limits that.
//!
//! A holder in another PID namespace cannot be seen: it counts as alive, and a waiter gives up after
//! a while, as in a signal handler.
//!
//! Weakness: if the holder's thread id is reused at once, the lock looks held until the new thread
//! ends; to that thread it looks like its own.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::Duration;

use crate::mem::OwnMemory;
use crate::sync::Ordering;
use crate::sys::futex::Futex;
use crate::sys::poll::Deadline;
use crate::sys::thread::{self, ThreadId};

/// Set in the word while a waiter sleeps on it.
pub const WAITERS: u64 = 1 << 31;
const HOLDER: u64 = !WAITERS;
/// How often a waiter looks before it sleeps: mostly the lock is held for some hundred nanoseconds.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 100 };
/// How long a waiter waits for a holder of another PID namespace.
const STRANGER_LIMIT: Duration = Duration::from_secs(5);

/// How a lock was acquired.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Acquired {
    /// It was free: a holder, if any, released it.
    Clean,
    /// From a holder that died, as with EOWNERDEAD of a robust mutex (pthread_mutex_lock(3)): the
    /// data that it protects may be half changed.
    OwnerDied,
}

/// Holds the lock until it is dropped.
#[derive(Debug)]
pub struct LockGuard<'m, O: OwnMemory + Futex> {
    memory: &'m O,
    offset: usize,
    /// It belongs to this thread, whose id is in the word.
    _thread: PhantomData<*const ()>,
}

thread_local! {
    /// The deadline until which this thread waits for locks.
    static LIMIT: Cell<Deadline> = const { Cell::new(Deadline::NEVER) };
}

/// Does `work`, during which this thread waits for locks at most until `until`. After that,
/// [`acquire`] returns `None`, as in a handler that interrupted the holder. For work that the
/// holder of such a lock may wait for, interrupted by a signal. Even after that time the thread
/// sleeps once for each lock, since most are held only for a moment.
pub fn within<R>(until: Deadline, work: impl FnOnce() -> R) -> R {
    struct Reset(Deadline);
    impl Drop for Reset {
        fn drop(&mut self) {
            LIMIT.set(self.0);
        }
    }
    let _reset = Reset(LIMIT.replace(until));
    work()
}

/// Takes the lock at `offset`; `None` if this very thread holds it, and was interrupted by a
/// signal, if the time of [`within`] has expired, or if a holder of another PID namespace keeps it
/// for five seconds.
#[inline]
pub fn acquire<O: OwnMemory + Futex>(
    memory: &O,
    offset: usize,
) -> Option<(LockGuard<'_, O>, Acquired)> {
    let me = thread::id().0;
    // Sequentially consistent, not just acquire: see `QueuePair::peer_is_sending`.
    let free = memory.word(offset).compare_exchange(0, me, Ordering::SeqCst, Ordering::Relaxed);
    let acquired = match free {
        Ok(_) => Acquired::Clean,
        Err(_) => contend(memory, offset, me)?,
    };
    memory.show(offset, |shown| shown.store(me, Ordering::SeqCst));
    Some((LockGuard { memory, offset, _thread: PhantomData }, acquired))
}

#[cold]
fn contend<O: OwnMemory + Futex>(memory: &O, offset: usize, me: u64) -> Option<Acquired> {
    let word = memory.word(offset);
    if word.load(Ordering::Relaxed) & HOLDER == me {
        return None;
    }
    for _ in 0..LOOKS {
        if word.load(Ordering::Relaxed) == 0
            && word.compare_exchange(0, me, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        {
            return Some(Acquired::Clean);
        }
        thread::relax();
    }
    let until = LIMIT.get();
    let mut strange = None;
    let mut has_slept = false;
    loop {
        let seen = word.load(Ordering::Relaxed);
        // A waiter that has slept keeps the waiters' bit when it takes the lock: others may be
        // asleep.
        if seen & HOLDER == 0 {
            if word
                .compare_exchange(seen, me | WAITERS, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
            {
                return Some(Acquired::Clean);
            }
            continue;
        }
        let holder = ThreadId(seen & HOLDER);
        let until = match holder.is_stranger() {
            true => *strange.get_or_insert_with(|| until.at_most(STRANGER_LIMIT)),
            false => until,
        };
        if has_slept && until.is_over() {
            return None;
        }
        if seen & WAITERS == 0
            && word
                .compare_exchange(seen, seen | WAITERS, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            continue;
        }
        let woken = memory.futex_wait(offset, (seen | WAITERS) as u32);
        has_slept = true;
        let still = word.load(Ordering::Relaxed);
        if !woken
            && still == seen | WAITERS
            && !holder.is_stranger()
            && !holder.is_alive()
            && word
                .compare_exchange(still, me | WAITERS, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        {
            return Some(Acquired::OwnerDied);
        }
    }
}

impl<O: OwnMemory + Futex> Drop for LockGuard<'_, O> {
    #[inline]
    fn drop(&mut self) {
        self.memory.show(self.offset, |shown| shown.store(0, Ordering::Release));
        if self.memory.word(self.offset).swap(0, Ordering::Release) & WAITERS != 0 {
            self.memory.futex_wake(self.offset);
        }
    }
}
