//! Functions of libc that reach a socket under other names, or from inside libc: names with two
//! underscores, sockatmark, and asynchronous I/O, whose threads read and write with libc's own
//! functions.

use std::ffi::{c_int, c_void};

use libc::{
    aiocb, fd_set, nfds_t, pollfd, sigevent, size_t, sockaddr, socklen_t, ssize_t, timeval,
};

use super::descriptor::{SIOCATMARK, hand_to_libc};
use super::interpose::interpose;
use super::{descriptor, open, poll, receive, select, send};
use crate::ffi::fail;
use crate::pointers;

macro_rules! alias {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty = $of:path;)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// As the manual page says.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: these are the caller's own arguments.
            unsafe { $of($($arg),*) }
        }
    )*};
}

alias! {
    /// read(2)
    fn __read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t = receive::read;
    /// write(2)
    fn __write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t = send::write;
    /// send(2)
    fn __send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t = send::send;
    /// close(2)
    fn __close(fd: c_int) -> c_int = open::close;
    /// connect(2)
    fn __connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int = open::connect;
    /// dup2(2)
    fn __dup2(from: c_int, to: c_int) -> c_int = descriptor::dup2;
    /// fcntl(2)
    fn __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = descriptor::fcntl;
    /// poll(2)
    fn __poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = poll::poll;
    /// select(2)
    fn __select(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int = select::select;
}

/// sockatmark(3)
///
/// # Safety
///
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sockatmark(fd: c_int) -> c_int {
    let mut at: c_int = 0;
    // SAFETY: writes to a live integer.
    let result = unsafe { descriptor::ioctl(fd, SIOCATMARK, (&raw mut at).expose_provenance()) };
    if result < 0 { result } else { at }
}

/// eventfd_read(3), which reads from any descriptor
///
/// # Safety
///
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn eventfd_read(fd: c_int, value: *mut u64) -> c_int {
    // SAFETY: the caller's own arguments.
    let result = unsafe { receive::read(fd, value.cast(), size_of::<u64>()) };
    if result == size_of::<u64>() as ssize_t { 0 } else { -1 }
}

/// eventfd_write(3), which writes to any descriptor
///
/// # Safety
///
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn eventfd_write(fd: c_int, value: u64) -> c_int {
    // SAFETY: a live integer.
    let result = unsafe { send::write(fd, (&raw const value).cast(), size_of::<u64>()) };
    if result == size_of::<u64>() as ssize_t { 0 } else { -1 }
}

/// Hands over the socket of a request for asynchronous I/O, which libc performs without calling the
/// library.
fn before_aio(request: *const aiocb) -> Option<c_int> {
    if !pointers::can_read(request, 1) {
        return None;
    }
    // SAFETY: it can be read.
    let fd = unsafe { (&raw const (*request).aio_fildes).read_unaligned() };
    hand_to_libc(fd).err().map(fail)
}

/// Like [`before_aio`], for a list.
fn before_list(list: *const *mut aiocb, count: c_int) -> Option<c_int> {
    let count = usize::try_from(count).ok().filter(|&count| pointers::can_read(list, count))?;
    // SAFETY: this many pointers can be read.
    (0..count).find_map(|at| before_aio(unsafe { list.add(at).read_unaligned() }))
}

interpose! {
    /// aio_read(3)
    fn aio_read(request: *mut aiocb) -> c_int = Some(before_aio(request)) => |failed, kernel| {
        failed.unwrap_or_else(kernel)
    };
    /// aio_read(3) in programs built with 64-bit off_t
    fn aio_read64(request: *mut aiocb) -> c_int = Some(before_aio(request)) => |failed, kernel| {
        failed.unwrap_or_else(kernel)
    };
    /// aio_write(3)
    fn aio_write(request: *mut aiocb) -> c_int = Some(before_aio(request)) => |failed, kernel| {
        failed.unwrap_or_else(kernel)
    };
    /// aio_write(3) in programs built with 64-bit off_t
    fn aio_write64(request: *mut aiocb) -> c_int = Some(before_aio(request)) => |failed, kernel| {
        failed.unwrap_or_else(kernel)
    };
    /// lio_listio(3)
    fn lio_listio(
        mode: c_int,
        list: *const *mut aiocb,
        count: c_int,
        event: *mut sigevent,
    ) -> c_int = Some(before_list(list, count)) => |failed, kernel| {
        failed.unwrap_or_else(kernel)
    };
    /// lio_listio(3) in programs built with 64-bit off_t
    fn lio_listio64(
        mode: c_int,
        list: *const *mut aiocb,
        count: c_int,
        event: *mut sigevent,
    ) -> c_int = Some(before_list(list, count)) => |failed, kernel| {
        failed.unwrap_or_else(kernel)
    };
}
