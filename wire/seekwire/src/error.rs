//! [`SeekError`]: why bytes out of the middle of a stream were not received.

use std::io;

use seekwire_transport::Errno;

/// Why a seek took nothing. No byte is lost in any of these cases.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SeekError {
    /// EAGAIN: the stream is nonblocking, or its read timeout expired.
    #[error("not all of the bytes have arrived: wait for more, and try again")]
    WouldBlock,
    /// ENXIO: some of the bytes were already received.
    #[error(
        "some of the bytes were already taken: do not ask for bytes in a hole, or received ones"
    )]
    Taken,
    /// ENOBUFS: library memory is full of bytes that keep the wanted ones from arriving, or there
    /// would be too many holes.
    #[error(
        "there is no room for the bytes, or for another hole: receive bytes at the head, or allow \
         more memory with SEEKWIRE_SEEK_MEMORY"
    )]
    NoRoom,
    /// EBUSY: after a fork, another process goes on with the stream; only it knows the holes.
    #[error(
        "another process, forked from this one or its parent, has taken over the stream: \
         receive there"
    )]
    OtherProcess,
    /// EINVAL: the sum of offset and length does not fit into 64 bits.
    #[error("a stream has no such position: ask for a smaller offset")]
    NoSuchPosition,
    /// The stream failed; see recv(2). `Interrupted` comes only from the calls of
    /// [`SeekSocket`](crate::SeekSocket).
    #[error("the stream failed: {0}")]
    Io(#[source] io::Error),
}

impl SeekError {
    /// The kind of the [`io::Error`] into which this error converts.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::WouldBlock => io::ErrorKind::WouldBlock,
            Self::Taken => io::ErrorKind::NotFound,
            Self::NoRoom => io::ErrorKind::OutOfMemory,
            Self::OtherProcess => io::ErrorKind::ResourceBusy,
            Self::NoSuchPosition => io::ErrorKind::InvalidInput,
            Self::Io(error) => error.kind(),
        }
    }

    /// The error number that seek_recv(3) sets.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        let errno = match self {
            Self::WouldBlock => Errno::AGAIN,
            Self::Taken => Errno::NXIO,
            Self::NoRoom => Errno::NOBUFS,
            Self::OtherProcess => Errno::BUSY,
            Self::NoSuchPosition => Errno::INVAL,
            Self::Io(error) => return error.raw_os_error(),
        };
        Some(errno.raw_os_error())
    }

    /// True if the same call may succeed later: the bytes have not arrived, or a signal interrupted
    /// it.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
    }
}

impl From<Errno> for SeekError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::AGAIN => Self::WouldBlock,
            Errno::NXIO => Self::Taken,
            Errno::NOBUFS => Self::NoRoom,
            Errno::BUSY => Self::OtherProcess,
            Errno::INVAL => Self::NoSuchPosition,
            error => Self::Io(error.into()),
        }
    }
}

impl From<io::Error> for SeekError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None if error.kind() == io::ErrorKind::WouldBlock => Self::WouldBlock,
            None => Self::Io(error),
        }
    }
}

impl From<SeekError> for io::Error {
    /// The seek error becomes the inner error.
    fn from(error: SeekError) -> Self {
        match error {
            SeekError::WouldBlock => io::ErrorKind::WouldBlock.into(),
            SeekError::Io(error) => error,
            error => io::Error::new(error.kind(), error),
        }
    }
}
