//! The links of this machine to others, and incoming wake channels for connections over them.
//!
//! As with offers, no thread waits for wake channels: the signal word of an entry announces its
//! own, and the next caller that sees a signal accepts all of them and keeps those for other
//! connections here.

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
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::poll::{self, Events};
use seekwire_transport::sys::{event_channel, filter, socket, thread, wake_connection};

use crate::fork::patient_lock;
use crate::scarcity;

/// How long cached map, link and agent lookups stay valid.
const TRUST: Duration = Duration::from_secs(1);
/// Maximum number of wake channels that have not yet named their connection: as many as connections
/// may begin at once. Beyond that, one of the address that has most is closed.
const MAX_PENDING: usize = 1024;
/// How long a wake channel may take to send its hello. One that takes longer is closed at the next
/// look for wake channels, or when a connection begins or stops to wait for one.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Length of a hello: the nonce of the entry that the wake channel is for, the nonce of the entry
/// that it comes from, and a secret that is written nowhere else.
pub(crate) const HELLO: usize = 48;
/// Maximum number of wake channels that one call of the program accepts.
const AT_ONCE: usize = 64;
/// Maximum number of connections from addresses of no link that such a call also closes.
const FOREIGN_AT_ONCE: usize = 1024;
/// Maximum number of pending wake channels that are read at a time: the newly accepted ones first,
/// then others in turn.
const READ_AT_ONCE: usize = 256;

// ---- links -----------------------------------------------------------------------------------

/// Identifies one version of a file's content.
type Version = Option<(u64, i64, i64, u64)>;

struct LinkCache {
    pid: u32,
    looked: Option<Instant>,
    version: Version,
    /// The version of the map file that could not be read, unless it was read since.
    unreadable: Option<Version>,
    map: Map,
    links: HashMap<String, LinkAttempt>,
    /// By the name of the link.
    peers: HashMap<String, PeerCache>,
}

/// The addresses that an agent has found for a link.
#[derive(Default)]
struct PeerCache {
    /// `None` if there was no file that could be read.
    version: Version,
    peers: Option<Peers>,
}

struct LinkAttempt {
    link: Result<Arc<Link>, Reason>,
    at: Instant,
    /// The definition in the map at that time.
    definition: Definition,
    state: PathBuf,
}

impl LinkAttempt {
    fn is_of(&self, map: &Map) -> bool {
        self.state == map.state() && map.get(&self.definition.name) == Some(&self.definition)
    }

    fn is_detached_here(&self) -> bool {
        self.link.as_ref().is_ok_and(|link| link.is_detached_here())
    }
}

static LINK_CACHE: Mutex<Option<LinkCache>> = Mutex::new(None);
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
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.size()))
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
    let mut guard = patient_lock(&LINK_CACHE)?;
    let now = Instant::now();
    let pid = thread::process_id();
    let cache = match &mut *guard {
        Some(cache) if cache.pid == pid => cache,
        // A child opens links of its own; those that the parent opened are counted by the parent.
        other => other.insert(LinkCache {
            pid,
            looked: None,
            version: None,
            unreadable: None,
            map: Map::default(),
            links: HashMap::new(),
            peers: HashMap::new(),
        }),
    };
    let address = address.to_canonical();
    if cache.looked.is_none_or(|looked| now.duration_since(looked) >= TRUST) {
        cache.looked = Some(now);
        cache.read();
        cache.close_detached();
    }
    match cache.map.of_address(address).cloned() {
        Some(definition) => Some(cache.link(&definition, now)),
        None => cache.link_by_agent(address, now).map(Ok),
    }
}

/// A connection on this link has closed. If the link is no longer used, this process unmaps it with
/// the last such connection.
pub(crate) fn leave_link(link: &Arc<Link>) {
    if !link.is_detached() {
        return;
    }
    let mut guard = patient_lock(&LINK_CACHE);
    let cache = guard.as_mut().and_then(|guard| guard.as_mut());
    let is_it =
        |attempt: &LinkAttempt| attempt.link.as_ref().is_ok_and(|open| Arc::ptr_eq(open, link));
    let closed = cache.and_then(|cache| {
        let name = link.name();
        cache.links.get(name).is_some_and(is_it).then(|| cache.links.remove(name))
    });
    drop(guard);
    drop(closed);
}

/// Whether the cached map or an agent assigns an address to a link.
fn is_behind_a_link(address: IpAddr) -> bool {
    let guard = patient_lock(&LINK_CACHE);
    let cache = guard.as_ref().and_then(|guard| guard.as_ref());
    let address = address.to_canonical();
    cache.is_some_and(|cache| {
        cache.map.of_address(address).is_some()
            || cache.peers.values().any(|peers| peers.has(address))
    })
}

impl PeerCache {
    /// A file that cannot be read, for example without free descriptors, is read again later.
    fn of(version: Version, read: impl FnOnce() -> Option<Peers>) -> Self {
        let peers = version.and_then(|_| read());
        Self { version: version.filter(|_| peers.is_some()), peers }
    }

    fn has(&self, address: IpAddr) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.addresses.binary_search(&address).is_ok())
    }
}

impl LinkCache {
    /// Reads the map file and the agents' files again if they have changed.
    fn read(&mut self) {
        let version = version(map_path());
        if version != self.version {
            let map = Map::read(map_path());
            // An unreadable map, for example without free descriptors, is read again, but reported
            // only once.
            let is_reported = self.unreadable.replace(version) == Some(version);
            if map.is_ok() {
                (self.version, self.unreadable) = (version, None);
            }
            self.peers.clear();
            self.apply(map, is_reported);
        }
        for link in self.map.links() {
            let version = self::version(&Peers::path(link, self.map.state()));
            let cached = self.peers.entry(link.name.clone()).or_default();
            if version != cached.version {
                *cached = PeerCache::of(version, || Peers::read(link, self.map.state()));
            }
        }
    }

    /// Links that are unchanged in the map stay open. While the map cannot be read, all stay open:
    /// connections may be about to use them.
    fn apply(&mut self, map: Result<Map, MapError>, is_reported: bool) {
        match map {
            Ok(map) => {
                self.links.retain(|_, attempt| attempt.is_of(&map));
                self.map = map;
            }
            Err(error) => {
                if !is_reported {
                    tracing::error!("no connection goes over a link: {error}");
                }
                self.map = Map::default();
            }
        }
    }

    /// Closes the links that are no longer used. Connections that are still on one keep it open.
    fn close_detached(&mut self) {
        self.links.retain(|_, attempt| !attempt.is_detached_here());
    }

    /// The link for which an agent has found an address, if that is still valid; `None` if two
    /// links claim it.
    fn link_by_agent(&mut self, address: IpAddr, now: Instant) -> Option<Arc<Link>> {
        let has =
            |link: &&Definition| self.peers.get(&link.name).is_some_and(|peers| peers.has(address));
        let mut links = self.map.links().iter().filter(has);
        let definition = links.next()?.clone();
        if links.next().is_some() {
            return None;
        }
        let link = self.link(&definition, now).ok()?;
        let peers = self.peers.get(&definition.name)?.peers.as_ref()?;
        link.believes(peers).then_some(link)
    }

    fn link(&mut self, definition: &Definition, now: Instant) -> Result<Arc<Link>, Reason> {
        // A link of another map is kept only while the new one cannot be read.
        if let Some(attempt) = self.links.get(&definition.name).filter(|it| it.is_of(&self.map)) {
            match &attempt.link {
                Ok(link) if !link.is_detached() => return Ok(Arc::clone(link)),
                // The other machine may attach again.
                Ok(link) if !link.is_detached_here() => return Err(Reason::NoLink),
                _ if now.duration_since(attempt.at) < TRUST => {
                    return Err(attempt.link.as_ref().err().copied().unwrap_or(Reason::NoLink));
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
        let attempt = LinkAttempt { link, at: now, definition, state };
        let result = attempt.link.as_ref().map(Arc::clone).map_err(|reason| *reason);
        self.links.insert(attempt.definition.name.clone(), attempt);
        result
    }
}

// ---- wake channels ---------------------------------------------------------------------------

struct Listener {
    address: IpAddr,
    namespace: u64,
    socket: PrivateFd,
    port: u16,
}

/// A wake channel that has not sent all of its hello.
struct PendingWakeChannel {
    since: Instant,
    socket: PrivateFd,
    from: SocketAddr,
    hello: [u8; HELLO],
    received: usize,
}

/// A wake channel for a connection, and the nonce of the entry that it comes from.
#[derive(Debug)]
pub(crate) struct ReadyWakeChannel {
    pub(crate) socket: PrivateFd,
    pub(crate) from: IpAddr,
    pub(crate) nonce: u128,
    pub(crate) secret: u128,
}

struct WakeChannelInbox {
    pid: u32,
    listeners: Vec<Listener>,
    /// Those to be read first are at the front.
    pending: VecDeque<PendingWakeChannel>,
    /// By the nonce of the entry that each is for.
    boxes: HashMap<u128, Option<ReadyWakeChannel>>,
}

static INBOX: Mutex<Option<WakeChannelInbox>> = Mutex::new(None);

/// Listens for wake channels at the address of a connection of this process; returns the port.
/// `namespace` is the network namespace of that connection.
///
/// # Errors
/// [`Reason::NoWakeChannel`] if this thread is in another network namespace, or cannot listen.
pub(crate) fn port_at(address: IpAddr, namespace: u64) -> Result<u16, Reason> {
    let mut guard = patient_lock(&INBOX).ok_or(Reason::NoWakeChannel)?;
    let pid = thread::process_id();
    let inbox = match &mut *guard {
        Some(inbox) if inbox.pid == pid => inbox,
        // A child does not own what it inherits: it only closes its copies.
        other => other.insert(WakeChannelInbox {
            pid,
            listeners: Vec::new(),
            pending: VecDeque::new(),
            boxes: HashMap::new(),
        }),
    };
    let is_at =
        |listener: &&Listener| (listener.address, listener.namespace) == (address, namespace);
    if let Some(listener) = inbox.listeners.iter().find(is_at) {
        return Ok(listener.port);
    }
    let (socket, port) =
        wake_connection::listen_at(address).map_err(|error| no_wake_channel(&error))?;
    if socket::namespace(socket.fd()) != Ok(namespace) {
        return Err(Reason::NoWakeChannel);
    }
    inbox.listeners.push(Listener { address, namespace, socket, port });
    Ok(port)
}

/// Begins the wake channel of a connection between two addresses in a network namespace.
///
/// # Errors
/// As for [`port_at`].
pub(crate) fn begin(from: IpAddr, to: SocketAddr, namespace: u64) -> Result<PrivateFd, Reason> {
    let connection = wake_connection::begin(from, to).map_err(|error| no_wake_channel(&error))?;
    let is_there = socket::namespace(connection.fd()) == Ok(namespace);
    if is_there { Ok(connection) } else { Err(Reason::NoWakeChannel) }
}

pub(crate) fn no_wake_channel(error: &std::io::Error) -> Reason {
    if error.raw_os_error() == Some(Errno::ADDRNOTAVAIL.raw_os_error()) {
        tracing::warn!(
            "no line to the other machine: {error}; let there be more local ports \
             (net.ipv4.ip_local_port_range)"
        );
    } else {
        tracing::debug!("no line to the other machine: {error}");
    }
    scarcity::reason_of(error).unwrap_or(Reason::NoWakeChannel)
}

/// Encodes the hello of a wake channel.
pub(crate) fn hello(to: u128, from: u128, secret: u128) -> [u8; HELLO] {
    let mut hello = [0; HELLO];
    for (bytes, number) in hello.chunks_exact_mut(16).zip([to, from, secret]) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    hello
}

/// Keeps a wake channel for the entry with this nonce from now on, until [`forget`].
pub(crate) fn expect(nonce: u128) {
    let mut guard = patient_lock(&INBOX);
    let unwanted = guard.as_mut().and_then(|guard| guard.as_mut()).map(|inbox| {
        inbox.boxes.entry(nonce).or_default();
        // Silent clients would otherwise fill the kernel's queue, and then no wake channel could
        // arrive whose signal would empty it.
        inbox.accept_pending(is_behind_a_link).0
    });
    drop(guard);
    drop(unwanted);
}

/// Takes the wake channel for the entry with this nonce, if it has arrived.
///
/// # Errors
/// The resource that this process lacks to accept wake channels.
pub(crate) fn wake_channel_for(nonce: u128) -> Result<Option<ReadyWakeChannel>, Reason> {
    wake_channel_from(nonce, is_behind_a_link)
}

/// As [`wake_channel_for`], but accepts only from addresses for which `is_welcome` is true.
fn wake_channel_from(
    nonce: u128,
    is_welcome: fn(IpAddr) -> bool,
) -> Result<Option<ReadyWakeChannel>, Reason> {
    let mut guard = patient_lock(&INBOX);
    let Some(inbox) = guard.as_mut().and_then(|guard| guard.as_mut()) else { return Ok(None) };
    let Some(kept) = inbox.boxes.get_mut(&nonce) else { return Ok(None) };
    if let Some(arrived) = kept.take() {
        return Ok(Some(arrived));
    }
    let (unwanted, lacks) = inbox.accept_pending(is_welcome);
    let arrived = inbox.boxes.get_mut(&nonce).and_then(Option::take);
    drop(guard);
    drop(unwanted);
    match (arrived, lacks) {
        (None, Some(reason)) => Err(reason),
        (arrived, _) => Ok(arrived),
    }
}

/// Drops the wake channel of this entry, now or when it comes.
pub(crate) fn forget(nonce: u128) {
    let mut guard = patient_lock(&INBOX);
    let kept = guard
        .as_mut()
        .and_then(|guard| guard.as_mut())
        .map(|inbox| (inbox.boxes.remove(&nonce), inbox.take_silent()));
    drop(guard);
    drop(kept);
}

/// Stops listening, at the end of this process's part.
pub(crate) fn leave() {
    let Some(mut guard) = patient_lock(&INBOX) else { return };
    let inbox = guard.take();
    drop(guard);
    drop(inbox);
}

impl WakeChannelInbox {
    /// Removes the wake channels that have not sent their hello in time, for the caller to drop
    /// when it no longer holds the lock.
    #[must_use]
    fn take_silent(&mut self) -> Vec<PrivateFd> {
        let is_silent = |pending: &PendingWakeChannel| pending.since.elapsed() > HELLO_TIMEOUT;
        let (silent, others) = self.pending.drain(..).partition(is_silent);
        self.pending = others;
        VecDeque::into_iter(silent).map(|silent| silent.socket).collect()
    }

    /// Accepts and reads wake channels. Returns those for which no entry waits, for the caller to
    /// drop when it no longer holds the lock, and the resource that this process lacks to accept
    /// more.
    #[must_use]
    fn accept_pending(
        &mut self,
        is_welcome: fn(IpAddr) -> bool,
    ) -> (Vec<PrivateFd>, Option<Reason>) {
        let mut unwanted = self.take_silent();
        let since = Instant::now();
        let share = |of_all: usize| of_all.div_ceil(self.listeners.len().max(1));
        let (at_once, foreign_at_once) = (share(AT_ONCE), share(FOREIGN_AT_ONCE));
        let mut lacks = None;
        for listener in &self.listeners {
            let (mut accepted, mut foreign) = (0, 0);
            while accepted < at_once && foreign < foreign_at_once {
                match wake_connection::accept(&listener.socket) {
                    // No other address may connect here.
                    Ok(Some((socket, from))) if !is_welcome(from.ip()) => {
                        foreign += 1;
                        drop(socket);
                    }
                    Ok(Some((socket, from))) => {
                        accepted += 1;
                        let hello = [0; HELLO];
                        self.pending.push_front(PendingWakeChannel {
                            since,
                            socket,
                            from,
                            hello,
                            received: 0,
                        });
                    }
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!("a wake channel was not accepted: {error}");
                        // This error also occurs when no connection has come.
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
        for _ in 0..READ_AT_ONCE.min(self.pending.len()) {
            let Some(mut pending) = self.pending.pop_front() else { break };
            let room = &mut pending.hello[pending.received..];
            match wake_connection::receive_hello(&pending.socket, room) {
                Ok(Some(len)) => pending.received += len,
                Ok(None) => {}
                Err(_) => {
                    unwanted.push(pending.socket);
                    continue;
                }
            }
            if pending.received < HELLO {
                self.pending.push_back(pending);
                continue;
            }
            let word = |at: usize| {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(&pending.hello[at..at + 16]);
                u128::from_le_bytes(bytes)
            };
            let from = pending.from.ip().to_canonical();
            let (nonce, secret, socket) = (word(16), word(32), pending.socket);
            match self.boxes.get_mut(&word(0)) {
                Some(kept) => {
                    let ready = ReadyWakeChannel { socket, from, nonce, secret };
                    unwanted.extend(kept.replace(ready).map(|replaced| replaced.socket));
                }
                None => unwanted.push(socket),
            }
        }
        // Closing one frees what the next one needs.
        let most = if lacks.is_some() { self.pending.len().saturating_sub(1) } else { MAX_PENDING };
        unwanted.extend(self.make_room(most.min(MAX_PENDING)));
        (unwanted, lacks)
    }

    /// Removes the wake channels beyond the number `most`: each time, of the address that has most,
    /// the one that has been silent for longest.
    #[must_use]
    fn make_room(&mut self, most: usize) -> Vec<PrivateFd> {
        let mut left = Vec::new();
        if self.pending.len() <= most {
            return left;
        }
        let of = |pending: &PendingWakeChannel| pending.from.ip().to_canonical();
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for pending in &self.pending {
            *counts.entry(of(pending)).or_default() += 1;
        }
        while self.pending.len() > most {
            let rank = |pending: &PendingWakeChannel| {
                (counts.get(&of(pending)).copied(), Reverse(pending.since))
            };
            let last = self.pending.iter().enumerate().max_by_key(|(_, pending)| rank(pending));
            let last = last.map(|(at, _)| at);
            let Some(removed) = last.and_then(|at| self.pending.remove(at)) else { break };
            counts.entry(of(&removed)).and_modify(|count| *count -= 1);
            left.push(removed.socket);
        }
        left
    }
}

#[cfg(test)]
mod tests;
