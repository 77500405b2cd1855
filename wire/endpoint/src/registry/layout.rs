//! The layout of the registry's file.
//!
//! The first page holds a magic word and, from byte 64 on, one bit per slot that was ever in use,
//! so that readers need not touch the pages of the others.
//!
//! Slot (32 words of 8 bytes): state and pid | token | local address x2 | peer address x2 | ports |
//! namespace | rendezvous nonce | signal | role, carriers, reason | 4 byte counts | program x4 |
//! pid namespace | link x4 | ports of the wake channel

use seekwire_protocol::offer::LAYOUT;

/// The name of the file in its directory. Builds with another layout use another file: their
/// connections do not find each other, and neither disturbs the other.
#[must_use]
pub fn file_name() -> String {
    format!("registry-{LAYOUT}")
}

/// Slots in the table.
pub(super) const SLOTS: u32 = 16384;
pub(super) const SLOT: usize = 256;
pub(super) const WORDS: usize = SLOT / 8;
pub(super) const HEADER: usize = 4096;
pub(super) const BITMAP: usize = 64;
pub(super) const LEN: usize = HEADER + SLOTS as usize * SLOT;
/// How far from its home slot an entry may lie.
pub(super) const WINDOW: u32 = 32;
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"SKWREG\0\0") | (LAYOUT as u64) << 48;

// Words of a slot.
pub(super) const STATE: usize = 0;
pub(super) const TOKEN: usize = 1;
pub(super) const LOCAL: usize = 2;
pub(super) const PEER: usize = 4;
pub(super) const PORTS: usize = 6;
pub(super) const NAMESPACE: usize = 7;
pub(super) const NONCE: usize = 8;
pub(super) const SIGNAL: usize = 9;
pub(super) const ATTRIBUTES: usize = 10;
pub(super) const COUNTS: usize = 11;
pub(super) const PROGRAM: usize = 15;
pub(super) const PID_NAMESPACE: usize = 19;
pub(super) const LINK: usize = 20;
pub(super) const WAKE_PORTS: usize = 24;

/// State of a slot, in the low half of its first word; the high half is the process. While the slot
/// is claimed, the bits between hold the first bits of the rendezvous nonce, since the slot's word
/// for it may not be written yet.
pub(super) const CLAIMED: u64 = 1;
pub(super) const LIVE: u64 = 2;
pub(super) const STATES: u64 = 3;
