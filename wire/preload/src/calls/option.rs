//! setsockopt, and the getsockopt that receives. All other results of getsockopt are correct as
//! they are: the kernel's socket has every option.

use std::ffi::{c_int, c_void};

use libc::{
    IPPROTO_TCP, SO_ERROR, SO_PEEK_OFF, SOL_SOCKET, TCP_ULP, TCP_ZEROCOPY_RECEIVE, socklen_t,
};
use seekwire_endpoint::Reason;
use seekwire_transport::Errno;

use super::control::has_ended;
use super::interpose::interpose;
use super::options::{self, Effect};
use crate::call_path::CallPath;
use crate::fallback::to_tcp;
use crate::fd_numbers::Last;
use crate::ffi::{fail, guarded, keeping_errno};
use crate::table::{self, SocketRef};
use crate::{log, pointers, socket_options, track};

interpose! {
    /// setsockopt(2)
    fn setsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *const c_void,
        len: socklen_t,
    ) -> c_int = table::socket(fd) => |socket, kernel| {
        if (level, name) == (SOL_SOCKET, SO_PEEK_OFF) && socket.connection.is_seeking() {
            // The library itself uses this option to look at the kernel's queue.
            return fail(Errno::BUSY);
        }
        let effect = options::of_option(level, name);
        if matches!(effect, Effect::Tcp | Effect::LetGo) && !socket.is_listening() {
            keeping_errno(|| guarded(|| say_why(fd, level, name)));
        }
        // The kernel transforms no bytes before it has keys, and often it cannot do it at all.
        let is_tried = (level, name) == (IPPROTO_TCP, TCP_ULP) && !socket.connection.is_seeking();
        if effect == Effect::LetGo && !is_tried && let Err(error) = before_letting_go(&socket) {
            return fail(error);
        }
        if matches!(effect, Effect::Told | Effect::Tcp) {
            socket.connection.set_wants_kernel_messages();
            if effect == Effect::Tcp {
                let _ = keeping_errno(|| socket.fall_back(Reason::UnknownOption));
            }
        }
        let result = kernel();
        if result != 0 {
            return result;
        }
        if effect == Effect::LetGo {
            if is_tried {
                let _ = before_letting_go(&socket);
            }
            drop(socket);
            keeping_errno(|| track::untrack(fd, Last::Kept));
        } else if effect == Effect::Followed && !value.is_null() {
            // SAFETY: the kernel has just read `len` bytes from there.
            unsafe { socket_options::remember(&socket, level, name, value, len) };
        }
        result
    };
    /// getsockopt(2); one option receives, and one returns the pending error
    fn getsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        len: *mut socklen_t,
    ) -> c_int = table::socket(fd).filter(|_| concerns_library(level, name)) => |socket, kernel| {
        if level == SOL_SOCKET {
            let result = kernel();
            guarded(|| {
                socket.connection.note_reported_end();
                if result == 0 {
                    // SAFETY: the kernel has just written the error there, or as much of it as
                    // fits.
                    unsafe { return_kept_error(&socket, value.cast(), len) };
                }
            });
            return result;
        }
        match socket.enter_to_receive() {
            // The kernel's own call is not counted.
            CallPath::Plain(_) | CallPath::Unseen => {
                let _ = keeping_errno(|| socket.fall_back(Reason::UnknownOption));
                kernel()
            }
            CallPath::Library => match nothing_mapped(&socket, value.cast(), len) {
                Ok(()) => 0,
                Err(error) => fail(error),
            },
        }
    };
}

/// Reports the option for which a connection goes by TCP.
fn say_why(fd: c_int, level: c_int, name: c_int) {
    match options::described(level, name) {
        Some((option, why)) => log::info!("fd {fd}: {option} needs TCP: {why}"),
        None => log::info!("fd {fd}: option {name} of level {level} is unknown and needs TCP"),
    }
}

fn concerns_library(level: c_int, name: c_int) -> bool {
    [(IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE), (SOL_SOCKET, SO_ERROR)].contains(&(level, name))
}

/// Replaces a result of 0 with an error that only the library knows.
///
/// # Safety
///
/// `len` must be readable, and that many bytes at `value` readable and writable.
unsafe fn return_kept_error(socket: &SocketRef, value: *mut u8, len: *const socklen_t) {
    // SAFETY: as the caller says.
    let written = unsafe {
        let len = (len.read_unaligned() as usize).min(size_of::<c_int>());
        std::slice::from_raw_parts_mut(value, len)
    };
    if written.iter().all(|byte| *byte == 0)
        && !written.is_empty()
        && let Some(error) = socket.connection.take_kept_error()
    {
        let bytes = error.raw_os_error().to_ne_bytes();
        written.copy_from_slice(&bytes[..written.len()]);
    }
}

/// Called before the socket goes on without the library.
fn before_letting_go(socket: &SocketRef) -> Result<(), Errno> {
    if socket.is_listening() { Ok(()) } else { to_tcp(socket, Reason::UnknownOption).map(drop) }
}

/// struct tcp_zerocopy_receive of linux/tcp.h.
#[repr(C)]
struct Mapped {
    address: u64,
    length: u32,
    recv_skip_hint: u32,
    inq: u32,
    err: i32,
    copybuf_address: u64,
    copybuf_len: i32,
    flags: u32,
    msg_control: u64,
    msg_controllen: u64,
    msg_flags: u32,
    reserved: u32,
}

/// Answers that no bytes can be mapped, and how many are to be received in the usual way.
fn nothing_mapped(socket: &SocketRef, place: *mut u8, len: *mut socklen_t) -> Result<(), Errno> {
    if !pointers::can_write(len, 1) {
        return Err(Errno::FAULT);
    }
    // SAFETY: it can be read.
    let room = unsafe { len.read_unaligned() } as usize;
    if room < std::mem::offset_of!(Mapped, recv_skip_hint) {
        return Err(Errno::INVAL);
    }
    let room = room.min(size_of::<Mapped>());
    if !pointers::can_write(place, room) {
        return Err(Errno::FAULT);
    }
    let unread = u32::try_from(socket.connection.unread()?).unwrap_or(u32::MAX);
    let end = u32::from(has_ended(socket));
    if unread == 0 && end > 0 {
        return Err(Errno::IO);
    }
    // SAFETY: this many bytes can be read and written, and every pattern of them is valid.
    unsafe {
        let mut answer: Mapped = std::mem::zeroed();
        std::ptr::copy_nonoverlapping(place.cast_const(), (&raw mut answer).cast(), room);
        (answer.length, answer.copybuf_len) = (0, 0);
        (answer.recv_skip_hint, answer.inq) = (unread, unread.saturating_add(end));
        (answer.err, answer.msg_flags) = (0, 0);
        std::ptr::copy_nonoverlapping((&raw const answer).cast(), place, room);
    }
    Ok(())
}
