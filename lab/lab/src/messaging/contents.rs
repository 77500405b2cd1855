//! Messages that can be checked when they arrive.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, Result};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::Iteration;

/// Something arrived that must never arrive: messaging breaks its promises.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Violation(pub String);

/// Where messages go one way and are counted, one of this many is compared in full.
pub const SHARE: u64 = 256;

/// Bytes of a number.
const NUMBER: usize = size_of::<u64>();

/// Number of bodies; a prime, so that no other period can hide in it.
const PERIOD: usize = 251;

/// Contents of numbered messages of one size: the number, little-endian, cut off by the size, and
/// then a body, whose bytes differ from one body to the next. Usually a message has the body of its
/// number.
#[derive(Clone, Debug)]
pub struct MessageContents {
    size: usize,
    pattern: Vec<u8>,
}

impl MessageContents {
    /// For messages of `size` bytes.
    #[must_use]
    pub fn new(size: usize) -> Self {
        // Neighbouring bytes differ, and so do bytes at a distance of a power of two.
        Self { size, pattern: (0..size + PERIOD).map(|index| (index % PERIOD) as u8).collect() }
    }

    /// Message `number`.
    #[must_use]
    pub fn message(&self, number: u64) -> Vec<u8> {
        let mut message = vec![0; self.size];
        self.fill(number, &mut message);
        message
    }

    /// Turns `message`, which has the size, into message `number`.
    ///
    /// # Panics
    ///
    /// If it has another size.
    pub fn fill(&self, number: u64, message: &mut [u8]) {
        let split = head_of(message);
        message[split..].copy_from_slice(self.body(number));
        renumber(message, number);
    }

    /// Checks that `received` has the size and the number of message `number`. This takes the same
    /// time for all sizes.
    ///
    /// # Errors
    ///
    /// [`Violation`], if it has not.
    pub fn check_number(&self, number: u64, received: &[u8]) -> Result<(), Violation> {
        if received.len() != self.size {
            let got = received.len();
            return Err(Violation(format!(
                "message {number} of {} bytes arrived with {got}",
                self.size
            )));
        }
        let head = &received[..head_of(received)];
        if head != &number.to_le_bytes()[..head.len()] {
            return Err(Violation(format!("message {number} was expected, {head:?} came")));
        }
        Ok(())
    }

    /// Checks that `received` has the body of message `number`, whatever its own number is.
    ///
    /// # Errors
    ///
    /// [`Violation`], if it has not.
    pub fn check_body(&self, number: u64, received: &[u8]) -> Result<(), Violation> {
        let (head, body) = received.split_at(head_of(received));
        if body != self.body(number) {
            return Err(Violation(format!("the contents of message {head:?} were damaged")));
        }
        Ok(())
    }

    fn body(&self, number: u64) -> &[u8] {
        let start = (number % PERIOD as u64) as usize;
        &self.pattern[start..start + self.size.saturating_sub(NUMBER)]
    }
}

/// Bytes of the number of a message.
fn head_of(message: &[u8]) -> usize {
    NUMBER.min(message.len())
}

/// Gives a message another number. This takes the same time for all sizes.
pub fn renumber(message: &mut [u8], number: u64) {
    let split = head_of(message);
    message[..split].copy_from_slice(&number.to_le_bytes()[..split]);
}

/// A message that goes there and back, turn after turn. The timed part includes nothing that takes
/// longer for larger messages.
///
/// In a warm-up contents are new in each turn, and compared in full. After that, as in libzmq's
/// remote_lat, the returned message goes out again: it gets a new number, and that and the length
/// are checked. Damage to the body of one of these messages persists in all later ones, so that the
/// last one shows it.
#[derive(Debug)]
pub struct Journey {
    contents: MessageContents,
    body: u64,
}

impl Journey {
    /// Of messages of `size` bytes.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self { contents: MessageContents::new(size), body: 0 }
    }

    /// The message before the first turn.
    #[must_use]
    pub fn first(&self) -> Vec<u8> {
        self.contents.message(self.body)
    }

    /// Prepares a message for its turn: the first one, or the one that came back last and has
    /// [arrived](Self::arrive).
    pub fn depart(&mut self, turn: Iteration, message: &mut [u8]) {
        if turn.warm_up {
            self.body = turn.number;
            self.contents.fill(turn.number, message);
        } else {
            renumber(message, turn.number);
        }
    }

    /// Checks the message that came back in this turn.
    ///
    /// # Errors
    ///
    /// [`Violation`], if it differs from the one that went out.
    pub fn arrive(&self, turn: Iteration, message: &[u8]) -> Result<(), Violation> {
        self.contents.check_number(turn.number, message)?;
        if turn.warm_up { self.contents.check_body(self.body, message) } else { Ok(()) }
    }

    /// The same for the answer of service or worker `by`, which is turned back into the original
    /// message.
    ///
    /// # Errors
    ///
    /// As [`Journey::arrive`].
    pub fn answered(
        &self,
        turn: Iteration,
        by: usize,
        message: &mut [u8],
    ) -> Result<(), Violation> {
        retrace(by, message);
        self.arrive(turn, message)
            .map_err(|Violation(what)| Violation(format!("service or worker {by}: {what}")))
    }

    /// Checks the message that came back in the last turn, and thereby the bodies of all that
    /// counted.
    ///
    /// # Errors
    ///
    /// As [`Journey::arrive`].
    pub fn end(&self, message: &[u8]) -> Result<(), Violation> {
        self.contents.check_body(self.body, message)
    }
}

/// Bytes of a message that [`answer`] changes, so that its work is the same for all sizes.
const WORKED_ON: usize = 8;

/// The answer of service (worker) `which` to a request (block): it adds a distance of its own to
/// each of the first bytes, so that replies of one cannot be taken for those of another.
pub fn answer(which: usize, message: &mut [u8]) {
    let distance = which as u8 + 1;
    message.iter_mut().take(WORKED_ON).for_each(|byte| *byte = byte.wrapping_add(distance));
}

/// Turns an answer of [`answer`] back into the request.
pub(super) fn retrace(which: usize, message: &mut [u8]) {
    let distance = which as u8 + 1;
    message.iter_mut().take(WORKED_ON).for_each(|byte| *byte = byte.wrapping_sub(distance));
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
    fn every_message_differs_from_its_neighbours() {
        for size in [1, 7, 8, 9, 1000] {
            let contents = MessageContents::new(size);
            let sent = [0, 1, 2, 250, 255].map(|number| contents.message(number));
            assert_eq!(contents.check_number(250, &sent[3]), Ok(()));
            assert_eq!(contents.check_body(250, &sent[3]), Ok(()));
            for other in [0, 1, 2, 4] {
                assert!(contents.check_number(250, &sent[other]).is_err(), "{size} {other}");
                assert_eq!(
                    contents.check_body(250, &sent[other]).is_err(),
                    size > NUMBER,
                    "{size} {other}"
                );
            }
        }
    }

    #[test]
    fn damage_and_loss_of_bytes_are_noticed() {
        let contents = MessageContents::new(100);
        let mut message = contents.message(5);
        assert!(contents.check_number(5, &message[..99]).is_err());
        message[99] ^= 1;
        assert_eq!(contents.check_number(5, &message), Ok(()));
        assert_eq!(
            contents.check_body(5, &message).unwrap_err().to_string(),
            "the contents of message [5, 0, 0, 0, 0, 0, 0, 0] were damaged"
        );
    }

    #[test]
    fn a_new_number_leaves_the_body() {
        let contents = MessageContents::new(20);
        let mut message = contents.message(5);
        renumber(&mut message, 6);
        assert_eq!(
            (contents.check_number(6, &message), contents.check_body(5, &message)),
            (Ok(()), Ok(()))
        );
        assert!(contents.check_body(6, &message).is_err());
    }

    #[test]
    fn damage_on_a_journey_is_noticed_at_once_or_at_its_end() {
        let mut journey = Journey::new(100);
        let mut message = journey.first();
        for (number, warm_up) in [(0, true), (1, true), (2, false), (3, false)] {
            let turn = Iteration { number, warm_up };
            journey.depart(turn, &mut message);
            assert_eq!(journey.arrive(turn, &message), Ok(()));
            let mut damaged = message.clone();
            damaged[60] ^= 1;
            assert_eq!(journey.arrive(turn, &damaged).is_err(), warm_up, "{number}");
            damaged = message.clone();
            damaged[0] ^= 1;
            assert!(journey.arrive(turn, &damaged).is_err(), "{number}");
            assert!(journey.arrive(turn, &message[..99]).is_err(), "{number}");
            assert_eq!(journey.end(&message), Ok(()));
        }
        let turn = Iteration { number: 4, warm_up: false };
        journey.depart(turn, &mut message);
        for by in 0..3 {
            answer(by, &mut message);
            assert!(journey.answered(turn, by + 1, &mut message.clone()).is_err(), "{by}");
            assert_eq!(journey.answered(turn, by, &mut message), Ok(()));
        }
        message[60] ^= 1;
        let turn = Iteration { number: 5, warm_up: false };
        journey.depart(turn, &mut message);
        assert_eq!(journey.arrive(turn, &message), Ok(()));
        assert!(journey.end(&message).is_err());
    }

    #[test]
    fn digest_is_sha256() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(file.path()).unwrap(), expected);
    }
}
