//! pthread_cancel of a thread that sleeps for the ring.
//!
//! Sleeping in read, send and the like is a cancellation point. In libc that is so because libc
//! makes the system call. A thread that sleeps for the ring is woken by
//! [`Connection::interrupt`](seekwire_endpoint::Connection::interrupt) instead, and asks libc to
//! cancel it once it is outside the library's own frames.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::pthread_t;

use crate::ffi::keeping_errno;
use crate::socket::Socket;
use crate::{hazard, real, table};

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
    // SAFETY: writes the type before to a live integer. It may unwind, with nothing of ours to undo.
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

/// Makes a call on the ring a cancellation point. Call it outside [`crate::ffi::guarded`].
#[inline]
pub(crate) fn point<T>(call: impl FnOnce() -> T) -> T {
    if USED.load(Ordering::Relaxed) {
        // SAFETY: takes nothing. It may unwind, with nothing of ours to undo.
        unsafe { real::pthread_testcancel() };
    }
    call()
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

/// Interrupts the calls of `thread` until it has left them. If it passed [`point`] before it was
/// cancelled, but does not sleep yet, the next round wakes it. If it has disabled cancellation,
/// this gives up after some rounds.
fn wake(thread: pthread_t) {
    const ROUNDS: usize = 100;
    for _ in 0..ROUNDS {
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
        std::thread::yield_now();
    }
}
