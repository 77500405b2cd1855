//! What every stream can do that can be received out of order (Douglas and Pai, "Seekable
//! sockets").

use std::io::{self, IoSlice, IoSliceMut};
use std::time::Duration;

pub use seekwire_transport::seek::{At, Extent, SeekOptions, Way};

pub use crate::error::SeekError;

/// A connected stream from which bytes can be taken out of the middle. Libraries that keep their
/// messages in the stream until they are asked for are built on this; programs find simpler methods
/// on [`crate::SeekStream`] and [`crate::Stream`].
///
/// Any thread may call any method. No `try_` method waits, whatever O_NONBLOCK says.
///
/// A program with an event loop of its own tries until `WouldBlock`, calls
/// [`SeekSocket::make_room`], tries once more, and then waits for the descriptor to become
/// readable: bytes in library memory do not show there, and bytes that fill the kernel's memory
/// would keep further ones away.
pub trait SeekSocket: Send + Sync {
    /// Takes the bytes that begin at `at`, as many as `into` has room for, all or none; fewer only
    /// where the stream ends, 0 behind its end, or if `options` say so. Returns how many it put
    /// into `into`.
    ///
    /// # Errors
    /// [`SeekError::WouldBlock`] when they have not all arrived; [`SeekError::NoRoom`] when there
    /// would be too many holes; the others of [`SeekError`].
    fn try_seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
    ) -> Result<usize, SeekError>;

    /// Sleeps until the `len` bytes that begin at `at` may have arrived, or cannot come any more;
    /// may return early. Makes room for them in library memory, if that is what keeps them away.
    ///
    /// # Errors
    /// [`SeekError::NoRoom`] when they can only come after something is taken out;
    /// [`SeekError::WouldBlock`] when the time is over; `Interrupted` by a signal.
    fn wait_seek(&self, at: At, len: u64, timeout: Option<Duration>) -> Result<(), SeekError>;

    /// Sends bytes from the front of `from` and returns how many.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room; those of send(2), without SIGPIPE.
    fn try_send(&self, from: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Moves what has arrived into library memory, oldest first, so that the peer can go on
    /// sending.
    ///
    /// # Errors
    /// [`SeekError::NoRoom`] when the memory that it may use is full; the others of [`SeekError`].
    fn make_room(&self) -> Result<(), SeekError>;

    /// Sleeps until there is room to send, or more has arrived than [`SeekSocket::make_room`] has
    /// moved, or the stream has ended; may return early.
    ///
    /// # Errors
    /// `WouldBlock` when the time is over; `Interrupted` by a signal.
    fn wait_send(&self, timeout: Option<Duration>) -> io::Result<()>;

    /// What has arrived, and what was taken out of it.
    ///
    /// # Errors
    /// [`SeekError::OtherProcess`]; those of ioctl(2).
    fn extent(&self) -> Result<Extent, SeekError>;
}
