//! The treatment of the C library's functions is complete: each one either is a function of
//! libseekwire.so, or is named in tests/tables/functions with the reason why it need not be.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::elf::{FileHeader64, SHN_UNDEF, SHT_DYNSYM, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, SymbolIndex};

const TABLE: &str = include_str!("tables/functions");

/// The C library's parts beside libc.so.6, if they are separate files.
const PARTS: [&str; 6] = [
    "libpthread.so.0",
    "librt.so.1",
    "libresolv.so.2",
    "libanl.so.1",
    "libutil.so.1",
    "libdl.so.2",
];

/// The version whose names the table has.
const WRITTEN_FOR: (u32, u32) = (2, 36);

/// Parameter declarations that can stand for or contain a socket.
const DESCRIPTORS: [&str; 10] =
    ["FILE *", "__fd", "fildes", "__sock", " fd", "pollfd", "fd_set", "msghdr", "aiocb", "epfd"];

struct Entry {
    pattern: &'static str,
    /// The first C library that has it.
    since: Option<(u32, u32)>,
}

fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|number| number.parse().expect("a version such as 2.36"));
    (numbers.next().expect("a version"), numbers.next().expect("two numbers"))
}

fn table() -> Vec<Entry> {
    let mut has_reason = false;
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .filter_map(|line| {
            if let Some(reason) = line.strip_prefix('[') {
                assert!(reason.len() > 2 && reason.ends_with(']'), "{line}: not a reason");
                has_reason = true;
                return None;
            }
            assert!(has_reason, "{line} has no reason");
            let (pattern, since) = match line.split_once(" since ") {
                Some((pattern, since)) => (pattern, Some(version(since))),
                None => (line, None),
            };
            assert!(!pattern.contains(char::is_whitespace), "{line}: one name a line");
            Some(Entry { pattern, since })
        })
        .collect()
}

/// True if `name` matches `pattern`, in which * stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, "")) => name.starts_with(head),
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && matches(tail, &rest[at..]))
        }),
    }
}

/// The functions that a library defines for others.
fn functions(library: &Path) -> BTreeSet<String> {
    let data = fs::read(library).unwrap_or_else(|error| panic!("{}: {error}", library.display()));
    let data = &*data;
    let read = || {
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let symbols = sections.symbols(endian, data, SHT_DYNSYM)?;
        let versions = sections.versions(endian, data)?;
        let mut names = BTreeSet::new();
        for (at, symbol) in symbols.iter().enumerate() {
            if symbol.st_shndx(endian) == SHN_UNDEF
                || !matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC)
            {
                continue;
            }
            // Functions that the C library's own parts share have a version that nobody else uses.
            if let Some(versions) = &versions {
                let index = versions.version_index(endian, SymbolIndex(at)).index();
                if versions
                    .version(index)?
                    .is_some_and(|version| version.name() == b"GLIBC_PRIVATE")
                {
                    continue;
                }
            }
            names.insert(
                String::from_utf8_lossy(symbol.name(endian, symbols.strings())?).into_owned(),
            );
        }
        Ok::<_, object::Error>(names)
    };
    let names = read().unwrap_or_else(|error| panic!("{}: {error}", library.display()));
    assert!(!names.is_empty(), "{} defines nothing", library.display());
    names
}

/// The C library that this test runs with.
fn libc_file() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").expect("the kernel tells what is mapped");
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    files
        .map(PathBuf::from)
        .find(|file| file.ends_with("libc.so.6"))
        .expect("this is a program for glibc")
}

fn exported() -> BTreeSet<String> {
    let libc = libc_file();
    let mut names = functions(&libc);
    assert!(names.len() > 1500, "{} has only {} functions", libc.display(), names.len());
    let directory = libc.parent().expect("it lies in a directory");
    for part in PARTS.map(|part| directory.join(part)).iter().filter(|part| part.exists()) {
        names.append(&mut functions(part));
    }
    names
}

fn interposed() -> BTreeSet<String> {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let profile = deps.parent().unwrap();
    let library = [profile.join("libseekwire.so"), deps.join("libseekwire.so")]
        .into_iter()
        .find(|path| path.exists())
        .expect("cargo build -p seekwire-preload comes first");
    functions(&library)
}

fn lines<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("  {name}\n")).collect()
}

#[test]
fn every_function_of_the_c_library_is_decided() {
    let (table, ours) = (table(), interposed());
    let undecided: Vec<_> = exported()
        .into_iter()
        .filter(|name| {
            !ours.contains(name) && !table.iter().any(|entry| matches(entry.pattern, name))
        })
        .collect();
    assert!(
        undecided.is_empty(),
        "functions of the C library of which nobody has said what they do to a socket:\n{}If one takes, makes or closes a \
         descriptor, moves bytes, waits for them, or starts a program, interpose it in wire/preload/src/calls; else \
         name it in wire/preload/tests/tables/functions under the reason why it does no harm",
        lines(undecided.iter().map(String::as_str))
    );
}

#[test]
fn nothing_is_decided_twice_or_in_vain() {
    let (table, ours, theirs) = (table(), interposed(), exported());
    let both: Vec<_> = ours
        .iter()
        .filter(|name| {
            theirs.contains(*name) && table.iter().any(|entry| matches(entry.pattern, name))
        })
        .map(String::as_str)
        .collect();
    assert!(
        both.is_empty(),
        "interposed, so take them out of tests/tables/functions:\n{}",
        lines(both)
    );
    let mut count = BTreeMap::new();
    table.iter().for_each(|entry| *count.entry(entry.pattern).or_insert(0) += 1);
    let twice = count.iter().filter(|(_, count)| **count > 1).map(|(pattern, _)| *pattern);
    assert_eq!(lines(twice), "", "named twice in tests/tables/functions");

    // SAFETY: returns a C string that is static.
    let here = version(
        unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_str().expect("a version"),
    );
    if !cfg!(target_arch = "x86_64") || here < WRITTEN_FOR {
        // Older functions depend on this processor, and newer C libraries keep all old ones.
        return;
    }
    let gone = table.iter().filter(|entry| {
        entry.since.is_none_or(|since| since <= here)
            && !theirs.iter().any(|name| matches(entry.pattern, name))
    });
    assert_eq!(
        lines(gone.map(|entry| entry.pattern)),
        "",
        "not in the C library {here:?}: take them out of tests/tables/functions, or say since which version they are there"
    );
}

/// A pattern stands for functions that were not examined one by one.
#[test]
fn functions_with_descriptors_are_decided_by_their_names() {
    let (table, ours, theirs) = (table(), interposed(), exported());
    let headers = [
        "aio.h",
        "arpa/inet.h",
        "arpa/nameser.h",
        "err.h",
        "execinfo.h",
        "fcntl.h",
        "ftw.h",
        "ifaddrs.h",
        "mntent.h",
        "mqueue.h",
        "netdb.h",
        "netinet/in.h",
        "poll.h",
        "pthread.h",
        "pty.h",
        "pwd.h",
        "resolv.h",
        "shadow.h",
        "signal.h",
        "spawn.h",
        "stdio.h",
        "stdio_ext.h",
        "stdlib.h",
        "sys/epoll.h",
        "sys/eventfd.h",
        "sys/fanotify.h",
        "sys/file.h",
        "sys/inotify.h",
        "sys/ioctl.h",
        "sys/mman.h",
        "sys/mount.h",
        "sys/pidfd.h",
        "sys/random.h",
        "sys/select.h",
        "sys/sendfile.h",
        "sys/signalfd.h",
        "sys/socket.h",
        "sys/stat.h",
        "sys/statfs.h",
        "sys/timerfd.h",
        "sys/uio.h",
        "sys/vfs.h",
        "sys/wait.h",
        "sys/xattr.h",
        "termios.h",
        "threads.h",
        "time.h",
        "unistd.h",
        "utmp.h",
        "wchar.h",
        "wordexp.h",
    ];
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("declarations.c");
    let includes = headers
        .map(|header| format!("#if __has_include(<{header}>)\n#include <{header}>\n#endif\n"));
    fs::write(&source, format!("#define _GNU_SOURCE\n{}", includes.concat())).unwrap();
    let output =
        Command::new("cc").args(["-E", "-P", "-O0"]).arg(&source).output().expect("cc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text =
        String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let (mut seen, mut by_pattern) = (0, BTreeSet::new());
    for declaration in text.split([';', '}']) {
        let Some((head, parameters)) = declaration.split_once('(') else { continue };
        let name = head.trim().rsplit([' ', '*']).next().unwrap_or_default();
        if !theirs.contains(name) || !DESCRIPTORS.iter().any(|word| parameters.contains(word)) {
            continue;
        }
        seen += 1;
        if !ours.contains(name) && !table.iter().any(|entry| entry.pattern == name) {
            by_pattern.insert(name.to_owned());
        }
    }
    assert!(seen > 200, "only {seen} declarations with a descriptor were found");
    assert!(
        by_pattern.is_empty(),
        "these take a descriptor or a stream: name each in tests/tables/functions, under the reason that is its own\n{}",
        lines(by_pattern.iter().map(String::as_str))
    );
}
