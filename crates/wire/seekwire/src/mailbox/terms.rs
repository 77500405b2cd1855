//! What callers say to a mailbox, and what it tells of messages.

use super::parcel::Parcel;

/// What is known of a message besides its bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Envelope {
    /// Chosen by the sender.
    pub tag: u64,
    /// Bytes of the message.
    pub len: usize,
    /// How many messages its sender had sent before, modulo 2^32.
    pub sequence: u32,
}

impl Envelope {
    pub(super) fn of(tag: u64, parcel: &Parcel) -> Self {
        Self { tag, len: parcel.len, sequence: parcel.sequence }
    }
}

/// A posted receive that has its message.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Completed {
    /// What it is.
    pub envelope: Envelope,
    /// The buffer as it was posted; the message is in its first [`Envelope::len`] bytes.
    pub buffer: Vec<u8>,
}

impl Completed {
    /// The message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.envelope.len]
    }
}

/// What a mailbox puts up with.
///
/// ```
/// use seekwire::mailbox::Limits;
///
/// let limits = Limits::default().message(64 << 10).unexpected(100);
/// # assert_eq!((limits.message, limits.unexpected), (65_536, 100));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of the longest message, either way. A peer that announces a longer one has
    /// misbehaved.
    pub message: u32,
    /// Messages that nobody has asked for; about 150 bytes of memory each. With more of them it is
    /// [`RecvError::Full`].
    ///
    /// [`RecvError::Full`]: super::RecvError::Full
    pub unexpected: usize,
    /// Bytes of memory for messages that are moved out of the stream because it has too many
    /// holes.
    pub memory: usize,
}

impl Default for Limits {
    /// Messages of 1 GiB, 65,536 of them unexpected, 16 MiB of memory.
    fn default() -> Self {
        Self { message: 1 << 30, unexpected: 1 << 16, memory: 16 << 20 }
    }
}

impl Limits {
    /// With [`Limits::message`](field@Limits::message) as given, in bytes.
    #[must_use]
    pub const fn message(self, message: u32) -> Self {
        Self { message, ..self }
    }

    /// With [`Limits::unexpected`](field@Limits::unexpected) as given, in messages.
    #[must_use]
    pub const fn unexpected(self, unexpected: usize) -> Self {
        Self { unexpected, ..self }
    }

    /// With [`Limits::memory`](field@Limits::memory) as given, in bytes.
    #[must_use]
    pub const fn memory(self, memory: usize) -> Self {
        Self { memory, ..self }
    }
}
