//! The kernel's TCP socket as a source.
//!
//! Bytes in the middle are copied from the socket's receive queue straight into the caller's buffer by
//! MSG_PEEK at SO_PEEK_OFF (Linux 6.9, commit 05ea491641d3) and thrown away by MSG_TRUNC when the front
//! reaches them. An older kernel looks only at the front: the bytes before go to library memory first.

use protocol::span::Span;

use super::cost;
use super::source::{Look, Source};
use crate::Errno;
use crate::iov::Scatter;
use crate::sys::Fd;
use crate::sys::socket::{self, KernelRecv};

/// How bytes are taken out of the middle of kernel TCP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// SO_PEEK_OFF and MSG_PEEK into the caller's buffer.
    Peek,
    /// By library memory.
    Drain,
}

/// What lasts from one use of a socket as a source to the next.
#[derive(Debug)]
pub struct PeekCursor {
    way: Way,
    /// The kernel's SO_PEEK_OFF, as far as it is known.
    offset: Option<u64>,
}

impl PeekCursor {
    /// By the best way that the kernel offers for this socket.
    #[must_use]
    pub fn new(fd: Fd) -> Self {
        let way = if socket::set_peek_offset(fd, 0).is_ok() { Way::Peek } else { Way::Drain };
        Self { way, offset: None }
    }

    /// By this way.
    #[must_use]
    pub fn by(way: Way) -> Self {
        Self { way, offset: None }
    }

    /// The way.
    #[must_use]
    pub fn way(&self) -> Way {
        self.way
    }

    /// The kernel gave `n` bytes at the front away. It moves its offset along, but never below 0.
    fn received(&mut self, n: u64) {
        self.offset = self.offset.map(|offset| offset.saturating_sub(n));
    }
}

/// A socket as a source, for as long as nobody else receives from it.
#[derive(Debug)]
pub struct KernelSource<'c> {
    /// The socket.
    pub fd: Fd,
    /// Where the kernel looks.
    pub cursor: &'c mut PeekCursor,
}

impl KernelSource<'_> {
    /// Copies bytes from `ahead` on, as one recv(2) does.
    fn look_once(&mut self, ahead: u64, most: u64, into: &mut Scatter<'_, '_>) -> Result<u64, Errno> {
        if self.cursor.offset != Some(ahead) {
            socket::set_peek_offset(self.fd, ahead)?;
            self.cursor.offset = Some(ahead);
        }
        let room = into.next_room(usize::try_from(most).unwrap_or(usize::MAX));
        let n = socket::recv(self.fd, room, KernelRecv::PEEK)?;
        into.filled_in_place(n);
        self.cursor.offset = Some(ahead + n as u64);
        Ok(n as u64)
    }
}

impl Source for KernelSource<'_> {
    fn receive(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Errno> {
        let room = into.next_room(usize::try_from(most).unwrap_or(usize::MAX));
        let n = socket::recv(self.fd, room, KernelRecv::empty())?;
        into.filled_in_place(n);
        self.cursor.received(n as u64);
        Ok(n)
    }

    fn look(&mut self, ahead: u64, most: u64, into: &mut Scatter<'_, '_>) -> Result<Look, Errno> {
        if self.cursor.way == Way::Drain {
            return Ok(Look::Behind(u64::MAX));
        }
        let mut done = 0;
        while done < most {
            match self.look_once(ahead + done, most - done, into) {
                Ok(0) => return Ok(Look::Ended),
                Ok(n) => done += n,
                Err(Errno::AGAIN) => return Ok(Look::Missing),
                Err(error) => return Err(error),
            }
        }
        Ok(Look::Done)
    }

    fn discard(&mut self, n: u64) -> Result<u64, Errno> {
        let n = socket::discard(self.fd, usize::try_from(n).unwrap_or(usize::MAX))? as u64;
        self.cursor.received(n);
        Ok(n)
    }

    fn release(&mut self, _: Span, _: &dyn Fn(Span) -> bool) -> Result<(), Errno> {
        // The kernel keeps what was taken until the front reaches it.
        Ok(())
    }

    fn arrived(&mut self) -> Result<u64, Errno> {
        Ok(socket::unread(self.fd)? as u64)
    }

    fn bulk_below(&self) -> u32 {
        cost::switch()
    }

    fn discards_cheaply(&self) -> bool {
        false
    }
}
