//! seekwire_avail.

use std::ffi::c_int;

use libc::size_t;
use seekwire_transport::Errno;
use seekwire_transport::seek::Extent;
use seekwire_transport::sys::{Fd, socket as kernel};

use super::call::is_connected;
use crate::api::has_room;
use crate::ffi::{guarded_own, status};
use crate::{pointers, table};

/// struct seekwire_extent
#[repr(C)]
pub(crate) struct SeekwireExtent {
    size: u32,
    holes: u32,
    head: u64,
    readable: u64,
    arrived: u64,
}

/// struct seekwire_span
#[repr(C)]
pub(crate) struct SeekwireSpan {
    start: u64,
    end: u64,
}

const _: () = assert!(size_of::<SeekwireExtent>() == 32 && size_of::<SeekwireSpan>() == 16);

/// The range of bytes that can be received, and the holes in it.
///
/// # Safety
///
/// `into` must be null or point to a struct whose first member holds its size; `holes` must be null
/// or have room for `count` of them.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn seekwire_avail(
    fd: c_int,
    into: *mut SeekwireExtent,
    holes: *mut SeekwireSpan,
    count: size_t,
) -> c_int {
    status(guarded_own(|| {
        let extent = extent_of(fd)?;
        // SAFETY: as the caller says.
        unsafe { has_room(into)? };
        let room = if holes.is_null() { 0 } else { count.min(extent.holes.len()) };
        if !pointers::can_write(holes, room) {
            return Err(Errno::FAULT);
        }
        for (at, hole) in extent.holes.iter().enumerate().take(room) {
            // SAFETY: not null, and the caller has room for `count` of them.
            unsafe { holes.add(at).write(SeekwireSpan { start: hole.start, end: hole.end }) };
        }
        let behind =
            extent.holes.first().map_or(extent.arrived, |hole| hole.start.min(extent.arrived));
        let filled = SeekwireExtent {
            size: size_of::<SeekwireExtent>() as u32,
            holes: extent.holes.len() as u32,
            head: extent.head,
            readable: behind.saturating_sub(extent.head),
            arrived: extent.arrived,
        };
        // SAFETY: there is room.
        unsafe { into.write(filled) };
        Ok(())
    }))
}

/// Queries without beginning to seek.
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
        let extent = socket.connection.extent();
        // The question may have attached the connection.
        socket.update_sets();
        let extent = extent?;
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
