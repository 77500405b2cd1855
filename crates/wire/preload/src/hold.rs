//! Counts the locks of the library that a thread holds, and does postponed work when it holds none.
//!
//! A signal handler may use a socket, and close it, while the thread that it interrupted holds
//! locks of the library, which that gives back only after the handler has returned. So the handler
//! waits for none of them: what needs them is left to the thread, as a [`Task`].

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, compiler_fence};

/// What is left to be done.
pub(crate) struct Task(pub(crate) fn());

thread_local! {
    /// Locks of the library that this thread holds, or is about to take. Atomic, because handlers
    /// look at it.
    static HELD: AtomicU32 = const { AtomicU32::new(0) };
    /// To be done when there are none; or null.
    static LEFT: AtomicPtr<Task> = const { AtomicPtr::new(ptr::null_mut()) };
}

/// This thread is about to take a lock.
#[inline]
pub(crate) fn begin() {
    HELD.with(|held| held.store(held.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
    compiler_fence(Ordering::SeqCst);
}

/// It has given it back, or not got it.
#[inline]
pub(crate) fn end() {
    compiler_fence(Ordering::SeqCst);
    let held = HELD.with(|held| {
        let fewer = held.load(Ordering::Relaxed).saturating_sub(1);
        held.store(fewer, Ordering::Relaxed);
        fewer
    });
    compiler_fence(Ordering::SeqCst);
    if held == 0 && LEFT.with(|left| !left.load(Ordering::Relaxed).is_null()) {
        finish();
    }
}

/// Whether this thread holds locks: asked where no code of the library itself holds any, by a
/// signal handler that has interrupted such code.
#[inline]
pub(crate) fn is_interrupted() -> bool {
    HELD.with(|held| held.load(Ordering::Relaxed)) > 0
}

/// This thread does `task` as soon as it holds no lock. The library has one task, which does all
/// that may have been left.
#[cold]
pub(crate) fn leave_behind(task: &'static Task) {
    LEFT.with(|left| left.store(ptr::from_ref(task).cast_mut(), Ordering::Relaxed));
}

#[cold]
fn finish() {
    let left = LEFT.with(|left| left.swap(ptr::null_mut(), Ordering::Relaxed));
    // SAFETY: null, or what `leave_behind` was given, which lives for ever and never changes.
    if let Some(task) = unsafe { left.as_ref() } {
        (task.0)();
    }
}
