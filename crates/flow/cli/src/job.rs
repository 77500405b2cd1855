//! The processes that run a pipeline together, as the launcher started them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use seekwire_flow::{Job, Peer};
use seekwire_launch::{Launcher, Secret};

use crate::arguments::FlowRun;

/// One of them, as places of filters name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) host: String,
    pub(crate) role: String,
}

/// This process among them.
pub(crate) struct Membership {
    launched: seekwire_launch::Job,
    /// Where there are others.
    pub(crate) job: Option<Job>,
    /// By rank.
    pub(crate) members: Vec<Member>,
}

/// The rank of this process, before anything else is known.
pub(crate) fn launched() -> Result<seekwire_launch::Job> {
    seekwire_launch::Job::join().context("cannot join the others of this job")
}

impl Membership {
    /// Meets the others at the launcher: who they are, and where they listen.
    pub(crate) fn new(mut launched: seekwire_launch::Job, wishes: &FlowRun) -> Result<Self> {
        let (rank, size) = (launched.rank(), launched.size());
        if size == 1 {
            let role = wishes.role.clone();
            let members = vec![Member { host: launched.host().to_owned(), role }];
            return Ok(Self { launched, job: None, members });
        }
        let (listener, addresses) = listen(wishes.interface.as_deref())?;
        let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        launched.publish("address", &addresses.join(" "))?;
        let host = launched.host().to_owned();
        launched.publish("host", &host)?;
        launched.publish("role", &wishes.role)?;
        if rank == 0 {
            launched.publish("secret", &Secret::random()?.to_hex())?;
        }
        launched.exchange()?;
        let secret = Secret::from_hex(&launched.lookup(0, "secret")?);
        let secret = *secret.context("the secret of the job is damaged")?.as_bytes();
        let mut members = Vec::new();
        let mut peers = Vec::new();
        for other in 0..size {
            let host = launched.lookup(other, "host")?;
            let addresses = launched.lookup(other, "address")?;
            let parsed: Result<Vec<SocketAddr>, _> =
                addresses.split_whitespace().map(str::parse).collect();
            let addresses =
                parsed.with_context(|| format!("rank {other} has no address: {addresses}"))?;
            members.push(Member { host: host.clone(), role: launched.lookup(other, "role")? });
            peers.push(Peer { host, addresses });
        }
        let [limit, patience] = [wishes.meet_within, wishes.patience]
            .map(|seconds| Duration::from_secs(seconds.into()));
        let job = Job { rank, peers, listener, secret, limit, patience };
        Ok(Self { launched, job: Some(job), members })
    }

    /// Who has started this process.
    pub(crate) fn launcher(&self) -> Launcher {
        self.launched.launcher()
    }

    /// It takes no part, for a reason that all of them find.
    pub(crate) fn decline(self) {
        // The reason is what is told.
        let _ = self.launched.finish();
    }

    /// This process has done its part. All have met, so they have looked up what they need.
    pub(crate) fn finish(self) -> Result<()> {
        self.launched.finish_settled().context("cannot take leave of the launcher")
    }
}

/// A listener, and the addresses at which others may reach it: first those by which hosts reach each
/// other, last those of this host alone.
fn listen(interface: Option<&str>) -> Result<(TcpListener, Vec<SocketAddr>)> {
    let mut known: Vec<(bool, bool, IpAddr)> = Vec::new();
    let mut names = Vec::new();
    for found in getifaddrs().context("cannot list the network's interfaces")? {
        names.push(found.interface_name.clone());
        let is_wanted = interface.is_none_or(|wanted| wanted == found.interface_name);
        if !is_wanted || !found.flags.contains(InterfaceFlags::IFF_UP) {
            continue;
        }
        let Some(address) = found.address else { continue };
        let address: IpAddr = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => v4.ip().into(),
            // One that is valid on a link only says nothing without the link.
            (_, Some(v6)) if v6.ip().segments()[0] & 0xffc0 != 0xfe80 => v6.ip().into(),
            _ => continue,
        };
        known.push((address.is_loopback(), address.is_ipv6(), address));
    }
    known.sort();
    known.dedup();
    names.sort();
    names.dedup();
    let of = interface.map(|name| format!(" of interface {name}")).unwrap_or_default();
    ensure!(
        !known.is_empty(),
        "there is no address{of} at which the other processes could reach this one: the interfaces \
         here are {}",
        names.join(", ")
    );
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))
        .context("cannot listen for the other processes")?;
    let local = listener.local_addr().context("cannot listen for the other processes")?;
    let reached = |(_, is_v6, address): (bool, bool, IpAddr)| {
        (!is_v6 || local.is_ipv6()).then(|| SocketAddr::new(address, local.port()))
    };
    Ok((listener, known.into_iter().filter_map(reached).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_an_address() {
        let (listener, addresses) = listen(None).unwrap();
        assert!(!addresses.is_empty());
        let port = listener.local_addr().unwrap().port();
        assert!(addresses.iter().all(|address| address.port() == port));
        let (_, loopback) = listen(Some("lo")).unwrap();
        assert!(loopback.iter().all(|address| address.ip().is_loopback()), "{loopback:?}");
        let error = listen(Some("none")).unwrap_err().to_string();
        assert!(error.contains("no address of interface none") && error.contains("lo"), "{error}");
    }
}
