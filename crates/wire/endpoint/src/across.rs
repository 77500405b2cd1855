//! The links of this machine to others, and the lines that come in for connections over them.
//!
//! As with offers, nobody waits for lines: a line is announced by the signal word of the entry that
//! it is meant for, and whoever comes first takes all of them in and leaves those for other
//! connections here.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use seekwire_link::map::{Definition, Map};
use seekwire_link::{Link, LinkError, Peers};
use seekwire_protocol::Reason;
use seekwire_transport::sys::fd::Placed;
use seekwire_transport::sys::{filter, line, socket, thread};

use crate::fork::patient_lock;
use crate::scarcity;

/// So long what was found of the map, of links and by agents counts.
const TRUST: Duration = Duration::from_secs(1);
/// Lines that have not said yet for which connection they are: as many as connections may begin at
/// once. While there are so many, others wait in the kernel.
const COMING: usize = 1024;
/// How long a line may say nothing while others wait.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a line says first: the nonce of the entry that it is for, that of the entry that it comes
/// from, and a number that stands nowhere else.
pub(crate) const HELLO: usize = 48;
/// Lines that are taken in at a time, within a call of the program's.
const AT_ONCE: usize = 64;

// ---- links -----------------------------------------------------------------------------------

/// What tells one content of a file from another.
type Version = Option<(u64, i64, i64, u64)>;

struct Known {
    pid: u32,
    looked: Option<Instant>,
    version: Version,
    map: Map,
    links: HashMap<String, Tried>,
    /// By the name of the link.
    found: HashMap<String, Found>,
}

/// What an agent has found behind a link.
#[derive(Default)]
struct Found {
    version: Version,
    peers: Option<Peers>,
}

struct Tried {
    link: Result<Arc<Link>, Reason>,
    at: Instant,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// From now on no connection comes to a link: the program has filters of system calls, which are
/// not tried for the calls that links need.
pub fn forbid() {
    FORBIDDEN.store(true, Ordering::Relaxed);
}

fn map_path() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(Map::path)
}

fn version(path: &Path) -> Version {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}

/// The link to the machine that has an address; `None` if neither the map file has one, nor an
/// agent has found one.
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
        // A child opens links of its own: what the parent opened is the parent's to count.
        other => other.insert(Known {
            pid,
            looked: None,
            version: None,
            map: Map::default(),
            links: HashMap::new(),
            found: HashMap::new(),
        }),
    };
    let address = address.to_canonical();
    if known.looked.is_none_or(|looked| now.duration_since(looked) >= TRUST) {
        known.looked = Some(now);
        known.read();
    }
    match known.map.of_address(address).cloned() {
        Some(definition) => Some(known.link(&definition, now)),
        None => known.link_found(address, now).map(Ok),
    }
}

/// Whether the machine that has an address is at the other end of a link, as far as that was read.
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
    /// Reads the map file and what agents have found, as far as they have changed.
    fn read(&mut self) {
        let version = version(map_path());
        if version != self.version {
            self.version = version;
            self.links.clear();
            self.found.clear();
            self.map = Map::read(map_path()).unwrap_or_else(|error| {
                tracing::error!("no connection goes over a link: {error}");
                Map::default()
            });
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

    /// The link behind which an agent has found an address, if that still holds. Of two links,
    /// neither.
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
        if let Some(tried) = self.links.get(&definition.name) {
            match &tried.link {
                Ok(link) if !link.is_detached() => return Ok(Arc::clone(link)),
                _ if now.duration_since(tried.at) < TRUST => {
                    return Err(tried.link.as_ref().err().copied().unwrap_or(Reason::NoLink));
                }
                _ => {}
            }
        }
        if filter::installed() > 0 {
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
        let tried = Tried { link, at: now };
        let result = tried.link.as_ref().map(Arc::clone).map_err(|reason| *reason);
        self.links.insert(definition.name.clone(), tried);
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

/// A line that has not said all of its first words.
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
    coming: Vec<Coming>,
    /// By the nonce of the entry that they are for.
    boxes: HashMap<u128, Option<Arrived>>,
}

static LINES: Mutex<Option<Lines>> = Mutex::new(None);

/// Waits for lines at the address of a connection of this process; returns the port. `namespace` is
/// the network namespace of that connection.
///
/// # Errors
/// [`Reason::NoLine`] where this thread is in another network namespace, or nobody can be waited for.
pub(crate) fn port_at(address: IpAddr, namespace: u64) -> Result<u16, Reason> {
    let mut guard = patient_lock(&LINES).ok_or(Reason::NoLine)?;
    let pid = thread::process_id();
    let lines = match &mut *guard {
        Some(lines) if lines.pid == pid => lines,
        // What a child inherits is its parent's: it only closes its copies.
        other => other.insert(Lines {
            pid,
            listeners: Vec::new(),
            coming: Vec::new(),
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
    tracing::debug!("no line to the other machine: {error}");
    scarcity::reason_of(error).unwrap_or(Reason::NoLine)
}

/// The first words of a line.
pub(crate) fn hello(to: u128, from: u128, secret: u128) -> [u8; HELLO] {
    let mut hello = [0; HELLO];
    for (bytes, number) in hello.chunks_exact_mut(16).zip([to, from, secret]) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    hello
}

/// From now on a line for the entry with this nonce is kept, until [`forget`].
pub(crate) fn expect(nonce: u128) {
    if let Some(lines) = patient_lock(&LINES).as_mut().and_then(|guard| guard.as_mut()) {
        lines.boxes.entry(nonce).or_default();
    }
}

/// Takes the line for the entry with this nonce, if it has come.
pub(crate) fn line_for(nonce: u128) -> Option<Arrived> {
    line_from(nonce, is_behind_a_link)
}

/// The same, where only addresses are answered that `is_welcome`.
fn line_from(nonce: u128, is_welcome: fn(IpAddr) -> bool) -> Option<Arrived> {
    let mut guard = patient_lock(&LINES);
    let lines = guard.as_mut().and_then(|guard| guard.as_mut())?;
    let taken = lines.boxes.get_mut(&nonce)?.take();
    if taken.is_some() {
        return taken;
    }
    let late = lines.take_in(is_welcome);
    let arrived = lines.boxes.get_mut(&nonce).and_then(Option::take);
    drop(guard);
    drop(late);
    arrived
}

/// No line is wanted any more for this entry.
pub(crate) fn forget(nonce: u128) {
    let mut guard = patient_lock(&LINES);
    let kept = guard
        .as_mut()
        .and_then(|guard| guard.as_mut())
        .and_then(|lines| lines.boxes.remove(&nonce));
    drop(guard);
    drop(kept);
}

/// The end of this process's part: nobody is waited for any more.
pub(crate) fn leave() {
    let Some(mut guard) = patient_lock(&LINES) else { return };
    let lines = guard.take();
    drop(guard);
    drop(lines);
}

impl Lines {
    /// Takes in whatever has come. Returns what nobody waits for, to be dropped when the lock is no
    /// longer held.
    #[must_use]
    fn take_in(&mut self, is_welcome: fn(IpAddr) -> bool) -> Vec<Placed> {
        let mut late = Vec::new();
        let since = Instant::now();
        if self.coming.len() >= COMING {
            let is_silent = |coming: &Coming| since.duration_since(coming.since) > PATIENCE;
            let (silent, others) = self.coming.drain(..).partition(is_silent);
            self.coming = others;
            late.extend(Vec::into_iter(silent).map(|silent| silent.line));
        }
        for listener in &self.listeners {
            for _ in 0..AT_ONCE.min(COMING - self.coming.len()) {
                match line::accept(&listener.socket) {
                    // Nobody else has anything to say here.
                    Ok(Some((line, from))) if !is_welcome(from.ip()) => drop(line),
                    Ok(Some((line, from))) => {
                        let hello = [0; HELLO];
                        self.coming.push(Coming { since, line, from, hello, heard: 0 });
                    }
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!("a line was not taken in: {error}");
                        break;
                    }
                }
            }
        }
        let mut still = Vec::new();
        for mut coming in self.coming.drain(..) {
            match line::hear(&coming.line, &mut coming.hello[coming.heard..]) {
                Ok(Some(len)) => coming.heard += len,
                Ok(None) => {}
                Err(_) => {
                    late.push(coming.line);
                    continue;
                }
            }
            if coming.heard < HELLO {
                still.push(coming);
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
        self.coming = still;
        late
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn namespace() -> u64 {
        let socket = std::net::UdpSocket::bind((HERE, 0)).unwrap();
        socket::namespace((&socket).into()).unwrap()
    }

    fn line_to(port: u16, words: &[u8]) -> Placed {
        let line = begin(HERE, SocketAddr::new(HERE, port), namespace()).unwrap();
        while !line::has_arrived(&line).unwrap() {
            std::thread::yield_now();
        }
        line::say(&line, words).unwrap();
        line
    }

    #[test]
    fn a_line_reaches_the_entry_that_it_names_and_no_other() {
        let port = port_at(HERE, namespace()).unwrap();
        assert_eq!(port_at(HERE, namespace()), Ok(port));
        let (mine, others, theirs) = (7 << 70, 8 << 70, 9 << 70);
        expect(mine);
        expect(others);
        let _silent = line_to(port, b"half of a hello");
        let _wrong = line_to(port, &hello(1, theirs, 3));
        let _line = line_to(port, &hello(mine, theirs, 3));
        let arrived = loop {
            if let Some(arrived) = line_from(mine, |_| true) {
                break arrived;
            }
            std::thread::yield_now();
        };
        assert_eq!((arrived.nonce, arrived.secret, arrived.from), (theirs, 3, HERE));
        assert!(line_from(others, |_| true).is_none() && line_from(mine, |_| true).is_none());
        // Nobody of another address has anything to say here.
        let refused = line_to(port, &hello(mine, theirs, 3));
        while line::hear(&refused, &mut [0]).is_ok() {
            assert!(line_from(mine, is_behind_a_link).is_none());
        }
        forget(mine);
        forget(others);
    }

    #[test]
    fn another_network_namespace_gets_no_line() {
        let other = namespace() + 1;
        assert_eq!(port_at(HERE, other), Err(Reason::NoLine));
        assert!(begin(HERE, (HERE, 1).into(), other).is_err());
    }
}
