//! The user's processes and their TCP connections, from /proc (proc(5)).
//!
//! Processes come and go during a read. A process that has gone is left out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A process of this user.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    directory: PathBuf,
}

/// An established (or half-closed) TCP connection of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TcpConnection {
    /// The inode of the socket.
    pub(crate) socket: u64,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

/// The processes of the effective user.
pub(crate) fn own_processes() -> Vec<Process> {
    let user = rustix::process::geteuid().as_raw();
    processes(|about| about.uid() == user)
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
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
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
    let all = processes(|_| true).into_iter();
    all.filter(|process| {
        process.maps().split(|byte| *byte == b'\n').any(|line| has_numbers(line) || is_it(line))
    })
    .map(|process| process.pid)
    .collect()
}

impl Process {
    /// The name that the kernel keeps, at most 15 bytes.
    pub(crate) fn name(&self) -> String {
        name_of(self.pid).unwrap_or_default()
    }

    /// Whether libseekwire.so is mapped.
    pub(crate) fn has_library(&self) -> bool {
        // After an upgrade the kernel adds " (deleted)".
        let needle = format!("/{}", seekwire_program::library::FILE_NAME);
        self.maps().split(|byte| *byte == b'\n').any(|line| contains(line, needle.as_bytes()))
    }

    /// The lines of its `maps` file, one for each mapping.
    fn maps(&self) -> Vec<u8> {
        fs::read(self.directory.join("maps")).unwrap_or_default()
    }

    /// The environment that the process was started with, unless it has overwritten it since.
    pub(crate) fn environment(&self) -> Environment {
        Environment(fs::read(self.directory.join("environ")).unwrap_or_default())
    }

    /// Inodes of the sockets that are open.
    fn sockets(&self) -> Vec<u64> {
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
        Some(fs::metadata(self.directory.join("ns/net")).ok()?.ino())
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

fn contains(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|window| window == needle)
}

/// Looks TCP connections up; reads the tables of each network namespace once, from a process there.
#[derive(Debug, Default)]
pub(crate) struct TcpTables {
    by_namespace: HashMap<u64, HashMap<u64, TcpConnection>>,
}

impl TcpTables {
    /// The connections that `process` holds.
    pub(crate) fn connections(&mut self, process: &Process) -> Vec<TcpConnection> {
        let Some(namespace) = process.network_namespace() else {
            return Vec::new();
        };
        let table = match self.by_namespace.entry(namespace) {
            Entry::Occupied(table) => table.into_mut(),
            Entry::Vacant(entry) => match read_tables(&process.directory) {
                Ok(table) => entry.insert(table),
                // The process has ended; another one may have the tables.
                Err(_) => return Vec::new(),
            },
        };
        process.sockets().iter().filter_map(|inode| table.get(inode).copied()).collect()
    }
}

fn read_tables(process: &Path) -> io::Result<HashMap<u64, TcpConnection>> {
    // In this order: without IPv6 there is only the table of IPv4, and with it the process was
    // there.
    let v6 = fs::read_to_string(process.join("net/tcp6")).unwrap_or_default();
    let v4 = fs::read_to_string(process.join("net/tcp"))?;
    let lines = [&v4, &v6].into_iter().flat_map(|text| text.lines().skip(1));
    let connections = lines.filter_map(parse_line);
    Ok(connections.map(|connection| (connection.socket, connection)).collect())
}

/// One line of /proc/net/tcp or tcp6: `sl local remote state queues timer retransmits uid timeout
/// inode ...`.
fn parse_line(line: &str) -> Option<TcpConnection> {
    // Of include/net/tcp_states.h: the states in which both ends are known and bytes may move.
    const ESTABLISHED: &str = "01";
    const FIN_WAIT1: &str = "04";
    const FIN_WAIT2: &str = "05";
    const CLOSE_WAIT: &str = "08";

    let mut fields = line.split_ascii_whitespace().skip(1);
    let local = parse_address(fields.next()?)?;
    let peer = parse_address(fields.next()?)?;
    if ![ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT].contains(&fields.next()?) {
        return None;
    }
    let socket = fields.nth(5)?.parse().ok()?;
    Some(TcpConnection { socket, local, peer })
}

/// `0100007F:1F90`: the address as hexadecimal words in the machine's byte order, the port as a
/// number.
fn parse_address(field: &str) -> Option<SocketAddr> {
    let (address, port) = field.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for word in address.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
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
    use std::net::{TcpListener, TcpStream};

    #[cfg(target_endian = "little")]
    #[test]
    fn lines_of_the_kernel_are_understood() {
        let v4 = "   1: 0100007F:1F90 0200007F:C350 01 00000000:00000000 00:00000000 00000000  1000 0 4711 1 ff 20 4 30 10 -1";
        let expected = TcpConnection {
            socket: 4711,
            local: "127.0.0.1:8080".parse().unwrap(),
            peer: "127.0.0.2:50000".parse().unwrap(),
        };
        assert_eq!(parse_line(v4), Some(expected));

        let v6 = "   0: 00000000000000000000000001000000:0016 00000000000000000000000001000000:D431 08 0:0 0:0 0 0 0 99 1";
        let connection = parse_line(v6).unwrap();
        assert_eq!((connection.socket, connection.local), (99, "[::1]:22".parse().unwrap()));
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn mapped_addresses_are_written_as_ipv4() {
        let mapped = parse_address("0000000000000000FFFF00000100007F:0050");
        assert_eq!(mapped, Some("127.0.0.1:80".parse().unwrap()));
    }

    #[test]
    fn listening_sockets_and_nonsense_are_left_out() {
        let listening = "   1: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 1000 0 4711 1";
        for line in [
            "",
            "a b c d",
            listening,
            "1: 0100007F:1F90 0100007F 01",
            "1: é100007F:1F90 0100007F:1 01",
        ] {
            assert_eq!(parse_line(line), None, "{line:?}");
        }
    }

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
    fn own_connections_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_server, _) = listener.accept().unwrap();

        let pid = std::process::id();
        let process = own_processes().into_iter().find(|process| process.pid == pid).unwrap();
        assert!(!process.has_library());
        let expected = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let mut tables = TcpTables::default();
        // In the same network namespace, and without tables: it ends while it is looked at.
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(process.directory.join("ns"), directory.path().join("ns"))
            .unwrap();
        let ending = Process { pid, directory: directory.path().to_owned() };
        assert_eq!(tables.connections(&ending), []);
        let mut found = tables.connections(&process).into_iter();
        assert!(found.any(|connection| (connection.local, connection.peer) == expected));
    }
}
