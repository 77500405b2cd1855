//! `seekwire vm agent`: finds out which addresses belong to the machine at the other end of each
//! link, and keeps them for programs.
//!
//! ```text
//! keeper      the thread of one link: publishes, asks, and unmaps when the machine detaches
//!   client      proves that an address leads to the machine at the other end
//! server      the port to which the agents of other machines connect
//! findings    the proved addresses of all links, and the files that list them
//! addresses   those of this machine
//! hello       the bytes that one agent sends another
//! log         the agent's messages
//! ```
//!
//! The crate `seekwire-link` defines the words in the region and what they prove.

mod addresses;
mod client;
mod findings;
mod hello;
mod keeper;
mod log;
mod server;
mod shared;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{FlockOperation, flock};
use seekwire_link::{Definition, Map, is_usable};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::addresses::Addresses;
use self::findings::Findings;
use self::keeper::Keeper;
use self::log::lock;
use self::shared::Agent;
use super::map_file::read_map;
use crate::arguments::VmAgent;

/// How often the map and the addresses of this machine are read again.
const EACH: Duration = Duration::from_secs(1);

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
    let listener = server::listen(options.port)?;
    let agent = Arc::new(Agent {
        port: options.port,
        addresses: Mutex::new(Addresses::look(&options.addresses)?),
        findings: Mutex::new(Findings::new(map.clone())),
        links: Mutex::default(),
    });
    server::serve(listener, &agent)?;
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
    let (mut version, mut reported) = (version_of(&path), None);
    while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(EACH) {
        log::catch_up();
        agent.look_at_addresses(&options.addresses);
        let new_version = version_of(&path);
        if new_version != version {
            match keepers.read_again(&path) {
                Ok(()) => (version, reported) = (new_version, None),
                // Tried again, since a resource may have been lacking; reported once.
                Err(error) if reported != Some(new_version) => {
                    reported = Some(new_version);
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
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.size()))
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
