//! Whether connections of this process may come to shared memory: not if the process moves bytes,
//! or waits for them, in ways that the library does not see.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static FORBIDDEN: AtomicBool = AtomicBool::new(false);
static LOOK: OnceLock<fn()> = OnceLock::new();

/// Registers `look`, which is called before a connection comes to shared memory, under locks of
/// that connection; it may call [`forbid`]. Only the first registration counts.
pub fn look_before(look: fn()) {
    let _ = LOOK.set(look);
}

/// Keeps all connections off shared memory from now on.
pub fn forbid() {
    FORBIDDEN.store(true, Ordering::Relaxed);
}

/// Whether [`forbid`] was called.
#[must_use]
pub fn is_forbidden() -> bool {
    FORBIDDEN.load(Ordering::Relaxed)
}

/// Whether a connection may come to shared memory now.
pub(crate) fn is_given() -> bool {
    if let Some(look) = LOOK.get().filter(|_| !is_forbidden()) {
        look();
    }
    !is_forbidden()
}
