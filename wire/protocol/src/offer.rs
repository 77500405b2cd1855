//! The datagrams and messages by which the connecting and the accepting process agree on shared
//! memory.
//!
//! Fixed little-endian layout, so that a process of another build can at least refuse it cleanly:
//!
//! ```text
//!   0  magic "SKWR"     4  layout version u16   6  kind u8   7  verdict u8
//!   8  target slot u32   12  target token u64 (slot's registration)
//!  20  reply slot u32    24  reply token u64
//!  32  local address 16, port 2    50  peer address 16, port 2    68  namespace u64
//! ```
//!
//! Descriptors are attached (SCM_RIGHTS): to an offer, the writer's proof that it holds the socket
//! and one end of the channel that carries all further messages; to "granted", the writer's memory,
//! its doorbell and its proof; to "joined", memory and doorbell.

use crate::{Endpoint, FourTuple, Reason};

/// Bytes of a datagram.
pub const DATAGRAM: usize = 76;
/// The layout of the shared memory and of these datagrams; both ends must agree.
pub const LAYOUT: u16 = 3;
const MAGIC: [u8; 4] = *b"SKWR";

/// Where a datagram belongs: a registry slot and the token of the registration that holds it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SlotRef {
    /// Index of the slot.
    pub index: u32,
    /// Token of the registration; another one means the slot was reused.
    pub token: u64,
}

/// The kind of a datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Message {
    /// The connecting side offers to share memory.
    Offer,
    /// The accepting side takes the offer and sends its own memory.
    Granted,
    /// The connecting side sends its memory in turn.
    Joined,
    /// The accepting side refuses, for this reason.
    Refused(Reason),
}

/// One datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Datagram {
    /// The kind, with its verdict.
    pub message: Message,
    /// The slot the datagram is for.
    pub target: SlotRef,
    /// The slot that an answer goes to.
    pub reply: SlotRef,
    /// The connection as the sender of the datagram sees it.
    pub tuple: FourTuple,
}

/// Why a datagram was not understood.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DecodeError {
    /// Not a datagram of this format, or truncated.
    Malformed,
    /// From a build with another memory layout.
    OtherLayout(u16),
}

impl Datagram {
    /// The bytes to send.
    #[must_use]
    pub fn encode(&self) -> [u8; DATAGRAM] {
        let (kind, verdict) = match self.message {
            Message::Offer => (1, 0),
            Message::Granted => (2, 0),
            Message::Refused(reason) => (3, reason as u8),
            Message::Joined => (4, 0),
        };
        let mut bytes = Vec::with_capacity(DATAGRAM);
        bytes.extend(MAGIC);
        bytes.extend(LAYOUT.to_le_bytes());
        bytes.extend([kind, verdict]);
        for slot in [self.target, self.reply] {
            bytes.extend(slot.index.to_le_bytes());
            bytes.extend(slot.token.to_le_bytes());
        }
        for endpoint in [self.tuple.local, self.tuple.peer] {
            bytes.extend(endpoint.address().to_le_bytes());
            bytes.extend(endpoint.port().to_le_bytes());
        }
        bytes.extend(self.tuple.namespace.to_le_bytes());
        let mut datagram = [0; DATAGRAM];
        datagram.copy_from_slice(&bytes);
        datagram
    }

    /// Reads what another process sent.
    ///
    /// # Errors
    /// [`DecodeError`] when they are not a datagram of this layout.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut rest = bytes;
        if take::<4>(&mut rest)? != MAGIC {
            return Err(DecodeError::Malformed);
        }
        let layout = u16::from_le_bytes(take(&mut rest)?);
        if layout != LAYOUT {
            return Err(DecodeError::OtherLayout(layout));
        }
        let [kind, verdict] = take(&mut rest)?;
        let message = match kind {
            1 => Message::Offer,
            2 => Message::Granted,
            // A reason that this version does not know is still a refusal.
            3 => Message::Refused(Reason::from_code(verdict.into()).unwrap_or(Reason::PeerRefused)),
            4 => Message::Joined,
            _ => return Err(DecodeError::Malformed),
        };
        let target = slot(&mut rest)?;
        let reply = slot(&mut rest)?;
        let local = endpoint(&mut rest)?;
        let peer = endpoint(&mut rest)?;
        let namespace = u64::from_le_bytes(take(&mut rest)?);
        if !rest.is_empty() {
            return Err(DecodeError::Malformed);
        }
        Ok(Self { message, target, reply, tuple: FourTuple { local, peer, namespace } })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], DecodeError> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(DecodeError::Malformed)?;
    *rest = tail;
    Ok(*head)
}

fn slot(rest: &mut &[u8]) -> Result<SlotRef, DecodeError> {
    let index = u32::from_le_bytes(take(rest)?);
    let token = u64::from_le_bytes(take(rest)?);
    Ok(SlotRef { index, token })
}

fn endpoint(rest: &mut &[u8]) -> Result<Endpoint, DecodeError> {
    let address = u128::from_le_bytes(take(rest)?);
    let port = u16::from_le_bytes(take(rest)?);
    Ok(Endpoint::from_parts(address, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn datagram() -> impl Strategy<Value = Datagram> {
        let message = prop_oneof![
            Just(Message::Offer),
            Just(Message::Granted),
            Just(Message::Joined),
            proptest::sample::select(Reason::ALL).prop_map(Message::Refused)
        ];
        let slot =
            || (any::<u32>(), any::<u64>()).prop_map(|(index, token)| SlotRef { index, token });
        let endpoint =
            || (any::<u128>(), any::<u16>()).prop_map(|(a, p)| Endpoint::from_parts(a, p));
        (message, slot(), slot(), endpoint(), endpoint(), any::<u64>()).prop_map(
            |(message, target, reply, local, peer, namespace)| Datagram {
                message,
                target,
                reply,
                tuple: FourTuple { local, peer, namespace },
            },
        )
    }

    proptest! {
        #[test]
        fn round_trip(datagram in datagram()) {
            prop_assert_eq!(Datagram::decode(&datagram.encode()), Ok(datagram));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Datagram::decode(&bytes);
        }

        #[test]
        fn every_cut_is_refused(datagram in datagram(), cut in 0..DATAGRAM) {
            prop_assert_eq!(Datagram::decode(&datagram.encode()[..cut]), Err(DecodeError::Malformed));
        }
    }

    fn saying(message: Message) -> Datagram {
        let tuple = FourTuple {
            local: Endpoint::from_parts(1, 2),
            peer: Endpoint::from_parts(3, 4),
            namespace: 5,
        };
        let slot = SlotRef { index: 0, token: 0 };
        Datagram { message, target: slot, reply: slot, tuple }
    }

    #[test]
    fn another_layout_is_named() {
        let mut bytes = saying(Message::Offer).encode();
        bytes[4] = 9;
        assert_eq!(Datagram::decode(&bytes), Err(DecodeError::OtherLayout(9)));
    }

    #[test]
    fn a_refusal_for_an_unknown_reason_is_one() {
        for code in [0, 255] {
            let mut bytes = saying(Message::Refused(Reason::Shared)).encode();
            bytes[7] = code;
            let refused = saying(Message::Refused(Reason::PeerRefused));
            assert_eq!(Datagram::decode(&bytes), Ok(refused), "{code}");
        }
    }
}
