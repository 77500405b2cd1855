//! Makes system calls by number, for calls that come through syscall(2).

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::ffi::set_errno;
use crate::real;

/// The function that makes a system call: the C library's, or the next library's, once the process
/// has started. Until then it is our own, because looking up theirs may allocate memory, and the
/// allocator may be the caller.
pub(crate) static NEXT: AtomicPtr<c_void> = AtomicPtr::new(make as *const () as *mut c_void);

/// Call it when the process starts.
pub(crate) fn start() {
    let next = real::address_of_syscall();
    if !next.is_null() {
        NEXT.store(next, Ordering::Release);
    }
}

/// Makes the system call like the C library.
///
/// # Safety
///
/// As the manual page of syscall says.
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn make() -> c_long {
    std::arch::naked_asm!(
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "mov rdi, rax",
        "jmp {failed}",
        failed = sym failed,
    )
}

/// The same for aarch64; see above.
///
/// # Safety
///
/// As the manual page of syscall says.
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
unsafe extern "C" fn make() -> c_long {
    std::arch::naked_asm!(
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc #0",
        "cmn x0, #4095",
        "b.hs 2f",
        "ret",
        "2:",
        "b {failed}",
        failed = sym failed,
    )
}

extern "C" fn failed(result: c_long) -> c_long {
    set_errno(-result as c_int);
    -1
}

type Call = unsafe extern "C-unwind" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// Makes a system call with unchanged arguments.
///
/// # Safety
///
/// As the manual page of the call says.
pub(crate) unsafe fn next(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> c_long {
    // SAFETY: the function in NEXT takes at most this many; the caller's own arguments.
    unsafe {
        let next: Call = std::mem::transmute(NEXT.load(Ordering::Acquire));
        next(number, a, b, c, d, e, f)
    }
}
