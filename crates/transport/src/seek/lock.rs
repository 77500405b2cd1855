//! The lock around the state of one stream. Never held while its holder sleeps.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::Errno;
use crate::sys::thread;

/// A lock that a signal handler, having interrupted its holder, does not wait for.
#[derive(Debug, Default)]
pub struct SeekLock<T> {
    /// Thread id of the holder.
    holder: AtomicU32,
    state: Mutex<T>,
}

/// Held; released when dropped.
#[derive(Debug)]
pub struct SeekGuard<'l, T> {
    holder: &'l AtomicU32,
    state: MutexGuard<'l, T>,
}

impl<T> SeekLock<T> {
    /// Around `state`.
    pub fn new(state: T) -> Self {
        Self { holder: AtomicU32::new(0), state: Mutex::new(state) }
    }

    /// Takes it.
    ///
    /// # Errors
    /// EAGAIN when this very thread has it, and was interrupted by a signal.
    #[inline]
    pub fn lock(&self) -> Result<SeekGuard<'_, T>, Errno> {
        let me = thread::id();
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.holder.load(Ordering::Relaxed) == me => {
                return Err(Errno::AGAIN);
            }
            Err(TryLockError::WouldBlock) => self.state.lock().unwrap_or_else(PoisonError::into_inner),
        };
        self.holder.store(me, Ordering::Relaxed);
        Ok(SeekGuard { holder: &self.holder, state })
    }

    /// Whether somebody has it now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.state.try_lock(), Err(TryLockError::WouldBlock))
    }
}

impl<T> Deref for SeekGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.state
    }
}

impl<T> DerefMut for SeekGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.state
    }
}

impl<T> Drop for SeekGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.holder.store(0, Ordering::Relaxed);
    }
}
