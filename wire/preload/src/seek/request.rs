//! The request of a seek, as defined in wire/include/seekwire.h.

use std::ffi::c_int;

use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL};
use seekwire_endpoint::{At, SeekOptions};
use seekwire_transport::Errno;

use crate::buffers::MAX_BYTES;

/// Take the bytes that have arrived, up to the next hole.
const SEEKWIRE_PARTIAL: c_int = 0x0040_0000;
/// The offset is a position of the stream.
const SEEKWIRE_POSITION: c_int = 0x0080_0000;

/// No flag of recvmsg(2) has these bits.
const _: () = {
    let supported =
        MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC | MSG_WAITALL | libc::MSG_OOB | libc::MSG_CMSG_CLOEXEC;
    let others = libc::MSG_ERRQUEUE
        | libc::MSG_NOSIGNAL
        | libc::MSG_MORE
        | libc::MSG_FASTOPEN
        | libc::MSG_WAITFORONE;
    assert!((SEEKWIRE_PARTIAL | SEEKWIRE_POSITION) & (supported | others | libc::MSG_CTRUNC) == 0);
};

/// A caller's request.
#[derive(Clone, Copy)]
pub(super) struct SeekRequest {
    pub(super) at: At,
    pub(super) options: SeekOptions,
    pub(super) dont_wait: bool,
    pub(super) truncate: bool,
}

impl SeekRequest {
    /// EINVAL for flags that are neither `allowed` nor known to every seek.
    pub(super) fn new(flags: c_int, allowed: c_int, offset: u64) -> Result<SeekRequest, Errno> {
        // A seek always waits for all bytes.
        const ALWAYS: c_int = MSG_DONTWAIT | MSG_WAITALL | SEEKWIRE_PARTIAL | SEEKWIRE_POSITION;
        if flags & !(ALWAYS | allowed) != 0 {
            return Err(Errno::INVAL);
        }
        // off_t is no larger.
        let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?.unsigned_abs();
        Ok(SeekRequest {
            at: if flags & SEEKWIRE_POSITION == 0 {
                At::Offset(offset)
            } else {
                At::Position(offset)
            },
            options: SeekOptions::TAKE
                .peek(flags & MSG_PEEK != 0)
                .partial(flags & SEEKWIRE_PARTIAL != 0),
            dont_wait: flags & MSG_DONTWAIT != 0,
            truncate: flags & MSG_TRUNC != 0,
        })
    }

    /// How many of `len` bytes to request. No call moves more than a kernel call does, and a range
    /// that is taken whole cannot be cut.
    pub(super) fn most(&self, len: usize) -> Result<usize, Errno> {
        match len {
            _ if len > isize::MAX as usize => Err(Errno::INVAL),
            _ if len > MAX_BYTES && !self.options.partial => Err(Errno::NOBUFS),
            _ => Ok(len.min(MAX_BYTES)),
        }
    }
}
