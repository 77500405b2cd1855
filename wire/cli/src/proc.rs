//! Processes, from /proc (proc(5)). Those of other users may be hostile: what they can choose is
//! read up to a limit.
//!
//! Processes come and go during a read. A process that has gone is left out.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use seekwire_endpoint::registry;
use seekwire_transport::sys::filter;

/// A process of any user.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Below /proc.
    pub(crate) directory: PathBuf,
}

/// The user, number and filters of a process, from its `status` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The user for whom it acts.
    pub(crate) user: u32,
    /// The user and the group that ran the program, which may have changed the former.
    pub(crate) real: (u32, u32),
    /// Its number in its own pid namespace.
    pub(crate) inside: u32,
    /// Number of its system call filters.
    pub(crate) filters: u32,
}

/// The mappings of a process that concern the library.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) library: bool,
    /// The file of the registry, by a name that is valid in the mount namespace of the process.
    pub(crate) registry: Option<PathBuf>,
}

/// The longest text about a process that is read, as of its environment.
const LONGEST: u64 = 16 << 20;

/// The processes that this user may inspect: root all of them, others their own.
pub(crate) fn inspectable() -> Vec<Process> {
    let user = rustix::process::geteuid();
    processes(|about| user.is_root() || about.uid() == user.as_raw())
}

/// All processes that /proc shows.
pub(crate) fn all() -> Vec<Process> {
    processes(|_| true)
}

fn processes(is_wanted: impl Fn(&fs::Metadata) -> bool) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut processes: Vec<Process> = entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            is_wanted(&entry.metadata().ok()?).then(|| Process { pid, directory: entry.path() })
        })
        .collect();
    processes.sort_by_key(|process| process.pid);
    processes
}

/// The name of a process, if it still exists.
pub(crate) fn name_of(pid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

/// The processes of any user that have a file mapped, if this user may inspect them.
pub(crate) fn that_map(path: &Path) -> Vec<u32> {
    let Ok(about) = fs::metadata(path) else {
        return Vec::new();
    };
    // On stacked file systems, the table has the number of a lower one.
    let name = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_called_so = |line: &[u8]| {
        line.strip_suffix(name.as_os_str().as_bytes()).is_some_and(|before| before.ends_with(b" "))
    };
    mapping(about.dev(), about.ino(), is_called_so)
}

/// Processes that have a file without a name mapped, by its device and its number.
pub(crate) fn that_map_number(file: (u64, u64)) -> Vec<u32> {
    let (device, inode) = file;
    mapping(device, inode, |_| false)
}

/// Processes with a mapping that has these numbers, or with a line in the table that `is_it`
/// accepts.
fn mapping(device: u64, inode: u64, is_it: impl Fn(&[u8]) -> bool) -> Vec<u32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let (device, inode) = (format!("{major:02x}:{minor:02x}"), inode.to_string());
    let has_numbers = |line: &[u8]| {
        let text = String::from_utf8_lossy(line);
        let mut fields = text.split_ascii_whitespace().skip(3);
        (fields.next(), fields.next()) == (Some(&device), Some(&inode))
    };
    let all = all().into_iter();
    all.filter(|process| {
        let lines = process.maps().into_iter().flatten();
        lines.map_while(Result::ok).any(|line| has_numbers(&line) || is_it(&line))
    })
    .map(|process| process.pid)
    .collect()
}

impl Process {
    /// The name that the kernel keeps, at most 15 bytes.
    pub(crate) fn name(&self) -> String {
        name_of(self.pid).unwrap_or_default()
    }

    /// Its mappings that concern the library; `None` if this user may not see them.
    pub(crate) fn mapped(&self) -> Option<Mapped> {
        mapped(self.maps()?).ok()
    }

    /// The lines of its `maps` file, one for each mapping. The kernel limits their number, and those
    /// of libraries are the last ones.
    fn maps(&self) -> Option<impl Iterator<Item = io::Result<Vec<u8>>> + use<>> {
        let file = fs::File::open(self.directory.join("maps")).ok()?;
        Some(BufReader::new(file).split(b'\n'))
    }

    pub(crate) fn standing(&self) -> Option<Standing> {
        standing(&String::from_utf8_lossy(&self.read("status")?))
    }

    /// The environment that the process was started with, unless it has overwritten it since.
    pub(crate) fn environment(&self) -> Environment {
        Environment(self.read("environ").unwrap_or_default())
    }

    /// The control groups that it is in.
    pub(crate) fn control_groups(&self) -> String {
        String::from_utf8_lossy(&self.read("cgroup").unwrap_or_default()).into_owned()
    }

    /// Whether it may have become another user's since it was started: then the kernel gives its
    /// directory to root, as it does for other reasons.
    pub(crate) fn may_have_changed_user(&self, user: u32) -> bool {
        fs::metadata(&self.directory).is_ok_and(|about| about.uid() != user)
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = fs::File::open(self.directory.join(name)).ok()?;
        file.take(LONGEST).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Inodes of the sockets that are open.
    pub(crate) fn sockets(&self) -> Vec<u64> {
        let Ok(entries) = fs::read_dir(self.directory.join("fd")) else {
            return Vec::new();
        };
        let mut inodes: Vec<u64> = entries
            .flatten()
            .filter_map(|entry| {
                let target = fs::read_link(entry.path()).ok()?;
                target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
            })
            .collect();
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }

    pub(crate) fn network_namespace(&self) -> Option<u64> {
        self.namespace("net")
    }

    /// The inode of its namespace of this kind.
    pub(crate) fn namespace(&self, kind: &str) -> Option<u64> {
        Some(fs::metadata(self.directory.join("ns").join(kind)).ok()?.ino())
    }
}

/// The environment that execve(2) received.
#[derive(Debug)]
pub(crate) struct Environment(Vec<u8>);

impl Environment {
    pub(crate) fn get(&self, name: &str) -> Option<OsString> {
        let value = |entry: &[u8]| {
            let rest = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(OsStr::from_bytes(rest).to_owned())
        };
        self.0.split(|byte| *byte == 0).find_map(value)
    }
}

/// The library and the registry among the lines of a `maps` file.
fn mapped(lines: impl Iterator<Item = io::Result<Vec<u8>>>) -> io::Result<Mapped> {
    let (library, registry) = (seekwire_program::library::FILE_NAME, registry::file_name());
    let mut mapped = Mapped::default();
    for line in lines {
        let line = line?;
        // Addresses, rights, offset, device and inode have no slash.
        let Some(at) = line.iter().position(|byte| *byte == b'/') else { continue };
        let (_, path) = line.split_at(at);
        // After an upgrade the kernel adds " (deleted)".
        let path = Path::new(OsStr::from_bytes(path.strip_suffix(b" (deleted)").unwrap_or(path)));
        match path.file_name() {
            // Programs that are linked with it have a name with a version.
            Some(name) if name.as_bytes().starts_with(library.as_bytes()) => mapped.library = true,
            Some(name) if name == OsStr::new(&registry) => mapped.registry = Some(unescaped(path)),
            _ => {}
        }
    }
    Ok(mapped)
}

/// A path of a `maps` file, in which the kernel writes the end of a line as `\012`.
fn unescaped(path: &Path) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = path.as_os_str().as_bytes();
    while let Some((&byte, next)) = rest.split_first() {
        let (byte, next) = match rest.strip_prefix(b"\\012") {
            Some(next) => (b'\n', next),
            None => (byte, next),
        };
        bytes.push(byte);
        rest = next;
    }
    OsString::from_vec(bytes).into()
}

fn standing(status: &str) -> Option<Standing> {
    let number = |key: &str, at: usize| -> Option<u32> {
        field(status, key)?.split_ascii_whitespace().nth(at)?.parse().ok()
    };
    let inside = field(status, "NSpid").and_then(|pids| pids.split_ascii_whitespace().last());
    Some(Standing {
        // Real, effective, saved, of the file system.
        user: number("Uid", 1)?,
        real: (number("Uid", 0)?, number("Gid", 0)?),
        inside: match inside {
            Some(pid) => pid.parse().ok()?,
            None => number("Pid", 0)?,
        },
        filters: filter::number_in(status),
    })
}

/// A number from /proc/meminfo-like text: `Key:  value`.
pub(crate) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim)
}

/// Whether `path` names a file of this user alone, mode 0700.
pub(crate) fn is_private_directory(path: &Path) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    Ok(metadata.is_dir()
        && metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.mode() & 0o777 == 0o700)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_mapped_is_found() {
        // Each program is mapped by those that run it.
        let program = std::env::current_exe().unwrap();
        assert!(that_map(&program).contains(&std::process::id()));
        let other = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(that_map(other.path()), Vec::<u32>::new());
        assert_eq!(that_map(Path::new("/nonexistent")), Vec::<u32>::new());
    }

    #[test]
    fn the_library_and_the_registry_are_found_in_maps() {
        let registry = registry::file_name();
        let maps = format!(
            "7f00-7f01 r-xp 00000000 08:01 12                         /usr/lib/libseekwire.so (deleted)\n\
             7f02-7f03 rw-s 00000000 00:19 13                         /run/a b\\012c/{registry}\n\
             7f04-7f05 rw-p 00000000 00:00 0                          [heap]\n"
        );
        let registry = Some(PathBuf::from(format!("/run/a b\nc/{registry}")));
        let mapped = |maps| super::mapped(BufReader::new(maps).split(b'\n')).unwrap();
        assert_eq!(mapped(maps.as_bytes()), Mapped { library: true, registry });
        let others =
            &b"7f00-7f01 r-xp 0 08:01 12 /usr/lib/libother.so\n1-2 rw-s 0 0:1 1 /x/registry-0\n"[..];
        assert_eq!(mapped(others), Mapped::default());
    }

    #[test]
    fn the_standing_of_a_process_is_read() {
        let status = "Name:\tUid:\nUid:\t0\t33\t33\t33\nGid:\t5\t33\t33\t33\nPid:\t70\nNSpid:\t70\t7\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        let expected = Standing { user: 33, real: (0, 5), inside: 7, filters: 3 };
        assert_eq!(standing(status), Some(expected));
        assert_eq!(standing("Name: x\n"), None);
        let own = all().into_iter().find(|process| process.pid == std::process::id()).unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert!(own.standing().is_some_and(|found| found.user == user));
    }
}
