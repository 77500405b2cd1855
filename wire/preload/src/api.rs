//! The C API, as declared in wire/include/seekwire.h. All of it is guarded: a panic becomes EIO.

use std::ffi::{c_char, c_int};
use std::mem::offset_of;

use seekwire_endpoint::{Carrier, Reason};
use seekwire_transport::Errno;

use crate::ffi::{guarded_own, keeping_errno, status};
use crate::{pointers, table};

/// struct seekwire_status
#[repr(C)]
pub(crate) struct SeekwireStatus {
    size: u32,
    attached: u32,
    tx_carrier: u32,
    rx_carrier: u32,
    tx_tcp: u64,
    tx_ring: u64,
    rx_tcp: u64,
    rx_ring: u64,
}

const _: () =
    assert!(size_of::<SeekwireStatus>() == 48 && offset_of!(SeekwireStatus, tx_tcp) == 16);

/// Checks that `fd` is a TCP socket; returns the error of the C API if not.
pub(crate) fn check(fd: c_int) -> Result<(), Errno> {
    let option = |name| {
        let mut value: c_int = 0;
        let mut len = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: a live integer and its size.
        let result = unsafe {
            libc::getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut len)
        };
        if result == 0 { Ok(value) } else { Err(Errno::from_raw_os_error(crate::ffi::errno())) }
    };
    keeping_errno(|| {
        let is_tcp = option(libc::SO_PROTOCOL)? == libc::IPPROTO_TCP
            && option(libc::SO_TYPE)? == libc::SOCK_STREAM;
        if is_tcp { Ok(()) } else { Err(Errno::INVAL) }
    })
}

/// Checks that the caller's struct, whose first member is its size, has room for a `T`. A longer
/// struct comes from a later version: members unknown to this version stay unchanged, and the
/// returned size shows that.
///
/// # Safety
///
/// `into` must be null, lead nowhere, or point to a struct whose first member holds its size.
pub(crate) unsafe fn has_room<T>(into: *mut T) -> Result<(), Errno> {
    if into.is_null() {
        return Err(Errno::INVAL);
    }
    if !pointers::can_read(into.cast::<u32>(), 1) {
        return Err(Errno::FAULT);
    }
    // SAFETY: it can be read.
    if (unsafe { into.cast::<u32>().read() } as usize) < size_of::<T>() {
        return Err(Errno::INVAL);
    }
    if pointers::can_write(into, 1) { Ok(()) } else { Err(Errno::FAULT) }
}

fn carrier(carrier: Carrier) -> u32 {
    match carrier {
        Carrier::Tcp => 0,
        Carrier::Ring => 1,
    }
}

/// Version of the library.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn seekwire_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// State of one connection.
///
/// # Safety
///
/// `into` must be null or point to a struct whose first member holds its size.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn seekwire_status(fd: c_int, into: *mut SeekwireStatus) -> c_int {
    status(guarded_own(|| {
        check(fd)?;
        // SAFETY: as the caller says.
        unsafe { has_room(into)? };
        let mut filled = SeekwireStatus {
            size: size_of::<SeekwireStatus>() as u32,
            attached: 0,
            tx_carrier: 0,
            rx_carrier: 0,
            tx_tcp: 0,
            tx_ring: 0,
            rx_tcp: 0,
            rx_ring: 0,
        };
        if let Some(socket) = table::socket(fd) {
            let ((tx, rx), totals) = (socket.connection.carriers(), socket.connection.totals());
            filled.attached = totals.attached.into();
            (filled.tx_carrier, filled.rx_carrier) = (carrier(tx), carrier(rx));
            (filled.tx_tcp, filled.tx_ring) = (totals.tx_tcp, totals.tx_ring);
            (filled.rx_tcp, filled.rx_ring) = (totals.rx_tcp, totals.rx_ring);
        }
        // SAFETY: there is room.
        unsafe { into.write(filled) };
        Ok(())
    }))
}

/// Moves both directions of a connection back to TCP, for good.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn seekwire_fall_back(fd: c_int) -> c_int {
    status(guarded_own(|| {
        check(fd)?;
        table::socket(fd).map_or(Ok(()), |socket| socket.fall_back(Reason::Forced))
    }))
}
