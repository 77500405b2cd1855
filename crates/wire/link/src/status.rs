//! What `seekwire vm` shows of a link, and how a machine goes back to TCP.

use std::sync::atomic::Ordering;

use seekwire_protocol::{FourTuple, Role};
use seekwire_transport::layout::{CONSUMED_BYTES, CONTROL, PUBLISHED_BYTES, control};
use seekwire_transport::sys::lease;

use crate::entry::{Counts, State};
use crate::layout::{DETACHED, header};
use crate::link::{Inner, Link};
use crate::state::StateFile;

/// Whose half of a region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Half {
    /// This machine's.
    Own,
    /// The other machine's.
    Peer,
}

/// An entry as it is listed. What it says is in the region, where both machines can change it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Listed {
    /// Which entry it is.
    pub index: usize,
    /// The connection, as its end sees it; without the namespace.
    pub tuple: FourTuple,
    /// Which end it is.
    pub role: Role,
    /// How far it is.
    pub state: State,
    /// Where its memory lies in the region, and how long it is.
    pub place: Option<(usize, usize)>,
    /// The place of the other half that it has mapped.
    pub names: Option<(usize, usize)>,
    /// What it says together with its [`State`].
    pub counts: Counts,
    /// The process that has entered; of this machine's half only.
    pub pid: Option<u32>,
    /// Whether a process still has it; of this machine's half only.
    pub is_leased: Option<bool>,
}

/// How much of this machine's half is in use.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Entries in the directory.
    pub entries: usize,
    /// Those that are in use, or were left by the dead.
    pub entries_used: usize,
    /// Bytes for places.
    pub bytes: usize,
    /// Those that are in use, or were left by the dead, or may be read at the other machine.
    pub bytes_used: usize,
    /// The processes that have entries, ascending.
    pub pids: Vec<u32>,
    /// Whether a process has it open, beside this one's own `Link`.
    pub is_open_elsewhere: bool,
}

/// What is left of a half.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Room {
    /// Places that connections have.
    pub places: usize,
    /// Bytes in none of them.
    pub free: usize,
}

/// A connection with bytes on the ring.
pub type Unread = (FourTuple, u64);

impl Link {
    /// All entries of a half that are in use.
    #[must_use]
    pub fn entries(&self, half: Half) -> Vec<Listed> {
        let Inner { layout, own, peer, state, .. } = &*self.0;
        let words = match half {
            Half::Own => own,
            Half::Peer => peer,
        };
        (0..layout.entries())
            .filter_map(|index| {
                let found = words.read(index)?;
                let is_own = half == Half::Own;
                Some(Listed {
                    index,
                    tuple: found.tuple,
                    role: found.role,
                    state: found.state,
                    place: found.place,
                    names: found.names,
                    counts: found.counts,
                    pid: is_own.then(|| state.pid(index)),
                    is_leased: is_own.then(|| is_leased(state, index)),
                })
            })
            .collect()
    }

    /// How much of this machine's half is in use, and by whom.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let Inner { layout, own, peer, state, .. } = &*self.0;
        let used = || (0..state.used()).filter(|index| state.digest(*index) != 0);
        let places = layout.places(own.side());
        let entered = used().filter_map(|index| {
            let (at, length) = state.place(index);
            layout.place(own.side(), at, length)
        });
        let named = (0..layout.entries()).filter_map(|index| peer.named(index));
        let mut ranges: Vec<_> = entered.chain(named).collect();
        ranges.sort_unstable();
        let mut bytes_used = 0;
        let mut end = places.start;
        for (at, length) in ranges {
            bytes_used += (at + length).saturating_sub(at.max(end));
            end = end.max(at + length);
        }
        Usage {
            entries: layout.entries(),
            // What the dead have left is free.
            entries_used: used().filter(|index| is_leased(state, *index)).count(),
            bytes: places.len(),
            bytes_used,
            pids: pids(state),
            is_open_elsewhere: state.is_mapped().unwrap_or(true),
        }
    }

    /// How many places there are in this machine's half, and how many bytes are in none of them. A
    /// quick look: what the dead have left counts among them.
    #[must_use]
    pub fn room(&self) -> Room {
        let Inner { layout, own, state, .. } = &*self.0;
        let places = layout.places(own.side());
        let entered = (0..state.used()).filter(|index| state.digest(*index) != 0);
        let lengths = entered.filter_map(|index| {
            let (at, length) = state.place(index);
            layout.place(own.side(), at, length).map(|(_, length)| length)
        });
        let mut room = Room { places: 0, free: places.len() };
        for length in lengths {
            room.places += 1;
            room.free = room.free.saturating_sub(length);
        }
        room
    }

    /// Has this machine use the link no more: all connections on it go back to TCP, and none comes
    /// to it, here and at the other machine. It is over when [`Self::unread`] is empty and no
    /// process has entries.
    pub fn take_back(&self) {
        let Inner { layout, own, peer, state, .. } = &*self.0;
        state.set_detached();
        if self.0.is_current() {
            own.header(header::FLAGS).fetch_or(DETACHED, Ordering::SeqCst);
        }
        let entered = (0..state.used()).filter_map(|index| {
            let (at, length) = state.place(index);
            layout.place(own.side(), at, length)
        });
        let of_peer = (0..layout.entries()).filter_map(|index| peer.read(index)?.place);
        let named = (0..layout.entries()).filter_map(|index| own.named(index));
        for (at, _) in entered.chain(of_peer).chain(named) {
            self.region().word(at + CONTROL).fetch_or(control::TCP_ONLY, Ordering::SeqCst);
        }
    }

    /// The connections of this machine that still have bytes on their rings, in either direction,
    /// and how many.
    #[must_use]
    pub fn unread(&self) -> Vec<Unread> {
        let Inner { layout, own, state, .. } = &*self.0;
        let load =
            |place: usize, word: usize| self.region().word(place + word).load(Ordering::Acquire);
        (0..state.used())
            .filter(|index| state.digest(*index) != 0 && is_leased(state, *index))
            .filter_map(|index| {
                let (at, length) = state.place(index);
                let (ours, _) = layout.place(own.side(), at, length)?;
                let entered = own.read(index)?;
                let (theirs, _) = entered.names?;
                let bytes = [(ours, theirs), (theirs, ours)].map(|(sender, receiver)| {
                    let published = load(sender, PUBLISHED_BYTES);
                    published.saturating_sub(load(receiver, CONSUMED_BYTES))
                });
                let bytes = bytes[0].saturating_add(bytes[1]);
                (bytes > 0).then_some((entered.tuple, bytes))
            })
            .collect()
    }
}

/// If nobody can tell, it is. Leases of this process are other descriptions than that of `state`.
fn is_leased(state: &StateFile, index: usize) -> bool {
    let index = index as u64;
    lease::is_locked(state.file(), index..index + 1).unwrap_or(true)
}

/// The processes that have entries, ascending.
pub(crate) fn pids(state: &StateFile) -> Vec<u32> {
    let leased =
        (0..state.used()).filter(|index| state.digest(*index) != 0 && is_leased(state, *index));
    let mut pids: Vec<u32> = leased.map(|index| state.pid(index)).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}
