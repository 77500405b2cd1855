//! The links of this machine to others, and incoming lines for connections over them.
//!
//! As with offers, no thread waits for lines: the signal word of an entry announces its line, and
//! the next caller that sees one accepts all lines and keeps those for other connections here.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use seekwire_link::map::{Definition, Map, MapError};
use seekwire_link::{Link, LinkError, Peers};
use seekwire_protocol::Reason;
use seekwire_transport::Errno;
use seekwire_transport::sys::fd::Placed;
use seekwire_transport::sys::poll::{self, Events};
use seekwire_transport::sys::{event_channel, filter, line, socket, thread};

use crate::fork::patient_lock;
use crate::scarcity;

/// How long cached map, link and agent lookups stay valid.
const TRUST: Duration = Duration::from_secs(1);
/// Maximum number of lines that have not yet named their connection: as many as connections may
/// begin at once. Beyond that, a line of the address that has most is closed.
const COMING: usize = 1024;
/// How long a line may take to send its hello. A line that takes longer is closed at the next look
/// for lines, or when a connection begins or stops to wait for one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Length of a line's hello: the nonce of the entry that the line is for, the nonce of the entry
/// that it comes from, and a secret that is written nowhere else.
pub(crate) const HELLO: usize = 48;
/// Maximum number of lines that one call of the program accepts.
const AT_ONCE: usize = 64;
/// Maximum number of lines from addresses of no link that such a call also closes.
const STRANGERS: usize = 1024;
/// Maximum number of lines that are read at a time: the newly accepted ones first, then others in
/// turn.
const HEARD: usize = 256;

// ---- links -----------------------------------------------------------------------------------

/// Identifies one version of a file's content.
type Version = Option<(u64, i64, i64, u64)>;

struct Known {
    pid: u32,
    looked: Option<Instant>,
    version: Version,
    /// The version of the map file that could not be read, unless it was read since.
    unreadable: Option<Version>,
    map: Map,
    links: HashMap<String, Tried>,
    /// By the name of the link.
    found: HashMap<String, Found>,
}

/// The addresses that an agent has found for a link.
#[derive(Default)]
struct Found {
    version: Version,
    peers: Option<Peers>,
}

struct Tried {
    link: Result<Arc<Link>, Reason>,
    at: Instant,
    /// The definition in the map at that time.
    definition: Definition,
    state: PathBuf,
}

impl Tried {
    fn is_of(&self, map: &Map) -> bool {
        self.state == map.state() && map.get(&self.definition.name) == Some(&self.definition)
    }

    fn is_detached_here(&self) -> bool {
        self.link.as_ref().is_ok_and(|link| link.is_detached_here())
    }
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Keeps connections off links from now on: the program has system call filters, which were not
/// tested with the calls that links need.
pub fn forbid() {
    FORBIDDEN.store(true, Ordering::Relaxed);
    event_channel::avoid();
}

fn map_path() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(Map::path)
}

fn version(path: &Path) -> Version {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}

/// The link to the machine that has an address; `None` if the map file has none, and no agent has
/// found one.
///
/// # Errors
/// Why it cannot be used now.
pub(crate) fn link_to(address: IpAddr) -> Option<Result<Arc<Link>, Reason>> {
    if FORBIDDEN.load(Ordering::Relaxed) {
        return None;
    }
    let mut guard = patient_lock(&KNOWN)?;
    let now = Instant::now();
    let pid = thread::process_id();
    let known = match &mut *guard {
        Some(known) if known.pid == pid => known,
        // A child opens links of its own; those that the parent opened are counted by the parent.
        other => other.insert(Known {
            pid,
            looked: None,
            version: None,
            unreadable: None,
            map: Map::default(),
            links: HashMap::new(),
            found: HashMap::new(),
        }),
    };
    let address = address.to_canonical();
    if known.looked.is_none_or(|looked| now.duration_since(looked) >= TRUST) {
        known.looked = Some(now);
        known.read();
        known.let_go();
    }
    match known.map.of_address(address).cloned() {
        Some(definition) => Some(known.link(&definition, now)),
        None => known.link_found(address, now).map(Ok),
    }
}

/// A connection on this link has closed. If the link is no longer used, this process unmaps it with
/// the last such connection.
pub(crate) fn leave_link(link: &Arc<Link>) {
    if !link.is_detached() {
        return;
    }
    let mut guard = patient_lock(&KNOWN);
    let known = guard.as_mut().and_then(|guard| guard.as_mut());
    let is_it = |tried: &Tried| tried.link.as_ref().is_ok_and(|known| Arc::ptr_eq(known, link));
    let left = known.and_then(|known| {
        let name = link.name();
        known.links.get(name).is_some_and(is_it).then(|| known.links.remove(name))
    });
    drop(guard);
    drop(left);
}

/// Whether the last known map or agent assigns an address to a link.
fn is_behind_a_link(address: IpAddr) -> bool {
    let guard = patient_lock(&KNOWN);
    let known = guard.as_ref().and_then(|guard| guard.as_ref());
    let address = address.to_canonical();
    known.is_some_and(|known| {
        known.map.of_address(address).is_some()
            || known.found.values().any(|found| found.has(address))
    })
}

impl Found {
    fn has(&self, address: IpAddr) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.addresses.binary_search(&address).is_ok())
    }
}

impl Known {
    /// Reads the map file and the agents' files again if they have changed.
    fn read(&mut self) {
        let version = version(map_path());
        if version != self.version {
            let map = Map::read(map_path());
            // An unreadable map, for example without free descriptors, is read again, but reported
            // only once.
            let is_told = self.unreadable.replace(version) == Some(version);
            if map.is_ok() {
                (self.version, self.unreadable) = (version, None);
            }
            self.found.clear();
            self.take(map, is_told);
        }
        for link in self.map.links() {
            let version = self::version(&Peers::path(link, self.map.state()));
            let found = self.found.entry(link.name.clone()).or_default();
            if version != found.version {
                let peers = version.and_then(|_| Peers::read(link, self.map.state()));
                *found = Found { version, peers };
            }
        }
    }

    /// Links that are unchanged in the map stay open. While the map cannot be read, all stay open:
    /// connections may be about to use them.
    fn take(&mut self, map: Result<Map, MapError>, is_told: bool) {
        match map {
            Ok(map) => {
                self.links.retain(|_, tried| tried.is_of(&map));
                self.map = map;
            }
            Err(error) => {
                if !is_told {
                    tracing::error!("no connection goes over a link: {error}");
                }
                self.map = Map::default();
            }
        }
    }

    /// Closes the links that are no longer used. Connections that are still on one keep it open.
    fn let_go(&mut self) {
        self.links.retain(|_, tried| !tried.is_detached_here());
    }

    /// The link for which an agent has found an address, if that is still valid; `None` if two
    /// links claim it.
    fn link_found(&mut self, address: IpAddr, now: Instant) -> Option<Arc<Link>> {
        let has =
            |link: &&Definition| self.found.get(&link.name).is_some_and(|found| found.has(address));
        let mut links = self.map.links().iter().filter(has);
        let definition = links.next()?.clone();
        if links.next().is_some() {
            return None;
        }
        let link = self.link(&definition, now).ok()?;
        let peers = self.found.get(&definition.name)?.peers.as_ref()?;
        link.believes(peers).then_some(link)
    }

    fn link(&mut self, definition: &Definition, now: Instant) -> Result<Arc<Link>, Reason> {
        // A link of another map is kept only while the new one cannot be read.
        if let Some(tried) = self.links.get(&definition.name).filter(|it| it.is_of(&self.map)) {
            match &tried.link {
                Ok(link) if !link.is_detached() => return Ok(Arc::clone(link)),
                // The other machine may attach again.
                Ok(link) if !link.is_detached_here() => return Err(Reason::NoLink),
                _ if now.duration_since(tried.at) < TRUST => {
                    return Err(tried.link.as_ref().err().copied().unwrap_or(Reason::NoLink));
                }
                _ => {}
            }
        }
        if filter::installed() != Some(0) {
            forbid();
            return Err(Reason::Filtered);
        }
        let link = Link::open(definition, self.map.state()).map(Arc::new).map_err(|error| {
            match &error {
                LinkError::NotAttached(_) | LinkError::Detached(_) => {
                    tracing::info!("{error}");
                }
                _ => tracing::warn!("{error}; see seekwire doctor"),
            }
            Reason::NoLink
        });
        let (definition, state) = (definition.clone(), self.map.state().to_owned());
        let tried = Tried { link, at: now, definition, state };
        let result = tried.link.as_ref().map(Arc::clone).map_err(|reason| *reason);
        self.links.insert(tried.definition.name.clone(), tried);
        result
    }
}

// ---- lines -----------------------------------------------------------------------------------

struct Listener {
    address: IpAddr,
    namespace: u64,
    socket: Placed,
    port: u16,
}

/// A line that has not sent all of its hello.
struct Coming {
    since: Instant,
    line: Placed,
    from: SocketAddr,
    hello: [u8; HELLO],
    heard: usize,
}

/// A line for a connection, and the nonce of the entry that it comes from.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) line: Placed,
    pub(crate) from: IpAddr,
    pub(crate) nonce: u128,
    pub(crate) secret: u128,
}

struct Lines {
    pid: u32,
    listeners: Vec<Listener>,
    /// Those to be read first are at the front.
    coming: VecDeque<Coming>,
    /// By the nonce of the entry that each is for.
    boxes: HashMap<u128, Option<Arrived>>,
}

static LINES: Mutex<Option<Lines>> = Mutex::new(None);

/// Listens for lines at the address of a connection of this process; returns the port. `namespace`
/// is the network namespace of that connection.
///
/// # Errors
/// [`Reason::NoLine`] if this thread is in another network namespace, or cannot listen.
pub(crate) fn port_at(address: IpAddr, namespace: u64) -> Result<u16, Reason> {
    let mut guard = patient_lock(&LINES).ok_or(Reason::NoLine)?;
    let pid = thread::process_id();
    let lines = match &mut *guard {
        Some(lines) if lines.pid == pid => lines,
        // A child does not own what it inherits: it only closes its copies.
        other => other.insert(Lines {
            pid,
            listeners: Vec::new(),
            coming: VecDeque::new(),
            boxes: HashMap::new(),
        }),
    };
    let is_at = |known: &&Listener| (known.address, known.namespace) == (address, namespace);
    if let Some(listener) = lines.listeners.iter().find(is_at) {
        return Ok(listener.port);
    }
    let (socket, port) = line::listen_at(address).map_err(|error| no_line(&error))?;
    if socket::namespace(socket.fd()) != Ok(namespace) {
        return Err(Reason::NoLine);
    }
    lines.listeners.push(Listener { address, namespace, socket, port });
    Ok(port)
}

/// Begins the line of a connection between two addresses in a network namespace.
///
/// # Errors
/// As for [`port_at`].
pub(crate) fn begin(from: IpAddr, to: SocketAddr, namespace: u64) -> Result<Placed, Reason> {
    let line = line::begin(from, to).map_err(|error| no_line(&error))?;
    if socket::namespace(line.fd()) == Ok(namespace) { Ok(line) } else { Err(Reason::NoLine) }
}

pub(crate) fn no_line(error: &std::io::Error) -> Reason {
    if error.raw_os_error() == Some(Errno::ADDRNOTAVAIL.raw_os_error()) {
        tracing::warn!(
            "no line to the other machine: {error}; let there be more local ports \
             (net.ipv4.ip_local_port_range)"
        );
    } else {
        tracing::debug!("no line to the other machine: {error}");
    }
    scarcity::reason_of(error).unwrap_or(Reason::NoLine)
}

/// Encodes the hello of a line.
pub(crate) fn hello(to: u128, from: u128, secret: u128) -> [u8; HELLO] {
    let mut hello = [0; HELLO];
    for (bytes, number) in hello.chunks_exact_mut(16).zip([to, from, secret]) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    hello
}

/// Keeps a line for the entry with this nonce from now on, until [`forget`].
pub(crate) fn expect(nonce: u128) {
    let mut guard = patient_lock(&LINES);
    let late = guard.as_mut().and_then(|guard| guard.as_mut()).map(|lines| {
        lines.boxes.entry(nonce).or_default();
        // Silent clients would otherwise fill the kernel's queue, and then no line could arrive
        // whose signal would empty it.
        lines.take_in(is_behind_a_link).0
    });
    drop(guard);
    drop(late);
}

/// Takes the line for the entry with this nonce, if it has arrived.
///
/// # Errors
/// The resource that this process lacks to accept lines.
pub(crate) fn line_for(nonce: u128) -> Result<Option<Arrived>, Reason> {
    line_from(nonce, is_behind_a_link)
}

/// As [`line_for`], but accepts only from addresses for which `is_welcome` is true.
fn line_from(nonce: u128, is_welcome: fn(IpAddr) -> bool) -> Result<Option<Arrived>, Reason> {
    let mut guard = patient_lock(&LINES);
    let Some(lines) = guard.as_mut().and_then(|guard| guard.as_mut()) else { return Ok(None) };
    let Some(kept) = lines.boxes.get_mut(&nonce) else { return Ok(None) };
    if let Some(arrived) = kept.take() {
        return Ok(Some(arrived));
    }
    let (late, lacks) = lines.take_in(is_welcome);
    let arrived = lines.boxes.get_mut(&nonce).and_then(Option::take);
    drop(guard);
    drop(late);
    match (arrived, lacks) {
        (None, Some(reason)) => Err(reason),
        (arrived, _) => Ok(arrived),
    }
}

/// Drops the line of this entry, now or when it comes.
pub(crate) fn forget(nonce: u128) {
    let mut guard = patient_lock(&LINES);
    let kept = guard
        .as_mut()
        .and_then(|guard| guard.as_mut())
        .map(|lines| (lines.boxes.remove(&nonce), lines.take_silent()));
    drop(guard);
    drop(kept);
}

/// Stops listening, at the end of this process's part.
pub(crate) fn leave() {
    let Some(mut guard) = patient_lock(&LINES) else { return };
    let lines = guard.take();
    drop(guard);
    drop(lines);
}

impl Lines {
    /// Removes the lines that have not sent their hello in time, for the caller to drop when it no
    /// longer holds the lock.
    #[must_use]
    fn take_silent(&mut self) -> Vec<Placed> {
        let is_silent = |coming: &Coming| coming.since.elapsed() > PATIENCE;
        let (silent, others) = self.coming.drain(..).partition(is_silent);
        self.coming = others;
        VecDeque::into_iter(silent).map(|silent| silent.line).collect()
    }

    /// Accepts and reads lines. Returns those for which no entry waits, for the caller to drop when
    /// it no longer holds the lock, and the resource that this process lacks to accept more.
    #[must_use]
    fn take_in(&mut self, is_welcome: fn(IpAddr) -> bool) -> (Vec<Placed>, Option<Reason>) {
        let mut late = self.take_silent();
        let since = Instant::now();
        let share = |of_all: usize| of_all.div_ceil(self.listeners.len().max(1));
        let (at_once, strangers_at_once) = (share(AT_ONCE), share(STRANGERS));
        let mut lacks = None;
        for listener in &self.listeners {
            let (mut taken, mut strangers) = (0, 0);
            while taken < at_once && strangers < strangers_at_once {
                match line::accept(&listener.socket) {
                    // No other address may connect here.
                    Ok(Some((line, from))) if !is_welcome(from.ip()) => {
                        strangers += 1;
                        drop(line);
                    }
                    Ok(Some((line, from))) => {
                        taken += 1;
                        let hello = [0; HELLO];
                        self.coming.push_front(Coming { since, line, from, hello, heard: 0 });
                    }
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!("a line was not taken in: {error}");
                        // This error also occurs when no line has come.
                        let has_come = || {
                            poll::look(listener.socket.fd(), Events::READ)
                                .is_ok_and(|events| events.read)
                        };
                        lacks = lacks.or(scarcity::reason_of(&error).filter(|_| has_come()));
                        break;
                    }
                }
            }
        }
        for _ in 0..HEARD.min(self.coming.len()) {
            let Some(mut coming) = self.coming.pop_front() else { break };
            match line::hear(&coming.line, &mut coming.hello[coming.heard..]) {
                Ok(Some(len)) => coming.heard += len,
                Ok(None) => {}
                Err(_) => {
                    late.push(coming.line);
                    continue;
                }
            }
            if coming.heard < HELLO {
                self.coming.push_back(coming);
                continue;
            }
            let word = |at: usize| {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(&coming.hello[at..at + 16]);
                u128::from_le_bytes(bytes)
            };
            let from = coming.from.ip().to_canonical();
            let (nonce, secret, line) = (word(16), word(32), coming.line);
            match self.boxes.get_mut(&word(0)) {
                Some(kept) => late
                    .extend(kept.replace(Arrived { line, from, nonce, secret }).map(|it| it.line)),
                None => late.push(line),
            }
        }
        // Closing one frees what the next one needs.
        let most = if lacks.is_some() { self.coming.len().saturating_sub(1) } else { COMING };
        late.extend(self.make_room(most.min(COMING)));
        (late, lacks)
    }

    /// Removes the lines beyond the number `most`: each time, of the address that has most, the one
    /// that has been silent for longest.
    #[must_use]
    fn make_room(&mut self, most: usize) -> Vec<Placed> {
        let mut left = Vec::new();
        if self.coming.len() <= most {
            return left;
        }
        let of = |coming: &Coming| coming.from.ip().to_canonical();
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for coming in &self.coming {
            *counts.entry(of(coming)).or_default() += 1;
        }
        while self.coming.len() > most {
            let rank = |coming: &Coming| (counts.get(&of(coming)).copied(), Reverse(coming.since));
            let last = self.coming.iter().enumerate().max_by_key(|(_, coming)| rank(coming));
            let last = last.map(|(at, _)| at);
            let Some(coming) = last.and_then(|at| self.coming.remove(at)) else { break };
            counts.entry(of(&coming)).and_modify(|count| *count -= 1);
            left.push(coming.line);
        }
        left
    }
}

#[cfg(test)]
mod tests;
