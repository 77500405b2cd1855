//! The kernel module `tcp_seek`, with which the kernel takes bytes out of the middle of a TCP
//! stream, as specified in wire/kernel/uapi/tcp_seek.h.

use std::mem::{offset_of, size_of};

use super::fd::Fd;
use super::socket::{getsockopt, setsockopt_bytes};
use crate::Errno;

/// Name of the protocol on top of TCP.
const NAME: &[u8; 4] = b"seek";

const LEVEL: i32 = 0x7365;
const RECV: i32 = 1;
const EXTENT: i32 = 2;
const VERSION: u32 = 1;

const PEEK: u32 = 0x01;
const DONTWAIT: u32 = 0x02;
const PARTIAL: u32 = 0x08;
const TRUNC: u32 = 0x10;
const POSITION: u32 = 0x20;

/// struct tcp_seek_recv
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Recv {
    version: u32,
    flags: u32,
    at: u64,
    buf: u64,
    len: u64,
    timeout: u64,
    received: u64,
    position: u64,
    head: u64,
    contiguous: u64,
    arrived: u64,
    holes: u32,
    reserved: u32,
}

/// struct tcp_seek_extent
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    version: u32,
    capacity: u32,
    spans: u64,
    head: u64,
    contiguous: u64,
    arrived: u64,
    holes: u32,
    reserved: u32,
}

const _: () = {
    assert!(size_of::<Recv>() == 88 && size_of::<Extent>() == 48);
    assert!(
        offset_of!(Recv, flags) == 4 && offset_of!(Recv, at) == 8 && offset_of!(Recv, buf) == 16
    );
    assert!(offset_of!(Recv, len) == 24 && offset_of!(Recv, timeout) == 32);
    assert!(offset_of!(Recv, received) == 40 && offset_of!(Recv, position) == 48);
    assert!(offset_of!(Recv, head) == 56 && offset_of!(Recv, contiguous) == 64);
    assert!(offset_of!(Recv, arrived) == 72 && offset_of!(Recv, holes) == 80);
    assert!(offset_of!(Recv, reserved) == 84);
    assert!(offset_of!(Extent, capacity) == 4 && offset_of!(Extent, spans) == 8);
    assert!(offset_of!(Extent, head) == 16 && offset_of!(Extent, contiguous) == 24);
    assert!(offset_of!(Extent, arrived) == 32 && offset_of!(Extent, holes) == 40);
    assert!(offset_of!(Extent, reserved) == 44);
};

/// The state of a socket of the module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ModuleState {
    /// Position of the first byte that was neither received nor taken; 0 is the first one after
    /// [`attach`].
    pub head: u64,
    /// Position after the last byte that has arrived.
    pub arrived: u64,
    /// Number of holes.
    pub holes: u32,
}

/// Hands the connected socket to the module (TCP_ULP). May load the module, if the process is
/// allowed to.
///
/// # Errors
/// ENOENT if there is no such module; EEXIST if the socket has it, or another one; EBUSY, ENOTCONN
/// as in wire/kernel/README.md.
pub fn attach(fd: Fd) -> Result<(), Errno> {
    setsockopt_bytes(fd, libc::IPPROTO_TCP, libc::TCP_ULP, NAME)
}

/// The state of the socket.
///
/// # Errors
/// ENOPROTOOPT and others on a socket without the module.
pub fn state(fd: Fd) -> Result<ModuleState, Errno> {
    let mut extent = Extent { version: VERSION, ..Extent::default() };
    getsockopt(fd, LEVEL, EXTENT, &mut extent)?;
    Ok(ModuleState { head: extent.head, arrived: extent.arrived, holes: extent.holes })
}

/// Copies bytes that begin at `position`, as many as have arrived, and leaves them there; does not
/// wait. 0 is the end of the stream.
///
/// # Errors
/// EAGAIN if none has arrived; ENXIO if the first one was taken; those of recv(2).
pub fn look(fd: Fd, position: u64, into: &mut [u8]) -> Result<usize, Errno> {
    receive(fd, position, Goal::Memory(into), PEEK | PARTIAL)
}

/// Takes the bytes that begin at `position`: all that `into` has room for or none, fewer only if
/// the stream ends; or, with `partial`, as many as have arrived. Does not wait.
///
/// # Errors
/// EAGAIN if not all have arrived; ENOBUFS if they cannot before others are taken, or if there
/// would be too many holes; ENXIO if some were taken; those of recv(2).
pub fn take(fd: Fd, position: u64, into: &mut [u8], partial: bool) -> Result<usize, Errno> {
    receive(fd, position, Goal::Memory(into), if partial { PARTIAL } else { 0 })
}

/// As [`take`], for `len` bytes that are discarded.
///
/// # Errors
/// Those of [`take`].
pub fn discard(fd: Fd, position: u64, len: u64) -> Result<usize, Errno> {
    receive(fd, position, Goal::Nowhere(len.min(isize::MAX as u64)), 0)
}

/// The destination of bytes.
enum Goal<'b> {
    Memory(&'b mut [u8]),
    Nowhere(u64),
}

fn receive(fd: Fd, position: u64, goal: Goal<'_>, flags: u32) -> Result<usize, Errno> {
    let (buf, len, goes) = match goal {
        Goal::Memory(into) => (into.as_mut_ptr().expose_provenance() as u64, into.len() as u64, 0),
        Goal::Nowhere(len) => (0, len, TRUNC),
    };
    let flags = flags | goes | POSITION | DONTWAIT;
    let mut recv = Recv { version: VERSION, flags, at: position, buf, len, ..Recv::default() };
    // The kernel also writes to `buf`, which stays borrowed until here.
    getsockopt(fd, LEVEL, RECV, &mut recv)?;
    Ok(recv.received.min(len) as usize)
}
