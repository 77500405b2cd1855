//! One connection's entry, and what is read of the other machine's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seekwire_protocol::{FourTuple, Reason, Role};
use seekwire_transport::sys::fd::Placed;
use seekwire_transport::sys::{host, thread};

use crate::error::EnterError;
use crate::half::{Entered, Introduced};
use crate::layout::PAGE;
use crate::link::Inner;
use crate::table::Table;

/// Bytes by TCP, as the kernel of the end that says it counts them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Given to the kernel.
    pub sent: u64,
    /// That the kernel has received.
    pub received: u64,
    /// Of those sent, that the other end has acknowledged.
    pub acknowledged: u64,
}

/// What an end says in its entry, when it has come so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Word {
    /// The connecting end has a place.
    Offered(Counts),
    /// The accepting end has one, too; or the connecting end has joined after that.
    Granted(Counts),
    /// The connection stays on TCP.
    Refused(Reason),
}

/// How far an end is, as its entry says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// It has entered.
    Here,
    /// [`Word::Offered`].
    Offered,
    /// [`Word::Granted`].
    Granted,
    /// [`Word::Refused`].
    Refused(Reason),
}

/// An entry of the other machine's, as it was when it was read. All of it is that machine's word;
/// a place lies in its half.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Other {
    /// Which entry it is.
    pub index: usize,
    /// A number that no two entries have.
    pub nonce: u128,
    /// How far that end is.
    pub state: State,
    /// Where an accepting end listens for the line.
    pub port: u16,
    /// Where that end's memory lies in the region, and how long it is.
    pub place: Option<(usize, usize)>,
    /// What it says together with its [`State`].
    pub counts: Counts,
    /// The nonce of the entry that it talks to; 0 while it talks to none.
    pub talks_to: u128,
    /// What that end says that it has heard on the line: see [`Entry::prove`].
    pub proof: u128,
    /// The port of an event channel that it offers, or has the other end of.
    pub channel: Option<u32>,
    /// Of the attachment of that machine.
    pub token: u64,
}

impl Other {
    pub(crate) fn of(index: usize, found: &Entered) -> Self {
        Self {
            index,
            nonce: found.nonce,
            state: found.state,
            port: found.port,
            place: found.place,
            counts: found.counts,
            talks_to: found.talks_to,
            proof: found.proof,
            channel: found.channel,
            token: found.token,
        }
    }
}

/// An entry of this machine's, leased to this process and to forks that have it.
///
/// Dropping it ends this process's part of the lease, and changes nothing else: others may go on.
/// The last one calls [`Self::clear`] before; what nobody has cleared, others sweep.
#[derive(Debug)]
pub struct Entry {
    link: Arc<Inner>,
    index: usize,
    nonce: u128,
    /// Pages of this machine's half: see [`packed`].
    place: AtomicU64,
    /// [`Self::is_signalled`] compares with it.
    signals: AtomicU64,
    /// An open file description of its own: the kernel ends its lock with the last process that has
    /// it.
    _lease: Placed,
}

/// A place in one word: the numbers of its first page and of its pages. 0 is none, since no place
/// begins with the first page of a region.
fn packed((at, length): (usize, usize)) -> u64 {
    ((at / PAGE) as u64) << 32 | (length / PAGE) as u64
}

fn unpacked(place: u64) -> Option<(usize, usize)> {
    let pages = |number: u64| number as usize * PAGE;
    (place != 0).then(|| (pages(place >> 32), pages(place & 0xffff_ffff)))
}

impl Entry {
    pub(crate) fn enter(
        link: &Arc<Inner>,
        tuple: &FourTuple,
        role: Role,
        port: u16,
    ) -> Result<Self, EnterError> {
        let lease = link.state.reopen()?.ok_or(EnterError::Detached)?;
        // Namespaces of two machines have nothing to do with each other.
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

    /// Which entry it is.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// A number that nobody can guess, and no other entry has.
    #[must_use]
    pub fn nonce(&self) -> u128 {
        self.nonce
    }

    /// Finds room for this end's memory, in whole pages, and returns where in the region it begins.
    /// It stays as long as the lease, or as the other machine may read it. Asked again, an entry
    /// has the same place, and no other one.
    ///
    /// `None` when there is no room, for which the other machine is then asked to clear what it
    /// has no use for any more; and when the link is detached, or a process is stopped while it
    /// chooses.
    pub fn place(&self, bytes: usize) -> Option<usize> {
        let length = bytes.max(1).checked_next_multiple_of(PAGE)?;
        let known = |place: (usize, usize)| (place.1 == length).then_some(place.0);
        if let Some(place) = self.own_place() {
            return known(place);
        }
        // Not by the description of the lease: a fork that has it would not be kept away.
        let file = self.link.state.reopen().ok()??;
        let table = Table::lock(&self.link, &file).ok()?;
        if self.link.is_detached() {
            return None;
        }
        // Another thread may have been first: nobody else is at the table now.
        if let Some(place) = self.own_place() {
            return known(place);
        }
        let pages = table.place(self.index, length)?;
        self.place.store(packed((pages.start, pages.len())), Ordering::Release);
        Some(pages.start)
    }

    fn own_place(&self) -> Option<(usize, usize)> {
        unpacked(self.place.load(Ordering::Acquire))
    }

    /// How long the place is that this end has; `None` while it has none.
    #[must_use]
    pub fn placed(&self) -> Option<usize> {
        self.own_place().map(|(_, length)| length)
    }

    /// Gives back the place of this end, and names none of the other's any more: neither is mapped.
    pub fn give_back(&self) {
        if self.link.is_current() {
            self.link.own.set_place(self.index, 0, 0);
            self.link.own.name_nothing(self.index);
        }
        self.link.state.set_place(self.index, 0, 0);
        self.place.store(0, Ordering::Release);
    }

    /// Shows what was heard on the line, before [`Word::Granted`]. Who has said it there knows then that
    /// the line leads to this machine.
    pub fn prove(&self, heard: u128) {
        self.link.own.prove(self.index, heard);
    }

    /// Shows a port of an event channel: that which the accepting end offers, before
    /// [`Word::Granted`], and the connecting end the same when it has the other end. 0 is none.
    pub fn show_channel(&self, port: u32) {
        self.link.own.show_channel(self.index, port);
    }

    /// Tells the other machine, beside the place.
    pub fn say(&self, word: Word) {
        self.link.own.say(self.index, word);
    }

    /// Says that this end maps the place of that one from now on, so that it is not given to
    /// anybody else while this end lives. Called before it is mapped.
    ///
    /// Returns whether the entry is still that one. If it is not, nothing is to be mapped, and
    /// nothing is named any more.
    pub fn names(&self, other: &Other) -> bool {
        self.link.own.name(self.index, other.place, other.nonce);
        let is_there = self.look(other).is_some_and(|found| found.place == other.place);
        if !is_there {
            self.link.own.name(self.index, None, 0);
        }
        is_there
    }

    /// Tells the end at the other machine to look.
    pub fn signal(&self, other: &Other) {
        if other.index < self.link.layout.entries() {
            self.link.peer.signal(other.index);
        }
    }

    /// Whether the other machine has told this end to look since [`Self::take_signal`]: one load.
    #[inline]
    #[must_use]
    pub fn is_signalled(&self) -> bool {
        self.link.own.signals(self.index) != self.signals.load(Ordering::Relaxed)
    }

    /// Takes all signals that have come.
    pub fn take_signal(&self) {
        self.signals.store(self.link.own.signals(self.index), Ordering::Relaxed);
    }

    /// Reads the other's entry again; `None` when it is free, or that of another connection by now.
    #[must_use]
    pub fn look(&self, other: &Other) -> Option<Other> {
        if other.index >= self.link.layout.entries() {
            return None;
        }
        let found = self.link.peer.read(other.index)?;
        let is_same = found.nonce == other.nonce && found.token == other.token;
        is_same.then(|| Other::of(other.index, &found))
    }

    /// The last holder has closed the connection, and has unmapped the other's memory.
    pub fn clear(&self) {
        // Where the machine was attached anew, the entry may be somebody else's.
        if self.link.is_current() {
            self.link.own.clear(self.index);
        }
        self.link.state.clear(self.index);
        self.place.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
