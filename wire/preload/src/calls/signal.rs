//! The calls with which a program sets the action for a signal. The library notes which signals are
//! ignored ([`seekwire_transport::sys::signal::ignored`]). For SIGBUS, while memory that others can
//! truncate is mapped, the library has its own handler, which calls the program's
//! ([`seekwire_transport::sys::fault`]).

use std::ffi::c_int;
use std::mem::MaybeUninit;

use libc::{SIG_ERR, SIG_IGN, SIGBUS, sigaction as Action, sighandler_t};
use seekwire_transport::sys::{fault, signal::note_ignored};

use super::interpose::interpose;
use crate::process::{self, ProcessKind};

/// sigset(3): blocks the signal, and keeps its action.
const SIG_HOLD: sighandler_t = 2;
/// From bits/sigaction.h: it means nothing to the kernel.
const SA_INTERRUPT: c_int = 0x2000_0000;

/// `Some` while the kernel has the library's handler; stores the program's.
fn shared(signal: c_int, handler: sighandler_t) -> Option<()> {
    if handler == SIG_IGN {
        note_ignored(signal);
    }
    (signal == SIGBUS && fault::is_installed()).then_some(())
}

/// The handler to set, or SIG_DFL if there is none.
///
/// # Safety
///
/// As for sigaction(2).
unsafe fn handler_of(new: *const Action) -> sighandler_t {
    // SAFETY: null, or the caller's own argument.
    unsafe { new.as_ref() }.map_or(libc::SIG_DFL, |new| new.sa_sigaction)
}

/// sigaction(2) of SIGBUS.
///
/// # Safety
///
/// As for sigaction(2).
unsafe fn set(new: *const Action, old: *mut Action) -> c_int {
    let borrows = process::kind() == ProcessKind::Vfork || process::has_retreated();
    // SAFETY: the caller's own arguments.
    let real = |new, old| unsafe { crate::real::sigaction(SIGBUS, new, old) };
    // SAFETY: as above.
    unsafe { fault::sigaction(new, old, borrows, real) }
}

/// signal(2) and its variants: returns the previous handler, or SIG_ERR.
fn simple(handler: sighandler_t, flags: c_int, blocks_itself: bool) -> sighandler_t {
    let (mut new, mut old) = (MaybeUninit::<Action>::zeroed(), MaybeUninit::<Action>::zeroed());
    // SAFETY: actions are made of numbers, and of an address that may be null; the handler is the
    // caller's own argument.
    unsafe {
        let action = new.assume_init_mut();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        if blocks_itself {
            libc::sigaddset(&raw mut action.sa_mask, SIGBUS);
        }
        if set(action, old.as_mut_ptr()) == 0 { old.assume_init().sa_sigaction } else { SIG_ERR }
    }
}

interpose! {
    /// sigaction(2)
    fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int =
        // SAFETY: the caller's own argument.
        shared(signal, unsafe { handler_of(new) }) => |_bus, _kernel| {
            // SAFETY: the caller's own arguments.
            unsafe { set(new, old) }
        };
    /// sigaction(2) by another name
    fn __sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int =
        // SAFETY: the caller's own argument.
        shared(signal, unsafe { handler_of(new) }) => |_bus, _kernel| {
            // SAFETY: the caller's own arguments.
            unsafe { set(new, old) }
        };
    /// signal(2)
    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t =
        shared(signal, handler).filter(|()| handler != SIG_ERR) => |_bus, _kernel| simple(handler, libc::SA_RESTART, true);
    /// signal(2) by another name
    fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t =
        shared(signal, handler).filter(|()| handler != SIG_ERR) => |_bus, _kernel| simple(handler, libc::SA_RESTART, true);
    /// signal(2) by another name
    fn ssignal(signal: c_int, handler: sighandler_t) -> sighandler_t =
        shared(signal, handler).filter(|()| handler != SIG_ERR) => |_bus, _kernel| simple(handler, libc::SA_RESTART, true);
    /// signal(2) with System V semantics
    fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t =
        shared(signal, handler).filter(|()| handler != SIG_ERR) => |_bus, _kernel| simple(handler, ONCE, false);
    /// signal(2) with System V semantics
    fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t =
        shared(signal, handler).filter(|()| handler != SIG_ERR) => |_bus, _kernel| simple(handler, ONCE, false);
    /// sigset(3), which blocks the signal instead of setting an action, or unblocks it
    fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t =
        shared(signal, handler).filter(|()| ![SIG_ERR, SIG_HOLD].contains(&handler)) => |_bus, _kernel| {
            let before = simple(handler, 0, false);
            if before == SIG_ERR || !unblock() { before } else { SIG_HOLD }
        };
    /// sigignore(3)
    fn sigignore(signal: c_int) -> c_int =
        shared(signal, SIG_IGN) => |_bus, _kernel| if simple(SIG_IGN, 0, false) == SIG_ERR { -1 } else { 0 };
}

const ONCE: c_int = libc::SA_RESETHAND | libc::SA_NODEFER | SA_INTERRUPT;

/// Unblocks SIGBUS; returns whether it was blocked.
fn unblock() -> bool {
    let (mut bus, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the first calls make `bus` a valid set; the third writes the other one, which cannot
    // fail with SIG_UNBLOCK.
    unsafe {
        libc::sigemptyset(bus.as_mut_ptr());
        libc::sigaddset(bus.as_mut_ptr(), SIGBUS);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, bus.as_ptr(), before.as_mut_ptr());
        libc::sigismember(before.as_ptr(), SIGBUS) == 1
    }
}
