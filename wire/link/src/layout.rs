//! The layout of a region.
//!
//! The first side has the first half, the second side the second half. Each half contains:
//!
//! | page      | holds                                                                           |
//! |-----------|---------------------------------------------------------------------------------|
//! | 0         | the header, written by attaching; then the words of the agents                  |
//! | from 1 on | the directory: entries of 256 bytes, one for 64 KiB of the half, but 16 to 4096 |
//! | after it  | places, each of whole pages                                                     |

use std::ops::Range;

use seekwire_protocol::offer::LAYOUT;

use crate::map::Side;

/// Parts of a region begin at a page.
pub(crate) const PAGE: usize = 4096;
/// Maximum number of entries in a directory.
pub(crate) const MAX_ENTRIES: usize = 4096;
const MIN_ENTRIES: usize = 16;
const BYTES_PER_ENTRY: usize = 64 << 10;
const ENTRY: usize = 256;
const MIN_LENGTH: u64 = 1 << 20;
const MAX_LENGTH: u64 = 64 << 30;

/// The first word of a header, which is written last.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"SWLINK\0\0") | (LAYOUT as u64) << 48;

/// Words of a header.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0x00;
    /// Length of the region in bytes.
    pub(crate) const LENGTH: usize = 0x08;
    /// Token of the machine's attachment.
    pub(crate) const TOKEN: usize = 0x10;
    pub(crate) const SIDE: usize = 0x18;
    pub(crate) const ENTRIES: usize = 0x20;
    pub(crate) const FLAGS: usize = 0x28;
    /// The OTHER machine adds 1 when it has found no free pages: entries of this half whose leases
    /// have ended may still name places of its half.
    pub(crate) const WANTS_ROOM: usize = 0x30;
    /// Number of entries that have ever been in use. Readers stop there.
    pub(crate) const HIGHEST: usize = 0x38;

    /// Odd while the agent changes the port, the count or the addresses.
    pub(crate) const SEQUENCE: usize = 0x100;
    /// The port of this machine's agent, or 0 if none runs.
    pub(crate) const AGENT: usize = 0x108;
    /// Number of addresses of the machine.
    pub(crate) const COUNT: usize = 0x110;
    /// Two words each, the high half first.
    pub(crate) const ADDRESSES: usize = 0x200;
    /// The question of this machine's agent, or 0 if there is none.
    pub(crate) const QUESTION: usize = 0x140;
    /// The question of the OTHER machine that this machine's agent has answered last. Stored last.
    pub(crate) const ANSWERED: usize = 0x180;
    /// The secret of that question, then the address of this machine and the other's: two words
    /// each.
    pub(crate) const SECRET: usize = 0x188;
    pub(crate) const HERE: usize = 0x198;
    pub(crate) const THERE: usize = 0x1a8;

    /// The words of the agents: zero until an agent stores something.
    pub(crate) fn of_agents() -> impl Iterator<Item = usize> {
        (SEQUENCE..ADDRESSES + super::MAX_ADDRESSES * 16).step_by(8)
    }
}

/// Maximum number of addresses that an agent can publish.
pub(crate) const MAX_ADDRESSES: usize = 64;

/// A bit of [`header::FLAGS`], and of the same word in the state file.
pub(crate) const DETACHED: u64 = 1;

/// Words of an entry. [`STATE`](entry::STATE) is stored last, and loaded first.
pub(crate) mod entry {
    /// One of [`state`](super::state), with the reason in the upper half.
    pub(crate) const STATE: usize = 0x00;
    /// Token of its machine's attachment.
    pub(crate) const TOKEN: usize = 0x08;
    /// Two words each: the upper half of the address first.
    pub(crate) const LOCAL: usize = 0x10;
    pub(crate) const PEER: usize = 0x20;
    /// The local port, shifted by 16, and the peer's.
    pub(crate) const PORTS: usize = 0x30;
    pub(crate) const ROLE: usize = 0x38;
    /// Two words, the upper half first.
    pub(crate) const NONCE: usize = 0x40;
    /// The port at which an accepting end listens for the wake channel.
    pub(crate) const PORT: usize = 0x50;
    /// Offset of this end's memory in the region, then its length.
    pub(crate) const PLACE: usize = 0x58;
    pub(crate) const PLACE_LENGTH: usize = 0x60;
    /// Byte counts of TCP.
    pub(crate) const SENT: usize = 0x68;
    pub(crate) const RECEIVED: usize = 0x70;
    pub(crate) const ACKNOWLEDGED: usize = 0x78;
    /// Offset of the place in the other half that this end maps, then its length; both 0 if none.
    pub(crate) const NAMES: usize = 0x80;
    pub(crate) const NAMES_LENGTH: usize = 0x88;
    /// The nonce of the entry with which it communicates: two words.
    pub(crate) const TALKS_TO: usize = 0x90;
    /// The secret of the connection's wake channel, which is stored nowhere else: two words.
    pub(crate) const PROOF: usize = 0xa0;
    /// Grows with each entry: of two entries with the same 4-tuple the later one counts.
    pub(crate) const ORDER: usize = 0xb0;
    /// The port of the event channel that an accepting end offers, and of which the connecting end
    /// has the other end; 0 if there is none.
    pub(crate) const CHANNEL: usize = 0xb8;
    /// The OTHER machine adds 1 to notify this end.
    pub(crate) const SIGNAL: usize = 0xc0;

    /// All words but [`STATE`] and [`SIGNAL`].
    pub(crate) fn rest() -> impl Iterator<Item = usize> {
        (TOKEN..CHANNEL + 8).step_by(8)
    }
}

/// Values of the lower half of [`entry::STATE`].
pub(crate) mod state {
    pub(crate) const FREE: u64 = 0;
    pub(crate) const HERE: u64 = 1;
    pub(crate) const OFFERED: u64 = 2;
    pub(crate) const GRANTED: u64 = 3;
    pub(crate) const REFUSED: u64 = 4;
}

/// The division of a region of some length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Layout {
    length: usize,
    entries: usize,
}

/// A region that cannot be divided.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the memory has {0} bytes: a link needs 1 MiB to 64 GiB, and a multiple of 8192 bytes; change \
     its size"
)]
pub struct LengthError(pub u64);

impl Layout {
    /// The layout of a region of `length` bytes.
    ///
    /// # Errors
    /// [`LengthError`] when it is too short, too long, or not made of whole pages.
    pub fn of(length: u64) -> Result<Self, LengthError> {
        let is_usable =
            (MIN_LENGTH..=MAX_LENGTH).contains(&length) && length % (2 * PAGE as u64) == 0;
        let bytes = usize::try_from(length).ok().filter(|_| is_usable);
        let length = bytes.ok_or(LengthError(length))?;
        let entries = (length / 2 / BYTES_PER_ENTRY).clamp(MIN_ENTRIES, MAX_ENTRIES);
        Ok(Self { length, entries: entries / MIN_ENTRIES * MIN_ENTRIES })
    }

    /// Length of the region in bytes.
    #[must_use]
    pub fn length(self) -> usize {
        self.length
    }

    /// Number of entries in the directory of a half.
    #[must_use]
    pub fn entries(self) -> usize {
        self.entries
    }

    /// The half of a side. Its first page is the header.
    #[must_use]
    pub fn half(self, side: Side) -> Range<usize> {
        let half = self.length / 2;
        match side {
            Side::First => 0..half,
            Side::Second => half..self.length,
        }
    }

    /// Offset of an entry.
    ///
    /// # Panics
    /// If there are not that many entries.
    #[must_use]
    pub fn entry(self, side: Side, index: usize) -> usize {
        assert!(index < self.entries, "no such entry");
        self.half(side).start + PAGE + index * ENTRY
    }

    /// The range of a side's places.
    #[must_use]
    pub fn places(self, side: Side) -> Range<usize> {
        let half = self.half(side);
        half.start + PAGE + self.entries * ENTRY..half.end
    }

    /// Checks the two words of a place: whole pages, inside the half of this side.
    pub(crate) fn place(self, side: Side, offset: u64, length: u64) -> Option<(usize, usize)> {
        let places = self.places(side);
        let (offset, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
        let is_place = length > 0
            && offset % PAGE == 0
            && length % PAGE == 0
            && offset >= places.start
            && offset.checked_add(length).is_some_and(|end| end <= places.end);
        is_place.then_some((offset, length))
    }
}

// Directories end at a page boundary, and the header of a queue pair is in the first page of a
// place.
const _: () = assert!(MIN_ENTRIES * ENTRY % PAGE == 0 && entry::SIGNAL % 64 == 0);
const _: () = assert!(header::ADDRESSES + MAX_ADDRESSES * 16 <= PAGE);
const _: () = assert!(seekwire_transport::layout::CONTROL < PAGE);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lengths() -> impl Strategy<Value = u64> {
        (MIN_LENGTH / 8192..=MAX_LENGTH / 8192).prop_map(|pages| pages * 8192)
    }

    #[test]
    fn lengths_at_and_beyond_the_bounds() {
        for length in [MIN_LENGTH, MIN_LENGTH + 8192, 256 << 20, MAX_LENGTH] {
            assert_eq!(Layout::of(length).unwrap().length() as u64, length);
        }
        for length in [0, 8192, MIN_LENGTH - 8192, MIN_LENGTH + 4096, MAX_LENGTH + 8192, u64::MAX] {
            assert_eq!(Layout::of(length), Err(LengthError(length)));
        }
        assert_eq!(Layout::of(MIN_LENGTH).unwrap().entries(), 16);
        assert_eq!(Layout::of(256 << 20).unwrap().entries(), 2048);
        assert_eq!(Layout::of(MAX_LENGTH).unwrap().entries(), 4096);
    }

    #[test]
    fn what_is_no_place_is_refused() {
        let layout = Layout::of(1 << 20).unwrap();
        let places = layout.places(Side::Second);
        let (start, end) = (places.start as u64, places.end as u64);
        let place = |offset, length| layout.place(Side::Second, offset, length);
        assert_eq!(place(start, end - start), Some((places.start, places.len())));
        assert_eq!(place(end - 4096, 4096), Some((places.end - 4096, 4096)));
        for (offset, length) in [
            (0, 0),
            (start, 0),
            (start, 1),
            (start + 8, 4096),
            (start - 4096, 4096),
            (start, end - start + 4096),
            (end, 4096),
            (start, !4095),
            (!4095, 4096),
        ] {
            assert_eq!(place(offset, length), None, "{offset:#x} {length:#x}");
        }
        assert_eq!(layout.place(Side::First, start, 4096), None);
    }

    proptest! {
        #[test]
        fn parts_follow_each_other_without_overlap(length in lengths()) {
            let layout = Layout::of(length).unwrap();
            let [first, second] = [Side::First, Side::Second].map(|side| layout.half(side));
            prop_assert_eq!((first.start, first.end), (0, second.start));
            prop_assert_eq!(second.end as u64, length);
            for side in [Side::First, Side::Second] {
                let (half, places) = (layout.half(side), layout.places(side));
                prop_assert!(layout.entries() % 16 == 0 && (16..=4096).contains(&layout.entries()));
                prop_assert_eq!(layout.entry(side, 0), half.start + PAGE);
                let last = layout.entry(side, layout.entries() - 1);
                prop_assert_eq!(last + ENTRY, places.start);
                prop_assert!(places.start % PAGE == 0 && places.end == half.end);
                prop_assert!(places.len() > half.len() * 3 / 4);
            }
        }
    }
}
