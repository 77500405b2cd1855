//! dprintf, vdprintf and backtrace_symbols_fd: libc writes to the fd itself, without calling the
//! library.
//!
//! dprintf takes a variable argument list, which stable Rust can neither take nor pass on. The
//! functions of that name here are a few lines of assembly that save every register that an
//! argument can be in, check the fd, and jump to libc's function.

use std::ffi::{c_char, c_int, c_void};

use seekwire_endpoint::Reason;

use super::interpose::interpose;
use crate::fallback::to_tcp;
use crate::ffi::{guarded, keeping_errno};
use crate::{real, table};

/// Called before libc writes to `fd` once.
fn before_print(fd: c_int) {
    guarded(|| {
        if let Some(socket) = table::socket(fd) {
            if socket.connection.is_seeking() {
                // Libc only writes, so holes do no harm.
                _ = socket.send_by_tcp(Reason::Bypassed);
            } else {
                let _ = to_tcp(&socket, Reason::Stdio);
            }
        }
    });
}

/// Runs before dprintf, and returns the address of libc's function to jump to.
unsafe extern "C" fn before_dprintf(fd: c_int) -> *mut c_void {
    keeping_errno(|| before_print(fd));
    real::address_of_dprintf()
}

/// The same for programs built with _FORTIFY_SOURCE.
unsafe extern "C" fn before_dprintf_chk(fd: c_int) -> *mut c_void {
    keeping_errno(|| before_print(fd));
    real::address_of_dprintf_chk()
}

/// Defines a variadic function of libc that calls `$before` with its first argument, and jumps to
/// the address that `$before` returns.
macro_rules! go_on {
    ($(#[$meta:meta])* $name:ident after $before:ident) => {
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// As the manual page of the C function says.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "x86_64")]
        pub(crate) unsafe extern "C-unwind" fn $name() -> c_int {
            // al has the number of vector registers in use; saving all of them is simpler.
            std::arch::naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 192",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "mov [rsp + 48], rax",
                "movups [rsp + 64], xmm0",
                "movups [rsp + 80], xmm1",
                "movups [rsp + 96], xmm2",
                "movups [rsp + 112], xmm3",
                "movups [rsp + 128], xmm4",
                "movups [rsp + 144], xmm5",
                "movups [rsp + 160], xmm6",
                "movups [rsp + 176], xmm7",
                "call {before}",
                "mov r11, rax",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "mov rcx, [rsp + 24]",
                "mov r8, [rsp + 32]",
                "mov r9, [rsp + 40]",
                "mov rax, [rsp + 48]",
                "movups xmm0, [rsp + 64]",
                "movups xmm1, [rsp + 80]",
                "movups xmm2, [rsp + 96]",
                "movups xmm3, [rsp + 112]",
                "movups xmm4, [rsp + 128]",
                "movups xmm5, [rsp + 144]",
                "movups xmm6, [rsp + 160]",
                "movups xmm7, [rsp + 176]",
                "leave",
                "jmp r11",
                before = sym $before,
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
        pub(crate) unsafe extern "C-unwind" fn $name() -> c_int {
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-208]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "stp q0, q1, [sp, #80]",
                "stp q2, q3, [sp, #112]",
                "stp q4, q5, [sp, #144]",
                "stp q6, q7, [sp, #176]",
                "bl {before}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldp x4, x5, [sp, #48]",
                "ldp x6, x7, [sp, #64]",
                "ldp q0, q1, [sp, #80]",
                "ldp q2, q3, [sp, #112]",
                "ldp q4, q5, [sp, #144]",
                "ldp q6, q7, [sp, #176]",
                "ldp x29, x30, [sp], #208",
                "br x16",
                before = sym $before,
            )
        }
    };
}

go_on!(
    /// dprintf(3)
    dprintf after before_dprintf
);
go_on!(
    /// dprintf(3) in programs built with _FORTIFY_SOURCE
    __dprintf_chk after before_dprintf_chk
);

interpose! {
    /// vdprintf(3); a va_list is passed as a pointer on x86-64 and aarch64
    fn vdprintf(
        fd: c_int,
        format: *const c_char,
        arguments: *mut c_void,
    ) -> c_int = table::get(fd) => |object, kernel| {
        drop(object);
        before_print(fd);
        kernel()
    };
    /// vdprintf(3) in programs built with _FORTIFY_SOURCE
    fn __vdprintf_chk(
        fd: c_int,
        flag: c_int,
        format: *const c_char,
        arguments: *mut c_void,
    ) -> c_int = table::get(fd) => |object, kernel| {
        drop(object);
        before_print(fd);
        kernel()
    };
    /// backtrace_symbols_fd(3)
    fn backtrace_symbols_fd(
        frames: *const *mut c_void,
        count: c_int,
        fd: c_int,
    ) -> () = table::get(fd) => |object, kernel| {
        drop(object);
        before_print(fd);
        kernel()
    };
    /// backtrace_symbols_fd(3) by another name
    fn __backtrace_symbols_fd(
        frames: *const *mut c_void,
        count: c_int,
        fd: c_int,
    ) -> () = table::get(fd) => |object, kernel| {
        drop(object);
        before_print(fd);
        kernel()
    };
}
