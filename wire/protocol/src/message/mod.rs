//! Messages in a stream: a header of [`HEADER`] bytes, then the body.
//!
//! ```text
//!   0        4          8                16
//!   | length | sequence | tag            | body ...
//!     u32      u32        u64, little-endian
//! ```
//!
//! Each end begins with [`HELLO`], so that a peer that speaks another protocol is detected at once.
//! It also numbers its messages, so that a receiver that has lost its place notices.

mod matching;
mod queue;

pub use matching::{Labelled, Matching, Selector, Ticket};

/// Bytes of a header.
pub const HEADER: usize = 16;

/// The first bytes that each end sends: a magic number and the version of the format.
pub const HELLO: [u8; 8] = *b"SKWMSG\x00\x01";

/// The header of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MessageHeader {
    /// Bytes of the body.
    pub len: u32,
    /// Number of messages that its sender sent before, modulo 2^32.
    pub sequence: u32,
    /// Chosen by the sender, matched by the receiver.
    pub tag: u64,
}

/// Why a header is invalid.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The peer lost its place in the stream, or does not speak this format.
    #[error("message {found} where {expected} was due: the peer does not speak this format")]
    Sequence {
        /// The number in the header.
        found: u32,
        /// The number that was due.
        expected: u32,
    },
    /// Longer than this end accepts.
    #[error("a message of {len} bytes, which is more than the limit of {most}")]
    TooLong {
        /// Bytes of the body.
        len: u32,
        /// The receiver's limit.
        most: u32,
    },
}

impl MessageHeader {
    /// The encoded header.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..].copy_from_slice(&self.tag.to_le_bytes());
        bytes
    }

    /// Reads and checks a header.
    ///
    /// # Errors
    /// [`HeaderError`] when its sequence number is not the one that is due, or its body is longer
    /// than `most`.
    pub fn decode(bytes: [u8; HEADER], expected: u32, most: u32) -> Result<Self, HeaderError> {
        let [a, b, c, d, e, f, g, h, tag @ ..] = bytes;
        let len = u32::from_le_bytes([a, b, c, d]);
        let sequence = u32::from_le_bytes([e, f, g, h]);
        if sequence != expected {
            return Err(HeaderError::Sequence { found: sequence, expected });
        }
        if len > most {
            return Err(HeaderError::TooLong { len, most });
        }
        Ok(Self { len, sequence, tag: u64::from_le_bytes(tag) })
    }

    /// Bytes of header and body together.
    #[must_use]
    pub fn total(self) -> u64 {
        HEADER as u64 + u64::from(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_as_it_was() {
        let header = MessageHeader { len: 0x0102_0304, sequence: 7, tag: u64::MAX - 1 };
        assert_eq!(MessageHeader::decode(header.encode(), 7, u32::MAX), Ok(header));
        assert_eq!(header.total(), 0x0102_0304 + 16);
    }

    #[test]
    fn what_is_not_due_or_too_long_is_refused() {
        let header = MessageHeader { len: 100, sequence: 7, tag: 1 };
        let found = MessageHeader::decode(header.encode(), 8, 100);
        assert_eq!(found, Err(HeaderError::Sequence { found: 7, expected: 8 }));
        assert_eq!(
            MessageHeader::decode(header.encode(), 7, 99),
            Err(HeaderError::TooLong { len: 100, most: 99 })
        );
    }
}
