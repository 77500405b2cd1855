//! The effect of a signal on a sleeping call: EINTR, or a restart.

use std::ffi::c_int;
use std::ptr;

use libc::sigset_t;
use seekwire_transport::sys::signal::{Action, HeldBack, action};

use crate::ffi::keeping_errno;

/// Signals that glibc keeps for itself; their handlers do not end calls.
const INTERNAL: std::ops::RangeInclusive<c_int> = 32..=33;

/// Signals for faults of the thread itself: they come while it runs, not while it sleeps. Runtimes
/// (Rust's, Go's, the JVM's) have handlers for them, mostly without SA_RESTART.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// True if the kernel would have restarted a call whose sleep on the ring was interrupted.
///
/// The kernel decides by the SA_RESTART flag of the handler that ran. Which one that was is unknown
/// here, so the call is restarted if every handler of the process has the flag. Interruptions are
/// rare enough to query the kernel for all handlers, so the library need not follow the many ways
/// to install one.
pub(crate) fn restart() -> bool {
    keeping_errno(|| {
        (1..=64)
            .filter(|signal| !INTERNAL.contains(signal) && !FAULTS.contains(signal))
            .all(restarts)
    })
}

/// The mask of a sleep: the application's, if the call has one.
pub(crate) fn while_asleep(signals: Option<&HeldBack>, mask: *const sigset_t) -> *const sigset_t {
    match signals {
        // In glibc's format: the kernel reads its own 8 bytes.
        Some(signals) if mask.is_null() => ptr::from_ref(signals.mask()).cast(),
        _ => mask,
    }
}

fn restarts(signal: c_int) -> bool {
    !matches!(action(signal), Ok(Action::Handler { restarts: false }))
}
