//! System calls that no library can intercept.

use std::arch::asm;
use std::mem::{size_of, zeroed};

/// A value, and `errno` if it is -1.
pub(crate) type SyscallResult = (i64, i32);

pub(super) fn loopback(port: u16) -> libc::sockaddr_in {
    // SAFETY: sockaddr_in is integers only, for which zero is valid.
    let mut address: libc::sockaddr_in = unsafe { zeroed() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_port = port.to_be();
    address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    address
}

/// Makes a system call with the bare instruction.
pub(crate) fn call(number: i64, arguments: [i64; 6]) -> SyscallResult {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let value: i64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention; callers pass pointers to live memory of the length
    // that the call takes.
    unsafe {
        asm!("syscall", inlateout("rax") number => value, in("rdi") first, in("rsi") second, in("rdx") third,
            in("r10") fourth, in("r8") fifth, in("r9") sixth, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") first => value, in("x1") second, in("x2") third,
            in("x3") fourth, in("x4") fifth, in("x5") sixth, options(nostack));
    }
    if value < 0 { (-1, -value as i32) } else { (value, 0) }
}

/// The port of one end of a TCP socket.
pub(crate) fn name(fd: i32, remote: bool) -> Option<u16> {
    let mut address = loopback(0);
    address.sin_family = 0;
    let mut length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    let number = if remote { libc::SYS_getpeername } else { libc::SYS_getsockname };
    let places = [(&raw mut address) as i64, (&raw mut length) as i64];
    let done = call(number, [fd.into(), places[0], places[1], 0, 0, 0]);
    (done.0 == 0 && address.sin_family == libc::AF_INET as libc::sa_family_t)
        .then(|| u16::from_be(address.sin_port))
}

/// The socket's cookie: a number from the kernel that no other socket ever has.
pub(crate) fn cookie(fd: i32) -> Option<u64> {
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    let places = [(&raw mut cookie) as i64, (&raw mut length) as i64];
    let arguments =
        [fd.into(), libc::SOL_SOCKET.into(), libc::SO_COOKIE.into(), places[0], places[1], 0];
    (call(libc::SYS_getsockopt, arguments).0 == 0).then_some(cookie)
}

/// Whether a number is a descriptor.
pub(crate) fn is_open(fd: i32) -> bool {
    call(libc::SYS_fcntl, [fd.into(), libc::F_GETFD.into(), 0, 0, 0, 0]).0 >= 0
}

/// Reads all of it; false at the end.
pub(crate) fn read_all(fd: i32, room: &mut [u8]) -> bool {
    let mut done = 0;
    while done < room.len() {
        let rest = &mut room[done..];
        match call(
            libc::SYS_read,
            [fd.into(), rest.as_mut_ptr() as i64, rest.len() as i64, 0, 0, 0],
        ) {
            (-1, libc::EINTR) => {}
            (count, _) if count > 0 => done += count as usize,
            _ => return false,
        }
    }
    true
}

/// Writes all of it; false if nobody reads.
pub(crate) fn write_all(fd: i32, bytes: &[u8]) -> bool {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        match call(libc::SYS_write, [fd.into(), rest.as_ptr() as i64, rest.len() as i64, 0, 0, 0]) {
            (-1, libc::EINTR) => {}
            (count, _) if count > 0 => done += count as usize,
            _ => return false,
        }
    }
    true
}
