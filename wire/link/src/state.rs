//! The state file of a link: the data on which a machine's own allocation depends, out of reach of
//! the other machine.
//!
//! The first page is the header. Then each entry of the directory has four words: the offset and
//! length of its place, its process, and a digest of its 4-tuple, which is 0 while the entry is
//! free. Only the holders of the lock on byte 4096 and of the entry's lease change them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::AsFd;
use rustix::fs::{FileType, OFlags};
use seekwire_protocol::offer::LAYOUT;
use seekwire_transport::mem::Common;
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::file;
use seekwire_transport::sys::ofd_lock::{self, LockMode};

use crate::access::{Access, replace};
use crate::error::LinkError;
use crate::layout::{DETACHED, Layout, MAX_ENTRIES, PAGE};
use crate::map::{Definition, Side};

const MAGIC: u64 = u64::from_le_bytes(*b"SWSTATE\0") ^ (LAYOUT as u64) << 56;

// Bytes of the file that serve as locks.
/// Held while choosing an entry or a place.
pub(crate) const ALLOCATOR: u64 = MAX_ENTRIES as u64;
/// Held by each process that has the region mapped.
pub(crate) const MAPPED: u64 = ALLOCATOR + 1;
/// Held by the agent of the link.
pub(crate) const AGENT: u64 = MAPPED + 1;

/// Words of the header.
mod word {
    pub(super) const MAGIC: usize = 0x00;
    pub(super) const TOKEN: usize = 0x08;
    pub(super) const SIDE: usize = 0x10;
    pub(super) const LENGTH: usize = 0x18;
    pub(super) const ENTRIES: usize = 0x20;
    pub(super) const FLAGS: usize = 0x28;
    pub(super) const DEVICE: usize = 0x30;
    pub(super) const INODE: usize = 0x38;
    /// Number of connections that have entered.
    pub(super) const ENTERED: usize = 0x40;
    /// The other machine's count of wanted room at the start of the last sweep for it, then the
    /// time of that sweep.
    pub(super) const WANTED: usize = 0x48;
    pub(super) const SWEPT_AT: usize = 0x50;
    /// Number of entries that have ever been in use.
    pub(super) const HIGHEST: usize = 0x58;
    /// The entry at which the next sweep begins.
    pub(super) const NEXT: usize = 0x60;
    /// The boot ID of the machine when it attached: two words.
    pub(super) const START: usize = 0x68;
}

const ENTRY: usize = 32;
const LONGEST: usize = PAGE + MAX_ENTRIES * ENTRY;

/// Numbers that identify a region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RegionId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) length: u64,
    pub(crate) side: Side,
}

/// The mapped file.
#[derive(Debug)]
pub(crate) struct StateFile {
    memory: Common,
    file: PrivateFd,
    path: PathBuf,
    entries: usize,
}

/// The path of a link's state file.
pub(crate) fn path_of(definition: &Definition, directory: &Path) -> PathBuf {
    directory.join(format!("{}.link", definition.name))
}

fn open(path: &Path) -> io::Result<PrivateFd> {
    // Never follows a symbolic link, and never blocks in open(2).
    let flags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);
    PrivateFd::place(file::open(path, flags, 0)?)
}

/// The boot ID of this machine (random(4)), if the kernel provides it.
fn this_start() -> Option<[u64; 2]> {
    let text = file::read("/proc/sys/kernel/random/boot_id".as_ref()).ok()?;
    let digits: String =
        std::str::from_utf8(text.trim_ascii()).ok()?.chars().filter(|it| *it != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    Some([(number >> 64) as u64, number as u64])
}

/// True if a process has a link open through a file at this path, or an entry, whatever the file
/// contains.
pub(crate) fn is_used(path: &Path) -> io::Result<bool> {
    ofd_lock::is_locked(open(path)?, 0..MAPPED + 1)
}

impl StateFile {
    /// Opens and maps a state file. A file of another kind or version has an error of its own.
    pub(crate) fn open(path: &Path) -> Result<Self, LinkError> {
        let io = |error| LinkError::of(path, error);
        let other = || LinkError::OtherLayout(path.to_owned());
        let file = open(path).map_err(io)?;
        let metadata = rustix::fs::fstat(&file).map_err(|error| io(error.into()))?;
        let is_regular = FileType::from_raw_mode(metadata.st_mode) == FileType::RegularFile;
        let len =
            usize::try_from(metadata.st_size).ok().filter(|len| (PAGE..=LONGEST).contains(len));
        let len = len.filter(|_| is_regular).ok_or_else(other)?;
        let memory = Common::of_foreign_file(file.as_fd(), len).map_err(io)?;
        let load = |word: usize| memory.word(word).load(Ordering::Acquire);
        let entries = usize::try_from(load(word::ENTRIES)).ok().filter(|n| *n <= MAX_ENTRIES);
        let entries = entries.filter(|n| load(word::MAGIC) == MAGIC && len == PAGE + n * ENTRY);
        let entries = entries.ok_or_else(other)?;
        Ok(Self { memory, file, path: path.to_owned(), entries })
    }

    /// Writes the state of a machine that has just attached.
    pub(crate) fn create(
        path: &Path,
        identity: RegionId,
        layout: Layout,
        token: u64,
        access: Access,
    ) -> io::Result<()> {
        let mut bytes = vec![0; PAGE + layout.entries() * ENTRY];
        let start = this_start().unwrap_or_default();
        for (at, value) in [
            (word::MAGIC, MAGIC),
            (word::TOKEN, token),
            (word::SIDE, identity.side as u64),
            (word::LENGTH, identity.length),
            (word::ENTRIES, layout.entries() as u64),
            (word::DEVICE, identity.device),
            (word::INODE, identity.inode),
            (word::START, start[0]),
            (word::START + 8, start[1]),
        ] {
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        replace(path, &bytes, access)
    }

    /// Another description of the same file; `None` if its path now belongs to another file or to
    /// none.
    pub(crate) fn reopen(&self) -> io::Result<Option<PrivateFd>> {
        let again = match open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            again => again?,
        };
        let (own, other) = (rustix::fs::fstat(&self.file)?, rustix::fs::fstat(&again)?);
        let is_same = (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino);
        Ok(is_same.then_some(again))
    }

    /// True if its path still belongs to this file: attaching assigns it to a new one.
    pub(crate) fn is_current(&self) -> bool {
        let own = rustix::fs::fstat(&self.file);
        let other = rustix::fs::lstat(&self.path);
        matches!((own, other), (Ok(own), Ok(other))
            if (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino))
    }

    pub(crate) fn file(&self) -> &PrivateFd {
        &self.file
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// Locks this description as a user that has the region mapped.
    pub(crate) fn lock_mapped(&self, kind: LockMode) -> io::Result<bool> {
        ofd_lock::try_lock(&self.file, MAPPED, kind)
    }

    /// True if another description has the region mapped.
    pub(crate) fn is_mapped(&self) -> io::Result<bool> {
        ofd_lock::is_locked(&self.file, MAPPED..MAPPED + 1)
    }

    /// Locks this description as the agent, unless another description has that lock.
    pub(crate) fn lock_agent(&self) -> io::Result<bool> {
        ofd_lock::try_lock(&self.file, AGENT, LockMode::Exclusive)
    }

    /// True if another description belongs to an agent.
    pub(crate) fn has_agent(&self) -> io::Result<bool> {
        ofd_lock::is_locked(&self.file, AGENT..AGENT + 1)
    }

    /// True if a process has an entry, or is choosing one.
    pub(crate) fn is_leased(&self) -> io::Result<bool> {
        ofd_lock::is_locked(&self.file, 0..ALLOCATOR + 1)
    }

    fn load(&self, word: usize) -> u64 {
        self.memory.word(word).load(Ordering::Acquire)
    }

    pub(crate) fn token(&self) -> u64 {
        self.load(word::TOKEN)
    }

    /// The device and inode numbers of its region.
    pub(crate) fn region(&self) -> (u64, u64) {
        (self.load(word::DEVICE), self.load(word::INODE))
    }

    /// True if this is the state of that region.
    pub(crate) fn is_of(&self, identity: RegionId) -> bool {
        self.load(word::DEVICE) == identity.device
            && self.load(word::INODE) == identity.inode
            && self.load(word::LENGTH) == identity.length
            && self.load(word::SIDE) == identity.side as u64
    }

    /// Also true for a truncated file, whose contents are meaningless.
    #[inline]
    pub(crate) fn is_detached(&self) -> bool {
        self.load(word::FLAGS) & DETACHED != 0 || !self.is_whole()
    }

    /// True if the file was not truncated.
    pub(crate) fn is_whole(&self) -> bool {
        self.load(word::MAGIC) == MAGIC
    }

    /// True if this machine has attached since its last boot. A machine that was booted from a copy
    /// of another one's disk has a state that is not its own. True if the kernel provides no boot
    /// ID.
    pub(crate) fn is_of_this_start(&self) -> bool {
        let start = [self.load(word::START), self.load(word::START + 8)];
        start == [0; 2] || this_start().is_none_or(|now| now == start)
    }

    pub(crate) fn set_attached(&self) {
        self.memory.word(word::FLAGS).fetch_and(!DETACHED, Ordering::SeqCst);
    }

    pub(crate) fn set_detached(&self) {
        self.memory.word(word::FLAGS).fetch_or(DETACHED, Ordering::SeqCst);
    }

    /// Counts a connection; returns the number before it.
    pub(crate) fn count_entered(&self) -> u64 {
        self.memory.word(word::ENTERED).fetch_add(1, Ordering::Relaxed)
    }

    /// The other machine's count of wanted room at the start of the last sweep for it, and the time
    /// of that sweep.
    pub(crate) fn swept(&self) -> (u64, u64) {
        (self.load(word::WANTED), self.load(word::SWEPT_AT))
    }

    pub(crate) fn set_swept(&self, wanted: u64, at: u64) {
        self.memory.word(word::WANTED).store(wanted, Ordering::Release);
        self.memory.word(word::SWEPT_AT).store(at, Ordering::Release);
    }

    /// The entry at which the next sweep begins.
    pub(crate) fn next_swept(&self) -> usize {
        usize::try_from(self.load(word::NEXT)).map_or(0, |index| index % self.entries.max(1))
    }

    pub(crate) fn set_next_swept(&self, index: usize) {
        self.memory.word(word::NEXT).store(index as u64, Ordering::Release);
    }

    /// Records the number of entries in use; returns the largest one so far.
    pub(crate) fn note_used(&self, entries: usize) -> usize {
        let before = self.memory.word(word::HIGHEST).fetch_max(entries as u64, Ordering::AcqRel);
        usize::try_from(before).map_or(self.entries, |n| n.max(entries).min(self.entries))
    }

    /// Number of entries that have ever been in use.
    pub(crate) fn used(&self) -> usize {
        usize::try_from(self.load(word::HIGHEST)).map_or(self.entries, |n| n.min(self.entries))
    }

    fn entry(&self, index: usize, word: usize) -> &AtomicU64 {
        self.memory.word(PAGE + index * ENTRY + word * 8)
    }

    /// The offset and length of an entry's place, as stored.
    pub(crate) fn place(&self, index: usize) -> (u64, u64) {
        let load = |word| self.entry(index, word).load(Ordering::Acquire);
        (load(0), load(1))
    }

    pub(crate) fn set_place(&self, index: usize, offset: usize, length: usize) {
        self.entry(index, 0).store(offset as u64, Ordering::Release);
        self.entry(index, 1).store(length as u64, Ordering::Release);
    }

    /// The process that has entered.
    pub(crate) fn pid(&self, index: usize) -> u32 {
        self.entry(index, 2).load(Ordering::Acquire) as u32
    }

    /// The digest of the 4-tuple, or 0 if the entry is free.
    pub(crate) fn digest(&self, index: usize) -> u64 {
        self.entry(index, 3).load(Ordering::Acquire)
    }

    pub(crate) fn enter(&self, index: usize, pid: u32, digest: u64) {
        self.set_place(index, 0, 0);
        self.entry(index, 2).store(pid.into(), Ordering::Release);
        self.entry(index, 3).store(digest, Ordering::Release);
    }

    /// Frees an entry here. Its words in the region have already been cleared.
    pub(crate) fn clear(&self, index: usize) {
        for word in [1, 0, 2, 3] {
            self.entry(index, word).store(0, Ordering::Release);
        }
    }
}

/// True if this cannot be determined. The leases of this process have other descriptions than
/// `state`.
pub(crate) fn is_leased(state: &StateFile, index: usize) -> bool {
    let index = index as u64;
    ofd_lock::is_locked(state.file(), index..index + 1).unwrap_or(true)
}

/// The processes that have entries, in ascending order.
pub(crate) fn pids(state: &StateFile) -> Vec<u32> {
    let leased =
        (0..state.used()).filter(|index| state.digest(*index) != 0 && is_leased(state, *index));
    let mut pids: Vec<u32> = leased.map(|index| state.pid(index)).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}
