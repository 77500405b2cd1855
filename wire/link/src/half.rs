//! One machine's half of a region: its header and its directory, word by word.
//!
//! The other machine may store to any of these words at any time. All values are checked, and even
//! then they are only that machine's claims.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use seekwire_protocol::{Endpoint, FourTuple, Reason, Role};
use seekwire_transport::mem::Region;

use crate::layout::{DETACHED, Layout, MAGIC, entry, header, state};
use crate::map::Side;

/// The header of the other machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PeerHeader {
    /// A number that changes each time that machine attaches.
    pub token: u64,
    /// True if that machine no longer uses the link.
    pub is_detached: bool,
}

/// Byte counts of TCP, as the kernel of the reporting end keeps them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TcpCounts {
    /// Bytes passed to the kernel.
    pub sent: u64,
    /// Bytes received by the kernel.
    pub received: u64,
    /// Sent bytes that the other end has acknowledged.
    pub acknowledged: u64,
}

/// The step that an end announces in its entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Word {
    /// The connecting end has a place.
    Offered(TcpCounts),
    /// The accepting end also has a place; or the connecting end has joined after that.
    Granted(TcpCounts),
    /// The connection stays on TCP.
    Refused(Reason),
}

/// The progress of an end, according to its entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EntryState {
    /// It has entered.
    Here,
    /// [`Word::Offered`].
    Offered,
    /// [`Word::Granted`].
    Granted,
    /// [`Word::Refused`].
    Refused(Reason),
}

/// The words of one half.
#[derive(Clone, Debug)]
pub(crate) struct HalfMemory {
    region: Region,
    layout: Layout,
    side: Side,
}

/// The words of an entry, each read once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    pub(crate) state: EntryState,
    pub(crate) token: u64,
    /// The 4-tuple, without the namespace.
    pub(crate) tuple: FourTuple,
    pub(crate) role: Role,
    pub(crate) nonce: u128,
    pub(crate) port: u16,
    /// A place in this half.
    pub(crate) place: Option<(usize, usize)>,
    pub(crate) counts: TcpCounts,
    /// A place in the other half.
    pub(crate) names: Option<(usize, usize)>,
    pub(crate) talks_to: u128,
    pub(crate) proof: u128,
    pub(crate) channel: Option<u32>,
    pub(crate) order: u64,
}

/// The properties of an end when it enters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Introduced {
    pub(crate) token: u64,
    pub(crate) tuple: FourTuple,
    pub(crate) role: Role,
    pub(crate) nonce: u128,
    pub(crate) port: u16,
    pub(crate) order: u64,
}

impl HalfMemory {
    pub(crate) fn new(region: Region, layout: Layout, side: Side) -> Self {
        Self { region, layout, side }
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn side(&self) -> Side {
        self.side
    }

    pub(crate) fn header(&self, word: usize) -> &AtomicU64 {
        self.region.word(self.layout.half(self.side).start + word)
    }

    #[inline]
    fn word(&self, index: usize, word: usize) -> &AtomicU64 {
        self.region.word(self.layout.entry(self.side, index) + word)
    }

    fn load(&self, index: usize, word: usize) -> u64 {
        self.word(index, word).load(Ordering::Relaxed)
    }

    fn load_two(&self, index: usize, word: usize) -> u128 {
        u128::from(self.load(index, word)) << 64 | u128::from(self.load(index, word + 8))
    }

    fn store(&self, index: usize, word: usize, value: u64) {
        self.word(index, word).store(value, Ordering::Relaxed);
    }

    fn store_two(&self, index: usize, word: usize, value: u128) {
        self.store(index, word, (value >> 64) as u64);
        self.store(index, word + 8, value as u64);
    }

    /// The header, if a machine is attached that divides the region in the same way.
    pub(crate) fn read_header(&self) -> Option<PeerHeader> {
        let load = |word| self.header(word).load(Ordering::Relaxed);
        if self.header(header::MAGIC).load(Ordering::Acquire) != MAGIC {
            return None;
        }
        let is_same = load(header::LENGTH) == self.layout.length() as u64
            && load(header::SIDE) == self.side as u64
            && load(header::ENTRIES) == self.layout.entries() as u64;
        let (token, flags) = (load(header::TOKEN), load(header::FLAGS));
        // Attaching clears the first word before it changes the others.
        fence(Ordering::Acquire);
        let is_whole = load(header::MAGIC) == MAGIC;
        (is_same && is_whole).then_some(PeerHeader { token, is_detached: flags & DETACHED != 0 })
    }

    /// The layout version of the machine that has attached here, if it is another one.
    pub(crate) fn other_layout(&self) -> Option<u16> {
        const NAME: u64 = MAGIC & 0xffff_ffff_ffff;
        let magic = self.header(header::MAGIC).load(Ordering::Acquire);
        (magic & 0xffff_ffff_ffff == NAME && magic != MAGIC).then_some((magic >> 48) as u16)
    }

    /// The machine uses the link again after it had detached.
    pub(crate) fn set_attached(&self) {
        self.header(header::FLAGS).fetch_and(!DETACHED, Ordering::SeqCst);
    }

    /// Clears the header: from now on no machine is attached.
    pub(crate) fn remove_header(&self) {
        self.header(header::MAGIC).store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Formats the half for a machine that has just attached, without entries.
    pub(crate) fn format(&self, token: u64) {
        self.remove_header();
        for index in 0..self.layout.entries() {
            self.clear(index);
            self.store(index, entry::SIGNAL, 0);
        }
        for word in header::of_agents() {
            self.header(word).store(0, Ordering::Relaxed);
        }
        for (word, value) in [
            (header::LENGTH, self.layout.length() as u64),
            (header::TOKEN, token),
            (header::SIDE, self.side as u64),
            (header::ENTRIES, self.layout.entries() as u64),
            (header::FLAGS, 0),
            (header::WANTS_ROOM, 0),
            (header::HIGHEST, 0),
        ] {
            self.header(word).store(value, Ordering::Relaxed);
        }
        self.header(header::MAGIC).store(MAGIC, Ordering::Release);
    }

    /// Number of entries that have ever been in use.
    pub(crate) fn used(&self) -> usize {
        let highest = self.header(header::HIGHEST).load(Ordering::Acquire);
        usize::try_from(highest).map_or(self.layout.entries(), |n| n.min(self.layout.entries()))
    }

    /// True if an entry is in use and has this 4-tuple: a quick check that [`Self::read`] repeats.
    pub(crate) fn has(&self, index: usize, tuple: &FourTuple) -> bool {
        self.word(index, entry::STATE).load(Ordering::Acquire) != state::FREE
            && self.load(index, entry::PORTS) == ports(tuple)
            && self.load_two(index, entry::LOCAL) == tuple.local.address()
            && self.load_two(index, entry::PEER) == tuple.peer.address()
    }

    /// Reads an entry; `None` if it is free or invalid.
    pub(crate) fn read(&self, index: usize) -> Option<Entered> {
        /// An entry changes a few times in its life.
        const LOOKS: usize = 4;
        (0..LOOKS).find_map(|_| self.read_once(index).ok()).flatten()
    }

    fn read_once(&self, index: usize) -> Result<Option<Entered>, Changed> {
        let word = self.word(index, entry::STATE).load(Ordering::Acquire);
        let Some(state) = state_of(word) else { return Ok(None) };
        let nonce = self.load_two(index, entry::NONCE);
        let load = |word| self.load(index, word);
        let place = |side: Side, at: usize| self.layout.place(side, load(at), load(at + 8));
        let ports = load(entry::PORTS);
        let endpoint = |word, port| Endpoint::from_parts(self.load_two(index, word), port);
        let entered = Entered {
            state,
            token: load(entry::TOKEN),
            tuple: FourTuple {
                local: endpoint(entry::LOCAL, (ports >> 16) as u16),
                peer: endpoint(entry::PEER, ports as u16),
                namespace: 0,
            },
            role: Role::from_code(load(entry::ROLE)),
            nonce,
            port: load(entry::PORT) as u16,
            place: place(self.side, entry::PLACE),
            counts: TcpCounts {
                sent: load(entry::SENT),
                received: load(entry::RECEIVED),
                acknowledged: load(entry::ACKNOWLEDGED),
            },
            names: place(self.side.other(), entry::NAMES),
            talks_to: self.load_two(index, entry::TALKS_TO),
            proof: self.load_two(index, entry::PROOF),
            channel: Some(load(entry::CHANNEL) as u32).filter(|port| *port != 0),
            order: load(entry::ORDER),
        };
        // An end that enters frees the entry before it changes the other words.
        fence(Ordering::Acquire);
        let is_same =
            self.load(index, entry::STATE) == word && self.load_two(index, entry::NONCE) == nonce;
        if is_same { Ok(Some(entered)) } else { Err(Changed) }
    }

    /// The place of the other half that an end of this machine may have mapped, whatever the state
    /// of the entry.
    pub(crate) fn named(&self, index: usize) -> Option<(usize, usize)> {
        let (offset, length) =
            (self.load(index, entry::NAMES), self.load(index, entry::NAMES_LENGTH));
        self.layout.place(self.side.other(), offset, length)
    }

    /// Takes an entry. Ends that look after this find it, and if this end looks afterwards, it
    /// finds all that entered before.
    pub(crate) fn enter(&self, index: usize, end: &Introduced) {
        self.clear(index);
        self.store(index, entry::SIGNAL, 0);
        self.store(index, entry::TOKEN, end.token);
        self.store_two(index, entry::LOCAL, end.tuple.local.address());
        self.store_two(index, entry::PEER, end.tuple.peer.address());
        self.store(index, entry::PORTS, ports(&end.tuple));
        self.store(index, entry::ROLE, end.role as u64);
        self.store_two(index, entry::NONCE, end.nonce);
        self.store(index, entry::PORT, end.port.into());
        self.store(index, entry::ORDER, end.order);
        self.word(index, entry::STATE).swap(state::HERE, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Frees an entry. No process of this machine has the place that it names mapped any more.
    pub(crate) fn clear(&self, index: usize) {
        self.word(index, entry::STATE).store(state::FREE, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        for word in entry::rest() {
            self.word(index, word).store(0, Ordering::Release);
        }
    }

    pub(crate) fn set_highest(&self, entries: usize) {
        self.header(header::HIGHEST).store(entries as u64, Ordering::Release);
    }

    pub(crate) fn set_place(&self, index: usize, offset: usize, length: usize) {
        self.store(index, entry::PLACE, offset as u64);
        self.store(index, entry::PLACE_LENGTH, length as u64);
    }

    pub(crate) fn say(&self, index: usize, word: Word) {
        let (word, counts) = match word {
            Word::Offered(counts) => (state::OFFERED, Some(counts)),
            Word::Granted(counts) => (state::GRANTED, Some(counts)),
            Word::Refused(reason) => ((reason as u64) << 32 | state::REFUSED, None),
        };
        if let Some(counts) = counts {
            self.store(index, entry::SENT, counts.sent);
            self.store(index, entry::RECEIVED, counts.received);
            self.store(index, entry::ACKNOWLEDGED, counts.acknowledged);
        }
        self.word(index, entry::STATE).swap(word, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Names the place of the other half that is mapped from now on, and the entry that it belongs
    /// to. Later loads of this end are no older than the other machine's stores before it looked
    /// for names and found none.
    pub(crate) fn name(&self, index: usize, place: Option<(usize, usize)>, nonce: u128) {
        let (offset, length) = place.unwrap_or((0, 0));
        self.store_two(index, entry::TALKS_TO, nonce);
        self.store(index, entry::NAMES, offset as u64);
        self.store(index, entry::NAMES_LENGTH, length as u64);
        fence(Ordering::SeqCst);
    }

    /// Records that no place of the other half is mapped any more.
    pub(crate) fn name_nothing(&self, index: usize) {
        self.store(index, entry::NAMES_LENGTH, 0);
        self.store(index, entry::NAMES, 0);
    }

    /// Call it before storing the state that goes with it.
    pub(crate) fn prove(&self, index: usize, proof: u128) {
        self.store_two(index, entry::PROOF, proof);
    }

    /// Call it before storing the state that goes with it.
    pub(crate) fn show_channel(&self, index: usize, port: u32) {
        self.store(index, entry::CHANNEL, port.into());
    }

    #[inline]
    pub(crate) fn signals(&self, index: usize) -> u64 {
        self.word(index, entry::SIGNAL).load(Ordering::Acquire)
    }

    pub(crate) fn signal(&self, index: usize) {
        self.word(index, entry::SIGNAL).fetch_add(1, Ordering::SeqCst);
    }
}

/// The entry changed while it was read.
struct Changed;

fn ports(tuple: &FourTuple) -> u64 {
    u64::from(tuple.local.port()) << 16 | u64::from(tuple.peer.port())
}

/// `None` if the entry is free, or the word is invalid.
fn state_of(word: u64) -> Option<EntryState> {
    match word & 0xffff_ffff {
        state::HERE => Some(EntryState::Here),
        state::OFFERED => Some(EntryState::Offered),
        state::GRANTED => Some(EntryState::Granted),
        state::REFUSED => {
            let reason = Reason::from_code(word >> 32);
            Some(EntryState::Refused(reason.unwrap_or(Reason::PeerRefused)))
        }
        _ => None,
    }
}
