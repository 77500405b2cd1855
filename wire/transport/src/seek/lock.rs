//! The lock around the state of one stream. Never held while its holder sleeps.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Errno;
use crate::sys::thread;

/// How often a waiter looks before it yields its processor, and before it sleeps between two looks.
const LOOKS: u32 = 100;
const TURNS: u32 = 1000;
const NAP: Duration = Duration::from_micros(50);

/// A lock for which a signal handler that has interrupted its holder does not wait.
#[derive(Debug, Default)]
pub struct SeekLock<T> {
    /// Thread id of the holder. This is the lock: its holder is known from the first instant to the
    /// last.
    holder: AtomicU32,
    /// Locked by the holder alone.
    state: Mutex<T>,
}

/// The lock is held until this is dropped.
#[derive(Debug)]
pub struct SeekGuard<'l, T> {
    // In this order: nobody else may want the state while the holder has it.
    state: MutexGuard<'l, T>,
    _release: Release<'l>,
}

#[derive(Debug)]
struct Release<'l>(&'l AtomicU32);

impl<T> SeekLock<T> {
    /// Around `state`.
    pub fn new(state: T) -> Self {
        Self { holder: AtomicU32::new(0), state: Mutex::new(state) }
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// EAGAIN if this very thread holds it, and was interrupted by a signal.
    #[inline]
    pub fn lock(&self) -> Result<SeekGuard<'_, T>, Errno> {
        let me = thread::id().0 as u32;
        if self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.contend(me)?;
        }
        let release = Release(&self.holder);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(SeekGuard { state, _release: release })
    }

    #[cold]
    fn contend(&self, me: u32) -> Result<(), Errno> {
        let mut looks = 0;
        while let Err(holder) =
            self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
        {
            if holder == me {
                return Err(Errno::AGAIN);
            }
            looks += 1;
            match looks {
                0..LOOKS => std::hint::spin_loop(),
                LOOKS..TURNS => std::thread::yield_now(),
                _ => thread::nap(NAP),
            }
        }
        Ok(())
    }

    /// Whether a thread holds it now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holder.load(Ordering::Relaxed) != 0
    }

    /// Whether this very thread holds it: then the caller runs in a signal handler.
    #[must_use]
    pub fn is_mine(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == thread::id().0 as u32
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

impl Drop for Release<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
