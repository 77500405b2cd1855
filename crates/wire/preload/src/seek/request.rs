//! What a seek asks for, as include/seekwire.h says it.

use std::ffi::c_int;

use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL};
use seekwire_endpoint::{At, SeekOptions};
use seekwire_transport::Errno;

use crate::buffers::MAX_BYTES;

/// Take what has arrived, up to the next hole.
const SEEKWIRE_PARTIAL: c_int = 0x0040_0000;
/// The offset is a position of the stream.
const SEEKWIRE_POSITION: c_int = 0x0080_0000;

/// Nothing that recvmsg(2) takes or gives.
const _: () = {
    let known =
        MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC | MSG_WAITALL | libc::MSG_OOB | libc::MSG_CMSG_CLOEXEC;
    let others = libc::MSG_ERRQUEUE
        | libc::MSG_NOSIGNAL
        | libc::MSG_MORE
        | libc::MSG_FASTOPEN
        | libc::MSG_WAITFORONE;
    assert!((SEEKWIRE_PARTIAL | SEEKWIRE_POSITION) & (known | others | libc::MSG_CTRUNC) == 0);
};

/// What a caller asks for.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) at: At,
    pub(super) options: SeekOptions,
    pub(super) dont_wait: bool,
    pub(super) truncate: bool,
}

impl Request {
    /// EINVAL for flags beyond `allowed`, and those that every seek knows.
    pub(super) fn new(flags: c_int, allowed: c_int, offset: u64) -> Result<Request, Errno> {
        // A seek waits for all in any case.
        const ALWAYS: c_int = MSG_DONTWAIT | MSG_WAITALL | SEEKWIRE_PARTIAL | SEEKWIRE_POSITION;
        if flags & !(ALWAYS | allowed) != 0 {
            return Err(Errno::INVAL);
        }
        // No off_t is larger.
        let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?.unsigned_abs();
        Ok(Request {
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

    /// How many of `len` bytes to ask for. No call moves more than the kernel's do, and a range
    /// that is taken whole cannot be cut.
    pub(super) fn most(&self, len: usize) -> Result<usize, Errno> {
        match len {
            _ if len > isize::MAX as usize => Err(Errno::INVAL),
            _ if len > MAX_BYTES && !self.options.partial => Err(Errno::NOBUFS),
            _ => Ok(len.min(MAX_BYTES)),
        }
    }
}
