//! The treatment of kernel numbers is complete: each system call that a program can make with
//! syscall(), each request of ioctl() and each command of fcntl() in the headers is followed by the
//! library, or is named in a table with the reason why it need not be.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

/// The names in a table, each once and under a reason.
fn named(table: &str) -> BTreeSet<&str> {
    let (mut names, mut has_reason) = (BTreeSet::new(), false);
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            assert!(line.len() > 4 && line.ends_with(']'), "{line}: not a reason");
            has_reason = true;
            continue;
        }
        assert!(has_reason, "{line} has no reason");
        assert!(names.insert(line), "{line} is there twice");
    }
    names
}

/// The names that the headers define with one of the prefixes.
fn defined(headers: &[&str], prefixes: &[&str]) -> BTreeSet<String> {
    let mut cc = Command::new("cc")
        .args(["-E", "-dM", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("cc runs");
    let text: String = headers.iter().map(|header| format!("#include <{header}>\n")).collect();
    cc.stdin.take().expect("it is a pipe").write_all(text.as_bytes()).unwrap();
    let output = cc.wait_with_output().unwrap();
    assert!(output.status.success(), "install the kernel's headers: {headers:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let names: BTreeSet<_> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (name, _value) = (words.next()?, words.next()?);
            (!name.contains('(') && prefixes.iter().any(|prefix| name.starts_with(prefix)))
                .then(|| name.to_owned())
        })
        .collect();
    assert!(names.len() > 30, "{headers:?} define only {names:?}");
    names
}

/// The words of a source file of the library, except those in comments and in its own calls, which
/// are written `libc::WORD`.
fn words(source: &str) -> BTreeSet<&str> {
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let pieces = lines.flat_map(|line| line.split("libc::").enumerate());
    pieces
        .flat_map(|(at, piece)| {
            let is_separator = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            piece.split(is_separator).skip(usize::from(at > 0))
        })
        .collect()
}

/// Compares `names` with those that the library follows and those in its table.
fn hold<'a>(
    what: &str,
    names: impl Iterator<Item = &'a str>,
    followed: &BTreeSet<&str>,
    place: &str,
    table: &str,
) {
    let table = named(table);
    let (mut undecided, mut both) = (Vec::new(), Vec::new());
    for name in names {
        match (followed.contains(name), table.contains(name)) {
            (false, false) => undecided.push(name),
            (true, true) => both.push(name),
            _ => {}
        }
    }
    assert!(
        undecided.is_empty(),
        "{what} of which nobody has said what they do to a TCP socket: follow each in wire/preload/{place}, or name it in \
         wire/preload/tests/tables under the reason why it does no harm:\n  {}",
        undecided.join("\n  ")
    );
    assert!(
        both.is_empty(),
        "{what} that are followed, so take them out of the table:\n  {}",
        both.join("\n  ")
    );
}

#[test]
fn every_system_call_is_decided() {
    let names = defined(&["asm/unistd.h"], &["__NR_"]);
    let names = names.iter().filter_map(|name| name.strip_prefix("__NR_"));
    let place = "src/calls/system.rs";
    let followed = words(include_str!("../src/calls/system.rs"));
    let followed = followed.into_iter().filter_map(|word| word.strip_prefix("SYS_")).collect();
    hold("system calls", names, &followed, place, include_str!("tables/system-calls"));
}

#[test]
fn every_request_and_command_is_decided() {
    let place = "src/calls/descriptor.rs";
    let followed = words(include_str!("../src/calls/descriptor.rs"));
    let requests = defined(&["asm/ioctls.h", "linux/sockios.h"], &["FIO", "SIOC", "TIOC", "TC"]);
    let names = requests.iter().map(String::as_str);
    hold("requests of ioctl", names, &followed, place, include_str!("tables/requests"));
    let commands = defined(&["linux/fcntl.h"], &["F_"]);
    let names = commands.iter().map(String::as_str);
    hold("commands of fcntl", names, &followed, place, include_str!("tables/commands"));
}
