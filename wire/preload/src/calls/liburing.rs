//! The functions of liburing that make a ring.
//!
//! They make the system call with an inline instruction, which the library cannot see. So it
//! examines the result when they return, and not only when the next connection comes to shared
//! memory.

use std::ffi::{c_int, c_uint, c_void};

use libc::size_t;

use super::interpose::interpose;
use crate::{start, unknown_rings};

/// Called when such a function has returned.
fn made(result: c_int) -> c_int {
    if result >= 0 && start::is_tracking() {
        unknown_rings::look();
    }
    result
}

interpose! {
    /// io_uring_queue_init(3)
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int = Some(()) => |_any, kernel| made(kernel());
    /// io_uring_queue_init_params(3)
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, params: *mut c_void) -> c_int = Some(()) => |_any, kernel| made(kernel());
    /// io_uring_queue_init_try_nosqarr, as the last
    fn io_uring_queue_init_try_nosqarr(entries: c_uint, ring: *mut c_void, params: *mut c_void) -> c_int = Some(()) => |_any, kernel| made(kernel());
    /// io_uring_queue_init_mem(3)
    fn io_uring_queue_init_mem(
        entries: c_uint,
        ring: *mut c_void,
        params: *mut c_void,
        memory: *mut c_void,
        size: size_t,
    ) -> c_int = Some(()) => |_any, kernel| made(kernel());
    /// io_uring_setup(2), which liburing also exports
    fn io_uring_setup(entries: c_uint, params: *mut c_void) -> c_int = Some(()) => |_any, kernel| made(kernel());
}
