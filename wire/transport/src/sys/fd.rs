//! File descriptors by number. The application owns them; this library only names them.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A file descriptor that the caller does not own: its owner may close it at any time, as with
/// every use of a number in C, and a call on a closed one fails with EBADF.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Fd(i32);

impl Fd {
    /// Names a descriptor; -1 stands for none.
    #[must_use]
    pub const fn new(raw: i32) -> Self {
        Self(raw)
    }

    /// The number.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }

    #[inline]
    pub(crate) fn borrow(&self) -> BorrowedFd<'_> {
        // BorrowedFd forbids -1 alone; any other number that is not open gives EBADF.
        let raw = if self.0 == -1 { i32::MAX } else { self.0 };
        // SAFETY: not -1. The descriptor may be closed by its owner meanwhile; this crate then gets
        // an error or another file's data, as any C program would, but no memory is touched through
        // it.
        unsafe { BorrowedFd::borrow_raw(raw) }
    }
}

impl<F: AsRawFd> From<&F> for Fd {
    fn from(fd: &F) -> Self {
        Self(fd.as_raw_fd())
    }
}

/// Another descriptor of a file that this process was started with, whose number its environment
/// names.
///
/// # Errors
/// EBADF if no file has this number; EMFILE.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(rustix::io::Errno::BADF.into());
    }
    // Not one of the numbers of the standard streams, even if these are closed.
    Ok(rustix::io::fcntl_dupfd_cloexec(Fd::new(number).borrow(), 3)?)
}

/// The open numbers from `first` on, as the kernel lists them.
///
/// # Errors
/// Those of open(2), lseek(2) and getdents(2): there may be no /proc.
pub fn open_from(first: i32) -> io::Result<Vec<Fd>> {
    use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
    /// The kernel counts the two entries that are no numbers, and then by numbers.
    const BEFORE: u64 = 2;
    let flags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    let directory = LibraryFd::from(rustix::fs::open("/proc/self/fd", flags, Mode::empty())?);
    if let Ok(first @ 1..) = u64::try_from(first) {
        rustix::fs::seek(&directory, SeekFrom::Start(BEFORE + first))?;
    }
    let mut space = [std::mem::MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(&directory, &mut space);
    let mut numbers = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let number = std::str::from_utf8(entry.file_name().to_bytes())
            .ok()
            .and_then(|name| name.parse().ok());
        numbers.extend(number.map(Fd::new).filter(|fd| *fd != Fd::from(&directory.as_fd())));
    }
    Ok(numbers)
}

/// Makes `number`, which is open, stand for another file; does not change whether it survives exec.
///
/// # Errors
/// Those of dup3(2).
pub fn replace(number: Fd, by: &impl AsFd) -> io::Result<()> {
    use rustix::io::{DupFlags, FdFlags};
    let is_closed_at_exec = rustix::io::fcntl_getfd(number.borrow())?.contains(FdFlags::CLOEXEC);
    let flags = if is_closed_at_exec { DupFlags::CLOEXEC } else { DupFlags::empty() };
    // SAFETY: it stays the application's, which does not learn that it was closed.
    let mut application = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number.raw()) });
    Ok(rustix::io::dup3(by, &mut application, flags)?)
}

/// The lowest number of the library's own descriptors; 0 leaves them where the kernel puts them.
static FLOOR: AtomicI32 = AtomicI32::new(0);

/// One bit per descriptor number: set for the library's own.
static PLACED: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];
/// Numbers for which the library tracks whether they are its own: Linux's default for fs.nr_open.
const NUMBERS: usize = 1 << 20;

/// From now on the library's own descriptors get numbers from `floor` on, even above the soft
/// limit, so that the application gets the same numbers, and as many, as without the library
/// (select() cannot handle numbers over 1023, and an application may rely on EMFILE).
pub fn set_floor(floor: i32) {
    FLOOR.store(floor, Ordering::Relaxed);
}

/// Whether a number is one of the library's own descriptors.
#[inline]
#[must_use]
pub fn is_placed(fd: Fd) -> bool {
    let Ok(number) = usize::try_from(fd.raw()) else { return false };
    PLACED
        .get(number / 64)
        .is_some_and(|word| word.load(Ordering::Relaxed) >> (number % 64) & 1 != 0)
}

/// The library's own descriptors within a range of numbers, ascending.
pub fn placed_in(first: i32, last: i32) -> impl Iterator<Item = Fd> {
    let first = usize::try_from(first).unwrap_or(0) / 64;
    let last = (usize::try_from(last).unwrap_or(0) / 64).min(PLACED.len() - 1);
    let words = (first..=last).filter(|word| PLACED[*word].load(Ordering::Relaxed) != 0);
    words
        .flat_map(|word| (word * 64..word * 64 + 64).map(|number| Fd::new(number as i32)))
        .filter(|fd| is_placed(*fd))
}

/// A descriptor that the library has opened, with whatever number the kernel chose.
///
/// It is closed by the system call itself. libc's close() is the preload library's, for which the
/// number may still be a socket that the application has closed unseen; and the library would be
/// re-entered, perhaps under a lock.
#[derive(Debug)]
pub struct LibraryFd(ManuallyDrop<OwnedFd>);

impl From<OwnedFd> for LibraryFd {
    fn from(fd: OwnedFd) -> Self {
        Self(ManuallyDrop::new(fd))
    }
}

impl LibraryFd {
    /// Another descriptor of a file of the application.
    ///
    /// # Errors
    /// EBADF, EMFILE.
    pub fn duplicate(fd: Fd) -> io::Result<Self> {
        Ok(rustix::io::fcntl_dupfd_cloexec(fd.borrow(), 0)?.into())
    }
}

impl AsFd for LibraryFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for LibraryFd {
    fn drop(&mut self) {
        // SAFETY: it was owned, is not dropped elsewhere, and is not used again.
        unsafe { rustix::io::close(self.0.as_raw_fd()) }
    }
}

/// A descriptor of the library's own, out of the application's way.
///
/// The kernel hands out the lowest free number, which may be one that another thread of the
/// application has just closed and believes to be closed: so every new descriptor is moved at once.
#[derive(Debug)]
pub struct PrivateFd(LibraryFd);

impl PrivateFd {
    /// Moves a descriptor above the floor.
    ///
    /// # Errors
    /// EMFILE or EINVAL if the limits on descriptors leave no room there.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Self::place(fd.into())
    }

    /// Moves a descriptor that the library has opened above the floor.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn place(fd: LibraryFd) -> io::Result<Self> {
        let floor = FLOOR.load(Ordering::Relaxed);
        let is_above = fd.as_fd().as_raw_fd() >= floor;
        let placed = Self(if is_above { fd } else { duplicate_above(fd.as_fd(), floor)? });
        placed.mark(true);
        Ok(placed)
    }

    /// Takes over a descriptor with which this process was started, and which nothing else in it
    /// knows. It does not survive the next exec.
    ///
    /// # Errors
    /// As [`Self::new`]; EBADF.
    pub fn adopt(fd: Fd) -> io::Result<Self> {
        rustix::io::fcntl_setfd(fd.borrow(), rustix::io::FdFlags::CLOEXEC)?;
        // SAFETY: it is open, and the caller claims that nothing else uses its number.
        Self::new(unsafe { OwnedFd::from_raw_fd(fd.raw()) })
    }

    /// Another descriptor of a file of the application.
    ///
    /// # Errors
    /// As [`Self::new`]; EBADF.
    pub fn duplicate(fd: Fd) -> io::Result<Self> {
        let placed = Self(duplicate_above(fd.borrow(), FLOOR.load(Ordering::Relaxed))?);
        placed.mark(true);
        Ok(placed)
    }

    /// Its number.
    #[must_use]
    pub fn fd(&self) -> Fd {
        Fd::new(self.as_fd().as_raw_fd())
    }

    fn mark(&self, own: bool) {
        let number = self.0.as_fd().as_raw_fd() as usize;
        if let Some(word) = PLACED.get(number / 64) {
            let bit = 1 << (number % 64);
            if own {
                word.fetch_or(bit, Ordering::Relaxed)
            } else {
                word.fetch_and(!bit, Ordering::Relaxed)
            };
        }
    }
}

impl Drop for PrivateFd {
    fn drop(&mut self) {
        self.mark(false);
    }
}

impl AsFd for PrivateFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The kernel compares a number with the soft limit only when it hands it out, so the limit is
/// raised for that moment and the application never sees another one.
fn duplicate_above(fd: BorrowedFd<'_>, floor: i32) -> io::Result<LibraryFd> {
    let error = match rustix::io::fcntl_dupfd_cloexec(fd, floor) {
        Ok(placed) => return Ok(placed.into()),
        Err(error) => error,
    };
    let (soft, hard) = super::limit::descriptor_limit();
    // Some programs lower both limits to their own needs (memcached).
    let lowered = if hard > soft { soft } else { soft / 4 * 3 };
    let floor = i32::try_from(lowered).map_or(floor, |lowered| lowered.min(floor));
    with_all_numbers(|| rustix::io::fcntl_dupfd_cloexec(fd, floor))
        .map(LibraryFd::from)
        .map_err(|_| error.into())
}

/// The soft limit of descriptors that a thread has raised for a moment, plus 2: [`RAISES`] while it
/// is about to, and 0 while none has.
static RAISED: AtomicU64 = AtomicU64::new(0);
const RAISES: u64 = 1;

/// Runs code that needs numbers above the soft limit of descriptors.
pub fn with_all_numbers<T>(work: impl FnOnce() -> T) -> T {
    /// A thread that has raised the limit needs it for microseconds. It may be this one, interrupted
    /// by a signal handler, or be in a handler that waits for this one: then the limit stays as it
    /// is now.
    const LOOKS: u32 = 10_000;
    let begins = |_| {
        let begins =
            RAISED.compare_exchange(0, RAISES, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !begins {
            std::thread::yield_now();
        }
        begins
    };
    if !(0..LOOKS).any(begins) {
        return work();
    }
    let (soft, hard) = super::limit::descriptor_limit();
    if hard > soft {
        RAISED.store(soft.saturating_add(2), Ordering::Relaxed);
        let _ = super::limit::set_descriptor_limit(hard);
    }
    let result = work();
    lower();
    result
}

/// Sets the limit back to what the program wants.
fn lower() {
    if let Some(soft) = RAISED.load(Ordering::Relaxed).checked_sub(2) {
        let _ = super::limit::set_descriptor_limit(soft);
    }
    RAISED.store(0, Ordering::Release);
}

/// To be called in the child of a fork, which lacks the thread that has raised the limit.
pub fn after_fork_child() {
    lower();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri duplicates no sockets")]
    fn a_file_is_inherited_by_its_number_only_where_there_is_one() {
        use std::io::{Read, Write};
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let inherited = inherited(ours.as_raw_fd()).unwrap();
        assert_ne!(inherited.as_raw_fd(), ours.as_raw_fd());
        std::os::unix::net::UnixStream::from(inherited).write_all(b"x").unwrap();
        let mut byte = [0];
        (&theirs).read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
        for number in [i32::MIN, -2, -1, i32::MAX] {
            let error = super::inherited(number).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no /proc")]
    fn open_numbers_are_told_from_any_of_them_on() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let high = rustix::io::fcntl_dupfd_cloexec(&read, 700).unwrap();
        let numbers = [&read, &write, &high].map(Fd::from);
        for first in [0, 1, numbers[0].raw(), 700, high.as_raw_fd(), high.as_raw_fd() + 1] {
            let open = open_from(first).unwrap();
            assert!(open.iter().all(|fd| fd.raw() >= first), "{first}: {open:?}");
            for number in numbers {
                assert_eq!(open.contains(&number), number.raw() >= first, "{first}: {open:?}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri knows no limits on descriptors")]
    fn placed_descriptors_are_high_known_and_forgotten() {
        let (soft, hard) = super::super::limit::descriptor_limit();
        let floor = if hard > soft { soft as i32 } else { soft as i32 / 4 * 3 };
        let (read, _write) = rustix::pipe::pipe().unwrap();
        let placed = PrivateFd(duplicate_above(read.as_fd(), floor).unwrap());
        placed.mark(true);
        let number = Fd::from(&placed.as_fd());
        assert!(number.raw() >= floor);
        assert!(is_placed(number) && !is_placed(Fd::from(&read)) && !is_placed(Fd::new(-1)));
        assert_eq!(placed_in(floor, i32::MAX).filter(|fd| *fd == number).count(), 1);
        assert_eq!(super::super::limit::descriptor_limit(), (soft, hard));
        drop(placed);
        assert!(!is_placed(number));
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no processes")]
    fn neither_a_handler_nor_a_child_waits_for_a_thread_that_cannot_go_on() {
        use super::super::{limit, process};
        with_all_numbers(|| {
            // As a handler that has interrupted this thread.
            with_all_numbers(|| ());
            let soft = RAISED.load(Ordering::Relaxed).checked_sub(2);
            // As another thread that forks.
            // SAFETY: the copy takes no lock, and ends with exit.
            let child = unsafe { process::copy() }.unwrap();
            if child == 0 {
                after_fork_child();
                with_all_numbers(|| ());
                let is_low = soft.is_none_or(|soft| limit::descriptor_limit().0 == soft);
                process::exit(i32::from(!is_low));
            }
            assert_eq!(process::status(child), Some(0));
        });
    }
}
