//! Receiving out of the middle of a stream (Douglas and Pai, "Seekable sockets"; Melnyk, "Direct message
//! search").
//!
//! ```text
//!   tcp       stock kernel TCP: SO_PEEK_OFF and MSG_PEEK, or drained into library memory
//!   drained   what was drained: bytes of the stream in memory of this process
//! ```
//!
//! Offsets count from the first byte that was neither received nor taken, holes included.
//! `tests/seek.rs` holds every way to the same rules.

mod drained;
mod tcp;

use std::io::IoSliceMut;

use protocol::span::Span;

use crate::Errno;
use crate::sys::poll::Deadline;
pub use tcp::{SeekTcp, Way};

/// What can be received, by position.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Extent {
    /// Position of the first byte that was neither received nor taken.
    pub head: u64,
    /// Position behind the last byte that has arrived.
    pub arrived: u64,
    /// What was taken between them, in order.
    pub holes: Vec<Span>,
}

/// Where a seek begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum At {
    /// So many bytes behind the head, those of holes included.
    Offset(u64),
    /// At this position of the stream, whatever was received meanwhile.
    Position(u64),
}

/// How to take bytes out of the middle.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SeekFlags {
    /// MSG_PEEK: the bytes stay.
    pub peek: bool,
    /// Take what has arrived of them, at least one byte, up to the next hole.
    pub partial: bool,
}

/// A stream that can be received out of order. Any thread may call any method.
pub trait Seek {
    /// Takes the bytes that begin at `at`, as many as `into` has room for, all or none; fewer only
    /// where the stream ends, 0 behind its end, or if `flags` say so.
    ///
    /// # Errors
    /// EAGAIN when they have not all arrived; ENXIO when some were taken before; ENOBUFS when there would
    /// be too many holes; EINVAL when there can be no such position; those of recv(2).
    fn try_seek(&self, at: At, into: &mut [IoSliceMut<'_>], flags: SeekFlags) -> Result<usize, Errno>;

    /// Fills `into` with the bytes at the head, holes skipped; 0 is the end of the stream. With `peek` they
    /// stay.
    ///
    /// # Errors
    /// EAGAIN when there is nothing yet; those of recv(2).
    fn try_recv(&self, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno>;

    /// Sleeps until the `len` bytes that begin at `at` may have arrived, or cannot come any more;
    /// may return early. Makes room for them, if that is what keeps them away.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR; ENOBUFS when they can only arrive after something is taken out; as
    /// [`Seek::try_seek`].
    fn wait(&self, at: At, len: u64, until: Deadline) -> Result<(), Errno>;

    /// Moves what has arrived into memory of this process, so that more can come.
    ///
    /// # Errors
    /// ENOBUFS when no more memory may be used; those of recv(2).
    fn make_room(&self) -> Result<(), Errno>;

    /// What can be received.
    ///
    /// # Errors
    /// Those of ioctl(2).
    fn extent(&self) -> Result<Extent, Errno>;

    /// As [`Seek::try_seek`], but waits.
    ///
    /// # Errors
    /// Those of [`Seek::try_seek`] and [`Seek::wait`].
    fn seek(&self, at: At, into: &mut [IoSliceMut<'_>], until: Deadline) -> Result<usize, Errno> {
        let len = into.iter().map(|buf| buf.len() as u64).sum();
        loop {
            match self.try_seek(at, into, SeekFlags::default()) {
                Err(Errno::AGAIN) => self.wait(at, len, until)?,
                done => return done,
            }
        }
    }
}
