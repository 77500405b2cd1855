//! `seekwire status`: the live connections of the user's processes.
//!
//! Two sources are joined. The registry knows the connections that passed the threshold, with their
//! counters. /proc knows which processes have the library loaded and every TCP connection they
//! hold; a connection that is not in the registry is plain TCP.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use seekwire_endpoint::config::THRESHOLD_BYTES;
use seekwire_endpoint::registry::{Registry, RegistryEntry};
use seekwire_endpoint::{Carrier, Config, Reason};
use seekwire_program::command_line::WIDTH;
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
    /// The ports of the wake channel to that machine.
    #[serde(skip)]
    wake_ports: Option<(u16, u16)>,
    /// The inode of the socket, if /proc has shown it.
    #[serde(skip)]
    socket: Option<u64>,
    /// While watching, since the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_second: Option<Rates>,
}

impl Row {
    fn key(&self) -> (Option<u32>, SocketAddr, SocketAddr) {
        (self.pid, self.local, self.peer)
    }

    /// The ends of the wake channel to another machine.
    fn wake_channel(&self) -> Option<(SocketAddr, SocketAddr)> {
        let (own, peer) = self.wake_ports?;
        Some((SocketAddr::new(self.local.ip(), own), SocketAddr::new(self.peer.ip(), peer)))
    }

    /// Why a direction is on TCP, if that is known.
    fn why_not(&self) -> Option<String> {
        match &self.reason {
            Some(reason) => Some(reason.to_string()),
            None if self.bytes.is_none() && self.tx == Carrier::Tcp => Some(UNKNOWN.to_owned()),
            None => None,
        }
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

/// Bytes moved in a second, on both carriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Rates {
    tx: u64,
    rx: u64,
}

/// Prints the table, once or until it is interrupted.
///
/// # Errors
///
/// Those of writing to standard output; the registry being another user's or damaged.
pub(crate) fn status(options: &arguments::StatusArguments) -> Result<()> {
    let mut out = standard::output()?.lock();
    let redraws = options.watch.is_some() && !options.json && out.is_terminal();
    let mut before: Option<(Instant, Vec<Row>)> = None;
    loop {
        let (now, mut rows) = (Instant::now(), rows(options)?);
        if let Some((then, before)) = &before {
            add_rates(&mut rows, before, now.duration_since(*then));
        }
        let text = if options.json { serde_json::to_string(&rows)? + "\n" } else { render(&rows) };
        if redraws {
            // Home, and erase the display (ECMA-48).
            out.write_all(b"\x1b[H\x1b[2J")?;
        }
        out.write_all(text.as_bytes())?;
        out.flush()?;
        let Some(period) = options.watch else {
            return Ok(());
        };
        before = Some((now, rows));
        if reader_left_within(period.get())? {
            return Ok(());
        }
    }
}

/// Adds the rates of connections that `before` has as well.
fn add_rates(rows: &mut [Row], before: &[Row], elapsed: Duration) {
    let before: HashMap<_, Bytes> =
        before.iter().filter_map(|row| Some((row.key(), row.bytes?))).collect();
    for row in rows {
        let (Some(now), Some(then)) = (row.bytes, before.get(&row.key())) else { continue };
        // A later connection with the same addresses begins at zero again.
        let rate = |now: u64, then: u64| {
            (now.saturating_sub(then) as f64 / elapsed.as_secs_f64().max(1e-9)) as u64
        };
        row.bytes_per_second = Some(Rates {
            tx: rate(now.tx_tcp + now.tx_ring, then.tx_tcp + then.tx_ring),
            rx: rate(now.rx_tcp + now.rx_ring, then.rx_tcp + then.rx_ring),
        });
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
fn rows(options: &arguments::StatusArguments) -> Result<Vec<Row>> {
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
    rows.sort_by_key(Row::key);
    Ok(rows)
}

/// The reason for a connection whose process keeps it from the registry.
const UNKNOWN: &str = "not in the registry; SEEKWIRE_LOG says why";

/// Joins the registry's rows with those that only /proc has.
fn join(mut rows: Vec<Row>, others: Vec<Row>) -> Vec<Row> {
    for row in rows.iter_mut().filter(|row| row.pid.is_none()) {
        // A process in a namespace below this one has another number in /proc.
        let is_it = |other: &Row| (other.local, other.peer) == (row.local, row.peer);
        row.pid = others.iter().find(|other| is_it(other)).and_then(|other| other.pid);
    }
    let listed: HashMap<_, &Row> = rows.iter().map(|row| (row.key(), row)).collect();
    // The library's own connections to another machine, which forks share.
    let wake_channels: HashSet<_> = rows.iter().filter_map(Row::wake_channel).collect();
    let is_wake_channel = |row: &Row| wake_channels.contains(&(row.local, row.peer));
    // Of the processes that share a socket, only one has entered it.
    let shared: HashMap<_, &Row> =
        others.iter().filter_map(|row| Some((row.socket?, *listed.get(&row.key())?))).collect();
    let others: Vec<Row> = others
        .iter()
        .filter(|row| !listed.contains_key(&row.key()) && !is_wake_channel(row))
        .map(|row| match row.socket.and_then(|socket| shared.get(&socket)) {
            Some(entered) => {
                Row { pid: row.pid, program: row.program.clone(), ..Row::clone(entered) }
            }
            None => row.clone(),
        })
        .collect();
    rows.extend(others);
    rows
}

/// The connections that processes have entered into the registry of a directory.
fn registered(directory: &Path) -> Result<Vec<Row>> {
    // Opening the registry would create it. A directory of others is reported.
    let has_none =
        || proc::is_private_directory(directory).unwrap_or(false) && !Registry::is_in(directory);
    if !directory.exists() || has_none() {
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
                wake_ports: None,
                socket: Some(connection.socket),
                bytes_per_second: None,
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
        let traffic = diag::traffic(connection.local, connection.peer, cookie).ok().flatten();
        traffic.map(|traffic| traffic.bytes)
    });
    moved.is_none_or(|moved| moved < THRESHOLD_BYTES).then_some(Reason::BelowThreshold)
}

/// The table in lines of at most [`WIDTH`] columns: for each connection one with its process and its
/// ends, one with its carriers and bytes, and more if it uses a link or is on TCP.
fn render(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "No TCP connections of programs under `seekwire run`.\n".to_owned();
    }
    let [mut heads, counts] = [ends(rows, true), counts(rows)];
    // Two IPv6 addresses take a line each.
    let is_wide = heads.lines().any(|line| line.chars().count() > WIDTH);
    if is_wide {
        heads = ends(rows, false);
    }
    let mut text = String::new();
    let mut add = |indent: &str, line: &str| {
        text += indent;
        text += line;
        text.push('\n');
    };
    let above = [None].into_iter().chain(rows.iter().map(Some));
    for ((row, head), count) in above.zip(heads.lines()).zip(counts.lines()) {
        add("", head);
        if is_wide {
            add(INDENT, &row.map_or("PEER".to_owned(), |row| row.peer.to_string()));
        }
        add(INDENT, count);
        if let Some(link) = row.and_then(|row| row.link.as_ref()) {
            add(INDENT, &format!("LINK: {}", table::printable(link)));
        }
        if let Some(why) = row.and_then(Row::why_not) {
            add(INDENT, &format!("WHY NOT: {why}"));
        }
    }
    if rows.iter().any(|row| row.reason.is_some()) {
        text += "`seekwire reasons` explains what follows WHY NOT.\n";
    }
    text
}

/// Precedes the further lines of a connection.
const INDENT: &str = "      ";

/// The processes and the ends of the connections, under a header.
fn ends(rows: &[Row], has_peer: bool) -> String {
    const COLUMNS: [(&str, Align); 4] = [
        ("PID", Align::Left),
        ("PROGRAM", Align::Left),
        ("LOCAL", Align::Left),
        ("PEER", Align::Left),
    ];
    let shown = COLUMNS.len() - usize::from(!has_peer);
    let cells = rows.iter().map(|row| {
        let pid = row.pid.map_or("-".to_owned(), |pid| pid.to_string());
        let cells = [pid, row.program.clone(), row.local.to_string(), row.peer.to_string()];
        cells.into_iter().take(shown).collect()
    });
    table::layout(&COLUMNS[..shown], &cells.collect::<Vec<_>>())
}

/// The carriers and the bytes of the connections, under a header.
fn counts(rows: &[Row]) -> String {
    const COLUMNS: [(&str, Align); 8] = [
        ("TX", Align::Left),
        ("RX", Align::Left),
        ("TX TCP", Align::Right),
        ("TX RING", Align::Right),
        ("RX TCP", Align::Right),
        ("RX RING", Align::Right),
        ("TX/S", Align::Right),
        ("RX/S", Align::Right),
    ];
    let has_rates = rows.iter().any(|row| row.bytes_per_second.is_some());
    let shown = if has_rates { COLUMNS.len() } else { COLUMNS.len() - 2 };
    let bytes = |count: Option<u64>| count.map_or("-".to_owned(), table::bytes);
    let cells = rows.iter().map(|row| {
        let cells = [
            row.tx.to_string(),
            row.rx.to_string(),
            bytes(row.bytes.map(|bytes| bytes.tx_tcp)),
            bytes(row.bytes.map(|bytes| bytes.tx_ring)),
            bytes(row.bytes.map(|bytes| bytes.rx_tcp)),
            bytes(row.bytes.map(|bytes| bytes.rx_ring)),
            bytes(row.bytes_per_second.map(|rates| rates.tx)),
            bytes(row.bytes_per_second.map(|rates| rates.rx)),
        ];
        cells.into_iter().take(shown).collect()
    });
    table::layout(&COLUMNS[..shown], &cells.collect::<Vec<_>>())
}

impl From<RegistryEntry> for Row {
    fn from(entry: RegistryEntry) -> Self {
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
            wake_ports: entry.wake_ports,
            socket: None,
            bytes_per_second: None,
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
mod tests;
