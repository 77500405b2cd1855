//! setsockopt. What getsockopt tells is true as it is: the kernel's socket has every option.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use endpoint::{Connection, Reason};
use libc::{
    IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SO_BINDTODEVICE, SO_BROADCAST, SO_DEBUG, SO_DONTROUTE,
    SO_INCOMING_CPU, SO_KEEPALIVE, SO_LINGER, SO_MARK, SO_MAX_PACING_RATE, SO_NO_CHECK, SO_PEEK_OFF,
    SO_PRIORITY, SO_RCVBUF, SO_RCVBUFFORCE, SO_RCVLOWAT, SO_RCVTIMEO, SO_REUSEADDR, SO_REUSEPORT, SO_SNDBUF,
    SO_SNDBUFFORCE, SO_SNDLOWAT, SO_SNDTIMEO, SOL_SOCKET, TCP_CONGESTION, TCP_CORK, TCP_DEFER_ACCEPT,
    TCP_FASTOPEN, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_LINGER2, TCP_MAXSEG, TCP_NODELAY,
    TCP_NOTSENT_LOWAT, TCP_QUICKACK, TCP_SYNCNT, TCP_THIN_DUPACK, TCP_THIN_LINEAR_TIMEOUTS, TCP_USER_TIMEOUT,
    TCP_WINDOW_CLAMP, socklen_t, timeval,
};

use transport::Errno;

use super::interpose;
use crate::border::{fail, keeping_errno};
use crate::socket::Socket;
use crate::table;

const SO_BUSY_POLL: c_int = 46;
const SO_PREFER_BUSY_POLL: c_int = 69;
/// Those of programs with a time_t of 64 bits, which on a processor of 64 bits are the same.
const SO_RCVTIMEO_NEW: c_int = 66;
const SO_SNDTIMEO_NEW: c_int = 67;

/// Options that are about the kernel's socket and mean nothing, or the same, to bytes on the ring.
fn is_harmless(level: c_int, name: c_int) -> bool {
    match level {
        SOL_SOCKET => matches!(
            name,
            SO_DEBUG
                | SO_REUSEADDR
                | SO_REUSEPORT
                | SO_KEEPALIVE
                | SO_DONTROUTE
                | SO_BROADCAST
                | SO_LINGER
                | SO_SNDBUF
                | SO_RCVBUF
                | SO_SNDBUFFORCE
                | SO_RCVBUFFORCE
                | SO_RCVLOWAT
                | SO_SNDLOWAT
                | SO_RCVTIMEO
                | SO_SNDTIMEO
                | SO_RCVTIMEO_NEW
                | SO_SNDTIMEO_NEW
                | SO_PRIORITY
                | SO_NO_CHECK
                | SO_MARK
                | SO_BINDTODEVICE
                | SO_MAX_PACING_RATE
                | SO_INCOMING_CPU
                | SO_BUSY_POLL
                | SO_PREFER_BUSY_POLL
        ),
        IPPROTO_TCP => matches!(
            name,
            TCP_NODELAY
                | TCP_MAXSEG
                | TCP_CORK
                | TCP_KEEPIDLE
                | TCP_KEEPINTVL
                | TCP_KEEPCNT
                | TCP_SYNCNT
                | TCP_LINGER2
                | TCP_DEFER_ACCEPT
                | TCP_WINDOW_CLAMP
                | TCP_QUICKACK
                | TCP_CONGESTION
                | TCP_USER_TIMEOUT
                | TCP_FASTOPEN
                | TCP_NOTSENT_LOWAT
                | TCP_THIN_LINEAR_TIMEOUTS
                | TCP_THIN_DUPACK
        ),
        // Type of service, time to live and the like: none of them reaches the application's data. Those
        // that ask for control messages have no effect on TCP.
        IPPROTO_IP | IPPROTO_IPV6 => true,
        _ => false,
    }
}

/// The connection acts by these itself.
///
/// # Safety
///
/// `value` must be readable for `len` bytes, which the kernel has accepted for this option.
unsafe fn remember(socket: &Socket, name: c_int, value: *const c_void, len: socklen_t) {
    let len = len as usize;
    match name {
        SO_RCVTIMEO | SO_SNDTIMEO | SO_RCVTIMEO_NEW | SO_SNDTIMEO_NEW if len >= size_of::<timeval>() => {
            // SAFETY: as the caller says; options need not be aligned.
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

/// Zero means none. Where the time was over before it began, the kernel gives up at once, each time; it does not tell that
/// from none when it is asked.
fn duration(value: timeval) -> Option<Duration> {
    let Ok(seconds) = u64::try_from(value.tv_sec) else { return Some(Connection::AT_ONCE) };
    let limit = Duration::from_secs(seconds)
        .checked_add(Duration::from_micros(u64::try_from(value.tv_usec).ok()?))?;
    (!limit.is_zero()).then_some(limit)
}

/// The kernel takes 0 for 1 and a negative number for the largest.
fn low_water(value: c_int) -> usize {
    usize::try_from(value).map_or(c_int::MAX as usize, |value| value.max(1))
}

/// Options of a socket that this process did not make; those of a listener are inherited by what it accepts.
pub(crate) fn read_inherited(socket: &Socket, fd: c_int) {
    keeping_errno(|| {
        for name in [SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVLOWAT] {
            let mut value = [0u64; 2];
            let mut len = size_of_val(&value) as socklen_t;
            // SAFETY: room for the largest of them, and its size; the kernel sets `len` to what it has
            // written.
            unsafe {
                if libc::getsockopt(fd, SOL_SOCKET, name, value.as_mut_ptr().cast(), &raw mut len) == 0 {
                    remember(socket, name, value.as_ptr().cast(), len);
                }
            }
        }
    });
}

interpose! {
    /// setsockopt(2)
    fn setsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *const c_void,
        len: socklen_t,
    ) -> c_int = table::socket(fd) => |socket, kernel| {
        if (level, name) == (SOL_SOCKET, SO_PEEK_OFF) && socket.connection.is_sought() {
            // The library looks at the kernel's queue by this option itself.
            return fail(Errno::BUSY);
        }
        if !is_harmless(level, name) && !socket.is_listening() {
            let _ = keeping_errno(|| socket.fall_back(Reason::UnknownOption));
        }
        let result = kernel();
        if result == 0 && level == SOL_SOCKET && !value.is_null() {
            // SAFETY: the kernel has just read `len` bytes from there.
            unsafe { remember(&socket, name, value, len) };
        }
        result
    };
}
