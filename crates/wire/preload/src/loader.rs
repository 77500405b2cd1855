//! Keeps this library out of programs that cannot load it.
//!
//! A program passes LD_PRELOAD on to those that it starts. The loader of another C library, such as
//! musl's, maps this library, misses functions of the GNU C library in it, and ends the program. So
//! whoever starts a program has its loader looked up (PT_INTERP in elf(5)), and passes LD_PRELOAD
//! on without this library if that is another one. If the program loads this library, it finds the
//! unread bytes of sockets that it inherits ([`crate::found`]).
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
use seekwire_transport::sys::fd::Opened;
use seekwire_transport::sys::{call, host};

use crate::ffi::guarded_raw;
use crate::{filter, loaded, pointers, process};

/// A list of C strings that ends with a null pointer.
pub(crate) type Strings = *const *const c_char;

/// A program that is about to be started.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    /// A path, from the directory with this number.
    At(c_int, *const c_char),
    /// A name that is looked for in PATH unless it has a slash.
    Named(*const c_char),
    /// An open file.
    Open(c_int),
}

/// Calls `start` with the environment for a program: `environment`, without this library if the
/// program could not load it.
///
/// # Safety
///
/// Pointers must be as execve(2) wants them, or lead nowhere.
pub(crate) unsafe fn with_environment<T>(
    program: Program,
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

/// The path of this library, as the loader has it.
static OWN_FILE: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// To be called when the process starts.
pub(crate) fn start() {
    let found = loaded::object_of((&raw const OWN_FILE).cast());
    OWN_FILE.store(found.dli_fname.cast_mut(), Ordering::Relaxed);
}

impl Program {
    /// A program as execveat(2) is given it.
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

    /// Whether the program is certain to load this library, and to have it on.
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
        !process::retreats() && !filter::is_in_place() && guarded_raw(look).flatten() == Some(true)
    }

    /// The file that the kernel runs, behind scripts. `None` if that cannot be seen.
    ///
    /// # Safety
    ///
    /// As for [`with_environment`].
    unsafe fn file(self) -> Option<Opened> {
        /// The kernel follows so many interpreters.
        const SCRIPTS: usize = 5;
        /// The kernel looks at so many bytes of a script (BINPRM_BUF_SIZE).
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
    unsafe fn open(self) -> Option<Opened> {
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

/// Opens a file to read. A bad pointer is the kernel's to refuse.
fn open(directory: c_int, path: *const c_char) -> Option<Opened> {
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let arguments =
        [directory as usize, path.expose_provenance(), flags.cast_unsigned() as usize, 0, 0, 0];
    // SAFETY: the kernel reads a C string.
    let number = unsafe { call(libc::SYS_openat, arguments) }.ok()?;
    // SAFETY: a new descriptor, which nobody else knows of.
    Some(Opened::from(unsafe { OwnedFd::from_raw_fd(number as c_int) }))
}

/// Finds a program as execvp(3) does. One that may be executed and not read is passed over.
///
/// # Safety
///
/// `name` must be a C string.
unsafe fn search(name: *const c_char) -> Option<Opened> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    if bytes.contains(&b'/') {
        return open(AT_FDCWD, name);
    }
    // SAFETY: a C string. That nobody changes the environment meanwhile is up to the program.
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

fn is_executable(file: &Opened) -> bool {
    rustix::fs::fstat(file).is_ok_and(|about| {
        about.st_mode & libc::S_IFMT == libc::S_IFREG && about.st_mode & 0o111 != 0
    })
}

/// Writes one part behind the other, and a zero. Returns their length, `None` if there is no room.
fn write<const N: usize>(room: &mut [u8], parts: [&[u8]; N]) -> Option<usize> {
    let mut end = 0;
    for part in parts {
        room.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    *room.get_mut(end)? = 0;
    Some(end)
}

/// A program that loads the libraries of another one.
#[derive(Clone, Copy, PartialEq)]
enum Loader {
    /// The GNU C library's.
    Gnu,
    /// Another one, or one for another machine.
    Other,
    /// There is none: the program has no libraries.
    None,
}

/// The loader that a program asks for. `None` if that cannot be seen.
fn loader_of(file: &Opened) -> Option<Loader> {
    // elf(5)
    const OWN_KIND: [u8; 2] = [2, 1];
    const OWN_MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    const PT_INTERP: u32 = 3;
    /// The kernel takes 64 KiB of headers.
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
            // The end of the path is enough.
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

/// Whether a program may have other rights than who starts it, or begins with two users or groups:
/// its loader takes no libraries from the environment then.
fn changes_rights(file: &Opened) -> Option<bool> {
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

/// Whether an environment names this library where it is, and has it on. `None` if it cannot be read.
///
/// # Safety
///
/// As for [`with_environment`].
unsafe fn is_wanted(environment: Strings) -> Option<bool> {
    let (mut is_named, mut is_on) = (None, None);
    let look = |string: &[u8]| {
        if let Some(value) = string.strip_prefix(VARIABLE) {
            // The loader takes the last one.
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

/// Does something with each variable, and returns how many there are. `None` if they cannot be read.
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

/// Whether a program that begins now can look at the numbers that it has.
fn sees_numbers() -> bool {
    access(c"/proc/self/fd", Access::READ_OK).is_ok()
}

const VARIABLE: &[u8] = b"LD_PRELOAD=";

/// Calls `start` with an environment in which LD_PRELOAD does not name this library.
///
/// The list is on the stack: memory that a child of vfork takes would stay with its parent for
/// ever. Only a very long environment needs such memory.
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
        // SAFETY: the list has so many C strings.
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

/// Writes LD_PRELOAD with the other libraries in `value`. False if there are none.
fn leave_out(value: &[u8], place: &mut [u8]) -> bool {
    let mut end = 0;
    for other in others(value) {
        let before = if end == 0 { VARIABLE } else { b":" };
        end += write(&mut place[end..], [before, other]).unwrap_or(0);
    }
    end > 0
}

/// Room for so many, of the given one if that is enough. `None` if there is no memory.
fn room<'a, T: Copy>(few: &'a mut [T], many: &'a mut Vec<T>, count: usize) -> Option<&'a mut [T]> {
    if count <= few.len() {
        return Some(few);
    }
    many.try_reserve_exact(count).ok()?;
    many.resize(count, few[0]);
    Some(many)
}

/// How many variables there are, and how many bytes have those that name this library; `None` if
/// none does, or they cannot be read.
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

/// The libraries in a value of LD_PRELOAD besides this one.
fn others(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(is_separator).filter(|entry| !entry.is_empty() && !is_own(entry))
}

/// Whether an entry of LD_PRELOAD names this library or a copy of it.
fn is_own(entry: &[u8]) -> bool {
    let own = OWN_FILE.load(Ordering::Relaxed);
    // SAFETY: null, or a C string that stays as long as this library does.
    let own = if own.is_null() { &[] } else { unsafe { CStr::from_ptr(own) }.to_bytes() };
    let name = file_name(entry);
    let behind = name.strip_prefix(b"libseekwire.so");
    name == file_name(own) || behind.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

/// Whether a loader is certain to find this entry: other paths depend on where the program begins.
fn is_there(entry: &[u8]) -> bool {
    let mut path = [0; libc::PATH_MAX as usize];
    entry.starts_with(b"/")
        && write(&mut path, [entry]).is_some()
        && CStr::from_bytes_until_nul(&path).is_ok_and(|path| access(path, Access::READ_OK).is_ok())
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}
