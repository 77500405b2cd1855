//! fork() while another thread negotiates.
//!
//! The child has copies of all locks, and none of the threads that would release them: it would
//! wait for ever for anything that another thread of the parent held or was creating at that moment
//! (the rendezvous, the registry). So a fork waits until no thread is inside such code, which takes
//! microseconds, and no thread enters it meanwhile.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use seekwire_transport::mem::granted;
use seekwire_transport::sys::{fd, proof, thread};

use crate::held_file;

/// The number of threads inside, and a bit for a fork that is about to happen.
static INSIDE: AtomicU32 = AtomicU32::new(0);
const FORKING: u32 = 1 << 31;

/// A thread that does not leave within this time is stopped, or waits for a lock that the program
/// has taken for this very fork: then the fork goes on.
const STRAGGLER_LIMIT: Duration = Duration::from_secs(1);

thread_local! {
    /// Number of times that the thread has entered. A thread that forks in a signal handler does
    /// not wait for itself.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The thread is inside until this is dropped.
pub(crate) struct Inside;

/// Enters code that no fork may interrupt. May be nested.
pub(crate) fn enter() -> Inside {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    let add = |now: u32| (now & FORKING == 0).then_some(now + 1);
    while depth == 0 && INSIDE.fetch_update(Ordering::Acquire, Ordering::Relaxed, add).is_err() {
        std::thread::yield_now();
    }
    Inside
}

impl Drop for Inside {
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        if depth == 0 {
            INSIDE.fetch_sub(1, Ordering::Release);
        }
        DEPTH.set(depth);
    }
}

fn own() -> u32 {
    u32::from(DEPTH.get() > 0)
}

/// A held lock, which a fork by another thread does not leave locked in the child.
pub(crate) struct Locked<'m, T> {
    guard: MutexGuard<'m, T>,
    _inside: Inside,
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Takes a lock that is only ever held for microseconds, or gives up: a signal handler may have
/// interrupted the very thread that holds it.
pub(crate) fn patient_lock<T>(mutex: &Mutex<T>) -> Option<Locked<'_, T>> {
    const LOCK_LIMIT: Duration = Duration::from_secs(1);
    let inside = enter();
    let mut until = None;
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(Locked { guard, _inside: inside }),
            Err(TryLockError::Poisoned(poisoned)) => {
                return Some(Locked { guard: poisoned.into_inner(), _inside: inside });
            }
            Err(TryLockError::WouldBlock)
                if Instant::now() > *until.get_or_insert_with(|| Instant::now() + LOCK_LIMIT) =>
            {
                return None;
            }
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
}

/// To be called before fork(), by one thread at a time: the prepare handler of pthread_atfork(3).
pub fn before_fork() {
    INSIDE.fetch_or(FORKING, Ordering::AcqRel);
    let until = Instant::now() + STRAGGLER_LIMIT;
    while INSIDE.load(Ordering::Acquire) & !FORKING > own() && Instant::now() < until {
        std::thread::yield_now();
    }
}

/// Whether a thread is about to fork.
pub(crate) fn is_under_way() -> bool {
    INSIDE.load(Ordering::Acquire) & FORKING != 0
}

/// To be called after fork() in the parent.
pub fn after_fork_parent() {
    INSIDE.fetch_and(!FORKING, Ordering::Release);
}

static LOST_MEMORY: AtomicBool = AtomicBool::new(false);

/// Whether this process is a child that lacks some of the parent's memory of other machines.
pub(crate) fn has_lost_memory() -> bool {
    LOST_MEMORY.load(Ordering::Relaxed)
}

/// To be called after fork() in the child.
pub fn after_fork_child() {
    INSIDE.store(own(), Ordering::Release);
    fd::after_fork_child();
    thread::forget_namespace();
    if let Err(error) = granted::after_fork_child() {
        LOST_MEMORY.store(true, Ordering::Relaxed);
        tracing::error!("this process cannot use memory of another machine any more: {error}");
    }
    held_file::close_numberless();
    proof::after_fork_child();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_waits_for_others_and_holds_them_off_but_not_for_itself() {
        let outer = enter();
        let (entered, order) = (std::sync::Barrier::new(2), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let inside = enter();
                drop(enter());
                entered.wait();
                while INSIDE.load(Ordering::Acquire) & FORKING == 0 {
                    std::thread::yield_now();
                }
                order.store(1, Ordering::Relaxed);
                drop(inside);
                let _inside = enter();
                assert_eq!(order.load(Ordering::Relaxed), 2, "entered while a fork was under way");
            });
            entered.wait();
            before_fork();
            assert_eq!(order.swap(2, Ordering::Relaxed), 1, "forked while a thread was inside");
            after_fork_parent();
        });
        // Other tests of this process enter as well.
        assert_eq!(own(), 1);
        drop(outer);
        assert_eq!(own(), 0);
    }
}
