//! The spill: bytes of a connection that were taken off the ring and not received yet, in a file
//! that every holder of the socket has, including processes that have executed another program.
//!
//! A newly executed program cannot map the memory of an end, which is sealed against new writable
//! mappings, to protect the peer. But it inherits open files, and two processes with the same open
//! file share its position. A read(2) takes bytes and moves the position in one step, so each byte
//! is received once, by whichever process comes first, as from the kernel's socket.
//!
//! The file is written by a process that has the ring, and then sealed. A process that finds one
//! when it starts trusts only what it can verify.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::AsFd;
use rustix::fs::{MemfdFlags, OFlags, SeekFrom};
use rustix::io::FdFlags;

use super::fd::{Fd, LibraryFd, PrivateFd, open_from, with_all_numbers};
use super::file;
use super::signal::without_signals;
use super::socket;
use crate::Errno;
use crate::mem::SEALS;

/// The file begins with this, the cookie of the socket, and the number of bytes that follow. It
/// keeps the name that earlier versions look for.
const MAGIC: [u8; 16] = *b"seekwire rest 1\n";
const HEADER: u64 = 32;
/// A spill file has at least this number, so that a starting program need not check all its
/// descriptors. It is the lowest number of the library's own descriptors if there are 1024.
const LEAST: i32 = 768;

/// The spill of one connection.
#[derive(Debug)]
pub struct SpillFile {
    file: PrivateFd,
    cookie: u64,
    /// Number of bytes, if this process has found them when it began.
    found_len: Option<u64>,
    /// All of them have been received, and none will be added.
    is_over: AtomicBool,
}

impl SpillFile {
    /// Maximum number of bytes.
    pub const MOST: u64 = 16 << 20;

    /// Creates an empty one, for a socket.
    ///
    /// # Errors
    /// Those of memfd_create(2) and getsockopt(2); EMFILE if no number above the library's floor is
    /// free.
    pub fn new(socket: Fd) -> io::Result<Self> {
        let cookie = socket::cookie(socket)?;
        let flags = MemfdFlags::CLOEXEC.union(MemfdFlags::ALLOW_SEALING);
        // Processes that read at the same time get different bytes only from a file that was opened
        // by its name: for such a file, the kernel serializes changes of the position.
        let made = LibraryFd::from(rustix::fs::memfd_create(c"seekwire-rest", flags)?);
        let name = format!("/proc/self/fd/{}", Fd::from(&made.as_fd()).raw());
        let mut file = PrivateFd::place(file::open(name.as_ref(), OFlags::RDWR, 0)?)?;
        drop(made);
        if file.fd().raw() < LEAST {
            let higher = || rustix::io::fcntl_dupfd_cloexec(&file, LEAST);
            file = PrivateFd::new(with_all_numbers(higher)?)?;
        }
        Ok(Self { file, cookie, found_len: None, is_over: AtomicBool::new(false) })
    }

    /// The ones that this process was started with: to be called before it uses a number.
    #[must_use]
    pub fn find_all() -> Vec<Self> {
        // Without /proc, no process passes one on.
        let numbers = open_from(LEAST).unwrap_or_default();
        numbers.into_iter().filter_map(Self::find).collect()
    }

    /// The spill file with this number. `None` if the descriptor is something else, which stays
    /// where it is.
    fn find(number: Fd) -> Option<Self> {
        let file = number.borrow();
        // One system call excludes other files.
        if rustix::fs::fcntl_get_seals(file) != Ok(SEALS) {
            return None;
        }
        let mut header = [0; HEADER as usize];
        if rustix::io::pread(file, &mut header, 0) != Ok(header.len()) {
            return None;
        }
        let word = |at: usize| header[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
        let (cookie, len) = (word(16)?, word(24)?);
        let about = rustix::fs::fstat(file).ok()?;
        let is_whole = len <= Self::MOST
            && u64::try_from(about.st_size).is_ok_and(|size| size == HEADER + len);
        if !header.starts_with(&MAGIC) || !is_trusted(about.st_uid) || !is_whole {
            return None;
        }
        let file = PrivateFd::adopt(number).ok()?;
        Some(Self { file, cookie, found_len: Some(len), is_over: AtomicBool::new(false) })
    }

    /// Whether a program of this user, in this user namespace, [finds](Self::find_all) it.
    #[must_use]
    pub fn is_found(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|about| is_trusted(about.st_uid))
    }

    /// Number of bytes, if this process has [found](Self::find_all) them.
    #[must_use]
    pub fn found_len(&self) -> Option<u64> {
        self.found_len
    }

    /// The [cookie](socket::cookie) of its socket.
    #[must_use]
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Its descriptor.
    #[must_use]
    pub fn fd(&self) -> Fd {
        self.file.fd()
    }

    /// Writes bytes after the first `len`, without making them part of it.
    ///
    /// # Errors
    /// Those of pwrite(2); ENOSPC if it would be too large.
    pub fn append(&self, len: u64, bytes: &[u8]) -> io::Result<()> {
        if len + bytes.len() as u64 > Self::MOST {
            return Err(Errno::NOSPC.into());
        }
        if len == 0 {
            rustix::fs::seek(&self.file, SeekFrom::Start(HEADER))?;
        }
        self.write(HEADER + len, bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        // The size of files may be limited.
        let written = without_signals(|| Ok(rustix::io::pwrite(&self.file, bytes, at)?))?;
        if written == bytes.len() { Ok(()) } else { Err(Errno::NOSPC.into()) }
    }

    /// Finishes it with these `len` bytes: nobody can change it from now on.
    ///
    /// # Errors
    /// Those of pwrite(2), ftruncate(2) and fcntl(2).
    pub fn finish(&self, len: u64) -> io::Result<()> {
        if self.is_finished()? {
            return Ok(());
        }
        let words = [self.cookie.to_le_bytes(), len.to_le_bytes()];
        self.write(0, &[MAGIC.as_slice(), words.as_flattened()].concat())?;
        without_signals(|| Ok(rustix::fs::ftruncate(&self.file, HEADER + len)?))?;
        // It was never mapped. The seal against existing mappings would make the kernel search for
        // them for milliseconds.
        Ok(rustix::fs::fcntl_add_seals(&self.file, SEALS)?)
    }

    fn is_finished(&self) -> Result<bool, Errno> {
        Ok(rustix::fs::fcntl_get_seals(&self.file)? == SEALS)
    }

    fn is_whole(&self, len: u64) -> Result<bool, Errno> {
        Ok(u64::try_from(rustix::fs::fstat(&self.file)?.st_size) == Ok(HEADER + len))
    }

    /// Number of the `len` bytes that were not received yet.
    ///
    /// # Errors
    /// Those of lseek(2).
    pub fn left(&self, len: u64) -> Result<u64, Errno> {
        if len == 0 || self.is_over.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let left = (HEADER + len).saturating_sub(rustix::fs::tell(&self.file)?);
        // More may be added before that, and may have been since the caller knew the number.
        if left == 0 && self.is_finished()? && self.is_whole(len)? {
            self.is_over.store(true, Ordering::Relaxed);
        }
        Ok(left)
    }

    /// Receives some of the `len` bytes; 0 means that none are left.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn receive(&self, len: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let room = self.room(len, into)?;
        rustix::io::retry_on_intr(|| rustix::io::read(&self.file, &mut *room))
    }

    /// As [`Self::receive`], but leaves them there, and begins with the `skip`th.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn peek(&self, len: u64, skip: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let left = self.left(len)?;
        if left <= skip {
            return Ok(0);
        }
        let at = HEADER + len - left + skip;
        let most = usize::try_from(left - skip).unwrap_or(usize::MAX).min(into.len());
        rustix::io::retry_on_intr(|| rustix::io::pread(&self.file, &mut into[..most], at))
    }

    fn room<'b>(&self, len: u64, into: &'b mut [u8]) -> Result<&'b mut [u8], Errno> {
        let left = usize::try_from(self.left(len)?).unwrap_or(usize::MAX);
        let most = left.min(into.len());
        Ok(&mut into[..most])
    }

    /// Sets whether the next program of this process, or one that it starts, gets it.
    pub fn pass_on(&self, on: bool) {
        let flags = if on { FdFlags::empty() } else { FdFlags::CLOEXEC };
        if rustix::io::fcntl_getfd(&self.file) == Ok(flags) {
            return;
        }
        let _ = rustix::io::fcntl_setfd(self.file.as_fd(), flags);
    }
}

/// Whether this user trusts a spill file that another one has left: root may have become this user.
fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

    use super::*;

    const BYTES: &[u8] = b"what the peer had sent";

    fn left() -> (UdpSocket, SpillFile) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let spill = SpillFile::new(Fd::from(&socket)).unwrap();
        spill.append(0, &BYTES[..5]).unwrap();
        spill.append(5, &BYTES[5..]).unwrap();
        (socket, spill)
    }

    fn duplicate(file: &impl AsFd) -> OwnedFd {
        file.as_fd().try_clone_to_owned().unwrap()
    }

    #[test]
    fn each_byte_is_received_once_by_whoever_has_it() {
        let (socket, spill) = left();
        let len = BYTES.len() as u64;
        let mut some = [0; 8];
        assert_eq!(spill.receive(len, &mut some[..3]), Ok(3));
        spill.finish(len).unwrap();
        spill.finish(len).unwrap();
        let successor = SpillFile::find(Fd::new(duplicate(&spill.file).into_raw_fd())).unwrap();
        assert_eq!(
            (successor.found_len(), successor.cookie()),
            (Some(len), socket::cookie(Fd::from(&socket)).unwrap())
        );
        assert_eq!(successor.left(len), Ok(len - 3));
        assert_eq!(successor.receive(len, &mut some), Ok(8));
        assert_eq!(&some, &BYTES[3..11]);
        assert_eq!(spill.peek(len, 2, &mut some), Ok(8));
        assert_eq!(&some, &BYTES[13..21]);
        let mut all = [0; 100];
        assert_eq!(spill.receive(len, &mut all), Ok(BYTES.len() - 11));
        assert_eq!(&all[..BYTES.len() - 11], &BYTES[11..]);
        assert_eq!((spill.left(len), successor.left(len)), (Ok(0), Ok(0)));
        assert_eq!(
            (successor.receive(len, &mut all), successor.peek(len, 0, &mut all)),
            (Ok(0), Ok(0))
        );
    }

    #[test]
    fn bytes_that_were_added_since_the_number_was_known_are_not_forgotten() {
        let (_socket, spill) = left();
        let (before, len) = (5, BYTES.len() as u64);
        let mut some = [0; 100];
        assert_eq!(spill.receive(before, &mut some), Ok(5));
        spill.finish(len).unwrap();
        assert_eq!(spill.left(before), Ok(0));
        assert_eq!(spill.receive(len, &mut some), Ok(BYTES.len() - 5));
        assert_eq!(&some[..BYTES.len() - 5], &BYTES[5..]);
        assert_eq!(spill.left(len), Ok(0));
    }

    #[test]
    fn those_who_receive_at_once_get_different_bytes() {
        const LEN: u64 = 1 << 20;
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let spill = SpillFile::new(Fd::from(&socket)).unwrap();
        let numbers: Vec<u8> = (0..LEN as u32 / 4).flat_map(u32::to_le_bytes).collect();
        spill.append(0, &numbers).unwrap();
        spill.finish(LEN).unwrap();
        let receive = || {
            let successor = SpillFile::find(Fd::new(duplicate(&spill.file).into_raw_fd())).unwrap();
            let (mut sum, mut count, mut piece) = (0, 0, [0; 4 * 25]);
            while let n @ 1.. = successor.receive(LEN, &mut piece).unwrap() {
                let words =
                    piece[..n].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
                sum += words.map(u64::from).sum::<u64>();
                count += n as u64;
            }
            (sum, count)
        };
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(receive)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let words = LEN / 4;
        let (sum, count) = all.iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        assert_eq!((sum, count), (words * (words - 1) / 2, LEN), "{all:?}");
    }

    #[test]
    fn nobody_changes_it_and_it_is_high() {
        let (_socket, spill) = left();
        let len = BYTES.len() as u64;
        spill.finish(len).unwrap();
        assert!(spill.fd().raw() >= LEAST);
        assert_eq!(rustix::io::pwrite(&spill.file, b"x", HEADER), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&spill.file, 0), Err(Errno::PERM));
        assert!(spill.append(len, b"more").is_err());
        let flags = || rustix::io::fcntl_getfd(&spill.file).unwrap();
        assert_eq!(flags(), FdFlags::CLOEXEC);
        spill.pass_on(true);
        assert_eq!(flags(), FdFlags::empty());
    }

    #[test]
    fn other_files_stay_where_they_are() {
        let made = |bytes: &[u8], seals| {
            let flags = MemfdFlags::CLOEXEC.union(MemfdFlags::ALLOW_SEALING);
            let file = rustix::fs::memfd_create(c"test", flags).unwrap();
            assert_eq!(rustix::io::write(&file, bytes), Ok(bytes.len()));
            rustix::fs::fcntl_add_seals(&file, seals).unwrap();
            file
        };
        let with =
            |len: u64| [&MAGIC[..], &7u64.to_le_bytes(), &len.to_le_bytes(), b"1234"].concat();
        let weak = SEALS.difference(rustix::fs::SealFlags::FUTURE_WRITE);
        for (bytes, seals) in [
            (with(4), weak),
            (with(3), SEALS),
            (with(5), SEALS),
            (with(u64::MAX - HEADER + 1), SEALS),
            (with(0)[..20].to_vec(), SEALS),
            ([&b"x"[..], &with(4)[1..]].concat(), SEALS),
        ] {
            let file = made(&bytes, seals);
            assert!(SpillFile::find(Fd::from(&file)).is_none(), "{bytes:?}");
            assert!(rustix::io::fcntl_getfd(&file).is_ok());
        }
        let other = std::fs::File::open("/proc/self/status").unwrap();
        assert!(SpillFile::find(Fd::new(other.as_raw_fd())).is_none());
        let (read, _write) = rustix::pipe::pipe().unwrap();
        assert!(SpillFile::find(Fd::from(&read)).is_none());
    }
}
