//! Program files: their kind, and whether the dynamic loader can load a library into them.
//!
//! Program files are untrusted. They are read by the `object` crate, which checks every offset and
//! length against the file; a private parser of a hundred lines would have to repeat just that.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache, elf};
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags};
use seekwire_transport::sys::host;

/// Why no library can be loaded into a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// No dynamic loader is involved.
    Static,
    /// The library is for another machine.
    OtherMachine,
    /// It needs the loader of another C library, named here.
    OtherLoader(PathBuf),
    /// The Go runtime makes system calls without the C library.
    Go,
    /// The kernel raises privileges, and the loader ignores LD_PRELOAD then.
    Privileged(Privilege),
}

/// How a program file raises privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Privilege {
    SetUser,
    SetGroup,
    Capabilities,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static => f.write_str("is statically linked; use a dynamically linked build"),
            Self::OtherMachine => f.write_str(
                "is built for another architecture than the library; use a build for this machine's architecture",
            ),
            Self::OtherLoader(loader) => write!(
                f,
                "uses the loader {}, not the GNU C library's; use a build for the GNU C library",
                loader.display()
            ),
            Self::Go => f.write_str(
                "is written in Go, which makes system calls without the C library; its connections stay on TCP",
            ),
            Self::Privileged(privilege) => {
                f.write_str(match privilege {
                    Privilege::SetUser => "is set-user-id",
                    Privilege::SetGroup => "is set-group-id",
                    Privilege::Capabilities => "has file capabilities",
                })?;
                f.write_str(", so the dynamic loader ignores LD_PRELOAD; run it as the user whose rights it needs")
            }
        }
    }
}

/// Why a program cannot be run at all.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unrunnable {
    NotFound,
    NotExecutable,
}

/// Finds `program` as execvp(3) does: as it stands when it has a slash, else in the directories of
/// `PATH`.
pub(crate) fn resolve(program: &OsStr) -> Result<PathBuf, Unrunnable> {
    if program.is_empty() {
        return Err(Unrunnable::NotFound);
    }
    if program.as_bytes().contains(&b'/') {
        return runnable(PathBuf::from(program));
    }
    // The default of execvp(3) when PATH is not set.
    let path = env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let mut outcome = Err(Unrunnable::NotFound);
    for directory in env::split_paths(&path) {
        match runnable(Path::new(".").join(directory).join(program)) {
            Ok(executable) => return Ok(executable),
            Err(Unrunnable::NotExecutable) => outcome = Err(Unrunnable::NotExecutable),
            Err(Unrunnable::NotFound) => {}
        }
    }
    outcome
}

fn runnable(path: PathBuf) -> Result<PathBuf, Unrunnable> {
    match path.metadata() {
        Err(_) => Err(Unrunnable::NotFound),
        // accessat with the effective identity, which execve(2) checks.
        Ok(metadata)
            if metadata.is_file()
                && rustix::fs::accessat(CWD, &path, Access::EXEC_OK, AtFlags::EACCESS).is_ok() =>
        {
            Ok(path)
        }
        Ok(_) => Err(Unrunnable::NotExecutable),
    }
}

/// The reason why the loader could not load `library` when `program` is executed; None if no reason
/// is visible.
///
/// Follows `#!` lines, and the `env NAME` in them. A file that cannot be read (execute permission
/// alone is enough to run it) is not judged.
pub(crate) fn obstacle(program: &Path, library: &Path) -> Option<Obstacle> {
    let ours = read_elf(library);
    let mut file = program.to_path_buf();
    // The kernel follows this many interpreters.
    for _ in 0..5 {
        let metadata = file.metadata().ok().filter(Metadata::is_file)?;
        match interpreter(&file) {
            Some(next) => file = next,
            None => {
                let own = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
                let privilege = privilege(&file, &metadata, own).map(Obstacle::Privileged);
                return privilege.or_else(|| elf_obstacle(&read_elf(&file)?, ours.as_ref()));
            }
        }
    }
    None
}

/// Why no library of this machine could be loaded into a program that runs for the real user and
/// group `runs_as`; None if no reason is visible in its file.
pub(crate) fn obstacle_in(running: &Path, runs_as: (u32, u32)) -> Option<Obstacle> {
    let own = read_elf(Path::new("/proc/self/exe"));
    let privilege =
        || privilege(running, &running.metadata().ok()?, runs_as).map(Obstacle::Privileged);
    elf_obstacle(&read_elf(running)?, own.as_ref()).or_else(privilege)
}

/// The library that must be loaded before ours when `program` is executed: the runtime of the
/// sanitizer that it was built with. One that does not come first refuses to start (ASan), or does
/// not see the calls by which threads synchronise (TSan).
pub(crate) fn sanitizer(program: &Path) -> Option<OsString> {
    let data = ReadCache::new(File::open(program).ok()?);
    let needed = match FileKind::parse(&data).ok()? {
        FileKind::Elf32 => needed::<elf::FileHeader32<Endianness>>(&data).ok()?,
        FileKind::Elf64 => needed::<elf::FileHeader64<Endianness>>(&data).ok()?,
        _ => return None,
    };
    let runtime = needed.into_iter().find(|name| is_sanitizer(name))?;
    Some(OsStr::from_bytes(runtime).to_owned())
}

fn elf_obstacle(program: &Elf, library: Option<&Elf>) -> Option<Obstacle> {
    if library.is_some_and(|library| library.machine != program.machine) {
        return Some(Obstacle::OtherMachine);
    }
    // Linked either way: linking it dynamically would not help.
    if program.is_go {
        return Some(Obstacle::Go);
    }
    let Some(loader) = &program.loader else {
        return Some(Obstacle::Static);
    };
    let is_gnu = host::is_gnu_loader(loader.file_name().unwrap_or_default().as_bytes());
    (!is_gnu).then(|| Obstacle::OtherLoader(loader.clone()))
}

/// The program that a `#!` line of `file` leads to.
fn interpreter(file: &Path) -> Option<PathBuf> {
    // The kernel looks at no more than this (BINPRM_BUF_SIZE).
    let mut head = Vec::with_capacity(256);
    File::open(file).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let interpreter = PathBuf::from(OsString::from_vec(words.next()?.to_vec()));
    if interpreter.file_name() != Some(OsStr::new("env")) {
        return Some(interpreter);
    }
    let named = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    named.and_then(|name| resolve(OsStr::from_bytes(name)).ok()).or(Some(interpreter))
}

/// How executing `file` raises the privileges of a process of this user and group, after
/// cap_bprm_creds_from_file() of the kernel.
fn privilege(file: &Path, metadata: &Metadata, (user, group): (u32, u32)) -> Option<Privilege> {
    let ignored =
        rustix::fs::statvfs(file).is_ok_and(|vfs| vfs.f_flag.contains(StatVfsMountFlags::NOSUID));
    if ignored {
        return None;
    }
    let has_capabilities = || {
        rustix::fs::getxattr(file, "security.capability", &mut [0u8; 64])
            .is_ok_and(|length| length > 0)
    };
    privilege_of(metadata.mode(), metadata.uid() == user, metadata.gid() == group)
        .or_else(|| (user != 0 && has_capabilities()).then_some(Privilege::Capabilities))
}

fn privilege_of(mode: u32, own_user: bool, own_group: bool) -> Option<Privilege> {
    const SET_USER: u32 = 0o4000;
    // Without the group's execute bit, set-group-id means mandatory locking.
    const SET_GROUP: u32 = 0o2010;
    if mode & SET_USER != 0 && !own_user {
        Some(Privilege::SetUser)
    } else if mode & SET_GROUP == SET_GROUP && !own_group {
        Some(Privilege::SetGroup)
    } else {
        None
    }
}

/// The relevant facts about an ELF file.
#[derive(Debug, PartialEq, Eq)]
struct Elf {
    machine: Machine,
    /// The program interpreter; None in a static program.
    loader: Option<PathBuf>,
    is_go: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Machine {
    number: u16,
    is_64_bit: bool,
    is_big_endian: bool,
}

/// The largest interpreter and notes together that are read: a file of another user may name as
/// much as its file system has room for.
const LARGEST: u64 = 1 << 20;

/// None: not an ELF file, malformed, out of proportion, or not readable. Reads no sections, which
/// may be of any length and which the kernel ignores.
fn read_elf(path: &Path) -> Option<Elf> {
    let data = ReadCache::new(File::open(path).ok()?);
    match FileKind::parse(&data).ok()? {
        FileKind::Elf32 => parse::<elf::FileHeader32<Endianness>>(&data),
        FileKind::Elf64 => parse::<elf::FileHeader64<Endianness>>(&data),
        _ => None,
    }
}

fn parse<Header: FileHeader<Endian = Endianness>>(data: &ReadCache<File>) -> Option<Elf> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let mut elf = Elf {
        machine: Machine {
            number: header.e_machine(endian).0,
            is_64_bit: header.is_class_64(),
            is_big_endian: header.is_big_endian(),
        },
        loader: None,
        is_go: false,
    };
    // Then a section has their number, up to 2^32.
    if header.e_phnum(endian) == elf::PN_XNUM {
        return None;
    }
    let mut left = LARGEST;
    for segment in header.program_headers(endian, data).ok()? {
        if ![elf::PT_INTERP, elf::PT_NOTE].contains(&segment.p_type(endian)) {
            continue;
        }
        left = left.checked_sub(segment.p_filesz(endian).into())?;
        if let Some(loader) = segment.interpreter(endian, data).ok()? {
            elf.loader = Some(PathBuf::from(OsStr::from_bytes(loader)));
        }
        // Go's linker leaves its build id in a note of its own.
        if let Some(mut notes) = segment.notes(endian, data).ok()? {
            while let Some(note) = notes.next().ok()? {
                elf.is_go |= note.name() == b"Go";
            }
        }
    }
    Some(elf)
}

/// The names of the libraries that a program needs.
fn needed<Header: FileHeader<Endian = Endianness>>(
    data: &ReadCache<File>,
) -> object::Result<Vec<&[u8]>> {
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let Some((entries, link)) = sections.dynamic(endian, data)? else { return Ok(Vec::new()) };
    let strings = sections.strings(endian, data, link)?;
    let needed = entries.iter().filter(|entry| entry.tag32(endian) == Some(elf::DT_NEEDED.0 as _));
    needed.map(|entry| entry.string(endian, strings)).collect()
}

/// Whether a library is the runtime of a sanitizer that interposes functions of libc.
fn is_sanitizer(name: &[u8]) -> bool {
    let gcc = ["libasan.so", "libtsan.so", "liblsan.so", "libhwasan.so"];
    let clang = ["asan", "tsan", "lsan", "hwasan", "msan"];
    let of_clang = name.strip_prefix(b"libclang_rt.".as_slice());
    gcc.iter().any(|runtime| name.starts_with(runtime.as_bytes()))
        || of_clang.is_some_and(|rest| clang.iter().any(|kind| rest.starts_with(kind.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn machine(number: u16) -> Machine {
        Machine { number, is_64_bit: true, is_big_endian: false }
    }

    fn program(loader: Option<&str>) -> Elf {
        Elf { machine: machine(62), loader: loader.map(PathBuf::from), is_go: false }
    }

    const GNU: Option<&str> = Some("/lib64/ld-linux-x86-64.so.2");

    #[test]
    fn programs_that_take_a_library_meet_no_obstacle() {
        assert_eq!(elf_obstacle(&program(GNU), Some(&program(None))), None);
        let this_test = env::current_exe().unwrap();
        assert_eq!(obstacle(&this_test, &this_test), None);
    }

    #[test]
    fn programs_that_cannot_take_a_library_are_told_apart() {
        let library = program(None);
        assert_eq!(elf_obstacle(&program(None), Some(&library)), Some(Obstacle::Static));
        let musl = "/lib/ld-musl-x86_64.so.1";
        assert_eq!(
            elf_obstacle(&program(Some(musl)), Some(&library)),
            Some(Obstacle::OtherLoader(musl.into()))
        );
        let arm = Elf { machine: machine(183), ..program(GNU) };
        assert_eq!(elf_obstacle(&arm, Some(&library)), Some(Obstacle::OtherMachine));
        for linked in [GNU, None] {
            let go = Elf { is_go: true, ..program(linked) };
            assert_eq!(elf_obstacle(&go, Some(&library)), Some(Obstacle::Go));
        }
    }

    #[test]
    fn runtimes_of_sanitizers_are_told_from_other_libraries() {
        for name in ["libasan.so.8", "libtsan.so.2", "libclang_rt.asan-x86_64.so"] {
            assert!(is_sanitizer(name.as_bytes()), "{name}");
        }
        for name in ["libubsan.so.1", "libclang_rt.ubsan_standalone-x86_64.so", "libc.so.6"] {
            assert!(!is_sanitizer(name.as_bytes()), "{name}");
        }
        assert_eq!(sanitizer(&env::current_exe().unwrap()), None);
    }

    #[test]
    fn only_a_change_of_identity_counts_as_privileged() {
        assert_eq!(privilege_of(0o4755, false, true), Some(Privilege::SetUser));
        assert_eq!(privilege_of(0o4755, true, true), None);
        assert_eq!(privilege_of(0o2755, true, false), Some(Privilege::SetGroup));
        assert_eq!(privilege_of(0o2745, true, false), None);
        assert_eq!(privilege_of(0o2755, true, true), None);
        assert_eq!(privilege_of(0o0755, false, false), None);
    }

    fn script(directory: &Path, name: &str, content: &[u8]) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn interpreters_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        let shell = script(directory.path(), "shell", b"#! /bin/sh -e\necho\n");
        assert_eq!(interpreter(&shell), Some("/bin/sh".into()));
        let env = script(directory.path(), "env", b"#!/usr/bin/env -S A=1 sh -u\n");
        assert_eq!(interpreter(&env), resolve(OsStr::new("sh")).ok());
        let unknown = script(directory.path(), "unknown", b"#!/usr/bin/env no-such-program-here\n");
        assert_eq!(interpreter(&unknown), Some("/usr/bin/env".into()));
        assert_eq!(interpreter(&script(directory.path(), "text", b"echo\n")), None);
        assert_eq!(interpreter(&script(directory.path(), "empty", b"")), None);
    }

    #[test]
    fn an_interpreter_that_leads_to_itself_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ouroboros");
        script(directory.path(), "ouroboros", format!("#!{}\n", path.display()).as_bytes());
        assert_eq!(obstacle(&path, &path), None);
    }

    #[test]
    fn files_that_are_no_programs_are_not_judged() {
        let directory = tempfile::tempdir().unwrap();
        let library = env::current_exe().unwrap();
        let whole = fs::read(&library).unwrap();
        for (name, content) in
            [("text", &b"hello"[..]), ("cut", &whole[..50]), ("magic", &whole[..4])]
        {
            let path = script(directory.path(), name, content);
            assert_eq!(obstacle(&path, &library), None, "{name}");
        }
        assert_eq!(obstacle(directory.path(), &library), None);
        assert_eq!(obstacle(Path::new("/nonexistent"), &library), None);
    }

    #[test]
    fn a_program_that_names_more_than_there_is_memory_for_is_not_judged() {
        const LENGTH: u64 = 60 << 30;
        // Its only segment has all of the file; its number is that of a section.
        let file = |kind: u32, length: u64, number: u16| {
            let mut file = b"\x7fELF\x02\x01\x01".to_vec();
            file.resize(64, 0);
            file[16..20].copy_from_slice(&[2, 0, 62, 0]);
            file[20] = 1;
            file[32] = 64;
            file[40..48].copy_from_slice(&(LENGTH / 2).to_le_bytes());
            file[54] = 56;
            file[56..58].copy_from_slice(&number.to_le_bytes());
            file[58..64].copy_from_slice(&[64, 0, 1, 0, 0, 0]);
            file.extend_from_slice(&kind.to_le_bytes());
            file.resize(64 + 32, 0);
            file.extend_from_slice(&length.to_le_bytes());
            file.resize(64 + 56, 0);
            let sparse = tempfile::NamedTempFile::new().unwrap();
            fs::write(sparse.path(), file).unwrap();
            sparse.as_file().set_len(LENGTH).unwrap();
            sparse
        };
        for (kind, length, number, is_judged) in [
            // Code, and the section table is not looked at.
            (elf::PT_LOAD, LENGTH, 1, true),
            (elf::PT_NOTE, 0, 1, true),
            (elf::PT_NOTE, LENGTH, 1, false),
            (elf::PT_INTERP, LENGTH, 1, false),
            (elf::PT_LOAD, 0, elf::PN_XNUM, false),
        ] {
            let file = file(kind.0, length, number);
            let expected = is_judged.then(|| program(None));
            assert_eq!(read_elf(file.path()), expected, "{kind:?} {length} {number}");
        }
    }

    #[test]
    fn resolving_tells_missing_from_not_executable() {
        let directory = tempfile::tempdir().unwrap();
        let plain = directory.path().join("plain");
        fs::write(&plain, b"").unwrap();
        assert_eq!(resolve(plain.as_os_str()), Err(Unrunnable::NotExecutable));
        assert_eq!(resolve(directory.path().as_os_str()), Err(Unrunnable::NotExecutable));
        assert_eq!(resolve(OsStr::new("no-such-program-here")), Err(Unrunnable::NotFound));
        assert_eq!(resolve(OsStr::new("")), Err(Unrunnable::NotFound));
        assert!(resolve(OsStr::new("sh")).is_ok());
    }
}
