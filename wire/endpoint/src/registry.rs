//! The registry of connections and the processes that hold them: a table in shared memory, one per
//! user.
//!
//! Both ends enter a connection once it has seen some traffic. The connecting side finds the
//! accepting process by the mirrored 4-tuple; `seekwire status` reads the byte counts. An entry is
//! only a hint: a stale or a false one leads to an offer that is refused or not answered, because
//! each end proves to the other that it holds this very connection before memory is shared.
//!
//! The table is a file that processes of one user map and write, in a directory of mode 0700. A
//! process that can write it belongs to that user, who could stop the program outright.

mod entry;
mod layout;

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

pub use self::entry::{RegistryEntry, read};
pub use self::layout::file_name;
use self::layout::{
    ATTRIBUTES, BITMAP, CLAIMED, COUNTS, HEADER, LEN, LINK, LIVE, LOCAL, MAGIC, NAMESPACE, NONCE,
    PEER, PID_NAMESPACE, PORTS, PROGRAM, SIGNAL, SLOT, SLOTS, STATE, STATES, TOKEN, WAKE_PORTS,
    WINDOW,
};
use crate::fork::patient_lock;
use crate::rendezvous::{self, rendezvous_path};
use crate::scarcity;
use seekwire_protocol::offer::SlotRef;
use seekwire_protocol::{Carrier, FourTuple, Reason, Role};
use seekwire_transport::mem::Common;
use seekwire_transport::sys::{file, host, thread, unix};

/// The table, mapped.
#[derive(Debug)]
pub struct Registry {
    memory: Common,
    dir: PathBuf,
}

/// Why the table could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory could not be created or examined.
    #[error("{path}: {source}; set SEEKWIRE_DIR to a directory that only you can use")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another user could write there.
    #[error(
        "{}: not a directory that belongs to this user and that nobody else can enter; set \
         SEEKWIRE_DIR to one that only Seekwire uses", .0.display()
    )]
    NotPrivate(PathBuf),
    /// The file could not be opened, grown or mapped.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl OpenError {
    /// The lacking resource, if a later attempt may find it.
    fn scarcity(&self) -> Option<Reason> {
        match self {
            Self::Directory { source, .. } | Self::File { source, .. } => {
                scarcity::reason_of(source)
            }
            Self::NotPrivate(_) => None,
        }
    }
}

/// The process to send an offer to.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) slot: SlotRef,
    pub(crate) rendezvous: PathBuf,
}

/// The state of a slot into which this process is entering a connection.
fn claim_of(pid: u32, nonce: u64) -> u64 {
    u64::from(pid) << 32 | nonce & (u64::from(u32::MAX) ^ STATES) | CLAIMED
}

impl Registry {
    /// Size of its file, in bytes.
    pub const BYTES: u64 = LEN as u64;

    /// Whether `dir` has one.
    #[must_use]
    pub fn is_in(dir: &Path) -> bool {
        dir.join(file_name()).exists()
    }

    /// Opens the table in `dir`, creating both if they are missing.
    ///
    /// # Errors
    /// [`OpenError`], whose message has the advice.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let directory = |source| OpenError::Directory { path: dir.to_owned(), source };
        match fs::DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(directory(error));
            }
            _ => {}
        }
        if !host::is_private(dir).map_err(directory)? {
            return Err(OpenError::NotPrivate(dir.to_owned()));
        }
        let path = dir.join(file_name());
        let memory = map(&path).map_err(|source| OpenError::File { path: path.clone(), source })?;
        let registry = Self { memory, dir: dir.to_owned() };
        let magic = registry.memory.word(0);
        match magic.compare_exchange(0, MAGIC, Ordering::AcqRel, Ordering::Acquire) {
            Err(magic) if magic != MAGIC => registry.begin_anew(magic),
            _ => {}
        }
        Ok(registry)
    }

    /// Clears a file that was overwritten with something else, perhaps including the slots:
    /// otherwise no process could enter a connection. The entries are hints, so none is missed. The
    /// file stays, since other processes have it mapped. Only the process that replaces the word
    /// that read `old_magic` clears it.
    #[cold]
    fn begin_anew(&self, old_magic: u64) {
        let magic = self.memory.word(0);
        if magic.compare_exchange(old_magic, MAGIC, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        tracing::warn!(
            "something else was in the registry in {:?}; its entries are lost",
            self.dir
        );
        for index in 0..SLOTS {
            self.word(index, STATE).store(0, Ordering::Release);
        }
    }

    /// The table of this process's configuration, opened by the first call that can.
    ///
    /// # Errors
    /// The reason: on [`Reason::NoRegistry`] the connection stays on TCP, and the next one tries
    /// again.
    pub(crate) fn of_process() -> Result<&'static Self, Reason> {
        static REGISTRY: OnceLock<Registry> = OnceLock::new();
        Self::of_dir(&REGISTRY, &crate::config::Config::get().dir)
    }

    fn of_dir(opened: &'static OnceLock<Self>, dir: &Path) -> Result<&'static Self, Reason> {
        static IS_SAID: AtomicBool = AtomicBool::new(false);
        if let Some(registry) = opened.get() {
            return Ok(registry);
        }
        match Self::open(dir) {
            Ok(registry) => Ok(opened.get_or_init(|| registry)),
            Err(error) => Err(error.scarcity().map_or_else(
                || {
                    if !IS_SAID.swap(true, Ordering::Relaxed) {
                        tracing::error!("no registry, so connections stay on TCP: {error}");
                    }
                    Reason::NoRegistry
                },
                |reason| {
                    tracing::warn!("no registry yet: {error}; {}", scarcity::advice(reason));
                    reason
                },
            )),
        }
    }

    #[cfg(test)]
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// All connections that are entered now.
    #[must_use]
    pub fn entries(&self) -> Vec<RegistryEntry> {
        (0..SLOTS)
            .filter(|index| self.is_used(*index))
            .filter_map(|index| self.entry(index))
            .collect()
    }

    /// The word of the bitmap that has the slot's bit.
    fn used(&self, index: u32) -> &AtomicU64 {
        self.memory.word(BITMAP + (index & (SLOTS - 1)) as usize / 64 * 8)
    }

    #[inline]
    fn word(&self, index: u32, word: usize) -> &AtomicU64 {
        self.memory.word(HEADER + (index & (SLOTS - 1)) as usize * SLOT + word * 8)
    }

    fn load(&self, index: u32, word: usize) -> u64 {
        self.word(index, word).load(Ordering::Relaxed)
    }

    fn store(&self, index: u32, word: usize, value: u64) {
        self.word(index, word).store(value, Ordering::Relaxed);
    }

    fn entry(&self, index: u32) -> Option<RegistryEntry> {
        let state = self.word(index, STATE).load(Ordering::Acquire);
        let word = |word| if word == STATE { state } else { self.load(index, word) };
        RegistryEntry::of(&std::array::from_fn(word))
    }

    fn tuple(&self, index: u32) -> FourTuple {
        entry::tuple(|word| self.load(index, word))
    }

    fn window(tuple: &FourTuple) -> impl Iterator<Item = u32> + use<> {
        let place = tuple.digest() as u32;
        (0..WINDOW).map(move |step| place.wrapping_add(step) & (SLOTS - 1))
    }

    /// Finds the process that accepted the connection whose own view is `tuple`.
    pub(crate) fn find_acceptor(&self, tuple: &FourTuple) -> Option<Holder> {
        Self::window(tuple).find_map(|index| {
            let state = self.word(index, STATE).load(Ordering::Acquire);
            let role = Role::from_code(self.load(index, ATTRIBUTES) & 0xff);
            if state & 0xffff_ffff != LIVE || role != Role::Accepted || self.tuple(index) != *tuple
            {
                return None;
            }
            let token = self.load(index, TOKEN);
            let rendezvous =
                rendezvous_path(&self.dir, (state >> 32) as u32, self.load(index, NONCE));
            Some(Holder { slot: SlotRef { index, token }, rendezvous })
        })
    }

    /// Enters a connection of this process.
    pub(crate) fn enter(
        &'static self,
        tuple: &FourTuple,
        role: Role,
        nonce: u64,
    ) -> Option<RegistrySlot> {
        let pid = thread::process_id();
        let claimed = claim_of(pid, nonce);
        let claim = |index: u32, from: u64| {
            // First: a process that clears up after this one looks only there.
            if !self.is_used(index) {
                self.used(index).fetch_or(1 << (index % 64), Ordering::Release);
            }
            let state = self.word(index, STATE);
            state.compare_exchange(from, claimed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let index = Self::window(tuple).find(|index| claim(*index, 0)).or_else(|| {
            Self::window(tuple)
                .find(|index| self.is_stale(*index).is_some_and(|was| claim(*index, was)))
        })?;
        let token = host::random();
        for (word, address) in [(LOCAL, tuple.local.address()), (PEER, tuple.peer.address())] {
            self.store(index, word, (address >> 64) as u64);
            self.store(index, word + 1, address as u64);
        }
        self.store(
            index,
            PORTS,
            u64::from(tuple.local.port()) << 16 | u64::from(tuple.peer.port()),
        );
        self.store(index, NAMESPACE, tuple.namespace);
        self.store(index, TOKEN, token);
        self.store(index, NONCE, nonce);
        self.store(index, SIGNAL, 0);
        self.store(index, ATTRIBUTES, role as u64);
        (0..4).for_each(|count| self.store(index, COUNTS + count, 0));
        for (word, value) in program().iter().enumerate() {
            self.store(index, PROGRAM + word, *value);
        }
        self.store(index, PID_NAMESPACE, pid_namespace().unwrap_or(0));
        (0..5).for_each(|word| self.store(index, LINK + word, 0));
        // Before any process can find it.
        rendezvous::expect(SlotRef { index, token });
        self.word(index, STATE).store(u64::from(pid) << 32 | LIVE, Ordering::Release);
        let slot = RegistrySlot { registry: self, slot: SlotRef { index, token }, pid };
        patient_lock(&OWN_SLOTS)?.push(index);
        Some(slot)
    }

    /// The state of a slot whose process no longer listens, or that no process has written. Unlike
    /// a process id, asking the rendezvous works across pid namespaces.
    fn is_stale(&self, index: u32) -> Option<u64> {
        let state = self.word(index, STATE).load(Ordering::Acquire);
        let path = rendezvous_path(&self.dir, (state >> 32) as u32, self.load(index, NONCE));
        let stale = match state & 0xffff_ffff {
            LIVE => unix::is_abandoned(&path),
            low => state != 0 && low & STATES != CLAIMED,
        };
        stale.then_some(state)
    }

    /// Notifies the process of a slot that a datagram waits for it.
    pub(crate) fn signal(&self, slot: SlotRef) {
        if self.load(slot.index, TOKEN) == slot.token {
            self.word(slot.index, SIGNAL).store(slot.token, Ordering::Release);
        }
    }

    /// Removes every slot that this process still holds from the table.
    pub(crate) fn leave(&self) {
        let pid = u64::from(thread::process_id());
        for index in patient_lock(&OWN_SLOTS).iter_mut().flat_map(|slots| slots.drain(..)) {
            if self.load(index, STATE) >> 32 == pid {
                self.free(index);
            }
        }
    }

    /// Makes sure that this process has a rendezvous next to the table and returns its nonce.
    ///
    /// # Errors
    /// The reason: only [`Reason::NoRegistry`] is permanent.
    pub(crate) fn rendezvous(&self) -> Result<u64, Reason> {
        rendezvous::nonce(&self.dir, |pid, nonce| self.clear_up(pid, nonce))
    }

    /// Removes every slot of a process that is gone from the table; it had this rendezvous.
    fn clear_up(&self, pid: u32, nonce: u64) {
        for index in (0..SLOTS).filter(|index| self.is_used(*index)) {
            let word = self.word(index, STATE);
            let state = word.load(Ordering::Acquire);
            let is_theirs = if state & STATES == LIVE {
                state >> 32 == u64::from(pid) && self.load(index, NONCE) == nonce
            } else {
                state == claim_of(pid, nonce)
            };
            if is_theirs {
                let _ = word.compare_exchange(state, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    fn is_used(&self, index: u32) -> bool {
        self.used(index).load(Ordering::Acquire) >> (index % 64) & 1 != 0
    }

    fn free(&self, index: u32) {
        self.word(index, STATE).store(0, Ordering::Release);
    }
}

/// The slots that this process has entered; a child also sees its parent's.
static OWN_SLOTS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// One entry of this process; removed from the table when dropped.
#[derive(Debug)]
pub(crate) struct RegistrySlot {
    registry: &'static Registry,
    slot: SlotRef,
    pid: u32,
}

impl RegistrySlot {
    pub(crate) fn slot(&self) -> SlotRef {
        self.slot
    }

    /// Whether this process made the entry, rather than one from which it was forked.
    pub(crate) fn is_ours(&self) -> bool {
        self.pid == thread::process_id()
    }

    /// Whether a datagram waits for this connection; asked at every call, so it is one load.
    #[inline]
    pub(crate) fn is_signalled(&self) -> bool {
        self.registry.word(self.slot.index, SIGNAL).load(Ordering::Acquire) != 0
    }

    pub(crate) fn clear_signal(&self) {
        self.registry.store(self.slot.index, SIGNAL, 0);
    }

    pub(crate) fn show_carriers(
        &self,
        role: Role,
        tx: Carrier,
        rx: Carrier,
        reason: Option<Reason>,
    ) {
        let reason = reason.map_or(0, |reason| reason as u64);
        let attributes = role as u64 | (tx as u64) << 8 | (rx as u64) << 16 | reason << 24;
        self.registry.store(self.slot.index, ATTRIBUTES, attributes);
    }

    /// Shows that the peer's address is at the other end of this link.
    pub(crate) fn show_link(&self, name: &str) {
        for (word, value) in words_of(name.as_bytes()).into_iter().enumerate() {
            self.registry.store(self.slot.index, LINK + word, value);
        }
    }

    /// Shows the ports of the wake channel to the other machine.
    pub(crate) fn show_wake_ports(&self, own: u16, peer: u16) {
        self.registry.store(self.slot.index, WAKE_PORTS, u64::from(own) << 16 | u64::from(peer));
    }

    #[inline]
    pub(crate) fn show_sent(&self, tcp: u64, ring: u64) {
        self.registry.store(self.slot.index, COUNTS, tcp);
        self.registry.store(self.slot.index, COUNTS + 1, ring);
    }

    #[inline]
    pub(crate) fn show_received(&self, tcp: u64, ring: u64) {
        self.registry.store(self.slot.index, COUNTS + 2, tcp);
        self.registry.store(self.slot.index, COUNTS + 3, ring);
    }
}

impl Drop for RegistrySlot {
    fn drop(&mut self) {
        if self.is_ours() && self.registry.load(self.slot.index, TOKEN) == self.slot.token {
            self.registry.free(self.slot.index);
            rendezvous::forget(self.slot);
            if let Some(mut slots) = patient_lock(&OWN_SLOTS) {
                slots.retain(|index| *index != self.slot.index);
            }
        }
    }
}

fn map(path: &Path) -> io::Result<Common> {
    Common::of_file(file::open_long(path, LEN as u64)?.as_fd(), LEN)
}

/// Identifies the pid namespace of this process.
fn pid_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
}

/// The name of this process, as ps(1) shows it, in words.
fn program() -> &'static [u64; 4] {
    static NAME: OnceLock<[u64; 4]> = OnceLock::new();
    NAME.get_or_init(|| {
        let name = file::read("/proc/self/comm".as_ref()).unwrap_or_default();
        words_of(name.trim_ascii_end().get(..31).unwrap_or(name.trim_ascii_end()))
    })
}

/// A name of at most 32 bytes, in words.
fn words_of(name: &[u8]) -> [u64; 4] {
    let byte = |at: usize| name.get(at).copied().unwrap_or(0);
    std::array::from_fn(|word| u64::from_le_bytes(std::array::from_fn(|at| byte(word * 8 + at))))
}

#[cfg(test)]
mod tests;
