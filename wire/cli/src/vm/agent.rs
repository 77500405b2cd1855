//! `seekwire vm agent`: finds out which addresses belong to the machine at the other end of each
//! link, and keeps them for programs.
//!
//! ```text
//! keeper      the thread of one link: publishes, asks, and unmaps when the machine detaches
//!   ask         proves that an address leads to the machine at the other end
//! answer      the port to which the agents of other machines connect
//! findings    the proved addresses of all links, and the files that list them
//! addresses   those of this machine
//! hello       the bytes that one agent sends another
//! log         the agent's messages
//! ```
//!
//! The crate `seekwire-link` defines the words in the region and what they prove.

mod addresses;
mod answer;
mod ask;
mod findings;
mod hello;
mod keeper;
mod log;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{FlockOperation, flock};
use seekwire_link::{Definition, Link, Map, Published, is_usable};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::addresses::Addresses;
use self::findings::Findings;
use self::keeper::Keeper;
use super::read_map;
use crate::arguments::VmAgent;

/// How often the map and the addresses of this machine are read again.
const EACH: Duration = Duration::from_secs(1);

/// State that the threads of the agent share.
struct Agent {
    /// The port at which it answers.
    port: u16,
    addresses: Mutex<Addresses>,
    findings: Mutex<Findings>,
    links: Mutex<Links>,
}

/// The links that this machine is attached to, by their names.
#[derive(Default)]
struct Links {
    open: BTreeMap<String, Link>,
    /// True once nothing may be published any more.
    is_over: bool,
}

/// Keeps the addresses of all links of the map until SIGTERM or SIGINT.
///
/// # Errors
///
/// The map cannot be understood; another agent uses the state directory; the port is taken.
pub(super) fn agent(options: &VmAgent) -> Result<ExitCode> {
    if let Some(wrong) = options.addresses.iter().find(|address| !is_usable(**address)) {
        bail!("{wrong} is no address by which another machine reaches this one");
    }
    let (path, map) = read_map()?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch signals")?;
    let _alone = alone(map.state())?;
    log::begin()?;
    let listener = answer::listen(options.port)?;
    let agent = Arc::new(Agent {
        port: options.port,
        addresses: Mutex::new(Addresses::look(&options.addresses)?),
        findings: Mutex::new(Findings::new(map.clone())),
        links: Mutex::default(),
    });
    answer::serve(listener, &agent)?;
    let (ended, ends) = mpsc::channel();
    let at_signal = move || {
        let _ = ended.send(signals.forever().next());
    };
    thread::Builder::new().spawn(at_signal).context("cannot start a thread")?;
    log::say(None, format_args!("answers at port {}", options.port));
    if map.links().is_empty() {
        log::say(None, format_args!("{} defines no links: waits for one", path.display()));
    }
    let mut keepers = Keepers { agent: Arc::clone(&agent), of: BTreeMap::new() };
    keepers.follow(&map)?;
    let (mut version, mut told) = (version_of(&path), None);
    while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(EACH) {
        log::catch_up();
        agent.look_at_addresses(&options.addresses);
        let found = version_of(&path);
        if found != version {
            match keepers.read_again(&path) {
                Ok(()) => (version, told) = (found, None),
                // Tried again, since a resource may have been lacking; reported once.
                Err(error) if told != Some(found) => {
                    told = Some(found);
                    log::complain(None, format_args!("{error:#}"));
                }
                Err(_) => {}
            }
        }
    }
    agent.end();
    log::end();
    Ok(ExitCode::SUCCESS)
}

/// Locks, also after a thread has panicked: the guarded value is complete at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While this file is open, no other agent keeps links of this directory. Only its owner can open
/// it, so that no other user can block an agent.
fn alone(state: &Path) -> Result<File> {
    let cannot = || format!("cannot use the directory {}", state.display());
    DirBuilder::new().recursive(true).mode(0o755).create(state).with_context(cannot)?;
    let path = state.join(".agent");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        anyhow!("another agent runs: it has {} locked; end it first", path.display())
    })?;
    Ok(file)
}

fn version_of(path: &Path) -> Option<(u64, i64, i64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}

impl Agent {
    /// The data that this machine publishes.
    fn published(&self) -> Published {
        Published::new(self.port, lock(&self.addresses).given().iter().copied())
    }

    /// Whether this machine has an address itself.
    fn is_own(&self, address: IpAddr) -> bool {
        lock(&self.addresses).is_own(address)
    }

    fn look_at_addresses(&self, given: &[IpAddr]) {
        match Addresses::look(given) {
            Ok(found) => *lock(&self.addresses) = found,
            Err(error) => log::complain(None, format_args!("{error:#}")),
        }
    }

    /// Publishes the data in the region of a link, unless the agent is about to end.
    fn publish(&self, link: &Link, said: &Published) {
        let links = lock(&self.links);
        if !links.is_over {
            link.publish(said);
        }
    }

    /// Removes everything that programs or other machines would believe.
    fn end(&self) {
        lock(&self.findings).end();
        let mut links = lock(&self.links);
        links.is_over = true;
        for link in links.open.values() {
            link.publish(&Published::default());
            link.ask(0);
        }
    }
}

/// A thread for each link of the map.
struct Keepers {
    agent: Arc<Agent>,
    of: BTreeMap<String, (Definition, Keeper)>,
}

impl Keepers {
    fn read_again(&mut self, path: &Path) -> Result<()> {
        let map = Map::read(path)?;
        if map.state() != lock(&self.agent.findings).state() {
            bail!("{} names another directory for the state: start the agent anew", path.display());
        }
        self.follow(&map)
    }

    /// Keeps the links of this map, and no others.
    fn follow(&mut self, map: &Map) -> Result<()> {
        lock(&self.agent.findings).follow(map.clone());
        let is_same = |link: &Definition| map.get(&link.name) == Some(link);
        let gone: Vec<String> = self
            .of
            .values()
            .filter(|(link, _)| !is_same(link))
            .map(|(link, _)| link.name.clone())
            .collect();
        // All are stopped first: each may be waiting for a machine that does not answer.
        for (_, keeper) in gone.iter().filter_map(|name| self.of.get(name)) {
            keeper.stop();
        }
        for name in gone {
            if let Some((_, keeper)) = self.of.remove(&name) {
                keeper.end();
                log::say(Some(&name), format_args!("changed in the map, or removed from it"));
            }
        }
        for link in map.links() {
            if !self.of.contains_key(&link.name) {
                let keeper = Keeper::start(&self.agent, link, map.state())?;
                self.of.insert(link.name.clone(), (link.clone(), keeper));
            }
        }
        Ok(())
    }
}
