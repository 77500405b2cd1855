//! Remote procedure calls of the C library over a socket of the program's own. Only old programs
//! take these functions from the C library. Newer ones use separate libraries, whose calls are
//! visible.

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use libc::sockaddr_in;

use super::descriptor::hand_to_libc;
use super::interpose::interpose;
use crate::ffi::fail;
use crate::pointers;

/// The number at `place`; -1 asks libc to make a socket.
fn number_at(place: *const c_int) -> c_int {
    // SAFETY: it can be read.
    if pointers::can_read(place, 1) { unsafe { place.read_unaligned() } } else { -1 }
}

interpose! {
    /// clnttcp_create(3)
    fn clnttcp_create(
        address: *mut sockaddr_in,
        program: c_ulong,
        version: c_ulong,
        socket: *mut c_int,
        send_size: c_uint,
        receive_size: c_uint,
    ) -> *mut c_void = Some(hand_to_libc(number_at(socket))) => |handed_over, kernel| handed_over.map_or_else(fail, |()| kernel());
    /// svcfd_create(3)
    fn svcfd_create(
        fd: c_int,
        send_size: c_uint,
        receive_size: c_uint,
    ) -> *mut c_void = Some(hand_to_libc(fd)) => |handed_over, kernel| handed_over.map_or_else(fail, |()| kernel());
    /// xprt_register(3): svc_run polls the number at the beginning of a transport
    fn xprt_register(transport: *mut c_void) -> () = Some(hand_to_libc(number_at(transport.cast()))) => |_given, kernel| kernel();
}
