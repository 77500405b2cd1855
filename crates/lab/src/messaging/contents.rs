//! Messages that can be checked when they arrive.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, Result};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Something came that must never come: messaging does not keep what it promises.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Violation(pub String);

/// Bytes of a number.
const NUMBER: usize = size_of::<u64>();

/// Number of messages after which contents repeat; a prime, so that no other period hides behind it.
const PERIOD: usize = 251;

/// Contents of numbered messages of one size: the number, little-endian, as far as it fits, and then bytes that
/// differ from one message to the next.
#[derive(Clone, Debug)]
pub struct Contents {
    size: usize,
    pattern: Vec<u8>,
    message: Vec<u8>,
}

impl Contents {
    /// For messages of `size` bytes.
    #[must_use]
    pub fn new(size: usize) -> Self {
        // Neighbouring bytes differ, and so do those that lie a power of two apart.
        let pattern = (0..size + PERIOD).map(|index| (index % PERIOD) as u8).collect();
        Self { size, pattern, message: vec![0; size] }
    }

    /// Message `number`.
    pub fn message(&mut self, number: u64) -> &[u8] {
        let split = NUMBER.min(self.size);
        let (head, body) = self.message.split_at_mut(split);
        head.copy_from_slice(&number.to_le_bytes()[..split]);
        body.copy_from_slice(body_of(&self.pattern, number, body.len()));
        &self.message
    }

    /// Whether `received` is message `number`.
    ///
    /// # Errors
    ///
    /// [`Violation`], if it is not.
    pub fn check(&self, number: u64, received: &[u8]) -> Result<(), Violation> {
        let split = NUMBER.min(self.size);
        if received.len() != self.size {
            let got = received.len();
            return Err(Violation(format!("message {number} of {} bytes came with {got}", self.size)));
        }
        let (head, body) = received.split_at(split);
        if head != &number.to_le_bytes()[..split] {
            return Err(Violation(format!("message {number} was expected, {head:?} came")));
        }
        if body != body_of(&self.pattern, number, body.len()) {
            return Err(Violation(format!("the contents of message {number} were damaged")));
        }
        Ok(())
    }
}

fn body_of(pattern: &[u8], number: u64, length: usize) -> &[u8] {
    let start = (number % PERIOD as u64) as usize;
    &pattern[start..start + length]
}

/// SHA-256 of a file, in hexadecimal.
///
/// # Errors
///
/// Those of reading it.
pub fn digest(path: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer).with_context(|| format!("cannot read {}", path.display()))? {
            0 => break,
            length => hash.update(&buffer[..length]),
        }
    }
    Ok(hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_told_from_its_neighbours() {
        for size in [1, 7, 8, 9, 1000] {
            let mut contents = Contents::new(size);
            let checker = Contents::new(size);
            let sent: Vec<Vec<u8>> =
                [0, 1, 2, 250, 255].map(|number| contents.message(number).to_vec()).into();
            assert_eq!(checker.check(250, &sent[3]), Ok(()));
            for other in [0, 1, 2, 4] {
                assert!(checker.check(250, &sent[other]).is_err(), "{size} {other}");
            }
        }
    }

    #[test]
    fn damage_and_loss_of_bytes_are_noticed() {
        let mut contents = Contents::new(100);
        let mut message = contents.message(5).to_vec();
        assert!(contents.check(5, &message[..99]).is_err());
        message[99] ^= 1;
        assert_eq!(
            contents.check(5, &message).unwrap_err().to_string(),
            "the contents of message 5 were damaged"
        );
    }

    #[test]
    fn digest_is_sha256() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(file.path()).unwrap(), known);
    }
}
