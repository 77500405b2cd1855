//! `seekwire status`: the live connections of the user's processes.
//!
//! Two sources are joined. The registry knows the connections that passed the threshold, with their
//! counters. /proc knows which processes have the library loaded and every TCP connection they
//! hold; a connection that is not in the registry is plain TCP.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use seekwire_endpoint::config::THRESHOLD_BYTES;
use seekwire_endpoint::registry::{Entry, Registry};
use seekwire_endpoint::{Carrier, Config, Reason};
use seekwire_program::standard;
use seekwire_program::table::{self, Align};
use seekwire_transport::sys::socket::namespace;
use seekwire_transport::sys::{Fd, diag};
use serde::{Serialize, Serializer};

use crate::arguments;
use crate::proc::{self, Process, TcpConnection, TcpTables};

/// One connection of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Row {
    /// None for a process of another pid namespace, which is not visible from here.
    pid: Option<u32>,
    program: String,
    local: SocketAddr,
    peer: SocketAddr,
    /// The carrier of the next byte sent.
    #[serde(serialize_with = "as_word")]
    tx: Carrier,
    /// The carrier of the next byte received.
    #[serde(serialize_with = "as_word")]
    rx: Carrier,
    /// None: the library does not count the bytes of this connection.
    bytes: Option<Bytes>,
    /// Why a direction is on TCP.
    #[serde(serialize_with = "as_word_or_null")]
    reason: Option<Reason>,
    /// The link to the machine that has the peer's address.
    link: Option<String>,
    /// The ports of the line to that machine.
    #[serde(skip)]
    line: Option<(u16, u16)>,
}

impl Row {
    /// The ends of the line to another machine.
    fn line(&self) -> Option<(SocketAddr, SocketAddr)> {
        let (own, peer) = self.line?;
        Some((SocketAddr::new(self.local.ip(), own), SocketAddr::new(self.peer.ip(), peer)))
    }
}

/// Bytes moved so far, by direction and carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Bytes {
    tx_tcp: u64,
    tx_ring: u64,
    rx_tcp: u64,
    rx_ring: u64,
}

/// Prints the table, once or until it is interrupted.
///
/// # Errors
///
/// Those of writing to standard output; the registry being another user's or damaged.
pub(crate) fn status(options: &arguments::Status) -> Result<()> {
    let mut out = standard::output()?.lock();
    let redraws = options.watch.is_some() && !options.json && out.is_terminal();
    loop {
        let rows = rows(options)?;
        let text = if options.json { serde_json::to_string(&rows)? + "\n" } else { render(&rows) };
        if redraws {
            // Home, and erase the display (ECMA-48).
            out.write_all(b"\x1b[H\x1b[2J")?;
        }
        out.write_all(text.as_bytes())?;
        out.flush()?;
        let Some(seconds) = options.watch else {
            return Ok(());
        };
        if reader_left_within(Duration::from_secs(seconds.into()))? {
            return Ok(());
        }
    }
}

/// Waits; true as soon as the reader of standard output has gone.
fn reader_left_within(period: Duration) -> Result<bool> {
    let out = io::stdout();
    // No events asked for: only errors and hang-ups are reported.
    let mut watched = [PollFd::new(&out, PollFlags::empty())];
    let period = Timespec::try_from(period)?;
    match poll(&mut watched, Some(&period)) {
        Ok(ready) => Ok(ready > 0),
        // Stopped and continued: redraw early.
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The rows of the chosen directory; if none was chosen, those of every directory that a process
/// uses.
fn rows(options: &arguments::Status) -> Result<Vec<Row>> {
    let own = directory(options.dir.as_deref())?;
    let is_shown = |user: &User| options.dir.is_none() || user.directory == own;
    let users: Vec<User> = users().into_iter().filter(is_shown).collect();
    if options.dir.is_some() && users.is_empty() && !own.exists() {
        bail!("{}: no such directory, and no program has it as its SEEKWIRE_DIR", own.display());
    }

    let mut rows = registered(&own)?;
    let others: BTreeSet<&Path> =
        users.iter().map(|user| user.directory.as_path()).filter(|other| *other != own).collect();
    for other in others {
        // If it is damaged, the process that uses it has logged the reason.
        rows.extend(registered(other).unwrap_or_default());
    }
    let mut rows = join(rows, unregistered(&users));
    rows.sort_by_key(|row| (row.pid, row.local, row.peer));
    Ok(rows)
}

/// The reason for a connection whose process keeps it from the registry.
const UNKNOWN: &str = "not in the registry; SEEKWIRE_LOG says why";

/// Joins the registry's rows with those that only /proc has.
fn join(mut rows: Vec<Row>, mut others: Vec<Row>) -> Vec<Row> {
    for row in rows.iter_mut().filter(|row| row.pid.is_none()) {
        // A process in a namespace below this one has another number in /proc.
        let is_it = |other: &Row| (other.local, other.peer) == (row.local, row.peer);
        row.pid = others.iter().find(|other| is_it(other)).and_then(|other| other.pid);
    }
    let known: HashSet<_> = rows.iter().map(|row| (row.pid, row.local, row.peer)).collect();
    // The library's own connections to another machine, which forks share.
    let lines: HashSet<_> = rows.iter().filter_map(Row::line).collect();
    others.retain(|row| {
        !known.contains(&(row.pid, row.local, row.peer)) && !lines.contains(&(row.local, row.peer))
    });
    rows.extend(others);
    rows
}

/// The connections that processes have entered into the registry of a directory.
fn registered(directory: &Path) -> Result<Vec<Row>> {
    // Opening the registry would create it.
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let entries = Registry::open(directory)?.entries();
    Ok(entries.into_iter().filter(|entry| entry.alive).map(Row::from).collect())
}

/// A process that has the library loaded, and how it was started.
struct User {
    process: Process,
    directory: PathBuf,
    off: bool,
}

fn users() -> Vec<User> {
    let user = |process: Process| {
        let environment = process.environment();
        let config = Config::of(|name| environment.get(name));
        User { directory: config.dir, off: !config.enabled, process }
    };
    proc::own_processes().into_iter().filter(Process::has_library).map(user).collect()
}

/// The directory in which processes find each other: `chosen`, else that of this environment.
pub(crate) fn directory(chosen: Option<&Path>) -> Result<PathBuf> {
    match chosen {
        Some(chosen) => Ok(std::path::absolute(chosen)?),
        None => Ok(Config::get().dir.clone()),
    }
}

/// Every TCP connection of these processes.
fn unregistered(users: &[User]) -> Vec<Row> {
    let mut tables = TcpTables::default();
    let mut rows = Vec::new();
    let own = own_namespace();
    for User { process, off, .. } in users {
        let program = process.name();
        for connection in tables.connections(process) {
            rows.push(Row {
                pid: Some(process.pid),
                program: program.clone(),
                local: connection.local,
                peer: connection.peer,
                tx: Carrier::Tcp,
                rx: Carrier::Tcp,
                bytes: None,
                reason: match off {
                    true => Some(Reason::Disabled),
                    false => reason_of(
                        &connection,
                        own.filter(|(own, _)| process.network_namespace() == Some(*own)),
                    ),
                },
                link: None,
                line: None,
            });
        }
    }
    rows
}

/// The network namespace of this process: its number, and the kernel's cookie for it.
fn own_namespace() -> Option<(u64, u64)> {
    let number = std::fs::metadata("/proc/self/ns/net").ok()?.ino();
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    Some((number, namespace(Fd::from(&socket)).ok()?))
}

/// Why a connection that is in no registry is on TCP. If it has passed the threshold, only its
/// process knows.
fn reason_of(connection: &TcpConnection, namespace: Option<(u64, u64)>) -> Option<Reason> {
    let moved = namespace.and_then(|(_, cookie)| {
        diag::moved(connection.local, connection.peer, cookie).ok().flatten()
    });
    moved.is_none_or(|moved| moved < THRESHOLD_BYTES).then_some(Reason::BelowThreshold)
}

fn render(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "No TCP connections of programs under `seekwire run`.\n".to_owned();
    }
    const COLUMNS: [(&str, Align); 12] = [
        ("PID", Align::Right),
        ("PROGRAM", Align::Left),
        ("LOCAL", Align::Left),
        ("PEER", Align::Left),
        ("TX", Align::Left),
        ("RX", Align::Left),
        ("TX TCP", Align::Right),
        ("TX RING", Align::Right),
        ("RX TCP", Align::Right),
        ("RX RING", Align::Right),
        ("LINK", Align::Left),
        ("WHY NOT", Align::Left),
    ];
    const LINK: usize = 10;
    let cells = rows.iter().map(|row| {
        let count = |of: fn(&Bytes) -> u64| {
            row.bytes.as_ref().map_or("-".to_owned(), |bytes| table::bytes(of(bytes)))
        };
        vec![
            row.pid.map_or("-".to_owned(), |pid| pid.to_string()),
            row.program.clone(),
            row.local.to_string(),
            row.peer.to_string(),
            row.tx.to_string(),
            row.rx.to_string(),
            count(|bytes| bytes.tx_tcp),
            count(|bytes| bytes.tx_ring),
            count(|bytes| bytes.rx_tcp),
            count(|bytes| bytes.rx_ring),
            row.link.clone().unwrap_or_default(),
            match &row.reason {
                Some(reason) => reason.to_string(),
                None if row.bytes.is_none() && row.tx == Carrier::Tcp => UNKNOWN.to_owned(),
                None => String::new(),
            },
        ]
    });
    let (mut columns, mut cells) = (COLUMNS.to_vec(), cells.collect::<Vec<_>>());
    if rows.iter().all(|row| row.link.is_none()) {
        columns.remove(LINK);
        cells.iter_mut().for_each(|cells| _ = cells.remove(LINK));
    }
    table::layout(&columns, &cells)
}

impl From<Entry> for Row {
    fn from(entry: Entry) -> Self {
        let pid = (!entry.is_elsewhere).then_some(entry.pid);
        Self {
            pid,
            // The name that ps(1) shows; the entry has that of the file, which may be the target of
            // a link.
            program: pid.and_then(proc::name_of).unwrap_or(entry.program),
            local: canonical(entry.local),
            peer: canonical(entry.peer),
            tx: entry.tx,
            rx: entry.rx,
            bytes: Some(Bytes {
                tx_tcp: entry.tx_tcp,
                tx_ring: entry.tx_ring,
                rx_tcp: entry.rx_tcp,
                rx_ring: entry.rx_ring,
            }),
            reason: entry.reason,
            link: entry.link,
            line: entry.line,
        }
    }
}

/// IPv4 addresses as such, even if they come from an IPv6 socket.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Serializes carriers and reasons as words, for people and for JSON.
fn as_word<T: ToString, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.to_string())
}

fn as_word_or_null<T: ToString, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(T::to_string).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: Option<Bytes>, carrier: Carrier, reason: Option<Reason>) -> Row {
        Row {
            pid: Some(7),
            program: "redis-server".into(),
            local: "127.0.0.1:6379".parse().unwrap(),
            peer: "127.0.0.1:50000".parse().unwrap(),
            tx: carrier,
            rx: carrier,
            bytes,
            reason,
            link: None,
            line: None,
        }
    }

    #[test]
    fn a_table_shows_carriers_bytes_and_reasons() {
        let bytes = Bytes { tx_tcp: 100, tx_ring: 4096, rx_tcp: 0, rx_ring: 3 << 20 };
        let text = render(&[
            row(Some(bytes), Carrier::Ring, None),
            row(None, Carrier::Tcp, Some(Reason::BelowThreshold)),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].contains("ring  ring   100 B  4.0 KiB     0 B  3.0 MiB"), "{text}");
        assert!(lines[2].ends_with("-  below threshold"), "{text}");
    }

    #[test]
    fn a_connection_that_has_moved_much_is_not_said_to_be_below_the_threshold() {
        use std::io::Read;
        use std::net::TcpStream;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut to, _) = listener.accept().unwrap();
        let reason = |end: &TcpStream| {
            let (local, peer) = (end.local_addr().unwrap(), end.peer_addr().unwrap());
            reason_of(&TcpConnection { local, peer }, own_namespace())
        };
        assert_eq!(reason(&from), Some(Reason::BelowThreshold));
        let mut piece = vec![0; 1 << 14];
        for _ in 0..10 {
            from.write_all(&piece).unwrap();
            to.read_exact(&mut piece).unwrap();
        }
        assert_eq!(reason(&to), None);
        let text = render(&[row(None, Carrier::Tcp, None)]);
        assert!(text.trim_end().ends_with(UNKNOWN), "{text}");
    }

    #[test]
    fn the_links_of_connections_are_shown_where_there_are_any() {
        let plain = row(None, Carrier::Tcp, Some(Reason::BelowThreshold));
        let linked = Row { link: Some("db-web".into()), ..row(None, Carrier::Ring, None) };
        assert!(!render(std::slice::from_ref(&plain)).contains("LINK"));
        let text = render(&[plain, linked]);
        assert!(text.lines().next().unwrap().ends_with("LINK    WHY NOT"), "{text}");
        assert!(text.lines().nth(2).unwrap().trim_end().ends_with("db-web"), "{text}");
    }

    #[test]
    fn the_line_of_a_connection_is_not_shown_as_one_of_the_programs() {
        let linked = Row { line: Some((40000, 40001)), ..row(None, Carrier::Ring, None) };
        let line = Row {
            local: "127.0.0.1:40000".parse().unwrap(),
            peer: "127.0.0.1:40001".parse().unwrap(),
            ..row(None, Carrier::Tcp, Some(Reason::BelowThreshold))
        };
        let other = Row { local: "127.0.0.1:40002".parse().unwrap(), ..line.clone() };
        assert_eq!(join(vec![linked.clone()], vec![line, other.clone()]), [linked, other]);
    }

    #[test]
    fn a_process_of_another_namespace_is_shown_once_and_by_the_number_that_it_has_here() {
        let bytes = Bytes { tx_tcp: 1, tx_ring: 2, rx_tcp: 3, rx_ring: 4 };
        let entered = Row { pid: None, ..row(Some(bytes), Carrier::Ring, None) };
        let seen = Row { pid: Some(4711), ..row(None, Carrier::Tcp, Some(Reason::BelowThreshold)) };
        let elsewhere = Row { peer: "127.0.0.1:50001".parse().unwrap(), ..seen.clone() };
        let joined = join(vec![entered.clone()], vec![seen, elsewhere.clone()]);
        assert_eq!(joined, [Row { pid: Some(4711), ..entered.clone() }, elsewhere]);
        assert!(render(&join(vec![entered], Vec::new())).contains("\n  -  redis-server"));
    }

    #[test]
    fn json_has_exact_numbers() {
        let bytes = Bytes { tx_tcp: 1, tx_ring: 2, rx_tcp: 3, rx_ring: u64::MAX };
        let json = serde_json::to_value(row(Some(bytes), Carrier::Ring, None)).unwrap();
        assert_eq!(json["tx"], "ring");
        assert_eq!(json["local"], "127.0.0.1:6379");
        assert_eq!(json["bytes"]["rx_ring"], u64::MAX);
        assert!(json["reason"].is_null());
    }
}
