//! Numbers that a signal handler has closed while the interrupted thread held locks.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{iter, ptr};

use crate::fd_numbers::Last;
use crate::table::Object;

/// A closed number.
pub(crate) struct Closed {
    pub(crate) fd: c_int,
    pub(crate) object: Arc<Object>,
    pub(crate) last: Last,
    next: *mut Closed,
}

static CLOSED: AtomicPtr<Closed> = AtomicPtr::new(ptr::null_mut());

/// Notes that `fd` no longer stands for the object. When the library processes this, the number is
/// closed.
#[cold]
pub(crate) fn push(fd: c_int, object: Arc<Object>, last: Last) {
    let last = if last == Last::Closing { Last::Gone } else { last };
    let closed = Box::into_raw(Box::new(Closed { fd, object, last, next: ptr::null_mut() }));
    let mut head = CLOSED.load(Ordering::Relaxed);
    loop {
        // SAFETY: this function owns it until the exchange succeeds.
        unsafe { (*closed).next = head };
        match CLOSED.compare_exchange_weak(head, closed, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Takes all notes, the last one first.
pub(crate) fn take() -> impl Iterator<Item = Box<Closed>> {
    let mut next = CLOSED.swap(ptr::null_mut(), Ordering::Acquire);
    iter::from_fn(move || {
        // SAFETY: the list that was swapped out belongs to this iterator, and all in it came from
        // boxes.
        let closed = (!next.is_null()).then(|| unsafe { Box::from_raw(next) })?;
        next = closed.next;
        Some(closed)
    })
}
