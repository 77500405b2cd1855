//! The view of a link that `seekwire vm` shows, and the way of a machine back to TCP.

use std::sync::atomic::Ordering;

use seekwire_protocol::{FourTuple, Role};
use seekwire_transport::layout::{CONSUMED_BYTES, CONTROL, PUBLISHED_BYTES, control};

use crate::half::{EntryState, TcpCounts};
use crate::layout::{DETACHED, header};
use crate::link::Link;
use crate::region::Inner;
use crate::state::{is_leased, pids};

/// Selects a half of a region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Half {
    /// The half of this machine.
    Own,
    /// The half of the other machine.
    Peer,
}

/// An entry for listings. Its data come from the region, where both machines can change them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Listed {
    /// Index of the entry.
    pub index: usize,
    /// The connection as its end sees it, without the namespace.
    pub tuple: FourTuple,
    /// The role of the end.
    pub role: Role,
    /// The progress of the end.
    pub state: EntryState,
    /// Offset and length of its memory in the region.
    pub place: Option<(usize, usize)>,
    /// The place of the other half that it has mapped.
    pub names: Option<(usize, usize)>,
    /// The byte counts that go with its [`EntryState`].
    pub counts: TcpCounts,
    /// The process that has entered; for this machine's half only.
    pub pid: Option<u32>,
    /// True if a process still holds it; for this machine's half only.
    pub is_leased: Option<bool>,
}

/// How much of this machine's half is in use.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HalfUsage {
    /// Entries in the directory.
    pub entries: usize,
    /// Entries in use. Those of dead processes are free.
    pub entries_used: usize,
    /// Total bytes for places.
    pub bytes: usize,
    /// Bytes in use, left by dead processes, or possibly read by the other machine.
    pub bytes_used: usize,
    /// The processes that have entries, in ascending order.
    pub pids: Vec<u32>,
    /// True if a process has it open, apart from this process's own `Link`.
    pub is_open_elsewhere: bool,
}

/// Free room in a half.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Room {
    /// Number of places that connections have.
    pub places: usize,
    /// Bytes that belong to no place.
    pub free: usize,
}

/// A connection, and its number of bytes on the ring.
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
                let entered = words.read(index)?;
                let is_own = half == Half::Own;
                Some(Listed {
                    index,
                    tuple: entered.tuple,
                    role: entered.role,
                    state: entered.state,
                    place: entered.place,
                    names: entered.names,
                    counts: entered.counts,
                    pid: is_own.then(|| state.pid(index)),
                    is_leased: is_own.then(|| is_leased(state, index)),
                })
            })
            .collect()
    }

    /// How much of this machine's half is in use, and by which processes.
    #[must_use]
    pub fn usage(&self) -> HalfUsage {
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
        HalfUsage {
            entries: layout.entries(),
            // Entries of dead processes are free.
            entries_used: used().filter(|index| is_leased(state, *index)).count(),
            bytes: places.len(),
            bytes_used,
            pids: pids(state),
            is_open_elsewhere: state.is_mapped().unwrap_or(true),
        }
    }

    /// Number of places in this machine's half, and of bytes that belong to none. This is a quick
    /// count: it includes places of dead processes.
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

    /// Detaches this machine from a link: all connections on it go back to TCP, and no new ones use
    /// it, at either machine. This has finished when [`Self::unread`] is empty and no process has
    /// entries.
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
    /// with the number of bytes.
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
