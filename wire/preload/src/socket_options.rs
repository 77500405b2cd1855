//! Socket options that a connection itself has to follow.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use libc::{
    IPPROTO_TCP, SO_RCVLOWAT, SO_RCVTIMEO, SO_SNDTIMEO, SOL_SOCKET, TCP_CORK, TCP_INQ, TCP_NODELAY,
    socklen_t, timeval,
};
use seekwire_endpoint::Settings;

use crate::ffi::keeping_errno;
use crate::real;
use crate::socket::Socket;

/// Names for programs with a 64-bit time_t, which are the same on 64-bit processors.
const SO_RCVTIMEO_NEW: c_int = 66;
const SO_SNDTIMEO_NEW: c_int = 67;

/// Notes the options that the connection itself has to follow.
///
/// # Safety
///
/// `value` must be readable for `len` bytes, which the kernel has accepted for this option.
pub(crate) unsafe fn remember(
    socket: &Socket,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) {
    let len = len as usize;
    match name {
        TCP_INQ if level == IPPROTO_TCP && len >= size_of::<c_int>() => {
            // SAFETY: as the caller says; options need not be aligned.
            let on = unsafe { value.cast::<c_int>().read_unaligned() } != 0;
            socket.connection.set_reports_unread(on);
        }
        TCP_CORK | TCP_NODELAY if level == IPPROTO_TCP && len >= size_of::<c_int>() => {
            // SAFETY: as above.
            let on = unsafe { value.cast::<c_int>().read_unaligned() } != 0;
            // Both removing the cork and setting TCP_NODELAY send the bytes that were held back.
            socket.connection.follow_cork(on == (name == TCP_NODELAY));
        }
        _ if level != SOL_SOCKET => {}
        SO_RCVTIMEO | SO_SNDTIMEO | SO_RCVTIMEO_NEW | SO_SNDTIMEO_NEW
            if len >= size_of::<timeval>() =>
        {
            // SAFETY: as above.
            let value = unsafe { value.cast::<timeval>().read_unaligned() };
            let limit = duration(value);
            match name {
                SO_RCVTIMEO | SO_RCVTIMEO_NEW => socket.set_recv_timeout(limit),
                _ => socket.set_send_timeout(limit),
            }
        }
        SO_RCVLOWAT if len >= size_of::<c_int>() => {
            // SAFETY: as above.
            let value = unsafe { value.cast::<c_int>().read_unaligned() };
            socket.set_low_water(low_water(value));
        }
        _ => {}
    }
}

/// Zero means no timeout. If a timeout had expired before it began, the kernel always gives up at
/// once, but getsockopt does not distinguish that from none.
fn duration(value: timeval) -> Option<Duration> {
    let Ok(seconds) = u64::try_from(value.tv_sec) else { return Some(Settings::AT_ONCE) };
    let limit = Duration::from_secs(seconds)
        .checked_add(Duration::from_micros(u64::try_from(value.tv_usec).ok()?))?;
    (!limit.is_zero()).then_some(limit)
}

/// Like the kernel, treats 0 as 1 and a negative number as the maximum.
fn low_water(value: c_int) -> usize {
    usize::try_from(value).map_or(c_int::MAX as usize, |value| value.max(1))
}

/// Reads the options of a socket that this process did not make. A listener passes its options on
/// to accepted sockets.
pub(crate) fn read_inherited(socket: &Socket, fd: c_int) {
    keeping_errno(|| {
        let names = [SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVLOWAT].map(|name| (SOL_SOCKET, name));
        for (level, name) in names.into_iter().chain([(IPPROTO_TCP, TCP_INQ)]) {
            let mut value = [0u64; 2];
            let mut len = size_of_val(&value) as socklen_t;
            // SAFETY: room for the largest of them, and its size; the kernel sets `len` to the
            // length that it has written.
            unsafe {
                if real::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut len) == 0 {
                    remember(socket, level, name, value.as_ptr().cast(), len);
                }
            }
        }
    });
}
