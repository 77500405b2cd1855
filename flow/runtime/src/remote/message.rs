//! The messages between the processes of a pipeline, and their format.
//!
//! ```text
//! frame    length of the message (u32)  length of the payload (u32)  message  payload
//! ```
//!
//! Numbers of the frame are little-endian; the message is one of [`Message`] in postcard's format.
//! Only a [`Message::Block`] and a [`Message::Sent`] have a payload. A process that has proved that
//! it belongs to the job is trusted, but no frame makes another one panic or take more memory than
//! the stream's limit and a short origin for each block: invalid messages end the link.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::protocol_error::ProtocolError;
use super::stats::EncodedStats;
use crate::memory::origin::Origin;
use crate::policy::dealing::BATCH_BLOCKS;
use crate::policy::fit::Cost;
use crate::policy::priority::UnitId;
use crate::stream::report::Failure;

/// The longest message without its payload.
pub(crate) const LONGEST: usize = 16 << 20;

/// Bytes of the two lengths.
pub(crate) const HEAD: usize = 8;

/// Most blocks in one message.
pub(crate) const MOST_SEQUENCES: usize = BATCH_BLOCKS;

/// Blocks of one unit, at least one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Sequences(pub(crate) Vec<u64>);

impl<'de> Deserialize<'de> for Sequences {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_newtype_struct("Sequences", Wanted)
    }
}

/// Reads at most that many.
struct Wanted;

impl<'de> Visitor<'de> for Wanted {
    type Value = Sequences;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1 to {MOST_SEQUENCES} numbers")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Sequences, D::Error> {
        from.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Sequences, A::Error> {
        let length = all.size_hint().unwrap_or(0);
        if length == 0 || length > MOST_SEQUENCES {
            return Err(A::Error::invalid_length(length, &self));
        }
        let mut sequences = Vec::with_capacity(length);
        while let Some(sequence) = all.next_element()? {
            sequences.push(sequence);
        }
        Ok(Sequences(sequences))
    }
}

/// A copy of the filter at one end of a stream: the stream's number, and that of the copy.
pub(crate) type StreamEnd = (u16, u16);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    // From the coordinator to all.
    /// A unit begins.
    Begin { unit: UnitId, argument: String, time_left: Option<Duration> },
    /// The unit has ended: done, or early.
    Closed { unit: UnitId, failure: Option<Failure> },
    /// The process is given up.
    Dead { rank: u32, why: String },
    /// Asks for the reports of copies and streams.
    AskStats,
    /// There are no more units.
    Finish,

    // To the coordinator.
    /// A copy of the process is done with the unit.
    CopyDone { unit: UnitId },
    /// The unit has to end early.
    EndEarly { unit: UnitId, failure: Failure },
    /// The link to that process is lost.
    Lost { rank: u32, why: String },
    /// Copies of that filter in the process have rejected some of their input, this often. If
    /// others would take over their blocks, it comes by way of the process that deals these, and
    /// before `Done`: a block that is not dealt again was counted.
    Rejected { filter: u32, count: u64 },
    /// The answer to `AskStats`.
    Stats(EncodedStats),

    // From a sending copy to the owner of the stream.
    /// A block.
    Sent { from: StreamEnd, unit: UnitId, group: u64, index: u32, origin: Option<Origin> },
    /// The group has no more blocks.
    GroupEnd { from: StreamEnd, unit: UnitId, group: u64 },
    /// Only output of the end of the unit follows.
    Last { from: StreamEnd, unit: UnitId },
    /// The output for the unit is complete.
    SentAll { from: StreamEnd, unit: UnitId, group: u64 },

    // From the owner of a stream to its senders.
    /// Room that they get back.
    Freed { stream: u16, bytes: u64 },
    /// The owner has the whole group.
    GroupKept { from: StreamEnd, unit: UnitId, group: u64 },
    /// The group that all others wait for.
    Turn { stream: u16, unit: UnitId, group: u64 },
    /// The cost of a block for the receivers.
    Costs { stream: u16, cost: Cost },

    // From the owner to a receiving copy.
    /// A block; `is_again` if it was dealt before, to a copy that is lost.
    Block { to: StreamEnd, unit: UnitId, sequence: u64, is_again: bool, origin: Option<Origin> },
    /// The copy should return a block that it has not begun: the answer is `Dropped`.
    Recall { to: StreamEnd, unit: UnitId, sequence: u64 },
    /// The copy gets no more blocks of the unit.
    Over { to: StreamEnd, unit: UnitId },

    // From a receiving copy to the owner.
    /// The copy begins a block.
    Started { to: StreamEnd, unit: UnitId, sequence: u64 },
    /// The copy has finished these blocks. `took` and `blocked` are times for each; `waited` is how
    /// long the last one had waited there.
    Done {
        to: StreamEnd,
        unit: UnitId,
        sequences: Sequences,
        took: Duration,
        blocked: Duration,
        waited: Duration,
    },
    /// The memory of these blocks is free. If the copy has not begun them, it never will: the unit
    /// has ended, or the owner wants them back.
    Dropped { to: StreamEnd, unit: UnitId, sequences: Sequences, is_begun: bool },

    /// The sender is alive.
    Beat,
}

impl Message {
    pub(crate) fn has_payload(&self) -> bool {
        matches!(self, Self::Block { .. } | Self::Sent { .. })
    }

    /// Appends the lengths and the message to `into`; the payload follows.
    pub(crate) fn write(&self, payload: usize, into: &mut Vec<u8>) -> Result<(), ProtocolError> {
        let start = into.len();
        into.extend_from_slice(&[0; HEAD]);
        let before = std::mem::take(into);
        *into = postcard::to_extend(self, before).map_err(ProtocolError::Unreadable)?;
        let length = into.len() - start - HEAD;
        if length > LONGEST {
            into.truncate(start);
            return Err(ProtocolError::TooLong(length));
        }
        let payload_length = u32::try_from(payload)
            .map_err(|_| ProtocolError::TooLarge(payload))
            .inspect_err(|_| {
            into.truncate(start);
        })?;
        into[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
        into[start + 4..start + HEAD].copy_from_slice(&payload_length.to_le_bytes());
        Ok(())
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let (message, rest) =
            postcard::take_from_bytes(bytes).map_err(ProtocolError::Unreadable)?;
        if rest.is_empty() { Ok(message) } else { Err(ProtocolError::Unexpected("bytes after it")) }
    }
}

/// A message, and its payload.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) message: Message,
    pub(crate) payload: Bytes,
}

impl From<Message> for Frame {
    fn from(message: Message) -> Self {
        Self { message, payload: Bytes::new() }
    }
}

/// The lengths that a frame begins with, of the message and of the payload.
pub(crate) fn lengths(head: [u8; HEAD], largest: usize) -> Result<(usize, usize), ProtocolError> {
    let [a, b, c, d, e, f, g, h] = head;
    let message = u32::from_le_bytes([a, b, c, d]) as usize;
    let payload = u32::from_le_bytes([e, f, g, h]) as usize;
    if message > LONGEST {
        return Err(ProtocolError::TooLong(message));
    }
    if payload > largest {
        return Err(ProtocolError::TooLarge(payload));
    }
    Ok((message, payload))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let messages = [
            Message::Begin { unit: UnitId(7), argument: "slide".into(), time_left: None },
            Message::Block {
                to: (3, 1),
                unit: UnitId(1 << 40),
                sequence: 9,
                is_again: true,
                origin: Some(Origin::new("a.log").skip(7)),
            },
            Message::Done {
                to: (0, 0),
                unit: UnitId(0),
                sequences: Sequences(vec![1, 1 << 33]),
                took: Duration::from_nanos(17),
                blocked: Duration::from_nanos(3),
                waited: Duration::ZERO,
            },
            Message::Closed { unit: UnitId(1), failure: Some(Failure::Cancelled) },
            Message::Beat,
        ];
        let mut all = Vec::new();
        for message in &messages {
            message.write(5, &mut all).unwrap();
        }
        let mut rest = &all[..];
        for message in messages {
            let (head, more) = rest.split_at(HEAD);
            let (length, payload) = lengths(head.try_into().unwrap(), 5).unwrap();
            assert_eq!(payload, 5);
            assert_eq!(Message::read(&more[..length]), Ok(message));
            rest = &more[length..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn no_more_blocks_are_reported_than_there_can_be() {
        let dropped = |count: usize| {
            let sequences = Sequences(vec![u64::MAX; count]);
            let message =
                Message::Dropped { to: (0, 0), unit: UnitId(0), sequences, is_begun: true };
            let mut into = Vec::new();
            message.write(0, &mut into).unwrap();
            (Message::read(&into[HEAD..]), message)
        };
        for count in [1, MOST_SEQUENCES] {
            let (read, written) = dropped(count);
            assert_eq!(read, Ok(written));
        }
        for count in [0, MOST_SEQUENCES + 1] {
            assert!(matches!(dropped(count).0, Err(ProtocolError::Unreadable(_))));
        }
    }

    #[test]
    fn lengths_that_nobody_has_room_for_are_refused() {
        let head = |message: u32, payload: u32| {
            let mut head = [0; HEAD];
            head[..4].copy_from_slice(&message.to_le_bytes());
            head[4..].copy_from_slice(&payload.to_le_bytes());
            head
        };
        assert_eq!(lengths(head(12, 100), 100), Ok((12, 100)));
        assert_eq!(lengths(head(12, 101), 100), Err(ProtocolError::TooLarge(101)));
        assert!(matches!(lengths(head(u32::MAX, 0), 100), Err(ProtocolError::TooLong(_))));
        let long =
            Message::Begin { unit: UnitId(0), argument: "x".repeat(LONGEST + 1), time_left: None };
        let mut into = vec![1];
        assert!(matches!(long.write(0, &mut into), Err(ProtocolError::TooLong(_))));
        assert_eq!(into, [1]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(message) = Message::read(&bytes) {
                let mut again = Vec::new();
                message.write(0, &mut again).unwrap();
                prop_assert_eq!(Message::read(&again[HEAD..]), Ok(message));
            }
        }
    }
}
