//! pthread_cancel of a thread that sleeps for the ring.
//!
//! read, send, poll and the like are cancellation points. In libc that is so because libc makes the
//! system call. A thread that sleeps for the ring is woken by
//! [`Connection::interrupt`](seekwire_endpoint::Connection::interrupt) instead, leaves its call,
//! which other threads in calls on the same socket do not, and asks libc to cancel it once it is
//! outside the library's own frames.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use libc::pthread_t;
use seekwire_transport::sys::thread::nap;

use crate::ffi::{is_cancellable, keeping_errno};
use crate::socket::Socket;
use crate::{hazard, real, table, unload};

/// True if the program cancels threads at all.
static USED: AtomicBool = AtomicBool::new(false);

/// True if the program has threads that can be cancelled at any instruction.
static ASYNCHRONOUS: AtomicBool = AtomicBool::new(false);

/// PTHREAD_CANCEL_DEFERRED
const DEFERRED: c_int = 0;

/// Lets the thread be cancelled at cancellation points only, until [`restore`]: if it were unwound
/// at any instruction, the library would leave its locks held, and the frames that catch panics
/// cannot be unwound at all.
///
/// Before this and after `restore`, a thread may be unwound at any instruction. A frame with
/// cleanup code can be unwound at its calls only, and ends the process elsewhere. So the interposed
/// function has no cleanup code, and nothing that has any is inlined into it.
#[inline]
pub(crate) fn defer() -> Option<c_int> {
    if ASYNCHRONOUS.load(Ordering::Relaxed) { Some(set_type(DEFERRED)) } else { None }
}

/// Makes the thread cancellable again as before [`defer`].
#[inline]
pub(crate) fn restore(before: Option<c_int>) {
    if let Some(before) = before {
        set_type(before);
    }
}

#[cold]
fn set_type(kind: c_int) -> c_int {
    let mut before = DEFERRED;
    // SAFETY: writes the type before to a live integer. It may unwind, with nothing of ours to
    // undo.
    unsafe { real::pthread_setcanceltype(kind, &raw mut before) };
    before
}

/// pthread_setcanceltype(3)
///
/// # Safety
///
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_setcanceltype(
    kind: c_int,
    before: *mut c_int,
) -> c_int {
    const ASYNCHRONOUSLY: c_int = 1;
    if kind == ASYNCHRONOUSLY {
        ASYNCHRONOUS.store(true, Ordering::SeqCst);
    }
    // SAFETY: the caller's own arguments.
    unsafe { real::pthread_setcanceltype(kind, before) }
}

/// The states of a thread's word: it is in no cancellation point, or in one that began before the
/// program cancelled a thread.
const OUTSIDE: u8 = 0;
/// It is in a cancellation point.
const INSIDE: u8 = 1;
/// It was cancelled there.
const CANCELLED: u8 = 2;
/// It has disabled cancellation.
const DISABLED: u8 = 3;
/// It was cancelled when it was [`OUTSIDE`].
const PERHAPS: u8 = 4;

/// Makes a call on the ring a cancellation point. Call it outside [`crate::ffi::guarded`].
#[inline]
pub(crate) fn point<T>(call: impl FnOnce() -> T) -> T {
    if USED.load(Ordering::Relaxed) { point_of_word(call) } else { call() }
}

#[cold]
fn point_of_word<T>(call: impl FnOnce() -> T) -> T {
    let word = hazard::own_cancellation();
    let now = if is_cancellable() { INSIDE } else { DISABLED };
    // From now on, whoever cancels this thread either sees it here, or has done so before the next
    // line. A handler may have interrupted another such call.
    let before = word.swap(now, Ordering::SeqCst);
    // SAFETY: takes nothing. It may unwind, with nothing of ours to undo.
    unsafe { real::pthread_testcancel() };
    let result = call();
    leave(word, if before == PERHAPS { OUTSIDE } else { before });
    result
}

/// An interrupted call also learns of a cancellation.
fn leave(word: &AtomicU8, before: u8) {
    let back = |now| (now != CANCELLED || before != INSIDE).then_some(before);
    let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, back);
}

/// Whether this thread has to leave a call that would sleep: it is cancelled, or the library
/// leaves the process.
pub(crate) fn leaves() -> bool {
    let is_cancelled = || {
        let word = hazard::own_cancellation().load(Ordering::SeqCst);
        matches!(word, CANCELLED | PERHAPS)
    };
    unload::has_begun() || (USED.load(Ordering::Relaxed) && is_cancelled())
}

/// pthread_cancel(3)
///
/// # Safety
///
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_cancel(thread: pthread_t) -> c_int {
    let before = defer();
    let result = cancel(thread);
    restore(before);
    result
}

#[inline(never)]
fn cancel(thread: pthread_t) -> c_int {
    USED.store(true, Ordering::SeqCst);
    // SAFETY: the caller of pthread_cancel promises that the thread exists.
    let result = unsafe { real::pthread_cancel(thread) };
    // SAFETY: takes nothing.
    if result == 0 && thread != unsafe { libc::pthread_self() } {
        keeping_errno(|| wake(thread));
    }
    result
}

/// Interrupts the calls of `thread` until it has left them, unless it has disabled cancellation. One
/// ring is not enough: another sleeper may silence the doorbell before this thread sleeps.
fn wake(thread: pthread_t) {
    /// Rounds without a pause, which are enough for a thread that runs.
    const ROUNDS: u32 = 100;
    const PAUSE: Duration = Duration::from_millis(1);
    /// More than a thread waits for its turn on a busy machine.
    const LIMIT: u32 = 10_000;
    let Some(word) = hazard::cancellation_of(thread) else { return };
    let mark = |now| match now {
        INSIDE => Some(CANCELLED),
        OUTSIDE => Some(PERHAPS),
        _ => None,
    };
    if word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, mark) == Err(DISABLED) {
        return;
    }
    for round in 0..LIMIT {
        let mut used = false;
        for (_, object) in
            table::entries().filter(|(_, object)| hazard::is_used_by(thread, &raw const **object))
        {
            let sleeps_with_us = |socket: &&Socket| socket.connection.receives_by_library();
            if let Some(socket) = object.as_socket().filter(sleeps_with_us) {
                socket.connection.interrupt();
                used = true;
            }
        }
        if !used {
            return;
        }
        if round < ROUNDS {
            std::thread::yield_now();
        } else if word.load(Ordering::SeqCst) == CANCELLED {
            nap(PAUSE);
        } else {
            return;
        }
    }
}
