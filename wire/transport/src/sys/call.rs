//! System calls by number, for those that rustix does not have.
//!
//! Not through libc's syscall(): that is the preload library's, which handles numbers that the
//! application passes to it.

use crate::Errno;

/// Makes a system call.
///
/// # Errors
/// Those of the call.
///
/// # Safety
/// As the manual page of the call states.
#[inline]
pub unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller's own arguments.
    match unsafe { make(number, arguments) } {
        result @ -4095..=-1 => Err(Errno::from_raw_os_error(-result as i32)),
        result => Ok(result as usize),
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn make(number: libc::c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let result;
    // SAFETY: the kernel's convention: it keeps all registers but rcx and r11. The caller is
    // responsible for what it does to memory.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline]
unsafe fn make(number: libc::c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let result;
    // SAFETY: the kernel's convention: it keeps all registers but x0. The caller is responsible for
    // what it does to memory.
    unsafe {
        std::arch::asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            in("x4") e,
            in("x5") f,
            options(nostack),
        );
    }
    result
}

/// Miri knows some of libc's calls.
#[cfg(miri)]
unsafe fn make(number: libc::c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: the caller's own arguments.
    #[expect(clippy::disallowed_methods, reason = "nothing is preloaded into miri")]
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => -(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) as isize),
        result => result as isize,
    }
}
