//! The processes at both ends, which stay for all tests: a client, a server, and a server that has
//! little processor time.
//!
//! In namespaces each end has a processor, as hosts have: otherwise the scheduler would put both
//! ends sometimes on one, sometimes on two, and latencies would be of two kinds.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use seekwire_gauge::Test;
use seekwire_testbed::{CpuQuota, Side, Testbed};

use super::hosts::{Hosts, ServerLocation};
use super::{GaugeOrder, GaugeReading, GaugeResult};
use crate::experiment::Context;
use crate::launch::{Error, Mode, Program, Running};

/// More than any test takes, once the link is up again.
const TEST_LIMIT: Duration = Duration::from_secs(120).saturating_add(seekwire_gauge::LINK_RETURN);

/// The server of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Strong,
    /// Its processes have a share of a processor.
    Weak,
}

/// The processes.
pub(crate) struct TestProcesses<'a, 'h> {
    hosts: &'a Hosts<'h>,
    client: RefCell<Client>,
    strong: Server,
    /// The quota, if it is ours, lives as long as its server.
    weak: Result<(Server, Option<CpuQuota>), String>,
}

struct Client {
    running: Running,
    turns: u64,
}

struct Server {
    /// `None`: it was started by someone else, on another host.
    running: Option<Running>,
    address: SocketAddr,
}

impl<'a, 'h> TestProcesses<'a, 'h> {
    /// Starts them. A weak server that cannot be started is reported when it is needed.
    pub(crate) fn start(
        context: &Context<'_>,
        hosts: &'a Hosts<'h>,
        weak_cpu: f64,
    ) -> Result<Self> {
        let client = Program::role(context.peer()?, &Mode::Plain).arg("gauge-drive");
        let client = client.timeout(TEST_LIMIT);
        let (client, strong, weak) = match hosts.location() {
            ServerLocation::Namespaces(testbed) => {
                let weak = || -> Result<_> {
                    let quota = CpuQuota::new(weak_cpu)?;
                    let server = Server::start(context, testbed)?;
                    quota.add(server.running.as_ref().context("it has just been started")?.id())?;
                    Ok((server, Some(quota)))
                };
                let weak = weak().map_err(|error| format!("{error:#}"));
                let client = start(testbed, Side::Near, client)??;
                (client, Server::start(context, testbed)?, weak)
            }
            ServerLocation::Peer(peer) => {
                let elsewhere = |address| Server { running: None, address };
                let weak = peer.weak.map(|address| (elsewhere(address), None));
                let weak = weak.ok_or_else(|| {
                    "the processor time of another host cannot be limited from here: start a second `seekwire nic \
                     serve` there, under a quota, and name it with --weak-peer"
                        .to_owned()
                });
                (client.start()?, elsewhere(peer.address), weak)
            }
        };
        Ok(Self { hosts, client: RefCell::new(Client { running: client, turns: 0 }), strong, weak })
    }

    /// Whether there is a weak server.
    pub(crate) fn has_weak(&self) -> Result<(), &str> {
        self.weak.as_ref().map(drop).map_err(String::as_str)
    }

    pub(crate) fn hosts(&self) -> &'a Hosts<'h> {
        self.hosts
    }

    /// Runs one test.
    pub(crate) fn run(&self, host: Host, test: &Test) -> Result<GaugeReading> {
        let server = match (host, &self.weak) {
            (Host::Strong, _) => &self.strong,
            (Host::Weak, Ok((server, _))) => server,
            (Host::Weak, Err(why)) => bail!("{why}"),
        };
        let done = self.client.borrow_mut().run(server.address, test);
        match (done, server.running.as_ref().and_then(Running::obituary)) {
            (Err(error), Some(obituary)) => Err(anyhow!("the server {obituary} ({error})")),
            (done, _) => done,
        }
    }
}

/// Starts a program at an end and on its processor: the first one for one end, the last one for the
/// other.
pub(super) fn start(
    testbed: &Testbed,
    side: Side,
    program: Program,
) -> Result<Result<Running, Error>, seekwire_testbed::Error> {
    testbed.end(side).run(|| {
        // Children inherit it. Where it is not available, the scheduler decides.
        if let Ok(allowed) = sched_getaffinity(None) {
            let mut processors =
                (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor));
            let own = match side {
                Side::Near => processors.next(),
                Side::Far => processors.next_back(),
            };
            let mut set = CpuSet::new();
            own.into_iter().for_each(|own| set.set(own));
            let _ = sched_setaffinity(None, &set);
        }
        program.start()
    })
}

impl Client {
    fn run(&mut self, server: SocketAddr, test: &Test) -> Result<GaugeReading> {
        self.turns += 1;
        let order = GaugeOrder { turn: self.turns, server, test: test.clone() };
        let head = format!("{{\"turn\":{},", order.turn);
        self.running.send_line(&serde_json::to_string(&order)?)?;
        let line = self.running.wait_for_line(|line| line.starts_with(&head))?;
        let done: GaugeResult =
            serde_json::from_str(&line).with_context(|| format!("not a report: {line}"))?;
        done.outcome.map_err(|error| anyhow!("{error}"))
    }
}

impl Server {
    fn start(context: &Context<'_>, testbed: &Testbed) -> Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let server = Program::role(context.peer()?, &Mode::Plain).arg("gauge-serve");
        let server = server.arg(any.to_string()).timeout(TEST_LIMIT);
        let running = start(testbed, Side::Far, server)??;
        let ready = running.wait_for_line(|line| line.starts_with("ready "))?;
        let port =
            ready.trim_start_matches("ready ").parse().context("the server names no port")?;
        Ok(Self {
            running: Some(running),
            address: (testbed.end(Side::Far).address(), port).into(),
        })
    }
}
