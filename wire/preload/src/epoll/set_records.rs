//! Shared memory of the processes that have a set: the owner, and the application's requests for
//! registrations that have a [tag](super::tag) in the kernel's set instead, so that a process that
//! inherits the set can report them.
//!
//! Only the owner writes the notes. Each note has two copies of two words, which are written in
//! turn: if the process is killed while it writes one, the other is intact.

use std::sync::atomic::{AtomicU64, Ordering};

use seekwire_endpoint::readiness::ONE_SHOT;
use seekwire_transport::Errno;
use seekwire_transport::mem::Common;

use super::tag::{self, MAX_WATCHES, Tag};
use crate::process;

/// Offset of the notes.
const NOTES: usize = 64;
const NOTE_SIZE: usize = 32;
/// Minimum number of watches that have notes. Memory that was never written takes no space.
const LEAST_NOTES: usize = 1 << 16;
/// Maximum number of attempts to read a note that is being changed.
const TRIES: u32 = 1000;

const GENERATION_SHIFT: u32 = 32;
const PARKED: u64 = 1 << 40;
const FIRED: u64 = 1 << 41;
const NOTED: u64 = 1 << 42;
/// Position of the counter that tells which copy is newer. It wraps.
const TURN_SHIFT: u32 = 43;
const TURNS: u64 = (1 << (64 - TURN_SHIFT)) - 1;

/// A watch, as the application asked for it.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Note {
    pub(super) events: u32,
    pub(super) data: u64,
    pub(super) generation: u8,
    /// The application has removed it, but the kernel does not know.
    pub(super) parked: bool,
    /// One-shot, and has fired.
    pub(super) fired: bool,
}

impl Note {
    /// The events and the data to restore in the kernel's set.
    pub(super) fn in_kernel(&self) -> Result<(u32, u64), Errno> {
        Ok(if self.fired { (ONE_SHOT, Tag::FIRED.encode()?) } else { (self.events, self.data) })
    }
}

pub(super) struct Sharing {
    memory: Common,
    notes: usize,
}

impl Sharing {
    /// For a set of this process that has this many watches, on which this many threads sleep.
    pub(super) fn new(watches: usize, asleep: usize) -> Option<Self> {
        // Tags must mean the same in all processes.
        tag::base().ok()?;
        let notes = (2 * watches).clamp(LEAST_NOTES, MAX_WATCHES);
        let sharing = Self { memory: Common::with_forks(NOTES + notes * NOTE_SIZE).ok()?, notes };
        sharing.asleep().store(asleep as u64, Ordering::SeqCst);
        sharing.user().store(process::id(), Ordering::SeqCst);
        Some(sharing)
    }

    /// The process that owns the set, or 0.
    pub(super) fn user(&self) -> &AtomicU64 {
        self.memory.word(0)
    }

    /// Whether several processes use it; the next word tells whether the owner has noticed.
    pub(super) fn several(&self) -> &AtomicU64 {
        self.memory.word(8)
    }

    pub(super) fn is_noted(&self) -> &AtomicU64 {
        self.memory.word(16)
    }

    /// Number of threads of the owner that sleep on it.
    pub(super) fn asleep(&self) -> &AtomicU64 {
        self.memory.word(24)
    }

    /// Number of watches that have notes.
    pub(super) fn len(&self) -> usize {
        self.notes
    }

    /// The two copies of a note.
    fn copies(&self, index: u32) -> Option<[Slot<'_>; 2]> {
        let at = NOTES + index as usize * NOTE_SIZE;
        let copy = |at| Slot { head: self.memory.word(at), data: self.memory.word(at + 8) };
        ((index as usize) < self.notes).then(|| [copy(at), copy(at + NOTE_SIZE / 2)])
    }

    pub(super) fn note(&self, index: u32, note: Note) {
        let Some(copies) = self.copies(index) else { return };
        let [older, newer] = in_order(copies);
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let turn = (newer.head.load(Ordering::SeqCst) >> TURN_SHIFT).wrapping_add(1) & TURNS;
        older.head.store(0, Ordering::SeqCst);
        older.data.store(note.data, Ordering::SeqCst);
        older.head.store(
            u64::from(note.events)
                | u64::from(note.generation) << GENERATION_SHIFT
                | flag(note.parked, PARKED)
                | flag(note.fired, FIRED)
                | NOTED
                | turn << TURN_SHIFT,
            Ordering::SeqCst,
        );
    }

    /// The note for the registration with `tag` in the kernel's set.
    pub(super) fn noted(&self, tag: Tag) -> Option<Note> {
        for _ in 0..TRIES {
            let [_, newer] = in_order(self.copies(tag.watch)?);
            let (before, value) =
                (newer.head.load(Ordering::SeqCst), newer.data.load(Ordering::SeqCst));
            if before & NOTED == 0 || newer.head.load(Ordering::SeqCst) != before {
                std::hint::spin_loop();
                continue;
            }
            let note = Note {
                events: before as u32,
                data: value,
                generation: (before >> GENERATION_SHIFT) as u8,
                parked: before & PARKED != 0,
                fired: before & FIRED != 0,
            };
            return Some(note).filter(|note| note.generation == tag.generation);
        }
        None
    }

    /// Removes the note of a watch that the kernel's set no longer has.
    pub(super) fn strike(&self, index: u32, generation: u8) {
        let Some(copies) = self.copies(index) else { return };
        // Clears the older copy first, which must never be taken for the note.
        for Slot { head, .. } in in_order(copies) {
            let now = head.load(Ordering::SeqCst);
            if now & NOTED != 0 && (now >> GENERATION_SHIFT) as u8 == generation {
                let _ = head.compare_exchange(now, 0, Ordering::SeqCst, Ordering::SeqCst);
            }
        }
    }
}

/// One of the two copies of a note. Writing goes to the older one, so that the other is intact
/// whenever the writer is killed.
struct Slot<'a> {
    head: &'a AtomicU64,
    data: &'a AtomicU64,
}

/// The older copy, then the newer one.
fn in_order([first, second]: [Slot<'_>; 2]) -> [Slot<'_>; 2] {
    let [of_first, of_second] = [&first, &second].map(|copy| copy.head.load(Ordering::SeqCst));
    let ahead = (of_first >> TURN_SHIFT).wrapping_sub(of_second >> TURN_SHIFT) & TURNS;
    let is_first_newer = match (of_first & NOTED != 0, of_second & NOTED != 0) {
        (true, true) => ahead <= TURNS / 2,
        (is_noted, _) => is_noted,
    };
    if is_first_newer { [second, first] } else { [first, second] }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::super::tag::Subject;
    use super::*;

    #[test]
    fn what_is_noted_is_read_until_it_is_struck() {
        let sharing = Sharing::new(0, 3).unwrap();
        assert_eq!(
            (sharing.asleep().load(Ordering::SeqCst), sharing.user().load(Ordering::SeqCst)),
            (3, process::id())
        );
        let note =
            Note { events: u32::MAX, data: u64::MAX, generation: 31, parked: true, fired: false };
        let tag = |watch, generation| Tag { watch, generation, subject: Subject::Socket };
        for index in [0, 7, LEAST_NOTES as u32 - 1] {
            assert_eq!(sharing.noted(tag(index, 31)), None);
            sharing.note(index, note);
            assert_eq!(sharing.noted(tag(index, 31)), Some(note));
            assert_eq!(sharing.noted(tag(index, 30)), None, "of an older watch");
            sharing.strike(index, 30);
            assert_eq!(sharing.noted(tag(index, 31)), Some(note));
            sharing.strike(index, 31);
            assert_eq!(sharing.noted(tag(index, 31)), None);
        }
        // A writer that is killed half-way leaves the note as it was.
        let [first, second] = [Note { data: 1, ..note }, Note { data: 2, parked: false, ..note }];
        for torn in [first, second, first] {
            let before = sharing.noted(tag(7, 31));
            in_order(sharing.copies(7).unwrap())[0].head.store(0, Ordering::SeqCst);
            in_order(sharing.copies(7).unwrap())[0].data.store(99, Ordering::SeqCst);
            assert_eq!(sharing.noted(tag(7, 31)), before);
            sharing.note(7, torn);
            assert_eq!(sharing.noted(tag(7, 31)), Some(torn));
        }
        // The counter wraps.
        for turn in 0..=2 * TURNS as u32 {
            sharing.note(7, Note { events: turn, ..note });
        }
        assert_eq!(sharing.noted(tag(7, 31)).map(|note| note.events), Some(2 * TURNS as u32));
        // A watch without a note has no effect.
        sharing.note(LEAST_NOTES as u32, note);
        assert_eq!(sharing.noted(tag(LEAST_NOTES as u32, 31)), None);
        assert_eq!(sharing.noted(tag(u32::MAX, 31)), None);
    }
}
