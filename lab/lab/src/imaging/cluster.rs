//! The processes that run the pipeline: the coordinator and three hosts.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use seekwire_flow::DealingPolicy;
use seekwire_testbed::{Side, Testbed};

use super::{BlockSize, COPIES, ClusterTask, Done, Order, Setup, UpdateReport};
use crate::experiment::Context;
use crate::launch::{Program, Running};

/// More than any order or meeting takes.
const LIMIT: Duration = Duration::from_secs(120);

/// The carrier of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterCarrier {
    Tcp,
    Ring,
    /// TCP from the coordinator to the hosts and back over a link of this many bits a second.
    Link(u64),
}

impl ClusterCarrier {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Tcp => "TCP".to_owned(),
            Self::Ring => "ring".to_owned(),
            Self::Link(rate) if rate % 1_000_000_000 == 0 => {
                format!("TCP, {} Gb/s", rate / 1_000_000_000)
            }
            Self::Link(rate) => format!("TCP, {} Mb/s", rate / 1_000_000),
        }
    }

    /// Bits a second, where there is a link.
    pub(crate) fn rate(self) -> Option<u64> {
        match self {
            Self::Link(rate) => Some(rate),
            Self::Tcp | Self::Ring => None,
        }
    }
}

/// Common to all clusters: two network namespaces, or why they do not exist; and the first damage,
/// if any.
pub(crate) struct Surroundings {
    testbed: Result<Testbed, String>,
    violation: RefCell<Option<String>>,
}

impl Surroundings {
    pub(crate) fn new() -> Self {
        let testbed = Testbed::new().map_err(|error| error.to_string());
        Self { testbed, violation: RefCell::default() }
    }

    /// For clusters that need no namespaces.
    pub(crate) fn of_one_host() -> Self {
        let testbed = Err("nobody has asked for any".to_owned());
        Self { testbed, violation: RefCell::default() }
    }

    fn testbed(&self) -> Result<&Testbed> {
        let none = |why| anyhow!("there are no network namespaces here: {why}");
        self.testbed.as_ref().map_err(none)
    }

    /// Damaged data, if there were any.
    pub(crate) fn violation(&self) -> Option<String> {
        self.violation.borrow().clone()
    }
}

/// The processes, which have connected.
pub(crate) struct Cluster<'s> {
    surroundings: &'s Surroundings,
    coordinator: Running,
    /// They end with their handles.
    _hosts: Vec<Running>,
    carrier: ClusterCarrier,
    turns: u64,
}

impl<'s> Cluster<'s> {
    /// Starts them. Blocks are dealt to clip by the first policy, and to subsample by the second
    /// one.
    pub(crate) fn start(
        context: &Context<'_>,
        surroundings: &'s Surroundings,
        carrier: ClusterCarrier,
        block: BlockSize,
        [dealing, behind]: [DealingPolicy; 2],
    ) -> Result<Self> {
        let testbed = match carrier {
            ClusterCarrier::Link(rate) => {
                let testbed = surroundings.testbed()?;
                for side in [Side::Near, Side::Far] {
                    testbed.end(side).limit_rate(rate)?;
                }
                Some(testbed)
            }
            ClusterCarrier::Tcp | ClusterCarrier::Ring => None,
        };
        let mut processes: Vec<Running> = Vec::new();
        let mut addresses = Vec::new();
        for rank in 0..=COPIES {
            let side = if rank == 0 { Side::Near } else { Side::Far };
            let end = testbed.map(|testbed| testbed.end(side));
            let own = end.map_or(Ipv4Addr::LOCALHOST, |end| end.address());
            let mut program = Program::role(context.peer()?, &context.linked()).timeout(LIMIT);
            // There are many more threads than processors: a thread that spins takes time from the
            // others.
            program = program.env("SEEKWIRE_SPIN_US", "0");
            if carrier != ClusterCarrier::Ring {
                program = program.env("SEEKWIRE", "off");
            }
            let program = program.args(["flow-host", &own.to_string()]);
            let process = match end {
                Some(end) => end.run(|| program.start())??,
                None => program.start()?,
            };
            addresses.push(listens(&process, own.into())?);
            processes.push(process);
        }
        let secret = std::array::from_fn(|_| fastrand::u8(..));
        for (rank, process) in (0..).zip(&mut processes) {
            let addresses = addresses.clone();
            let setup = Setup { rank, addresses, secret, block, dealing, behind };
            process.send_line(&serde_json::to_string(&setup)?)?;
        }
        let coordinator = processes.remove(0);
        let cluster = Self { surroundings, coordinator, _hosts: processes, carrier, turns: 0 };
        cluster.coordinator.wait_for_line(|line| line == "together").map_err(|error| {
            let obituary = cluster._hosts.iter().find_map(Running::obituary);
            anyhow!("{}", obituary.unwrap_or_else(|| error.to_string()))
        })?;
        Ok(cluster)
    }

    /// Runs an order and returns its report. Damage is an error, and so is a run on another
    /// carrier.
    pub(crate) fn run(&mut self, what: ClusterTask) -> Result<UpdateReport> {
        self.turns += 1;
        let order = Order { turn: self.turns, what };
        let head = format!("{{\"turn\":{},", order.turn);
        self.coordinator.send_line(&serde_json::to_string(&order)?)?;
        let line = self.coordinator.wait_for_line(|line| line.starts_with(&head))?;
        let done: Done =
            serde_json::from_str(&line).with_context(|| format!("not a report: {line}"))?;
        let report = done.outcome.map_err(|error| anyhow!("{error}"))?;
        if let Some(damage) = &report.damage {
            self.surroundings.violation.replace(Some(damage.clone()));
            bail!("{damage}");
        }
        let is_other = match self.carrier {
            // It is still being attached during the first order.
            ClusterCarrier::Ring => self.turns > 1 && report.rings < COPIES,
            ClusterCarrier::Tcp | ClusterCarrier::Link(_) => report.rings > 0,
        };
        if is_other {
            bail!("the coordinator has the memory of {} rings", report.rings);
        }
        Ok(report)
    }
}

fn listens(process: &Running, ip: IpAddr) -> Result<SocketAddr> {
    let line = process.wait_for_line(|line| line.starts_with("listening "))?;
    let port = line.trim_start_matches("listening ").parse().context("a host names no port")?;
    Ok((ip, port).into())
}
