//! Counts the locks of the library that a thread holds, and does postponed work when it holds none.
//!
//! A signal handler may use a socket, and close it, while the interrupted thread holds locks of the
//! library, which it releases only after the handler has returned. So the handler waits for none of
//! them: work that needs them is left to the thread, as a [`Task`].

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, compiler_fence};

/// Postponed work.
pub(crate) struct Task(pub(crate) fn());

thread_local! {
    /// Number of the library's locks that this thread holds, or is about to take. Atomic, because
    /// handlers read it.
    static HELD: AtomicU32 = const { AtomicU32::new(0) };
    /// The work to do when it is 0; or null.
    static LEFT: AtomicPtr<Task> = const { AtomicPtr::new(ptr::null_mut()) };
}

/// Called before this thread takes a lock.
#[inline]
pub(crate) fn begin() {
    HELD.with(|held| held.store(held.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
    compiler_fence(Ordering::SeqCst);
}

/// Called after it has released the lock, or failed to get it.
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

/// True if this thread holds locks. Called where no code of the library itself holds any, so that
/// only a signal handler that has interrupted such code gets true.
#[inline]
pub(crate) fn is_interrupted() -> bool {
    HELD.with(|held| held.load(Ordering::Relaxed)) > 0
}

/// Makes this thread do `task` when it holds no lock. The library has a single task, which does all
/// postponed work.
#[cold]
pub(crate) fn leave_behind(task: &'static Task) {
    LEFT.with(|left| left.store(ptr::from_ref(task).cast_mut(), Ordering::Relaxed));
}

#[cold]
fn finish() {
    let left = LEFT.with(|left| left.swap(ptr::null_mut(), Ordering::Relaxed));
    // SAFETY: null, or the argument of `leave_behind`, which lives for ever and never changes.
    if let Some(task) = unsafe { left.as_ref() } {
        (task.0)();
    }
}
