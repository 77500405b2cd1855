//! The message of an agent that asks: a fixed number of bytes, so that the reader needs to wait for
//! no more than these.
//!
//! ```text
//! "SWASK" and three zeros | question | secret, 16 bytes | the name of the link, 32 bytes
//! ```
//!
//! Numbers are little-endian; the name is padded with zeros. Both machines have the same name for a
//! link, because their administrator chooses it: otherwise, a machine that has links to two others
//! could forward their questions to each other, and so pass for one of them.

/// Length of the message.
pub(super) const HELLO: usize = 64;
/// The reply once the answer stands in the region.
pub(super) const ANSWERED: [u8; 1] = [1];
/// The reply if no region here has the question.
pub(super) const REFUSED: [u8; 1] = [0];

const MAGIC: [u8; 8] = *b"SWASK\0\0\0";
const NAME: usize = 32;

/// A decoded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) question: u64,
    pub(super) secret: u128,
    pub(super) link: String,
}

impl Hello {
    /// The name has at most 32 bytes, as the map demands.
    pub(super) fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        let name = self.link.as_bytes();
        let name = &name[..name.len().min(NAME)];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.question.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.secret.to_le_bytes());
        bytes[32..32 + name.len()].copy_from_slice(name);
        bytes
    }

    /// `None` if it is not such a message.
    pub(super) fn decode(bytes: &[u8; HELLO]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (question, rest) = rest.split_first_chunk::<8>()?;
        let (secret, name) = rest.split_first_chunk::<16>()?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let (name, padding) = name.split_at(end);
        let is_one = *magic == MAGIC && padding.iter().all(|byte| *byte == 0);
        let link = std::str::from_utf8(name).ok().filter(|_| is_one)?.to_owned();
        Some(Self {
            question: u64::from_le_bytes(*question),
            secret: u128::from_le_bytes(*secret),
            link,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_nothing_else() {
        for link in ["a", "db-web", &"x".repeat(32)] {
            let hello = Hello { question: 7, secret: 9 << 70, link: link.to_owned() };
            assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        }
        let good = Hello { question: 7, secret: 9, link: "db-web".to_owned() }.encode();
        for (at, byte) in [(0, b'X'), (7, 1), (33, 0), (35, 0xff), (63, b'a')] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(Hello::decode(&bad), None, "{at}");
        }
        assert_eq!(Hello::decode(&[0; HELLO]), None);
    }
}
