//! The entry of a connection, and the view of the other machine's entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seekwire_protocol::{FourTuple, Role};
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::{host, thread};

use crate::allocation::Table;
use crate::error::EnterError;
use crate::half::{Entered, EntryState, Introduced, TcpCounts, Word};
use crate::layout::PAGE;
use crate::region::Inner;

/// An entry of the other machine, as it was read. Only its place is verified to lie in that
/// machine's half; all else is that machine's claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Other {
    /// Index of the entry.
    pub index: usize,
    /// A number that is unique to the entry.
    pub nonce: u128,
    /// The progress of that end.
    pub state: EntryState,
    /// The port at which an accepting end listens for the wake channel.
    pub port: u16,
    /// Offset and length of that end's memory in the region.
    pub place: Option<(usize, usize)>,
    /// The byte counts that go with its [`EntryState`].
    pub counts: TcpCounts,
    /// The nonce of the entry with which it communicates, or 0.
    pub talks_to: u128,
    /// The number that end claims to have received on the wake channel: see [`LinkEntry::prove`].
    pub proof: u128,
    /// The port of an event channel that it offers, or of which it has the other end.
    pub channel: Option<u32>,
    /// The token of that machine's attachment.
    pub token: u64,
}

impl Other {
    pub(crate) fn of(index: usize, entered: &Entered) -> Self {
        Self {
            index,
            nonce: entered.nonce,
            state: entered.state,
            port: entered.port,
            place: entered.place,
            counts: entered.counts,
            talks_to: entered.talks_to,
            proof: entered.proof,
            channel: entered.channel,
            token: entered.token,
        }
    }
}

/// An entry of this machine, leased to this process and to forked children that inherit it.
///
/// Dropping it ends this process's part of the lease, and changes nothing else: others may go on.
/// The last holder calls [`Self::clear`] before. Entries that were not cleared are swept by others.
#[derive(Debug)]
pub struct LinkEntry {
    link: Arc<Inner>,
    index: usize,
    nonce: u128,
    /// Pages of this machine's half, encoded by [`packed`].
    place: AtomicU64,
    /// Number of signals at the last [`Self::take_signal`].
    signals: AtomicU64,
    /// An open file description of its own, so that the kernel releases its lock with the last
    /// process that has it.
    _lease: PrivateFd,
}

/// Encodes a place in one word: the numbers of its first page and of its pages. 0 is no place,
/// since none begins with the first page of a region.
fn packed(at: usize, length: usize) -> u64 {
    ((at / PAGE) as u64) << 32 | (length / PAGE) as u64
}

fn unpacked(place: u64) -> Option<(usize, usize)> {
    let pages = |number: u64| number as usize * PAGE;
    (place != 0).then(|| (pages(place >> 32), pages(place & 0xffff_ffff)))
}

impl LinkEntry {
    pub(crate) fn enter(
        link: &Arc<Inner>,
        tuple: &FourTuple,
        role: Role,
        port: u16,
    ) -> Result<Self, EnterError> {
        let lease = link.state.reopen()?.ok_or(EnterError::Detached)?;
        // Network namespaces of different machines are unrelated.
        let digest = FourTuple { namespace: 0, ..*tuple }.digest() | 1;
        let nonce = u128::from(host::random()) << 64 | u128::from(host::random());
        let index = {
            let table = Table::lock(link, &lease)?;
            if link.is_detached() {
                return Err(EnterError::Detached);
            }
            let (index, order) = table.take(digest)?;
            link.state.enter(index, thread::process_id(), digest);
            let end = Introduced { token: link.token, tuple: *tuple, role, nonce, port, order };
            link.own.enter(index, &end);
            index
        };
        let link = Arc::clone(link);
        let (place, signals) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { link, index, nonce, place, signals, _lease: lease })
    }

    /// Index of the entry.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// A number that cannot be guessed and that no other entry has.
    #[must_use]
    pub fn nonce(&self) -> u128 {
        self.nonce
    }

    /// Finds room for this end's memory, in whole pages, and returns its offset in the region. The
    /// place stays until the lease has ended and the other machine can no longer read it. A second
    /// call returns the same place, or `None` if it asks for another length.
    ///
    /// Returns `None` if there is no room, and asks the other machine to clear entries that it no
    /// longer needs. Also returns `None` if the link is detached, or if a process is stopped while
    /// it chooses.
    pub fn place(&self, bytes: usize) -> Option<usize> {
        let length = bytes.max(1).checked_next_multiple_of(PAGE)?;
        let if_same_length = |place: (usize, usize)| (place.1 == length).then_some(place.0);
        if let Some(place) = self.own_place() {
            return if_same_length(place);
        }
        // A file description of its own: that of the lease would not exclude a forked child that
        // has it.
        let file = self.link.state.reopen().ok()??;
        let table = Table::lock(&self.link, &file).ok()?;
        if self.link.is_detached() {
            return None;
        }
        // Another thread may have been first. Nobody else holds the lock now.
        if let Some(place) = self.own_place() {
            return if_same_length(place);
        }
        let pages = table.place(self.index, length)?;
        self.place.store(packed(pages.start, pages.len()), Ordering::Release);
        Some(pages.start)
    }

    fn own_place(&self) -> Option<(usize, usize)> {
        unpacked(self.place.load(Ordering::Acquire))
    }

    /// Length of this end's place, or `None` if it has none.
    #[must_use]
    pub fn placed(&self) -> Option<usize> {
        self.own_place().map(|(_, length)| length)
    }

    /// Gives up this end's place, and no longer names the other's. Neither is mapped.
    pub fn give_back(&self) {
        if self.link.is_current() {
            self.link.own.set_place(self.index, 0, 0);
            self.link.own.name_nothing(self.index);
        }
        self.link.state.set_place(self.index, 0, 0);
        self.place.store(0, Ordering::Release);
    }

    /// Publishes the number that was received on the wake channel, before [`Word::Granted`]. The
    /// end that sent it then knows that the wake channel leads to this machine.
    pub fn prove(&self, received: u128) {
        self.link.own.prove(self.index, received);
    }

    /// Publishes a port of an event channel: the accepting end's offer, before [`Word::Granted`],
    /// or the same port once the connecting end has the other end. 0 is none.
    pub fn show_channel(&self, port: u32) {
        self.link.own.show_channel(self.index, port);
    }

    /// Announces a step to the other machine.
    pub fn say(&self, word: Word) {
        self.link.own.say(self.index, word);
    }

    /// Records that this end maps the other's place from now on, so that no other entry gets that
    /// place while this end lives. Call it before mapping.
    ///
    /// Returns false if the entry is no longer the same. Then this end must map nothing, and names
    /// nothing.
    pub fn names(&self, other: &Other) -> bool {
        self.link.own.name(self.index, other.place, other.nonce);
        let is_there = self.look(other).is_some_and(|entered| entered.place == other.place);
        if !is_there {
            self.link.own.name(self.index, None, 0);
        }
        is_there
    }

    /// Asks the end at the other machine to look at its entry.
    pub fn signal(&self, other: &Other) {
        if other.index < self.link.layout.entries() {
            self.link.peer.signal(other.index);
        }
    }

    /// True if the other machine has signalled this end since [`Self::take_signal`]. Takes one
    /// load.
    #[inline]
    #[must_use]
    pub fn is_signalled(&self) -> bool {
        self.link.own.signals(self.index) != self.signals.load(Ordering::Relaxed)
    }

    /// Consumes all signals so far.
    pub fn take_signal(&self) {
        self.signals.store(self.link.own.signals(self.index), Ordering::Relaxed);
    }

    /// Reads the other's entry again; `None` if it is free or now belongs to another connection.
    #[must_use]
    pub fn look(&self, other: &Other) -> Option<Other> {
        if other.index >= self.link.layout.entries() {
            return None;
        }
        let entered = self.link.peer.read(other.index)?;
        let is_same = entered.nonce == other.nonce && entered.token == other.token;
        is_same.then(|| Other::of(other.index, &entered))
    }

    /// Frees the entry. The last holder has closed the connection, and has unmapped the other's
    /// memory.
    pub fn clear(&self) {
        // After another attachment, the entry may belong to another connection.
        if self.link.is_current() {
            self.link.own.clear(self.index);
        }
        self.link.state.clear(self.index);
        self.place.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
