//! Keeps this library out of programs that cannot load it.
//!
//! A program passes LD_PRELOAD on to the programs that it starts. The loader of another C library,
//! such as musl's, maps this library, lacks functions of the GNU C library, and ends the program.
//! So before a program is started, its loader is looked up (PT_INTERP in elf(5)), and if that is
//! another one, LD_PRELOAD is passed on without this library. A program that loads this library
//! finds the unread bytes of sockets that it inherits ([`crate::found`]).
//!
//! This also runs in children of vfork, and of forks of programs with threads. It takes no lock.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::AT_FDCWD;
use rustix::fs::{Access, access, fgetxattr};
use rustix::process::{getegid, geteuid, getgid, getuid};
use seekwire_transport::Errno;
use seekwire_transport::sys::fd::LibraryFd;
use seekwire_transport::sys::{call, host};

use crate::ffi::guarded_raw;
use crate::{loaded, pointers, process};

/// A list of C strings that ends with a null pointer.
pub(crate) type Strings = *const *const c_char;

/// A program that is about to be started.
#[derive(Clone, Copy)]
pub(crate) enum ExecTarget {
    /// A path relative to the directory with this number.
    At(c_int, *const c_char),
    /// A name to search in PATH, unless it contains a slash.
    Named(*const c_char),
    /// An open file.
    Open(c_int),
}

/// Calls `start` with the environment for a program: `environment`, without this library if the
/// program could not load it.
///
/// # Safety
///
/// Pointers must be as execve(2) demands, or lead nowhere.
pub(crate) unsafe fn with_environment<T>(
    program: ExecTarget,
    environment: Strings,
    start: impl FnOnce(Strings) -> T,
) -> T {
    // SAFETY: as the caller promises.
    let look = || unsafe { program.file() }.and_then(|file| loader_of(&file));
    if !process::retreats() && guarded_raw(look).flatten() == Some(Loader::Other) {
        // SAFETY: as above.
        unsafe { without_library(environment, start) }
    } else {
        start(environment)
    }
}

/// The path of this library, as the loader knows it.
static OWN_FILE: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// Call it when the process starts.
pub(crate) fn start() {
    let own = loaded::object_of((&raw const OWN_FILE).cast());
    OWN_FILE.store(own.dli_fname.cast_mut(), Ordering::Relaxed);
}

impl ExecTarget {
    /// A program given as for execveat(2).
    ///
    /// # Safety
    ///
    /// As for [`with_environment`].
    pub(crate) unsafe fn of_execveat(directory: c_int, path: *const c_char, flags: c_int) -> Self {
        // SAFETY: it can be read.
        let is_empty = || pointers::can_read(path, 1) && unsafe { *path } == 0;
        if flags & libc::AT_EMPTY_PATH != 0 && is_empty() {
            Self::Open(directory)
        } else {
            Self::At(directory, path)
        }
    }

    /// True if the program is certain to load this library, with the library switched on.
    ///
    /// # Safety
    ///
    /// As for [`with_environment`].
    pub(crate) unsafe fn loads_library(self, environment: Strings) -> bool {
        let look = || {
            // SAFETY: as the caller promises.
            let file = unsafe { self.file() }?;
            let is_loaded = loader_of(&file)? == Loader::Gnu && !changes_rights(&file)?;
            // SAFETY: as above.
            Some(is_loaded && unsafe { is_wanted(environment) }? && sees_numbers())
        };
        !process::retreats() && !process::is_filtered() && guarded_raw(look).flatten() == Some(true)
    }

    /// The file that the kernel runs, after following scripts. `None` if that is unknown.
    ///
    /// # Safety
    ///
    /// As for [`with_environment`].
    unsafe fn file(self) -> Option<LibraryFd> {
        /// Maximum number of interpreters that the kernel follows.
        const SCRIPTS: usize = 5;
        /// Number of bytes of a script that the kernel reads (BINPRM_BUF_SIZE).
        const HEAD: usize = 256;
        // SAFETY: as the caller promises.
        let mut file = unsafe { self.open() }?;
        for _ in 0..SCRIPTS {
            let mut head = [0; HEAD];
            let len = rustix::io::pread(&file, &mut head, 0).ok()?;
            let Some(line) = head[..len].strip_prefix(b"#!") else { return Some(file) };
            let line = line.split(|byte| *byte == b'\n').next()?;
            let name = line.split(|byte| b" \t".contains(byte)).find(|word| !word.is_empty())?;
            let mut path = [0; HEAD];
            path[..name.len()].copy_from_slice(name);
            file = open(AT_FDCWD, path.as_ptr().cast())?;
        }
        None
    }

    /// # Safety
    ///
    /// As for [`with_environment`].
    unsafe fn open(self) -> Option<LibraryFd> {
        match self {
            Self::At(directory, path) => open(directory, path),
            // SAFETY: as the caller promises.
            Self::Named(name) => unsafe { search(name) },
            Self::Open(number) => {
                let mut path = [0; 32];
                let digits = rustix::path::DecInt::new(number);
                write(&mut path, [b"/proc/self/fd/", digits.as_bytes()])?;
                open(AT_FDCWD, path.as_ptr().cast())
            }
        }
    }
}

/// Opens a file for reading. The kernel rejects a bad pointer.
fn open(directory: c_int, path: *const c_char) -> Option<LibraryFd> {
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let arguments =
        [directory as usize, path.expose_provenance(), flags.cast_unsigned() as usize, 0, 0, 0];
    // SAFETY: the kernel reads a C string.
    let number = unsafe { call(libc::SYS_openat, arguments) }.ok()?;
    // SAFETY: a new descriptor, which nothing else uses.
    Some(LibraryFd::from(unsafe { OwnedFd::from_raw_fd(number as c_int) }))
}

/// Finds a program as execvp(3) does. A file that is executable but not readable is skipped.
///
/// # Safety
///
/// `name` must be a C string.
unsafe fn search(name: *const c_char) -> Option<LibraryFd> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    if bytes.contains(&b'/') {
        return open(AT_FDCWD, name);
    }
    // SAFETY: a C string. The program must not change the environment at the same time.
    let places = unsafe { libc::getenv(c"PATH".as_ptr()) };
    let places = if places.is_null() {
        &b"/bin:/usr/bin"[..]
    } else {
        // SAFETY: the value of a variable.
        unsafe { CStr::from_ptr(places) }.to_bytes()
    };
    places.split(|byte| *byte == b':').find_map(|place| {
        let mut path = [0; libc::PATH_MAX as usize];
        let slash: &[u8] = if place.is_empty() { b"" } else { b"/" };
        write(&mut path, [place, slash, bytes])?;
        open(AT_FDCWD, path.as_ptr().cast()).filter(is_executable)
    })
}

fn is_executable(file: &LibraryFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|about| {
        about.st_mode & libc::S_IFMT == libc::S_IFREG && about.st_mode & 0o111 != 0
    })
}

/// Writes the parts one after the other, and a zero. Returns their length, or `None` if there is no
/// room.
fn write<const N: usize>(room: &mut [u8], parts: [&[u8]; N]) -> Option<usize> {
    let mut end = 0;
    for part in parts {
        room.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    *room.get_mut(end)? = 0;
    Some(end)
}

/// The program that loads the libraries of another one.
#[derive(Clone, Copy, PartialEq)]
enum Loader {
    /// The loader of the GNU C library.
    Gnu,
    /// Another loader, or one for another kind of machine.
    Other,
    /// No loader: the program has no libraries.
    None,
}

/// The loader that a program requests. `None` if that is unknown.
fn loader_of(file: &LibraryFd) -> Option<Loader> {
    // elf(5)
    const OWN_KIND: [u8; 2] = [2, 1];
    const OWN_MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    const PT_INTERP: u32 = 3;
    /// The kernel accepts at most 64 KiB of headers.
    const MOST: u16 = (65536 / 56) as u16;
    let mut header = [0; 64];
    if rustix::io::pread(file, &mut header, 0).ok()? < header.len() {
        return None;
    }
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    if !header.starts_with(b"\x7fELF") {
        return None;
    }
    if header[4..6] != OWN_KIND || half(18) != OWN_MACHINE {
        return Some(Loader::Other);
    }
    let entries = u64::from_le_bytes(*header[32..].first_chunk()?);
    for number in 0..u64::from(half(56).min(MOST)) {
        let mut entry = [0; 56];
        let at = entries.checked_add(number * u64::from(half(54)))?;
        if rustix::io::pread(file, &mut entry, at).ok()? < entry.len() {
            return None;
        }
        if u32::from_le_bytes(*entry.first_chunk()?) == PT_INTERP {
            let word = |at: usize| entry[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
            let (offset, length) = (word(8)?, word(32)?);
            // The end of the path suffices.
            let mut name = [0; 256];
            let len = length.min(name.len() as u64);
            let read = rustix::io::pread(
                file,
                &mut name[..len as usize],
                offset.checked_add(length - len)?,
            );
            let path = name[..read.ok()?].strip_suffix(b"\0")?;
            let is_gnu = host::is_gnu_loader(file_name(path));
            return Some(if is_gnu { Loader::Gnu } else { Loader::Other });
        }
    }
    Some(Loader::None)
}

/// True if a program may get other privileges than its parent's, or starts with different real and
/// effective users or groups: its loader then takes no libraries from the environment.
fn changes_rights(file: &LibraryFd) -> Option<bool> {
    if getuid() != geteuid() || getgid() != getegid() {
        return Some(true);
    }
    let mode = rustix::fs::fstat(file).ok()?.st_mode;
    let mut capabilities = [0u8; 64];
    let has_capabilities = match fgetxattr(file, c"security.capability", &mut capabilities[..]) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => false,
        Ok(_) | Err(_) => true,
    };
    Some(mode & (libc::S_ISUID | libc::S_ISGID) != 0 || has_capabilities)
}

/// True if an environment names this library at its place, and has it switched on. `None` if it
/// cannot be read.
///
/// # Safety
///
/// As for [`with_environment`].
unsafe fn is_wanted(environment: Strings) -> Option<bool> {
    let (mut is_named, mut is_on) = (None, None);
    let look = |string: &[u8]| {
        if let Some(value) = string.strip_prefix(VARIABLE) {
            // The loader takes the last definition.
            is_named =
                Some(value.split(is_separator).any(|entry| is_own(entry) && is_there(entry)));
        } else if let Some(value) = string.strip_prefix(b"SEEKWIRE=") {
            is_on.get_or_insert(value == b"on");
        }
    };
    // SAFETY: as the caller promises.
    unsafe { each_variable(environment, look) }?;
    Some(is_named == Some(true) && is_on != Some(false))
}

/// Calls `work` for each variable, and returns their number. `None` if they cannot be read.
///
/// # Safety
///
/// As for [`with_environment`].
unsafe fn each_variable(environment: Strings, mut work: impl FnMut(&[u8])) -> Option<usize> {
    if environment.is_null() {
        return Some(0);
    }
    for at in 0.. {
        let place = environment.wrapping_add(at);
        if !pointers::can_read(place, 1) {
            return None;
        }
        // SAFETY: it can be read.
        let entry = unsafe { *place };
        if entry.is_null() {
            return Some(at);
        }
        if !pointers::can_read(entry, 1) {
            return None;
        }
        // SAFETY: a C string, as the caller promises.
        work(unsafe { CStr::from_ptr(entry) }.to_bytes());
    }
    None
}

/// True if a program that starts now can read its list of descriptors.
fn sees_numbers() -> bool {
    access(c"/proc/self/fd", Access::READ_OK).is_ok()
}

const VARIABLE: &[u8] = b"LD_PRELOAD=";

/// Calls `start` with an environment in which LD_PRELOAD does not name this library.
///
/// The list is on the stack: memory allocated by a child of vfork would stay allocated in its
/// parent. Only a very long environment needs such memory.
///
/// # Safety
///
/// As for [`with_environment`].
#[cold]
#[inline(never)]
unsafe fn without_library<T>(environment: Strings, start: impl FnOnce(Strings) -> T) -> T {
    // SAFETY: as the caller promises.
    let Some((count, length)) = guarded_raw(|| unsafe { measure(environment) }).flatten() else {
        return start(environment);
    };
    let (mut few, mut many) = ([ptr::null(); 256], Vec::new());
    let (mut short, mut long) = ([0; 1024], Vec::new());
    let rooms = guarded_raw(|| {
        Some((room(&mut few, &mut many, count + 1)?, room(&mut short, &mut long, length)?))
    });
    let Some((list, mut text)) = rooms.flatten() else { return start(environment) };
    let mut end = 0;
    for at in 0..count {
        // SAFETY: the list has this many C strings.
        let (entry, string) = unsafe {
            let entry = *environment.add(at);
            (entry, CStr::from_ptr(entry).to_bytes())
        };
        list[end] = entry;
        if let Some(value) = string.strip_prefix(VARIABLE) {
            // The new value is no longer than the old one.
            let Some((place, rest)) = text.split_at_mut_checked(string.len() + 1) else { break };
            text = rest;
            if !leave_out(value, place) {
                continue;
            }
            list[end] = place.as_ptr().cast();
        }
        end += 1;
    }
    list[end] = ptr::null();
    start(list.as_ptr())
}

/// Writes LD_PRELOAD with the other libraries in `value`. Returns false if there are none.
fn leave_out(value: &[u8], place: &mut [u8]) -> bool {
    let mut end = 0;
    for other in others(value) {
        let before = if end == 0 { VARIABLE } else { b":" };
        end += write(&mut place[end..], [before, other]).unwrap_or(0);
    }
    end > 0
}

/// Room for `count` values, in `few` if that is large enough. `None` if there is no memory.
fn room<'a, T: Copy>(few: &'a mut [T], many: &'a mut Vec<T>, count: usize) -> Option<&'a mut [T]> {
    if count <= few.len() {
        return Some(few);
    }
    many.try_reserve_exact(count).ok()?;
    many.resize(count, few[0]);
    Some(many)
}

/// The number of variables, and the total length of those that name this library; `None` if none
/// does, or they cannot be read.
///
/// # Safety
///
/// As for [`with_environment`].
unsafe fn measure(environment: Strings) -> Option<(usize, usize)> {
    let (mut length, mut is_named) = (0, false);
    let look = |string: &[u8]| {
        if let Some(value) = string.strip_prefix(VARIABLE) {
            let entries = || value.split(is_separator).filter(|entry| !entry.is_empty());
            is_named |= others(value).count() < entries().count();
            length += string.len() + 1;
        }
    };
    // SAFETY: as the caller promises.
    let count = unsafe { each_variable(environment, look) }?;
    is_named.then_some((count, length))
}

fn is_separator(byte: &u8) -> bool {
    b" :".contains(byte)
}

/// The other libraries in a value of LD_PRELOAD.
fn others(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(is_separator).filter(|entry| !entry.is_empty() && !is_own(entry))
}

/// True if an entry of LD_PRELOAD names this library or a copy of it.
fn is_own(entry: &[u8]) -> bool {
    let own = OWN_FILE.load(Ordering::Relaxed);
    // SAFETY: null, or a C string that stays as long as this library does.
    let own = if own.is_null() { &[] } else { unsafe { CStr::from_ptr(own) }.to_bytes() };
    let name = file_name(entry);
    let behind = name.strip_prefix(b"libseekwire.so");
    name == file_name(own) || behind.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

/// True if a loader is certain to find this entry: other paths depend on the directory in which the
/// program starts.
fn is_there(entry: &[u8]) -> bool {
    let mut path = [0; libc::PATH_MAX as usize];
    entry.starts_with(b"/")
        && write(&mut path, [entry]).is_some()
        && CStr::from_bytes_until_nul(&path).is_ok_and(|path| access(path, Access::READ_OK).is_ok())
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}
