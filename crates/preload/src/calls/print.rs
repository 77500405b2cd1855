//! fdopen, dprintf and vdprintf: libc writes to the fd itself, behind the library's back.

use std::ffi::{c_char, c_int, c_void};

use endpoint::Reason;
use libc::FILE;

use super::descriptor::hand_to_libc;
use super::interpose;
use crate::border::guarded;
use crate::{passed, table};

/// Before libc writes to `fd` once.
fn before_print(fd: c_int) {
    guarded(|| {
        if let Some(socket) = table::socket(fd) {
            passed::to_tcp(&socket, Reason::Stdio);
        }
    });
}

interpose! {
    /// fdopen(3)
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = table::get(fd) => |object, kernel| {
        drop(object);
        hand_to_libc(fd);
        kernel()
    };
    /// fdopen(3) by its old name
    fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = table::get(fd) => |object, kernel| {
        drop(object);
        hand_to_libc(fd);
        kernel()
    };
    /// vdprintf(3); a va_list travels as a pointer on x86-64 and aarch64
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int = table::get(fd) => |object, kernel| {
        drop(object);
        before_print(fd);
        kernel()
    };
    /// vdprintf(3) in programs built with _FORTIFY_SOURCE
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int = table::get(fd) => |object, kernel| {
        drop(object);
        before_print(fd);
        kernel()
    };
}
