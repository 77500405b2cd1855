//! What a signal handler leaves to the thread that it interrupted.
//!
//! A handler may use a socket, and close it, while that thread holds locks of the library, which it
//! gives back only after the handler has returned. So the handler waits for none of them: what
//! needs them is done as soon as the thread holds none.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, compiler_fence};

use crate::ffi::{guarded, keeping_errno};
use crate::socket::{self, Last};
use crate::table::{self, Object};

thread_local! {
    /// Locks of the library that this thread holds, or is about to take. Atomic, because handlers look at it.
    static HELD: AtomicU32 = const { AtomicU32::new(0) };
    /// Something is to be done when there are none.
    static IS_DUE: AtomicBool = const { AtomicBool::new(false) };
}

/// A number that was closed.
struct Closed {
    fd: c_int,
    object: Arc<Object>,
    last: Last,
    next: *mut Closed,
}

static CLOSED: AtomicPtr<Closed> = AtomicPtr::new(ptr::null_mut());

/// This thread is about to take a lock.
#[inline]
pub(crate) fn begin_hold() {
    HELD.with(|held| held.store(held.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
    compiler_fence(Ordering::SeqCst);
}

/// It has given it back, or not got it.
#[inline]
pub(crate) fn end_hold() {
    compiler_fence(Ordering::SeqCst);
    let left = HELD.with(|held| {
        let left = held.load(Ordering::Relaxed).saturating_sub(1);
        held.store(left, Ordering::Relaxed);
        left
    });
    compiler_fence(Ordering::SeqCst);
    if left == 0 && IS_DUE.with(|is_due| is_due.load(Ordering::Relaxed)) {
        finish();
    }
}

/// Whether this thread holds locks: asked where no code of the library itself holds any, by a
/// signal handler that has interrupted such code.
#[inline]
pub(crate) fn is_due_later() -> bool {
    HELD.with(|held| held.load(Ordering::Relaxed)) > 0
}

/// The sets that hold a socket are to be brought up to date.
#[cold]
pub(crate) fn update_sets() {
    IS_DUE.with(|is_due| is_due.store(true, Ordering::Relaxed));
}

/// `fd` stands for the object no more. By the time that the library comes to it, it is closed.
#[cold]
pub(crate) fn leave(fd: c_int, object: Arc<Object>, last: Last) {
    let last = if last == Last::Closing { Last::Gone } else { last };
    let closed = Box::into_raw(Box::new(Closed { fd, object, last, next: ptr::null_mut() }));
    let mut head = CLOSED.load(Ordering::Relaxed);
    loop {
        // SAFETY: this function owns it until the exchange succeeds.
        unsafe { (*closed).next = head };
        match CLOSED.compare_exchange_weak(head, closed, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => head = now,
        }
    }
    update_sets();
}

#[cold]
fn finish() {
    IS_DUE.with(|is_due| is_due.store(false, Ordering::Relaxed));
    keeping_errno(|| {
        guarded(|| {
            let mut next = CLOSED.swap(ptr::null_mut(), Ordering::Acquire);
            while !next.is_null() {
                // SAFETY: the list that was swapped out belongs to this call, and all in it came
                // from boxes.
                let closed = unsafe { Box::from_raw(next) };
                next = closed.next;
                socket::leave(closed.fd, closed.object, closed.last);
            }
            for (fd, object) in table::entries() {
                drop(object);
                if let Some(socket) = table::socket(fd) {
                    socket.update_sets();
                }
            }
        })
    });
}
