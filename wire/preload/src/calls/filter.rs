//! The calls after which a system call or an instruction of the library may end the process: those
//! that install a system call filter, and variants of prctl that make the kernel send a signal
//! instead.

use std::ffi::{c_int, c_long, c_ulong};

use libc::{
    PR_SET_SECCOMP, PR_SET_TSC, PR_TSC_SIGSEGV, SECCOMP_MODE_FILTER, SECCOMP_MODE_STRICT,
    sock_fprog,
};

use super::interpose::interpose;
use crate::{filter, start};

/// From linux/prctl.h, see PR_SET_SYSCALL_USER_DISPATCH(2const): SIGSYS for system calls from
/// outside the code range that the program gives.
const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;
const PR_SYS_DISPATCH_OFF: c_ulong = 0;

/// True if, after this prctl(), the library may make no system call of its own, or not read the
/// clock.
pub(super) fn confines(option: c_int, a: c_ulong) -> bool {
    match option {
        PR_SET_SECCOMP => true,
        PR_SET_TSC => a == PR_TSC_SIGSEGV as c_ulong,
        PR_SET_SYSCALL_USER_DISPATCH => a != PR_SYS_DISPATCH_OFF,
        _ => false,
    }
}

interpose! {
    /// prctl(2). Variadic in C: its arguments are passed like those of a function with five
    /// parameters, and libc always reads all five.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int =
        confines(option, a).then_some(()) => |_confined, kernel| {
            let mode = if option == PR_SET_SECCOMP { a } else { SECCOMP_MODE_STRICT.into() };
            // SAFETY: the caller's own arguments; in the strict mode there is no filter to read.
            unsafe { prepare(mode, b as _) };
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
        // The other operations only query.
        _ => return kernel(),
    };
    // SAFETY: the caller's own arguments.
    unsafe { prepare(mode.into(), program as _) };
    kernel()
}

/// # Safety
///
/// As for seccomp(2).
unsafe fn prepare(mode: c_ulong, program: *const sock_fprog) {
    if start::is_tracking() {
        // SAFETY: as the caller promises.
        unsafe { filter::prepare(mode, program) };
    }
}
