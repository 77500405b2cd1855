//! The two ends: in two network namespaces, or here and on another host.

use std::cell::RefCell;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context as _, Result, anyhow, bail};
use seekwire_nic::{ChangeResult, Kernel, Plan, Report, Session, Store, Terms};
use seekwire_testbed::{Side, TestHost, Testbed};

use super::options::NetworkOptions;
use super::step::OffloadStep;
use crate::launch::interrupt::{self, Obligation};

/// The congestion control in our namespaces for programs that choose none: BBR's pacing timers
/// would be measured instead of the interface.
const CONGESTION: [&str; 2] = ["cubic", "reno"];

/// The two hosts, while this process may set their interfaces.
pub(crate) struct Hosts<'a> {
    location: ServerLocation<'a>,
    set: RefCell<Box<dyn FnMut(OffloadStep) -> Result<()> + 'a>>,
}

/// Where the server is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServerLocation<'a> {
    Namespaces(&'a Testbed),
    Peer(&'a RemoteHost),
}

/// Another host, and how it is reached.
#[derive(Clone, Debug)]
pub(crate) struct RemoteHost {
    /// As the user names it.
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    /// A second server there, or on a host that has little processor time, reached through the same
    /// interface.
    pub(crate) weak: Option<SocketAddr>,
    /// The interface of this host.
    pub(crate) interface: String,
    /// Megabits per second, if the interface knows.
    pub(crate) speed_mbps: Option<u32>,
}

impl Hosts<'_> {
    /// Runs `work` while there are two hosts, and then restores the settings of a real one.
    ///
    /// # Errors
    ///
    /// If no namespaces can be made, or the interface may not be changed; the error of `work`;
    /// settings that could not be restored.
    pub(crate) fn with<T>(
        options: &NetworkOptions,
        work: impl FnOnce(&Hosts<'_>) -> Result<T>,
    ) -> Result<T> {
        match &options.peer {
            Some(peer) => Self::with_peer(peer, options, work),
            None => Self::with_namespaces(work),
        }
    }

    fn with_namespaces<T>(work: impl FnOnce(&Hosts<'_>) -> Result<T>) -> Result<T> {
        let testbed = namespaces()?;
        let state =
            tempfile::tempdir().context("cannot make a directory for the state of interfaces")?;
        let store = Store::at(state.path());
        let set = |step| {
            for end in [Side::Near, Side::Far].map(|side| testbed.end(side)) {
                end.run(|| set(end, &store, step))??;
            }
            Ok(())
        };
        work(&Hosts {
            location: ServerLocation::Namespaces(&testbed),
            set: RefCell::new(Box::new(set)),
        })
    }

    fn with_peer<T>(
        peer: &str,
        options: &NetworkOptions,
        work: impl FnOnce(&Hosts<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut kernel = Kernel::open()?;
        let (interface, address) = find_route(&mut kernel, peer, options.interface.as_deref())?;
        // Before anything is changed.
        greet("--peer", peer, address)?;
        let weak = match &options.weak_peer {
            Some(weak) => {
                let address = behind(&mut kernel, &interface, "--weak-peer", weak)?;
                greet("--weak-peer", weak, address)?;
                Some(address)
            }
            None => None,
        };
        let store = Store::default();
        let terms = Terms { hold: true, default_route: options.default_route };
        let _obligation = Obligation::take();
        let session = RefCell::new(Session::begin(&mut kernel, &store, &interface, terms)?);
        let speed_mbps = session.borrow_mut().now()?.speed_mbps;
        let peer = RemoteHost {
            name: peer.to_owned(),
            address,
            weak,
            interface: interface.clone(),
            speed_mbps,
        };
        let worked = {
            let set = |step| apply(&mut session.borrow_mut(), &interface, step);
            work(&Hosts { location: ServerLocation::Peer(&peer), set: RefCell::new(Box::new(set)) })
        };
        let not_back = match session.into_inner().end() {
            Ok(back) if back.as_ref().is_none_or(Report::is_complete) => return worked,
            Ok(_) => {
                anyhow!(
                    "not all settings of {interface} came back; try `seekwire nic restore {interface}`"
                )
            }
            Err(error) => anyhow::Error::new(error).context(format!(
                "{interface} is not fully restored; try `seekwire nic restore {interface}`"
            )),
        };
        Err(match worked {
            Ok(_) => not_back,
            Err(error) => not_back.context(format!("{error:#}")),
        })
    }

    /// Sets the interfaces: both in namespaces, else that of this host.
    pub(crate) fn set(&self, step: OffloadStep) -> Result<()> {
        (self.set.borrow_mut())(step)
    }

    pub(crate) fn location(&self) -> &ServerLocation<'_> {
        &self.location
    }

    /// Number of hosts whose load can be measured.
    pub(crate) fn count(&self) -> usize {
        match self.location {
            ServerLocation::Namespaces(_) => 1,
            ServerLocation::Peer(_) => 2,
        }
    }
}

/// Two network namespaces, set up to measure what passes between them.
///
/// # Errors
///
/// Those of [`Testbed::new`].
pub(crate) fn namespaces() -> Result<Testbed, seekwire_testbed::Error> {
    let testbed = Testbed::new()?;
    for side in [Side::Near, Side::Far] {
        testbed.end(side).run(choose_congestion)?;
    }
    Ok(testbed)
}

/// The same for tests, which are skipped where namespaces are not allowed.
#[cfg(test)]
pub(crate) fn namespaces_if_permitted() -> Option<Testbed> {
    match namespaces() {
        Err(seekwire_testbed::Error::NotPermitted { .. }) => None,
        made => Some(made.unwrap()),
    }
}

/// Only the default of this namespace; the host keeps its own. Where it is forbidden, programs use
/// the existing one.
fn choose_congestion() {
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    let _ = CONGESTION.iter().any(|name| fs::write(path, name).is_ok());
}

/// Sets the interface in the namespace of `end`.
fn set(end: &TestHost, store: &Store, step: OffloadStep) -> Result<()> {
    let mut kernel = Kernel::open()?;
    let terms = Terms { hold: false, default_route: true };
    let mut session = Session::begin(&mut kernel, store, end.interface(), terms)?;
    apply(&mut session, end.interface(), step)?;
    session.end()?;
    Ok(())
}

fn apply(session: &mut Session<'_>, interface: &str, step: OffloadStep) -> Result<()> {
    let now = session.now()?;
    let plan = Plan::new(&now, &step.settings(&now))?;
    if plan.is_idle() {
        return Ok(());
    }
    let report = session.apply(&plan)?;
    if report.is_complete() {
        return Ok(());
    }
    let reasons: Vec<String> = report
        .outcomes
        .iter()
        .filter_map(|outcome| match &outcome.result {
            ChangeResult::Refused(reason) => {
                Some(format!("{}={}: {reason}", outcome.key, outcome.target))
            }
            ChangeResult::Fixed => Some(format!("{} cannot be {}", outcome.key, outcome.target)),
            _ => None,
        })
        .collect();
    bail!("{interface} does not support \"{}\": {}", step.name(), reasons.join("; "))
}

/// The interface to set, and the first address of the peer that is reached through it; if none is
/// named, the first one through which the peer is reached.
fn find_route(
    kernel: &mut Kernel,
    peer: &str,
    interface: Option<&str>,
) -> Result<(String, SocketAddr)> {
    let Some(interface) = interface else {
        let address = resolve("--peer", peer)?[0];
        let interface = kernel.interfaces_towards(address.ip())?.into_iter().next();
        let unknown =
            || format!("cannot tell which interface leads to {address}; name it with --iface");
        return Ok((interface.with_context(unknown)?, address));
    };
    // It may have another name there.
    let interface = kernel.interface(interface)?.name;
    Ok((interface.clone(), behind(kernel, &interface, "--peer", peer)?))
}

/// The first address of `peer` that packets reach through `interface`: settings of another one
/// would not matter.
fn behind(kernel: &mut Kernel, interface: &str, option: &str, peer: &str) -> Result<SocketAddr> {
    let mut failure = None;
    for address in resolve(option, peer)? {
        match kernel.check_route(interface, address.ip()) {
            Ok(()) => return Ok(address),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Err(failure.map_or_else(|| no_address(option, peer), Into::into))
}

/// The addresses of `HOST:PORT`, at least one.
fn resolve(option: &str, peer: &str) -> Result<Vec<SocketAddr>> {
    let addresses = peer.to_socket_addrs();
    let addresses: Vec<_> =
        addresses.with_context(|| format!("{option} {peer}: no such host"))?.collect();
    if addresses.is_empty() { Err(no_address(option, peer)) } else { Ok(addresses) }
}

fn no_address(option: &str, peer: &str) -> anyhow::Error {
    anyhow!("{option} {peer}: it has no address")
}

/// Fails if no server answers there.
fn greet(option: &str, peer: &str, address: SocketAddr) -> Result<()> {
    seekwire_gauge::Client::connect_unless(address, &|| interrupt::check().is_err())
        .with_context(|| format!("{option} {peer}: is `seekwire nic serve` running there?"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_host_is_reported_with_its_option() {
        assert_eq!(
            resolve("--peer", "127.0.0.1:80").unwrap(),
            [SocketAddr::from(([127, 0, 0, 1], 80))]
        );
        assert_eq!(resolve("--peer", "[::1]:80").unwrap(), ["[::1]:80".parse().unwrap()]);
        let error = resolve("--peer", "no such host.invalid:1").unwrap_err().to_string();
        assert!(error.contains("--peer"), "{error}");
    }

    #[test]
    fn namespaces_take_every_step() {
        let tried = Hosts::with_namespaces(|hosts| {
            let ServerLocation::Namespaces(testbed) = hosts.location() else {
                panic!("these are namespaces")
            };
            for step in OffloadStep::ALL.into_iter().chain([OffloadStep::Off]) {
                hosts.set(step)?;
                for end in [Side::Near, Side::Far].map(|side| testbed.end(side)) {
                    let read = || Kernel::open()?.interface(end.interface());
                    let interface = end.run(read)??;
                    let is_on =
                        |name: &str| interface.feature(name).is_some_and(|feature| feature.active);
                    let offloads = ["rx-checksum", "tx-tcp-segmentation", "rx-gro"].map(is_on);
                    let checksums = step != OffloadStep::Off;
                    let segmentation =
                        [OffloadStep::Segmentation, OffloadStep::Joining].contains(&step);
                    assert_eq!(
                        offloads,
                        [checksums, segmentation, step == OffloadStep::Joining],
                        "{step:?}"
                    );
                }
            }
            Ok(())
        });
        if let Err(error) = tried {
            let why = error.downcast_ref::<seekwire_testbed::Error>();
            assert!(matches!(why, Some(seekwire_testbed::Error::NotPermitted { .. })), "{error:#}");
        }
    }
}
