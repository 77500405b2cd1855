//! The functions of libc that return a new fd for something other than a TCP socket.
//!
//! The new file itself does not matter. But the kernel reuses numbers: if a number is still in the
//! table, its file was closed out of the library's sight, by a system call of the program's own,
//! and the entry must go before the program uses the number for something else. Functions that make
//! TCP sockets, duplicates and epoll sets enter those instead.

use std::ffi::{c_char, c_int, c_uint, c_ushort, c_void};

use libc::{DIR, mode_t, pid_t, sa_family_t, sigset_t, termios, winsize};

use super::interpose::interpose;
use crate::track::fresh;

/// Like [`fresh`], for a call that writes two numbers and returns 0.
///
/// # Safety
///
/// `fds` names two numbers if `result` is 0.
pub(super) unsafe fn fresh_pair(result: c_int, fds: *const c_int) -> c_int {
    if result == 0 {
        // SAFETY: the kernel has just written there, aligned or not.
        let [one, other] = unsafe { [fds.read_unaligned(), fds.add(1).read_unaligned()] };
        fresh(one);
        fresh(other);
    }
    result
}

/// Handles the new number, and if `errors` is not null, the one for a command's standard error.
fn connected(result: c_int, errors: *const c_int) -> c_int {
    if result >= 0 && !errors.is_null() {
        // SAFETY: libc has just written there.
        fresh(unsafe { *errors });
    }
    fresh(result)
}

fn fresh_standard() {
    for fd in 0..=2 {
        fresh(fd);
    }
}

interpose! {
    /// open(2). Variadic in C, as fcntl is
    fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// open(2) in programs built with 64-bit off_t
    fn open64(path: *const c_char, flags: c_int, mode: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// open(2) by another name
    fn __open(path: *const c_char, flags: c_int, mode: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// open(2) by another name
    fn __open64(path: *const c_char, flags: c_int, mode: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// open(2) in programs built with _FORTIFY_SOURCE
    fn __open_2(path: *const c_char, flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// open(2) in programs built with _FORTIFY_SOURCE
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// openat(2). Variadic in C, as fcntl is
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// openat(2) in programs built with 64-bit off_t
    fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// openat(2) in programs built with _FORTIFY_SOURCE
    fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// openat(2) in programs built with _FORTIFY_SOURCE
    fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// creat(2)
    fn creat(path: *const c_char, mode: mode_t) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// creat(2) in programs built with 64-bit off_t
    fn creat64(path: *const c_char, mode: mode_t) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// open_by_handle_at(2)
    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// open_tree(2)
    fn open_tree(dir: c_int, path: *const c_char, flags: c_uint) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// fsopen(2)
    fn fsopen(name: *const c_char, flags: c_uint) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// fsmount(2)
    fn fsmount(context: c_int, flags: c_uint, attributes: c_uint) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// fspick(2)
    fn fspick(dir: c_int, path: *const c_char, flags: c_uint) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// eventfd(2)
    fn eventfd(count: c_uint, flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// memfd_create(2)
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// timerfd_create(2)
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// signalfd(2), which returns the caller's number if it is given one
    fn signalfd(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// inotify_init(2)
    fn inotify_init() -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// inotify_init1(2)
    fn inotify_init1(flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// fanotify_init(2)
    fn fanotify_init(flags: c_uint, event_flags: c_uint) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// pidfd_open(2)
    fn pidfd_open(pid: pid_t, flags: c_uint) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// mkstemp(3)
    fn mkstemp(template: *mut c_char) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// mkstemp(3) in programs built with 64-bit off_t
    fn mkstemp64(template: *mut c_char) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// mkstemps(3)
    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// mkstemps(3) in programs built with 64-bit off_t
    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// mkostemp(3)
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// mkostemp(3) in programs built with 64-bit off_t
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// mkostemps(3)
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// mkostemps(3) in programs built with 64-bit off_t
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// mq_open(3). Variadic in C, as fcntl is
    fn mq_open(name: *const c_char, flags: c_int, mode: mode_t, attributes: *mut c_void) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// mq_open(3) in programs built with _FORTIFY_SOURCE
    fn __mq_open_2(name: *const c_char, flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// shm_open(3)
    fn shm_open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// posix_openpt(3)
    fn posix_openpt(flags: c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// getpt(3)
    fn getpt() -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// pipe(2)
    fn pipe(fds: *mut c_int) -> c_int = Some(()) => |_any, kernel| {
        // SAFETY: the caller's own argument.
        unsafe { fresh_pair(kernel(), fds) }
    };
    /// pipe(2) by another name
    fn __pipe(fds: *mut c_int) -> c_int = Some(()) => |_any, kernel| {
        // SAFETY: the caller's own argument.
        unsafe { fresh_pair(kernel(), fds) }
    };
    /// pipe2(2)
    fn pipe2(fds: *mut c_int, flags: c_int) -> c_int = Some(()) => |_any, kernel| {
        // SAFETY: the caller's own argument.
        unsafe { fresh_pair(kernel(), fds) }
    };
    /// socketpair(2)
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, fds: *mut c_int) -> c_int = Some(()) => |_any, kernel| {
        // SAFETY: the caller's own argument.
        unsafe { fresh_pair(kernel(), fds) }
    };
    /// opendir(3)
    fn opendir(path: *const c_char) -> *mut DIR = Some(()) => |_any, kernel| {
        let directory = kernel();
        if !directory.is_null() {
            // SAFETY: libc has just opened it.
            fresh(unsafe { libc::dirfd(directory) });
        }
        directory
    };
    /// openpty(3)
    fn openpty(controller: *mut c_int, terminal: *mut c_int, name: *mut c_char, settings: *const termios, size: *const winsize) -> c_int = Some(()) => |_any, kernel| {
        let result = kernel();
        if result == 0 {
            // SAFETY: libc has just written there.
            unsafe {
                fresh(*controller);
                fresh(*terminal);
            }
        }
        result
    };
    /// forkpty(3)
    fn forkpty(controller: *mut c_int, name: *mut c_char, settings: *const termios, size: *const winsize) -> pid_t = Some(()) => |_any, kernel| {
        let result = kernel();
        if result > 0 {
            // SAFETY: libc has just written there.
            fresh(unsafe { *controller });
        }
        result
    };
    /// rcmd(3), which connects by itself, like the following functions
    fn rcmd(host: *mut *mut c_char, port: c_ushort, local: *const c_char, remote: *const c_char, command: *const c_char, errors: *mut c_int) -> c_int = Some(()) => |_any, kernel| connected(kernel(), errors);
    /// rcmd(3) of an address family
    fn rcmd_af(host: *mut *mut c_char, port: c_ushort, local: *const c_char, remote: *const c_char, command: *const c_char, errors: *mut c_int, family: sa_family_t) -> c_int = Some(()) => |_any, kernel| connected(kernel(), errors);
    /// rexec(3)
    fn rexec(host: *mut *mut c_char, port: c_int, user: *const c_char, password: *const c_char, command: *const c_char, errors: *mut c_int) -> c_int = Some(()) => |_any, kernel| connected(kernel(), errors);
    /// rexec(3) of an address family
    fn rexec_af(host: *mut *mut c_char, port: c_int, user: *const c_char, password: *const c_char, command: *const c_char, errors: *mut c_int, family: sa_family_t) -> c_int = Some(()) => |_any, kernel| connected(kernel(), errors);
    /// rresvport(3)
    fn rresvport(port: *mut c_int) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// rresvport(3) of an address family
    fn rresvport_af(port: *mut c_int, family: sa_family_t) -> c_int = Some(()) => |_any, kernel| fresh(kernel());
    /// daemon(3), which replaces the standard streams with /dev/null
    fn daemon(stay: c_int, keep: c_int) -> c_int = Some(()) => |_any, kernel| {
        let result = kernel();
        if result == 0 && keep == 0 { fresh_standard(); }
        result
    };
    /// login_tty(3), which replaces them with a terminal
    fn login_tty(fd: c_int) -> c_int = Some(()) => |_any, kernel| {
        let result = kernel();
        if result == 0 { fresh_standard(); }
        result
    };
}
