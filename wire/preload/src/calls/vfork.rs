//! Forks that run no handlers of pthread_atfork(3): vfork, _Fork, and system calls by number.
//!
//! vfork: the child has the parent's memory, but its own descriptors, so the parent does not have
//! what the child opens. If the child executes a program that inherits sockets, it needs room for
//! their rests, which the parent must have made before.
//!
//! vfork returns twice, on the stack that the child leaves behind. So the function of that name
//! here calls nothing that returns through it: it jumps to libc's vfork.

use std::ffi::c_void;

use libc::{CLONE_FILES, CLONE_SETTLS, CLONE_VFORK, CLONE_VM, pid_t};

use crate::ffi::{guarded, keeping_errno};
use crate::{fork, pointers, real};

/// _Fork(3)
///
/// # Safety
///
/// As the manual page of the C function says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn _Fork() -> pid_t {
    // SAFETY: it takes nothing.
    fork::without_handlers(|| unsafe { real::_Fork() }.into()) as pid_t
}

/// True if clone(2) with these flags and this stack is a fork: the child has a copy of the memory and
/// of the descriptors, and both go on from the call.
pub(super) fn is_fork(flags: usize, stack: usize) -> bool {
    const OTHERS: i32 = CLONE_VM | CLONE_FILES | CLONE_VFORK | CLONE_SETTLS;
    stack == 0 && flags & OTHERS as usize == 0
}

/// As [`is_fork`], of clone3(2): its flags and its stack are the first and the sixth word.
///
/// # Safety
///
/// As for clone3.
pub(super) unsafe fn is_fork_by_3(arguments: *const [u64; 6]) -> bool {
    pointers::can_read(arguments, 1) && {
        // SAFETY: it can be read.
        let [flags, .., stack] = unsafe { arguments.read_unaligned() };
        is_fork(flags as usize, stack as usize)
    }
}

/// Returns the address of libc's vfork.
unsafe extern "C" fn before_vfork() -> *mut c_void {
    keeping_errno(|| guarded(fork::prepare_spills));
    real::address_of_vfork()
}

macro_rules! vfork {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// As the manual page of the C function says.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "x86_64")]
        pub(crate) unsafe extern "C" fn $name() -> pid_t {
            std::arch::naked_asm!(
                "sub rsp, 8",
                "call {before}",
                "add rsp, 8",
                "jmp rax",
                before = sym before_vfork,
            )
        }

        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// As the manual page of the C function says.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "aarch64")]
        pub(crate) unsafe extern "C" fn $name() -> pid_t {
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-16]!",
                "bl {before}",
                "ldp x29, x30, [sp], #16",
                "mov x16, x0",
                "br x16",
                before = sym before_vfork,
            )
        }
    };
}

vfork!(
    /// vfork(2)
    vfork
);
vfork!(
    /// vfork(2)
    __vfork
);
