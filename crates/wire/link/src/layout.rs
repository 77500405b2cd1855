//! What lies where in a region.
//!
//! The first side has the first half, the second side the second one. In a half:
//!
//! | page      | holds                                                                           |
//! |-----------|---------------------------------------------------------------------------------|
//! | 0         | the header, written by attaching; behind it what agents say                     |
//! | from 1 on | the directory: entries of 256 bytes, one for 64 KiB of the half, but 16 to 4096 |
//! | behind it | places, each of whole pages                                                     |

use std::ops::Range;

use seekwire_protocol::offer::LAYOUT;

use crate::map::Side;

/// Parts of a region begin with a page.
pub(crate) const PAGE: usize = 4096;
/// The most entries in a directory.
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
    /// Bytes of the region.
    pub(crate) const LENGTH: usize = 0x08;
    /// Of this attachment of the machine.
    pub(crate) const TOKEN: usize = 0x10;
    pub(crate) const SIDE: usize = 0x18;
    pub(crate) const ENTRIES: usize = 0x20;
    pub(crate) const FLAGS: usize = 0x28;
    /// The OTHER machine adds 1 when it has found no pages: entries here that are not leased any
    /// more may name places of its half.
    pub(crate) const WANTS_ROOM: usize = 0x30;
    /// How many entries were ever in use: nobody looks at those behind them.
    pub(crate) const HIGHEST: usize = 0x38;

    /// Odd while the agent changes the three behind it.
    pub(crate) const SEQUENCE: usize = 0x100;
    /// Where the agent of this machine answers; 0 while none runs.
    pub(crate) const AGENT: usize = 0x108;
    /// How many addresses the machine has.
    pub(crate) const COUNT: usize = 0x110;
    /// Two words each, the high half first.
    pub(crate) const ADDRESSES: usize = 0x200;
    /// The question that the agent of this machine asks; 0 while it asks none.
    pub(crate) const QUESTION: usize = 0x140;
    /// The question of the OTHER machine that the agent of this one has answered last. Stored last.
    pub(crate) const ANSWERED: usize = 0x180;
    /// What was said to it, at which address of this machine, and by which one: two words each.
    pub(crate) const SECRET: usize = 0x188;
    pub(crate) const HERE: usize = 0x198;
    pub(crate) const THERE: usize = 0x1a8;

    /// What agents say, in zeros while none has said anything.
    pub(crate) fn of_agents() -> impl Iterator<Item = usize> {
        (SEQUENCE..ADDRESSES + super::MAX_ADDRESSES * 16).step_by(8)
    }
}

/// The most addresses that an agent can say its machine has.
pub(crate) const MAX_ADDRESSES: usize = 64;

/// Bit of [`header::FLAGS`], and of the same word in the state file.
pub(crate) const DETACHED: u64 = 1;

/// Words of an entry. [`STATE`](entry::STATE) is stored last, and loaded first.
pub(crate) mod entry {
    /// One of [`state`](super::state); the reason in the high half.
    pub(crate) const STATE: usize = 0x00;
    /// Of the machine that it belongs to.
    pub(crate) const TOKEN: usize = 0x08;
    /// Two words each: the high half of the address first.
    pub(crate) const LOCAL: usize = 0x10;
    pub(crate) const PEER: usize = 0x20;
    /// The local one, shifted by 16, and the peer's.
    pub(crate) const PORTS: usize = 0x30;
    pub(crate) const ROLE: usize = 0x38;
    /// Two words, the high half first.
    pub(crate) const NONCE: usize = 0x40;
    /// Where an accepting end listens for the line.
    pub(crate) const PORT: usize = 0x50;
    /// Where the memory of this end lies in the region, and how long it is.
    pub(crate) const PLACE: usize = 0x58;
    pub(crate) const PLACE_LENGTH: usize = 0x60;
    /// Bytes by TCP.
    pub(crate) const SENT: usize = 0x68;
    pub(crate) const RECEIVED: usize = 0x70;
    pub(crate) const ACKNOWLEDGED: usize = 0x78;
    /// The place of the other half that this end maps; 0 and 0 when none.
    pub(crate) const NAMES: usize = 0x80;
    pub(crate) const NAMES_LENGTH: usize = 0x88;
    /// The nonce of the entry that it talks to: two words.
    pub(crate) const TALKS_TO: usize = 0x90;
    /// What was said on the line of the connection, and stands nowhere else: two words.
    pub(crate) const PROOF: usize = 0xa0;
    /// The later an end has entered, the larger: of two with the same 4-tuple the later one counts.
    pub(crate) const ORDER: usize = 0xb0;
    /// The port of the event channel that an accepting end offers, and of which the connecting end
    /// has the other end; 0 where there is none.
    pub(crate) const CHANNEL: usize = 0xb8;
    /// The OTHER machine adds 1.
    pub(crate) const SIGNAL: usize = 0xc0;

    /// All but [`STATE`] and [`SIGNAL`].
    pub(crate) fn rest() -> impl Iterator<Item = usize> {
        (TOKEN..CHANNEL + 8).step_by(8)
    }
}

/// Values of the low half of [`entry::STATE`].
pub(crate) mod state {
    pub(crate) const FREE: u64 = 0;
    pub(crate) const HERE: u64 = 1;
    pub(crate) const OFFERED: u64 = 2;
    pub(crate) const GRANTED: u64 = 3;
    pub(crate) const REFUSED: u64 = 4;
}

/// How a region of some length is divided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Layout {
    length: usize,
    entries: usize,
}

/// A region that cannot be divided.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the memory has {0} bytes: a link needs 1 MiB to 64 GiB of it, and a multiple of 8192 bytes; \
     give it another size"
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

    /// Bytes of the region.
    #[must_use]
    pub fn length(self) -> usize {
        self.length
    }

    /// Entries in the directory of a half.
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

    /// Where an entry begins.
    ///
    /// # Panics
    /// When there are not so many entries.
    #[must_use]
    pub fn entry(self, side: Side, index: usize) -> usize {
        assert!(index < self.entries, "no such entry");
        self.half(side).start + PAGE + index * ENTRY
    }

    /// Where a side's places lie.
    #[must_use]
    pub fn places(self, side: Side) -> Range<usize> {
        let half = self.half(side);
        half.start + PAGE + self.entries * ENTRY..half.end
    }

    /// What two words say of a place, if it is one of this side: whole pages, inside its half.
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

// Directories end with a page, and a queue pair's header is in the first page of a place.
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
