//! Signal handlers that count.

use std::cell::Cell;
use std::mem::zeroed;
use std::sync::atomic::{AtomicPtr, Ordering};

thread_local! {
    static COUNTS: Cell<[u32; 3]> = const { Cell::new([0; 3]) };
}

/// Function that the handler of SIGUSR1 and SIGUSR2 calls besides counting.
static ACTION: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn count(signal: i32) {
    let errno = super::errno();
    let at = match signal {
        libc::SIGUSR1 => 0,
        libc::SIGUSR2 => 1,
        _ => 2,
    };
    COUNTS.with(|counts| {
        let mut values = counts.get();
        values[at] += 1;
        counts.set(values);
    });
    let action = ACTION.load(Ordering::Relaxed);
    if at < 2 && !action.is_null() {
        // SAFETY: only `handle_with` stores there, and what it stores is a function of this type.
        let action: fn() = unsafe { std::mem::transmute(action) };
        action();
    }
    super::set_errno(errno);
}

/// Installs the wanted handlers: SIGUSR1 restarts calls, SIGUSR2 does not.
pub(crate) fn install(wanted: [bool; 2]) {
    let all =
        [(libc::SIGUSR1, libc::SA_RESTART), (libc::SIGUSR2, 0), (libc::SIGPIPE, libc::SA_RESTART)];
    for ((signal, flags), _) in
        all.into_iter().zip([wanted[0], wanted[1], true]).filter(|(_, wanted)| *wanted)
    {
        // SAFETY: sigaction is integers and a pointer, for which zero is valid.
        let mut action: libc::sigaction = unsafe { zeroed() };
        action.sa_sigaction = count as extern "C" fn(i32) as usize;
        action.sa_flags = flags;
        // SAFETY: the action lives as long as the call; the handler touches its thread's counters
        // only.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
    // SAFETY: nobody waits for children.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Makes the handlers also call a function. In lockstep a signal arrives while its thread is asleep
/// in a call, so the function may do what a handler otherwise may not.
pub(crate) fn handle_with(action: fn()) {
    ACTION.store(action as *mut (), Ordering::Relaxed);
}

/// How many handlers this thread has run since it last asked.
pub(crate) fn taken() -> [u32; 3] {
    COUNTS.with(|counts| counts.replace([0; 3]))
}
