//! Shared memory: the only place that dereferences it.
//!
//! Three kinds of mapping, by who may write:
//!
//! | type      | this process | the others                       | used for                    |
//! |-----------|--------------|----------------------------------|-----------------------------|
//! | [`Own`]   | writes       | read (sealed FUTURE_WRITE)       | what this end tells its peer |
//! | [`Peer`]  | reads        | one process (the peer) writes    | what the peer tells us       |
//! | [`Common`]| writes       | write (same user, or own forks)  | registry, fork bookkeeping   |
//! | [`Region`]| writes       | write (another machine)          | both, for ends on two machines |
//!
//! A region has no side that only one machine can write. So an end there keeps its own words in
//! memory of its machine, and only shows copies of them in the region: this end never reads those,
//! whatever the other machine writes there.
//!
//! A region that is a file can also be truncated, unless it is sealed: see [`crate::sys::fault`].
//!
//! Every access is range-checked here, so no value read from shared memory can lead outside a
//! mapping. Words are atomics. Payload is copied by memcpy while the other process may change it:
//! the copy may then hold any bytes, which is what a stream from a hostile peer may hold anyway.

#[cfg(not(loom))]
pub mod granted;

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, AtomicU8};

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::sync::Ordering;
use crate::sys::fault::FaultGuard;
use crate::sys::fd::PrivateFd;
use crate::sys::signal::without_signals;

/// Parts of a [`Region`] begin with a page.
const PAGE: usize = 4096;

/// A mapping that is unmapped when dropped, or a part of one that stays until then.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
    whole: Option<Arc<Mapping>>,
    /// Present if the file may be truncated.
    guard: Option<FaultGuard>,
}

// SAFETY: the mapping belongs to this value alone and stays where it is until it is dropped; all
// access goes through atomics or raw copies that tolerate concurrent change.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: Option<BorrowedFd<'_>>, len: usize, prot: ProtFlags) -> io::Result<Self> {
        let Some(fd) = fd else {
            // SAFETY: the kernel chooses the address of a new mapping; no existing memory is
            // touched.
            let base = unsafe {
                rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, prot, MapFlags::SHARED)
            }?;
            return Self::at_base(base, len);
        };
        Self::of_file(fd, 0, len, prot)
    }

    /// Maps `len` bytes of a file from `offset` on.
    fn of_file(fd: BorrowedFd<'_>, offset: u64, len: usize, prot: ProtFlags) -> io::Result<Self> {
        // SAFETY: as in `new`.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, fd, offset)
        }?;
        Self::at_base(base, len)
    }

    fn at_base(base: *mut std::ffi::c_void, len: usize) -> io::Result<Self> {
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { base, len, whole: None, guard: None })
    }

    /// As [`Self::of_file`], also for a file that others may truncate: then the content of this
    /// mapping means nothing, and [`Self::is_lost`] is true.
    fn of_foreign_file(
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        prot: ProtFlags,
    ) -> io::Result<Self> {
        let mut mapping = Self::of_file(fd, offset, len, prot)?;
        if !rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            mapping.guard = Some(FaultGuard::new(mapping.base.as_ptr(), len)?);
        }
        Ok(mapping)
    }

    /// Whether the file was truncated, so that this is no longer its memory.
    #[inline]
    fn is_lost(&self) -> bool {
        self.guard.as_ref().is_some_and(FaultGuard::is_lost)
    }

    /// `len` bytes from `offset` on; `None` if they are not inside the mapping, or begin in the
    /// middle of a page.
    fn part(self: &Arc<Self>, offset: usize, len: usize) -> Option<Self> {
        let is_inside = offset <= self.len && len <= self.len - offset && offset % PAGE == 0;
        let base = is_inside.then(|| NonNull::new(self.at(offset, len)))??;
        Some(Self { base, len, whole: Some(Arc::clone(self)), guard: None })
    }

    /// Address of `len` bytes at `offset`.
    ///
    /// # Panics
    /// If the range is not inside the mapping: callers check what they read before they use it, so
    /// this is a fault of this crate.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.len && len <= self.len - offset, "outside the mapping");
        // SAFETY: `offset` is within the mapping, as was just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }

    #[cfg(not(loom))]
    #[inline]
    fn word(&self, offset: usize) -> *mut u64 {
        assert!(offset % 8 == 0, "unaligned word");
        self.at(offset, 8).cast()
    }

    #[cfg(not(loom))]
    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY: `from` is readable for this length, `into` is private memory that cannot overlap
        // a mapping of ours. The peer may write meanwhile: then the bytes are merely arbitrary.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.whole.is_some() {
            return;
        }
        self.guard = None;
        // SAFETY: this range was mapped by `new` and nothing borrowed from it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The operations of a queue on its own memory. It changes the words that its peer reads with the
/// methods that show them, and other words in any way.
pub trait OwnMemory {
    /// The atomic word at a byte offset (a multiple of 8).
    fn word(&self, offset: usize) -> &crate::sync::AtomicU64;
    /// Whether the peer sees copies of the words, because it could also write them.
    #[inline]
    fn shows_copies(&self) -> bool {
        false
    }
    /// The copy of a word, if it has one. Its content means nothing to this end.
    fn shown(&self, _offset: usize) -> Option<&crate::sync::AtomicU64> {
        None
    }
    /// Repeats on the copy of a word, if it has one, what was done to the word.
    #[inline]
    fn show(&self, offset: usize, change: impl FnOnce(&crate::sync::AtomicU64)) {
        if self.shows_copies() {
            show(self.shown(offset), change);
        }
    }
    /// Stores a word, and shows it.
    #[inline]
    fn store(&self, offset: usize, value: u64, order: crate::sync::Ordering) {
        self.word(offset).store(value, order);
        self.show(offset, |shown| shown.store(value, order));
    }
    /// Stores a word, shows it, and then fences.
    #[inline]
    fn store_fenced(&self, offset: usize, value: u64) {
        crate::sync::store_fenced(self.word(offset), value);
        self.show(offset, |shown| crate::sync::store_fenced(shown, value));
    }
    /// Stores a word if it has the value `expected`, and shows it.
    #[inline]
    fn store_if(&self, offset: usize, expected: u64, value: u64) {
        let change = |word: &crate::sync::AtomicU64| {
            word.compare_exchange(expected, value, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if change(self.word(offset)) {
            self.show(offset, |shown| _ = change(shown));
        }
    }
    /// Sets bits of a word, and shows them.
    #[inline]
    fn set_bits(&self, offset: usize, bits: u64) {
        self.word(offset).fetch_or(bits, Ordering::SeqCst);
        self.show(offset, |shown| _ = shown.fetch_or(bits, Ordering::SeqCst));
    }
    /// Clears bits of a word, and shows that.
    #[inline]
    fn clear_bits(&self, offset: usize, bits: u64) {
        self.word(offset).fetch_and(!bits, Ordering::SeqCst);
        self.show(offset, |shown| _ = shown.fetch_and(!bits, Ordering::SeqCst));
    }
    /// Copies `from` into the memory.
    fn write(&self, offset: usize, from: &[u8]);
    /// Copies back the bytes that were written, word by word: for the rare case that they are
    /// needed again.
    fn read_back(&self, offset: usize, into: &mut [u8]) {
        for (at, byte) in (offset..).zip(into) {
            let word = self.word(at & !7).load(crate::sync::Ordering::Relaxed);
            *byte = word.to_ne_bytes()[at & 7];
        }
    }
}

/// Out of line, so that it costs nothing when there are no copies.
#[cold]
#[inline(never)]
fn show(shown: Option<&crate::sync::AtomicU64>, change: impl FnOnce(&crate::sync::AtomicU64)) {
    if let Some(shown) = shown {
        change(shown);
    }
}

/// The operations of a queue on its peer's memory.
pub trait PeerMemory {
    /// Loads the atomic word at a byte offset (a multiple of 8).
    fn load(&self, offset: usize, order: crate::sync::Ordering) -> u64;
    /// Copies from the memory.
    fn read(&self, offset: usize, into: &mut [u8]);
}

/// Memory that this end writes and its peer can only read; in a [`Region`], the peer reads a copy
/// of it.
#[derive(Debug)]
pub struct Own {
    mapping: Mapping,
    /// Its first part as the peer sees it, if that is a copy. Payload lies only there.
    shown: Option<Mapping>,
    claims: Claims,
}

/// The seals that make it safe for the peer to map a writer's memory, and for the writer to share
/// it: it can neither shrink (SIGBUS) nor be written through another mapping.
pub const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

impl Own {
    /// Creates and seals `len` bytes of zeroed memory whose last `claimable` x `unit` bytes, from
    /// `base` on, can be lent out as slices by [`Own::claim`]. The descriptor is for the peer.
    ///
    /// # Errors
    /// Those of memfd_create(2), ftruncate(2), mmap(2), fcntl(2) F_ADD_SEALS; EMFILE if no number
    /// above the library's floor is free.
    pub fn create(
        len: usize,
        base: usize,
        unit: usize,
        claimable: usize,
    ) -> io::Result<(Self, PrivateFd)> {
        assert!(base + unit * claimable <= len, "claimable area outside the memory");
        let flags = MemfdFlags::CLOEXEC.union(MemfdFlags::ALLOW_SEALING);
        let fd = PrivateFd::new(rustix::fs::memfd_create(c"seekwire", flags)?)?;
        without_signals(|| Ok(rustix::fs::ftruncate(fd.as_fd(), len as u64)?))?;
        let mapping = Mapping::new(Some(fd.as_fd()), len, ProtFlags::READ.union(ProtFlags::WRITE))?;
        rustix::fs::fcntl_add_seals(fd.as_fd(), SEALS)?;
        let claimed = (0..claimable).map(|_| AtomicBool::new(false)).collect();
        Ok((Self { mapping, shown: None, claims: Claims { base, unit, claimed } }, fd))
    }

    /// The address of bytes that are not words.
    #[cfg(not(loom))]
    #[inline]
    fn payload_at(&self, offset: usize) -> &Mapping {
        if self.shown.is_some() { self.payload_apart(offset) } else { &self.mapping }
    }

    #[cfg(not(loom))]
    #[cold]
    fn payload_apart(&self, offset: usize) -> &Mapping {
        self.shown.as_ref().filter(|shown| offset < shown.len).unwrap_or(&self.mapping)
    }

    /// Lends out one unit of the claimable area as a plain slice; `None` while it is lent already.
    /// [`OwnMemory::write`] refuses a range in a lent unit.
    #[must_use]
    pub fn claim(&self, unit: usize) -> Option<Claim<'_>> {
        let claimed = self.claims.claimed.get(unit)?;
        let free = !claimed.swap(true, Ordering::Acquire);
        free.then(|| Claim { own: self, unit })
    }
}

#[derive(Debug)]
struct Claims {
    base: usize,
    unit: usize,
    claimed: Box<[AtomicBool]>,
}

/// One unit of [`Own`] memory, lent out.
#[derive(Debug)]
pub struct Claim<'m> {
    own: &'m Own,
    unit: usize,
}

impl Claim<'_> {
    /// The number of the unit.
    #[must_use]
    pub fn unit(&self) -> usize {
        self.unit
    }

    fn offset(&self) -> usize {
        self.own.claims.base + self.unit * self.own.claims.unit
    }
}

impl std::ops::Deref for Claim<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let len = self.own.claims.unit;
        // SAFETY: the range is inside the mapping; only this process (and forks of it, which do not
        // share this value) can write it, and within it only through this claim.
        unsafe { std::slice::from_raw_parts(self.own.mapping.at(self.offset(), len), len) }
    }
}

impl std::ops::DerefMut for Claim<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.own.claims.unit;
        // SAFETY: as in `deref`; `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.own.mapping.at(self.offset(), len), len) }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.own.claims.claimed[self.unit].store(false, Ordering::Release);
    }
}

#[cfg(not(loom))]
impl OwnMemory for Own {
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: aligned and inside the mapping, which outlives the borrow; only atomics touch
        // words.
        unsafe { AtomicU64::from_ptr(self.mapping.word(offset)) }
    }

    #[inline]
    fn write(&self, offset: usize, from: &[u8]) {
        let unit = offset.checked_sub(self.claims.base).map(|o| o / self.claims.unit);
        if let Some((unit, claimed)) = unit.and_then(|u| Some((u, self.claims.claimed.get(u)?))) {
            assert!(!claimed.load(Ordering::Relaxed), "segment is lent out");
            assert!(
                offset + from.len() <= self.claims.base + (unit + 1) * self.claims.unit,
                "past the segment"
            );
        }
        let to = self.payload_at(offset).at(offset, from.len());
        // SAFETY: `to` is writable for this length and not lent out; `from` cannot overlap a
        // mapping of ours because those are never handed out as slices except by `claim`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
    }

    #[inline]
    fn shows_copies(&self) -> bool {
        self.shown.is_some()
    }

    fn shown(&self, offset: usize) -> Option<&AtomicU64> {
        let shown = self.shown.as_ref().filter(|shown| offset < shown.len)?;
        // SAFETY: as in `word`; the other machine may store to it, which atomics allow.
        Some(unsafe { AtomicU64::from_ptr(shown.word(offset)) })
    }

    fn read_back(&self, offset: usize, into: &mut [u8]) {
        self.payload_at(offset).read(offset, into);
    }
}

/// Memory that the peer writes and this end can only read. The peer is treated as an attacker.
#[derive(Debug)]
pub struct Peer {
    mapping: Mapping,
}

/// The reason why a descriptor from a peer was not mapped.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Not a memfd with all of [`SEALS`]: the peer could shrink it under our feet.
    #[error("the peer's memory is not sealed")]
    NotSealed,
    /// Larger than any honest peer's, or smaller than a header.
    #[error("the peer's memory has an impossible size of {0} bytes")]
    Size(u64),
    /// The kernel refused.
    #[error("the peer's memory could not be mapped: {0}")]
    Io(#[from] io::Error),
}

impl Peer {
    /// Maps the memory of a descriptor from a peer, at most `max` bytes of it.
    ///
    /// # Errors
    /// [`AttachError`]; the caller refuses the peer.
    pub fn attach(fd: BorrowedFd<'_>, max: usize) -> Result<Self, AttachError> {
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| AttachError::NotSealed)?;
        if !seals.contains(SEALS) {
            return Err(AttachError::NotSealed);
        }
        let size = rustix::fs::fstat(fd).map_err(io::Error::from)?.st_size as u64;
        let len = usize::try_from(size).ok().filter(|len| (4096..=max).contains(len));
        let len = len.ok_or(AttachError::Size(size))?;
        Ok(Self { mapping: Mapping::new(Some(fd), len, ProtFlags::READ)? })
    }

    /// Bytes mapped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mapping.len
    }

    /// Whether nothing is mapped; always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mapping.len == 0
    }

    /// A view of bytes that the peer may change at any time, which atomics make sound.
    #[must_use]
    pub fn bytes(&self, offset: usize, len: usize) -> &[AtomicU8] {
        // SAFETY: inside the mapping, which outlives the borrow; AtomicU8 has the layout of u8 and
        // is only loaded from by callers of a read-only view (a store would fault, not corrupt).
        unsafe { std::slice::from_raw_parts(self.mapping.at(offset, len).cast(), len) }
    }
}

#[cfg(not(loom))]
impl PeerMemory for Peer {
    #[inline]
    fn load(&self, offset: usize, order: Ordering) -> u64 {
        // SAFETY: aligned and inside the mapping, which outlives the borrow; the page is readable
        // and a load does not write.
        unsafe { AtomicU64::from_ptr(self.mapping.word(offset)) }.load(order)
    }

    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        self.mapping.read(offset, into);
    }
}

/// Memory that two machines share and both can write: nothing in it can be sealed. The other
/// machine is treated as an attacker.
#[derive(Clone, Debug)]
pub struct Region {
    mapping: Arc<Mapping>,
}

impl Region {
    /// Maps the first `len` bytes of a file or device.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn of_file(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::of_file_from(fd, 0, len)
    }

    /// Maps `len` bytes of a file or device from `offset` on, a multiple of the page size.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn of_file_from(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let access = ProtFlags::READ.union(ProtFlags::WRITE);
        Ok(Self { mapping: Arc::new(Mapping::of_foreign_file(fd, offset, len, access)?) })
    }

    /// Whether the file was truncated: this mapping is no longer the region.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    /// Bytes mapped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mapping.len
    }

    /// Whether nothing is mapped; always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mapping.len == 0
    }

    /// Zeroed memory of `len` bytes for an end of this machine, whose first `shown` bytes lie in
    /// the region from `at` on, a multiple of the page size, for the peer. No part of it can be
    /// lent out: the peer could change it.
    ///
    /// # Errors
    /// Those of mmap(2); EINVAL if that part is not inside the region.
    #[cfg(not(loom))]
    pub fn own(&self, at: usize, shown: usize, len: usize) -> io::Result<Own> {
        let part = self.mapping.part(at, shown).filter(|_| shown <= len && shown % PAGE == 0);
        let part = part.ok_or(io::ErrorKind::InvalidInput)?;
        let mapping = Mapping::new(None, len, ProtFlags::READ.union(ProtFlags::WRITE))?;
        for offset in (0..shown).step_by(8) {
            // SAFETY: aligned and inside the part; the other machine may store to it, which atomics
            // allow.
            unsafe { AtomicU64::from_ptr(part.word(offset)) }.store(0, Ordering::Relaxed);
        }
        let claims = Claims { base: len, unit: 1, claimed: Box::default() };
        Ok(Own { mapping, shown: Some(part), claims })
    }

    /// The part of the region from `at` on, a multiple of the page size, in which the peer shows
    /// its memory; `None` if it is not inside the region.
    #[must_use]
    pub fn peer(&self, at: usize, len: usize) -> Option<Peer> {
        Some(Peer { mapping: self.mapping.part(at, len)? })
    }

    /// The atomic word at a byte offset (a multiple of 8). The other machine may store to it at any
    /// time.
    #[cfg(not(loom))]
    #[must_use]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: aligned and inside the mapping, which outlives the borrow; only atomics and
        // copies touch it.
        unsafe { AtomicU64::from_ptr(self.mapping.word(offset)) }
    }
}

/// Memory that several processes of this user write, as words only.
#[derive(Debug)]
#[cfg_attr(loom, expect(dead_code, reason = "loom has no words in mapped memory"))]
pub struct Common {
    mapping: Mapping,
}

impl Common {
    /// Maps the first `len` bytes of a file.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn of_file(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Ok(Self { mapping: Mapping::new(Some(fd), len, ProtFlags::READ.union(ProtFlags::WRITE))? })
    }

    /// As [`Common::of_file`], for a file that others may truncate: then its words are zero.
    ///
    /// # Errors
    /// Those of mmap(2); ENOMEM if there are too many.
    pub fn of_foreign_file(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let access = ProtFlags::READ.union(ProtFlags::WRITE);
        Ok(Self { mapping: Mapping::of_foreign_file(fd, 0, len, access)? })
    }

    /// Maps the first `len` bytes of a file for reading: storing to its words is a fault.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn of_file_read_only(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Ok(Self { mapping: Mapping::new(Some(fd), len, ProtFlags::READ)? })
    }

    /// Zeroed memory shared with the children that this process forks.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn with_forks(len: usize) -> io::Result<Self> {
        Ok(Self { mapping: Mapping::new(None, len, ProtFlags::READ.union(ProtFlags::WRITE))? })
    }

    /// The atomic word at a byte offset (a multiple of 8).
    #[cfg(not(loom))]
    #[must_use]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: aligned and inside the mapping, which outlives the borrow; only atomics touch it.
        unsafe { AtomicU64::from_ptr(self.mapping.word(offset)) }
    }
}

// Miri maps no memfd.
#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_reader_can_neither_write_nor_shrink() {
        let (own, fd) = Own::create(8192, 4096, 4096, 1).unwrap();
        own.write(100, b"hello");
        let peer = Peer::attach(fd.as_fd(), 1 << 20).unwrap();
        let mut bytes = [0; 5];
        peer.read(100, &mut bytes);
        assert_eq!(&bytes, b"hello");
        assert!(Common::of_file(fd.as_fd(), 8192).is_err(), "a writable mapping by another end");
        assert!(rustix::fs::ftruncate(fd.as_fd(), 0).is_err());
    }

    #[test]
    fn unsealed_or_oversized_memory_is_refused() {
        let fd = rustix::fs::memfd_create(c"bare", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 8192).unwrap();
        assert!(matches!(Peer::attach(fd.as_fd(), 1 << 20), Err(AttachError::NotSealed)));
        let (_own, fd) = Own::create(8192, 4096, 4096, 1).unwrap();
        assert!(matches!(Peer::attach(fd.as_fd(), 4096), Err(AttachError::Size(8192))));
        let pipe = rustix::pipe::pipe().unwrap();
        assert!(matches!(Peer::attach(pipe.0.as_fd(), 4096), Err(AttachError::NotSealed)));
    }

    #[test]
    fn a_claim_is_exclusive_until_dropped() {
        let (own, _fd) = Own::create(8192, 4096, 4096, 1).unwrap();
        let mut claim = own.claim(0).unwrap();
        claim[..2].copy_from_slice(b"ab");
        assert!(own.claim(0).is_none());
        assert!(own.claim(1).is_none());
        let write =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| own.write(4096, b"x")));
        assert!(write.is_err());
        drop(claim);
        assert!(own.claim(0).is_some_and(|c| &c[..2] == b"ab"));
    }

    #[test]
    #[should_panic(expected = "outside the mapping")]
    fn nothing_outside_is_read() {
        let (_own, fd) = Own::create(8192, 4096, 4096, 1).unwrap();
        Peer::attach(fd.as_fd(), 1 << 20).unwrap().load(8192, Ordering::Relaxed);
    }
}
