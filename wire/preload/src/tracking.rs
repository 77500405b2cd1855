//! Whether this process tracks sockets.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_ON: AtomicBool = AtomicBool::new(false);
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Called when all is prepared for tracking.
pub(crate) fn set_ready() {
    IS_READY.store(true, Ordering::Release);
}

/// From now on sockets are tracked when they are made.
pub(crate) fn switch_on() {
    IS_ON.store(true, Ordering::Release);
}

/// From now on no more sockets are tracked, except those in which the program seeks.
pub(crate) fn stand_back() {
    IS_ON.store(false, Ordering::Release);
}

/// From now on no more sockets are tracked.
pub(crate) fn stand_down() {
    stand_back();
    IS_READY.store(false, Ordering::Release);
}

/// True if sockets are tracked when they are made.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// True if sockets may be tracked: at least those in which the program seeks.
#[inline]
pub(crate) fn is_ready() -> bool {
    IS_READY.load(Ordering::Acquire)
}
