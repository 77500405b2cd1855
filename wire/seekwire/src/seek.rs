//! [`SeekSocket`], the trait of streams that can be received out of order (Douglas and Pai,
//! "Seekable sockets").

use std::io::{self, IoSlice, IoSliceMut};
use std::time::Duration;

pub use seekwire_transport::seek::{At, Extent, SeekMethod, SeekOptions};

pub use crate::error::SeekError;

/// A connected stream from which bytes can be taken out of the middle. It is meant for libraries
/// that keep messages in the stream until somebody asks for them. Programs find simpler methods on
/// [`crate::SeekStream`] and [`crate::Stream`].
///
/// Any thread may call any method. No `try_` method waits, whatever O_NONBLOCK says.
///
/// A program with an event loop of its own tries until `WouldBlock`, calls
/// [`SeekSocket::make_room`], tries once more, and then waits for the descriptor to become
/// readable. This order matters: the descriptor does not show bytes in library memory, and bytes
/// that fill the kernel's memory keep further ones from arriving.
pub trait SeekSocket: Send + Sync {
    /// Takes the bytes that begin at `at`, as many as `into` has room for, all or none. Takes fewer
    /// only at the end of the stream or if `options` allow it, and 0 past the end. Returns the
    /// number of bytes in `into`.
    ///
    /// # Errors
    /// [`SeekError::WouldBlock`] if they have not all arrived; [`SeekError::NoRoom`] if there would
    /// be too many holes; the others of [`SeekError`].
    fn try_seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
    ) -> Result<usize, SeekError>;

    /// Sleeps until the `len` bytes that begin at `at` may have arrived, or can no longer arrive.
    /// May return early. Moves earlier bytes to library memory if they prevent these from arriving.
    ///
    /// # Errors
    /// [`SeekError::NoRoom`] if they cannot arrive until something is received;
    /// [`SeekError::WouldBlock`] when the timeout expires; `Interrupted` by a signal.
    fn wait_seek(&self, at: At, len: u64, timeout: Option<Duration>) -> Result<(), SeekError>;

    /// Sends bytes from the start of `from` and returns their number.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; those of send(2), without SIGPIPE.
    fn try_send(&self, from: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Moves the bytes that have arrived into library memory, oldest first, so that the peer can go
    /// on sending.
    ///
    /// # Errors
    /// [`SeekError::NoRoom`] if library memory is full; the others of [`SeekError`].
    fn make_room(&self) -> Result<(), SeekError>;

    /// Sleeps until there is room to send, until more bytes have arrived than
    /// [`SeekSocket::make_room`] has moved, or until the stream has ended. May return early.
    ///
    /// # Errors
    /// `WouldBlock` when the timeout expires; `Interrupted` by a signal.
    fn wait_send(&self, timeout: Option<Duration>) -> io::Result<()>;

    /// The range of bytes that have arrived, and the holes in it.
    ///
    /// # Errors
    /// [`SeekError::OtherProcess`]; those of ioctl(2).
    fn extent(&self) -> Result<Extent, SeekError>;
}
