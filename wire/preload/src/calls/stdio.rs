//! Streams of the C library (FILE): if one is opened over a socket, libc uses the socket without
//! calling the library; if one is opened or closed at any other number, the library notes that
//! ([`crate::stdio_streams`]).

use std::ffi::{c_char, c_int};

use libc::FILE;

use super::descriptor::hand_to_libc;
use super::exec::before_shell;
use super::interpose::interpose;
use crate::ffi::fail;
use crate::stdio_streams;
use crate::track::fresh;

/// Called when `file` was opened at a new number, or could not be opened.
fn opened(file: *mut FILE) -> *mut FILE {
    if !file.is_null() {
        // SAFETY: libc has just opened it.
        let fd = unsafe { stdio_streams::number(file) };
        fresh(fd);
        stdio_streams::opened(fd);
    }
    file
}

/// Opens a stream over a number that is already open.
fn attached(fd: c_int, kernel: impl FnOnce() -> *mut FILE) -> *mut FILE {
    if let Err(error) = hand_to_libc(fd) {
        return fail(error);
    }
    let file = kernel();
    if !file.is_null() {
        stdio_streams::opened(fd);
    }
    file
}

/// freopen: libc opens the new file at the number of the old one, if that has one, and closes the
/// stream on failure.
///
/// # Safety
///
/// `file` is an open stream.
unsafe fn reopened(file: *mut FILE, kernel: impl FnOnce() -> *mut FILE) -> *mut FILE {
    // SAFETY: as the caller says.
    stdio_streams::closing(unsafe { stdio_streams::number(file) });
    opened(kernel())
}

/// # Safety
///
/// `file` is an open stream.
unsafe fn closed(file: *mut FILE, kernel: impl FnOnce() -> c_int) -> c_int {
    // Done before closing, because another thread may get the number at once.
    // SAFETY: as the caller says.
    stdio_streams::closing(unsafe { stdio_streams::number(file) });
    kernel()
}

interpose! {
    /// fdopen(3)
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = Some(()) => |_any, kernel| attached(fd, kernel);
    /// fdopen(3) by its old name
    fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = Some(()) => |_any, kernel| attached(fd, kernel);
    /// fdopen(3) as used by old C++ libraries
    fn _IO_file_attach(file: *mut FILE, fd: c_int) -> *mut FILE = Some(()) => |_any, kernel| attached(fd, kernel);
    /// fopen(3)
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE = Some(()) => |_any, kernel| opened(kernel());
    /// fopen(3) in programs built with 64-bit off_t
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE = Some(()) => |_any, kernel| opened(kernel());
    /// fopen(3) by its old name
    fn _IO_fopen(path: *const c_char, mode: *const c_char) -> *mut FILE = Some(()) => |_any, kernel| opened(kernel());
    /// tmpfile(3)
    fn tmpfile() -> *mut FILE = Some(()) => |_any, kernel| opened(kernel());
    /// tmpfile(3) in programs built with 64-bit off_t
    fn tmpfile64() -> *mut FILE = Some(()) => |_any, kernel| opened(kernel());
    /// freopen(3)
    fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE = Some(()) => |_any, kernel| {
        // SAFETY: the caller's own stream.
        unsafe { reopened(file, kernel) }
    };
    /// freopen(3) in programs built with 64-bit off_t
    fn freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE = Some(()) => |_any, kernel| {
        // SAFETY: the caller's own stream.
        unsafe { reopened(file, kernel) }
    };
    /// popen(3): libc starts the shell without posix_spawn() by its name
    fn popen(command: *const c_char, kind: *const c_char) -> *mut FILE = Some(()) => |_any, kernel| {
        before_shell();
        opened(kernel())
    };
    /// popen(3) by its old name
    fn _IO_popen(command: *const c_char, kind: *const c_char) -> *mut FILE = Some(()) => |_any, kernel| {
        before_shell();
        opened(kernel())
    };
    /// The basis of popen(3)
    fn _IO_proc_open(file: *mut FILE, command: *const c_char, kind: *const c_char) -> *mut FILE = Some(()) => |_any, kernel| {
        before_shell();
        opened(kernel())
    };
    /// fclose(3)
    fn fclose(file: *mut FILE) -> c_int = Some(()) => |_any, kernel| {
        // SAFETY: the caller's own stream.
        unsafe { closed(file, kernel) }
    };
    /// fclose(3) by its old name
    fn _IO_fclose(file: *mut FILE) -> c_int = Some(()) => |_any, kernel| {
        // SAFETY: the caller's own stream.
        unsafe { closed(file, kernel) }
    };
    /// pclose(3)
    fn pclose(file: *mut FILE) -> c_int = Some(()) => |_any, kernel| {
        // SAFETY: the caller's own stream.
        unsafe { closed(file, kernel) }
    };
}
