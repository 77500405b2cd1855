//! seek_avail.

use std::ffi::c_int;

use libc::size_t;
use seekwire_transport::Errno;
use seekwire_transport::seek::Extent;
use seekwire_transport::sys::{Fd, socket as kernel};

use super::call::{is_connected, status};
use crate::{pointers, table};

/// struct seek_extent
#[repr(C)]
pub(crate) struct SeekExtent {
    size: u32,
    holes: u32,
    head: u64,
    readable: u64,
    arrived: u64,
}

/// struct seek_span
#[repr(C)]
pub(crate) struct SeekSpan {
    start: u64,
    end: u64,
}

const _: () = assert!(size_of::<SeekExtent>() == 32 && size_of::<SeekSpan>() == 16);

/// What can be received, and what was taken out of it.
///
/// # Safety
///
/// `into` must be null or point to a struct whose first member holds its size; `holes` must be null
/// or have room for `count` of them.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn seek_avail(
    fd: c_int,
    into: *mut SeekExtent,
    holes: *mut SeekSpan,
    count: size_t,
) -> c_int {
    status(|| {
        let extent = extent_of(fd)?;
        if into.is_null() {
            return Err(Errno::INVAL);
        }
        if !pointers::can_read(into.cast::<u32>(), 1) {
            return Err(Errno::FAULT);
        }
        // SAFETY: the size, which comes first, can be read.
        if unsafe { (*into).size as usize } < size_of::<SeekExtent>() {
            return Err(Errno::INVAL);
        }
        let room = if holes.is_null() { 0 } else { count.min(extent.holes.len()) };
        if !pointers::can_write(into, 1) || !pointers::can_write(holes, room) {
            return Err(Errno::FAULT);
        }
        for (at, hole) in extent.holes.iter().enumerate().take(room) {
            // SAFETY: not null, and the caller has room for `count` of them.
            unsafe { holes.add(at).write(SeekSpan { start: hole.start, end: hole.end }) };
        }
        let behind =
            extent.holes.first().map_or(extent.arrived, |hole| hole.start.min(extent.arrived));
        // SAFETY: not null, and large enough.
        let into = unsafe { &mut *into };
        *into = SeekExtent {
            size: into.size,
            holes: extent.holes.len() as u32,
            head: extent.head,
            readable: behind.saturating_sub(extent.head),
            arrived: extent.arrived,
        };
        Ok(())
    })
}

/// Asks without beginning to seek.
fn extent_of(fd: c_int) -> Result<Extent, Errno> {
    let Some(socket) = table::socket(fd) else {
        is_connected(fd)?;
        let head = kernel::bytes_taken(Fd::new(fd)).unwrap_or(0);
        return Ok(in_order(head, kernel::unread(Fd::new(fd))?));
    };
    if socket.is_listening() {
        return Err(Errno::NOTCONN);
    }
    if socket.connection.is_seeking() {
        let extent = socket.connection.extent()?;
        if extent.arrived == 0 {
            is_connected(fd)?;
        }
        return Ok(extent);
    }
    is_connected(fd)?;
    let totals = socket.connection.totals();
    Ok(in_order(totals.rx_tcp + totals.rx_ring, socket.connection.unread()?))
}

fn in_order(head: u64, unread: usize) -> Extent {
    Extent { head, arrived: head + unread as u64, holes: Vec::new() }
}
