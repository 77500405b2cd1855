//! The calls that install a filter of system calls.

use std::ffi::{c_int, c_long, c_ulong};

use libc::{PR_SET_SECCOMP, SECCOMP_MODE_FILTER, SECCOMP_MODE_STRICT};

use super::interpose;
use crate::filter;

interpose! {
    /// prctl(2). Variadic in C: its arguments travel as those of a function with five parameters,
    /// and libc takes as many whatever was given.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int =
        (option == PR_SET_SECCOMP).then_some(()) => |_filter, kernel| {
            // SAFETY: the caller's own arguments.
            unsafe { filter::prepare(a, b as _) };
            kernel()
        };
}

/// seccomp(2), for which libc has no function.
///
/// # Safety
///
/// As the manual page says.
pub(super) unsafe fn seccomp(
    operation: usize,
    program: usize,
    kernel: impl FnOnce() -> c_long,
) -> c_long {
    const STRICT: usize = libc::SECCOMP_SET_MODE_STRICT as usize;
    const FILTER: usize = libc::SECCOMP_SET_MODE_FILTER as usize;
    let mode = match operation {
        STRICT => SECCOMP_MODE_STRICT,
        FILTER => SECCOMP_MODE_FILTER,
        // The others ask for something.
        _ => return kernel(),
    };
    // SAFETY: the caller's own arguments.
    unsafe { filter::prepare(mode.into(), program as _) };
    kernel()
}
