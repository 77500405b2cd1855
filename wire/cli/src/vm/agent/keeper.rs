//! The thread of one link: publishes this machine's addresses in the region, asks at the addresses
//! that the other machine publishes, and unmaps the region when this machine detaches.
//!
//! Shared memory sends no notification when the other machine publishes something new. So the
//! thread reads it a few times a second. Whatever stands there, this machine opens connections no
//! more often than [`PACE`] allows, and sends 64 bytes on each.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use seekwire_link::{Definition, Link, LinkError, Peers, Published};

use super::client::{self, Unproven};
use super::log::{self, lock};
use super::shared::Agent;

/// How often the region is read.
const TICK: Duration = Duration::from_millis(200);
/// How often the thread checks whether this machine has attached.
const LOOK: Duration = Duration::from_secs(1);
/// Shortest time between two questions.
const PACE: Duration = Duration::from_millis(50);
/// How long a proof lasts. Also the longest time between two attempts.
const AGAIN: Duration = Duration::from_secs(30);
/// Delay after the first failure; it doubles with each further one.
const RETRY: Duration = Duration::from_secs(1);

/// A thread that keeps the addresses of one link.
pub(super) struct Keeper {
    stop: Arc<Stop>,
    thread: JoinHandle<()>,
}

/// The request to end.
#[derive(Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Keeper {
    pub(super) fn start(agent: &Arc<Agent>, link: &Definition, state: &Path) -> Result<Self> {
        let stop = Arc::new(Stop::default());
        let mut work = Work {
            agent: Arc::clone(agent),
            definition: link.clone(),
            state: state.to_owned(),
            open: None,
            reported: None,
        };
        let until = Arc::clone(&stop);
        let run = move || {
            while !until.wait(work.step()) {}
            work.let_go();
        };
        let thread = thread::Builder::new().spawn(run).context("cannot start a thread")?;
        Ok(Self { stop, thread })
    }

    /// Requests the thread to end.
    pub(super) fn stop(&self) {
        *lock(&self.stop.is_set) = true;
        self.stop.changed.notify_all();
    }

    /// Requests that, and waits until it has ended.
    pub(super) fn end(self) {
        self.stop();
        // A thread that has panicked has ended as well.
        let _ = self.thread.join();
    }
}

impl Stop {
    /// Whether the request is set, after waiting at most this long.
    fn wait(&self, time: Duration) -> bool {
        let is_set = lock(&self.is_set);
        let waited = self.changed.wait_timeout_while(is_set, time, |is_set| !*is_set);
        waited.map_or(true, |(is_set, _)| *is_set)
    }
}

struct Work {
    agent: Arc<Agent>,
    definition: Definition,
    state: PathBuf,
    open: Option<Open>,
    /// The reported reason why the link is not open.
    reported: Option<String>,
}

/// A link that this machine is attached to.
struct Open {
    link: Link,
    /// The data that this machine has published.
    published: Option<Published>,
    /// The attachment of the other machine, while that has not detached.
    peer: Option<u64>,
    /// The port at which its agent answers.
    port: u16,
    /// The last value of its [`Link::publications`] that was read.
    publications: u64,
    /// The addresses that it publishes.
    addresses: BTreeMap<IpAddr, AddressState>,
    /// The addresses that were given to programs.
    proved: Option<Peers>,
}

/// The state of an address.
struct AddressState {
    is_proved: bool,
    next: Instant,
    failures: u32,
    why: Option<Unproven>,
}

impl Work {
    /// Takes the steps that are due. Returns how long to wait for the next ones.
    fn step(&mut self) -> Duration {
        let Some(open) = &mut self.open else {
            self.look();
            return if self.open.is_some() { Duration::ZERO } else { LOOK };
        };
        if open.link.is_detached_here() {
            let why = match open.link.region().is_lost() {
                true => "somebody has cut its region short",
                false => "this machine has detached",
            };
            self.let_go();
            log::say(Some(&self.definition.name), format_args!("{why}"));
            return TICK;
        }
        let own = self.agent.published();
        if open.published.as_ref() != Some(&own) {
            self.agent.publish(&open.link, &own);
            open.published = Some(own);
        }
        let now = Instant::now();
        let left = open.read_publication(&self.agent, now);
        let due = open.due(now);
        let learned = due.and_then(|address| open.prove(address));
        let proved = open.proved();
        // With each question, since a file may not have been written the last time.
        if open.proved != proved || due.is_some() {
            lock(&self.agent.findings).set(&self.definition.name, proved.clone());
            open.proved = proved;
        }
        // Reported only after the files say it.
        for news in [left, learned].into_iter().flatten() {
            log::say(Some(&self.definition.name), format_args!("{news}"));
        }
        if due.is_some() { PACE } else { TICK }
    }

    /// Opens the link if this machine has attached.
    fn look(&mut self) {
        let name = &self.definition.name;
        let problem = match Link::keep(&self.definition, &self.state) {
            Ok(link) => {
                // Drops the file of an agent that was killed: nobody has proved its addresses
                // since.
                lock(&self.agent.findings).set(name, None);
                lock(&self.agent.links).open.insert(name.clone(), link.clone());
                log::say(Some(name), format_args!("attached"));
                self.reported = None;
                self.open = Some(Open::new(link));
                return;
            }
            Err(error @ (LinkError::NotAttached(_) | LinkError::Detached(_))) => {
                (error.to_string(), false)
            }
            Err(error) => (error.to_string(), true),
        };
        let (problem, is_wrong) = problem;
        if self.reported.as_ref() != Some(&problem) {
            lock(&self.agent.findings).set(name, None);
            if is_wrong {
                log::complain(Some(name), format_args!("{problem}"));
            } else {
                log::say(Some(name), format_args!("waits: {problem}"));
            }
            self.reported = Some(problem);
        }
    }

    /// Unmaps the region, after removing everything there that would be believed.
    fn let_go(&mut self) {
        let Some(open) = self.open.take() else { return };
        lock(&self.agent.findings).set(&self.definition.name, None);
        self.agent.publish(&open.link, &Published::default());
        lock(&self.agent.links).open.remove(&self.definition.name);
    }
}

impl Open {
    fn new(link: Link) -> Self {
        let addresses = BTreeMap::new();
        Self {
            link,
            published: None,
            peer: None,
            port: 0,
            addresses,
            proved: None,
            publications: 0,
        }
    }

    /// Reads the other machine's publication. Returns a message if that machine has left.
    fn read_publication(&mut self, agent: &Agent, now: Instant) -> Option<String> {
        let peer = self.link.peer().filter(|peer| !peer.is_detached).map(|peer| peer.token);
        if self.peer != peer {
            let has_left = self.peer.is_some();
            self.peer = peer;
            self.addresses.clear();
            return has_left.then(|| "the machine at the other end has detached".to_owned());
        }
        // During a change, the previous publication counts.
        let publications = self.link.publications();
        let published = self.link.published().filter(|_| peer.is_some())?;
        self.port = published.port;
        // It may come from a new agent, after the previous one was killed.
        if publications != self.publications {
            self.publications = publications;
            self.addresses.values_mut().for_each(|state| state.next = now);
        }
        // An address that both machines have, such as that of a container bridge, leads nowhere
        // else.
        let is_theirs = |address: &IpAddr| published.port != 0 && !agent.is_own(*address);
        self.addresses
            .retain(|address, _| published.addresses.contains(address) && is_theirs(address));
        for address in published.addresses.iter().copied().filter(is_theirs) {
            self.addresses.entry(address).or_insert(AddressState {
                is_proved: false,
                next: now,
                failures: 0,
                why: None,
            });
        }
        None
    }

    /// The address that has waited longest for its turn.
    fn due(&self, now: Instant) -> Option<IpAddr> {
        let due = self.addresses.iter().filter(|(_, state)| state.next <= now);
        due.min_by_key(|(_, state)| state.next).map(|(address, _)| *address)
    }

    /// Asks at an address. Returns the news about it, if any.
    fn prove(&mut self, address: IpAddr) -> Option<String> {
        let proved = client::prove(&self.link, address, self.port);
        let now = Instant::now();
        let state = self.addresses.get_mut(&address)?;
        match proved {
            Ok(()) => {
                let is_new = !state.is_proved;
                *state =
                    AddressState { is_proved: true, next: now + AGAIN, failures: 0, why: None };
                is_new.then(|| format!("{address} leads to the machine at the other end"))
            }
            Err(why) => {
                let is_new = state.why.as_ref() != Some(&why);
                let news = is_new.then(|| format!("{address} is not used: {why}"));
                let wait = RETRY.saturating_mul(1 << state.failures.min(5)).min(AGAIN);
                let failures = state.failures.saturating_add(1);
                *state =
                    AddressState { is_proved: false, next: now + wait, failures, why: Some(why) };
                news
            }
        }
    }

    /// The addresses to give to programs; `None` if no address is proved.
    fn proved(&self) -> Option<Peers> {
        let proved = self.addresses.iter().filter(|(_, state)| state.is_proved);
        let addresses: Vec<IpAddr> = proved.map(|(address, _)| *address).collect();
        let peer = self.peer.filter(|_| !addresses.is_empty())?;
        Some(Peers { own: self.link.token(), peer, addresses })
    }
}
