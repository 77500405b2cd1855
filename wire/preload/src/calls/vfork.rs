//! vfork: the child has the parent's memory, but its own descriptors, so the parent does not have
//! what the child opens. If the child executes a program that inherits sockets, it needs room for
//! their rests, which the parent must have made before.
//!
//! vfork returns twice, on the stack that the child leaves behind. So the function of that name
//! here calls nothing that returns through it: it jumps to libc's vfork.

use std::ffi::c_void;

use crate::ffi::{guarded, keeping_errno};
use crate::{fork, real};

/// Returns the address of libc's vfork.
unsafe extern "C" fn before_vfork() -> *mut c_void {
    keeping_errno(|| guarded(fork::make_room_for_rests));
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
        pub(crate) unsafe extern "C" fn $name() -> libc::pid_t {
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
        pub(crate) unsafe extern "C" fn $name() -> libc::pid_t {
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
