//! Types of a mailbox's interface: what callers ask for, and what they learn about messages.

use super::incoming_message::IncomingMessage;

/// The metadata that a receiver gets with a message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Envelope {
    /// Chosen by the sender.
    pub tag: u64,
    /// Length of the message in bytes.
    pub len: usize,
    /// Number of messages that the sender had sent before this one, modulo 2^32.
    pub sequence: u32,
}

impl Envelope {
    pub(super) fn of(tag: u64, incoming: &IncomingMessage) -> Self {
        Self { tag, len: incoming.len, sequence: incoming.sequence }
    }
}

/// A posted receive that has completed.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Completed {
    /// The message's metadata.
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

/// Limits of a mailbox.
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
    /// Maximum length of a message in bytes, in either direction. A peer that announces a longer
    /// one has misbehaved.
    pub message: u32,
    /// Maximum number of unexpected messages. Each takes about 150 bytes of memory. More of them
    /// give [`RecvError::Full`].
    ///
    /// [`RecvError::Full`]: super::RecvError::Full
    pub unexpected: usize,
    /// Bytes of memory for messages that move out of the stream because it has too many holes.
    pub memory: usize,
}

impl Default for Limits {
    /// Messages of up to 1 GiB, 65,536 of them unexpected, and 16 MiB of memory.
    fn default() -> Self {
        Self { message: 1 << 30, unexpected: 1 << 16, memory: 16 << 20 }
    }
}

impl Limits {
    /// Sets [`Limits::message`](field@Limits::message), in bytes.
    #[must_use]
    pub const fn message(self, message: u32) -> Self {
        Self { message, ..self }
    }

    /// Sets [`Limits::unexpected`](field@Limits::unexpected), in messages.
    #[must_use]
    pub const fn unexpected(self, unexpected: usize) -> Self {
        Self { unexpected, ..self }
    }

    /// Sets [`Limits::memory`](field@Limits::memory), in bytes.
    #[must_use]
    pub const fn memory(self, memory: usize) -> Self {
        Self { memory, ..self }
    }
}
