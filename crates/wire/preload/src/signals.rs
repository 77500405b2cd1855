//! What a signal does to a call that sleeps: EINTR, or a restart.

use std::ffi::c_int;
use std::ptr;

use libc::sigset_t;
use seekwire_transport::sys::signal::{Action, HeldBack, action};

use crate::ffi::keeping_errno;

/// Signals that glibc keeps for itself; their handlers do not end calls.
const INTERNAL: std::ops::RangeInclusive<c_int> = 32..=33;

/// Signals of the thread's own faults: they come while it runs, not while it sleeps. Runtimes
/// (Rust's, Go's, the JVM's) have handlers for them, mostly without SA_RESTART.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// To be asked when a sleep on the ring was interrupted: whether the kernel would have started the
/// call again.
///
/// The kernel decides by the SA_RESTART of the one handler that ran. Which one that was cannot be
/// known here, so the call is started again if every handler of the process has the flag.
/// Interruptions are rare enough to ask the kernel for all of them, which leaves nothing to go
/// wrong between this library and the many ways to install a handler.
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
        // As glibc passes it on: the kernel reads its own 8 bytes.
        Some(signals) if mask.is_null() => ptr::from_ref(signals.mask()).cast(),
        _ => mask,
    }
}

fn restarts(signal: c_int) -> bool {
    !matches!(action(signal), Ok(Action::Handler { restarts: false }))
}
