//! A mutual-exclusion lock that fork can hold.
//!
//! `std::sync::Mutex` can be released only through a guard. A fork handler must take every lock of
//! the library in the parent and release it again in both processes, in another function than the
//! one that took it.
//!
//! Each thread counts the locks that it holds: a signal handler that has interrupted a holder must
//! not wait for the lock ([`crate::hold`]).

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

use crate::deferred;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and another thread sleeps on it.
const AWAITED: u32 = 2;

/// A futex lock.
pub(crate) struct RawLock(AtomicU32);

impl RawLock {
    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_acquire(&self) -> bool {
        deferred::begin();
        let is_taken = self.take();
        if !is_taken {
            deferred::end();
        }
        is_taken
    }

    #[inline]
    fn take(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock without a guard; [`RawLock::release`] releases it.
    #[inline]
    pub(crate) fn acquire(&self) {
        deferred::begin();
        if !self.take() {
            self.acquire_slowly();
        }
    }

    #[cold]
    fn acquire_slowly(&self) {
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            // Any return is followed by another try.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, AWAITED, None);
        }
    }

    /// Waits until the lock is free, and leaves it free.
    pub(crate) fn wait_until_free(&self) {
        while self.0.load(Ordering::Acquire) != FREE {
            let marked =
                self.0.compare_exchange(HELD, AWAITED, Ordering::Relaxed, Ordering::Relaxed);
            if marked != Err(FREE) {
                // Any return is followed by another look.
                let _ = futex::wait(&self.0, futex::Flags::PRIVATE, AWAITED, None);
            }
        }
        // If this thread was woken instead of one that wants the lock, passes the wake-up on.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
    }

    /// Releases a lock that was taken in this process, or in its parent.
    #[inline]
    pub(crate) fn release(&self) {
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
        }
        deferred::end();
    }
}

/// A lock around a value. Not recursive, and not poisoned: the code inside does not panic half-way,
/// and if it does, the value is still valid for its type.
pub(crate) struct Lock<T> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, and the lock lets one guard exist at a time.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock { raw: RawLock(AtomicU32::new(FREE)), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.raw.acquire();
        Guard { lock: self }
    }

    /// Takes the lock like [`Lock::lock`], but in a signal handler gives up on one that the
    /// interrupted thread may hold.
    pub(crate) fn lock_in_handler(&self) -> Option<Guard<'_, T>> {
        const TRIES: u32 = 1000;
        if !deferred::is_interrupted() {
            return Some(self.lock());
        }
        (0..TRIES).find_map(|_| {
            let held = self.try_lock();
            if held.is_none() {
                std::thread::yield_now();
            }
            held
        })
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.raw.try_acquire().then(|| Guard { lock: self })
    }

    /// The guard of a lock that is already held: taken through [`Lock::raw`], or because its guard
    /// was forgotten.
    ///
    /// # Safety
    ///
    /// It must be held by this thread, or by the thread of the parent process that forked, and have
    /// no other guard.
    pub(crate) unsafe fn adopt(&self) -> Guard<'_, T> {
        Guard { lock: self }
    }

    /// The lock itself, to hold it without a guard.
    pub(crate) fn raw(&self) -> &RawLock {
        &self.raw
    }
}

/// Access to the value of a held [`Lock`].
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, so there is no mutable reference.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one and is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.release();
    }
}
