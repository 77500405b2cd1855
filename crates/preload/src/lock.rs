//! A mutual-exclusion lock that fork can hold.
//!
//! `std::sync::Mutex` gives its lock back only through a guard. A fork handler must take every lock of
//! the library in the parent and release it again in both processes, in another function than the one
//! that took it.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody sleeps on it.
const AWAITED: u32 = 2;

/// A futex lock around a value. Not recursive, not poisoned: the code inside does not panic half-way, and
/// where it does the value is still of its type.
pub(crate) struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, and `acquire` lets one guard exist at a time.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.acquire();
        Guard { lock: self }
    }

    /// The guard of a lock that is held already: by [`Lock::acquire`], or because its guard was forgotten.
    ///
    /// # Safety
    ///
    /// It must be held by this thread, or by the thread of the parent process that forked, and have no
    /// other guard.
    pub(crate) unsafe fn adopt(&self) -> Guard<'_, T> {
        Guard { lock: self }
    }

    /// Takes the lock without a guard; [`Lock::release`] gives it back.
    #[inline]
    pub(crate) fn acquire(&self) {
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.acquire_slowly();
        }
    }

    #[cold]
    fn acquire_slowly(&self) {
        while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
            // Any return is followed by another try.
            let _ = futex::wait(&self.state, futex::Flags::PRIVATE, AWAITED, None);
        }
    }

    /// Gives back what [`Lock::acquire`] took in this process, or in the parent of this process.
    #[inline]
    pub(crate) fn release(&self) {
        if self.state.swap(FREE, Ordering::Release) == AWAITED {
            let _ = futex::wake(&self.state, futex::Flags::PRIVATE, 1);
        }
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
        // SAFETY: this guard is the only one, so nobody holds a mutable reference.
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
        self.lock.release();
    }
}
