//! What a signal does to a call that sleeps: EINTR, or a restart.

use std::ffi::c_int;
use std::ptr;

use libc::{SA_RESTART, SIG_DFL, SIG_IGN, sigset_t};
use seekwire_transport::sys::call;
use seekwire_transport::sys::signal::HeldBack;

use crate::ffi::keeping_errno;

/// Signals that glibc keeps for itself; their handlers do not end calls.
const INTERNAL: std::ops::RangeInclusive<c_int> = 32..=33;

/// Signals of the thread's own faults: they come while it runs, not while it sleeps. Runtimes
/// (Rust's, Go's, the JVM's) have handlers for them, mostly without SA_RESTART.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// struct sigaction as the kernel has it.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: libc::c_ulong,
    /// SA_RESTORER's address where there is one, and the mask: not looked at.
    rest: [u64; 4],
}

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
    let mut action = KernelAction { handler: SIG_DFL, flags: 0, rest: [0; 4] };
    let none = std::ptr::null::<KernelAction>();
    // SAFETY: `action` is at least as large as the kernel's struct, whose first two members it
    // shares on x86-64 and aarch64.
    let result = unsafe {
        let arguments = [
            signal as usize,
            none.expose_provenance(),
            (&raw mut action).expose_provenance(),
            8,
            0,
            0,
        ];
        call(libc::SYS_rt_sigaction, arguments)
    };
    result.is_err()
        || action.handler == SIG_DFL
        || action.handler == SIG_IGN
        || action.flags & SA_RESTART as libc::c_ulong != 0
}
