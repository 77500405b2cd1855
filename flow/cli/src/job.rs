//! The processes that run a pipeline together, as the launcher started them.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use seekwire_flow::{AbortCheck, ClusterConfig, Peer};
use seekwire_launch::network::{self, Network};
use seekwire_launch::{Ending, Error, Launcher, Secret};
use seekwire_values::Time;
use sha2::{Digest, Sha256};

use crate::arguments::FlowRun;
use crate::outputs::Files;

/// One of the processes, as placements of filters name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) host: String,
    pub(crate) role: String,
    pub(crate) files: Files,
}

/// This process as one of them.
pub(crate) struct Membership {
    launched: seekwire_launch::Job,
    /// Set if there are other processes.
    pub(crate) job: Option<ClusterConfig>,
    /// By rank.
    pub(crate) members: Vec<Member>,
}

/// The launch of this process: its rank, and a connection to the others.
pub(crate) fn launched(options: &FlowRun) -> Result<seekwire_launch::Job> {
    let limit = options.meet_within.get();
    seekwire_launch::Job::join_within(limit).context("cannot join the other processes of this job")
}

impl Membership {
    /// Exchanges with the others, through the launcher, who they are and where they listen, and
    /// checks that all have the same pipeline.
    pub(crate) fn new(
        mut launched: seekwire_launch::Job,
        options: &FlowRun,
        pipeline: &str,
    ) -> Result<Self> {
        let (rank, size) = (launched.rank(), launched.size());
        if size == 1 {
            let role = options.role.clone();
            let (host, files) = (launched.host().to_owned(), Files::here());
            let members = vec![Member { host, role, files }];
            return Ok(Self { launched, job: None, members });
        }
        let (listener, addresses) = network::listen(options.interface.as_deref())?;
        let network = Network::here()?;
        let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        launched.publish("address", &addresses.join(" "))?;
        let host = launched.host().to_owned();
        launched.publish("host", &host)?;
        launched.publish("network", &network.name)?;
        launched.publish("role", &options.role)?;
        launched.publish("files", &Files::here().to_text())?;
        let digest = Sha256::digest(pipeline);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        launched.publish("pipeline", &digest)?;
        if rank == 0 {
            launched.publish("secret", &Secret::random()?.to_hex())?;
        }
        launched.exchange()?;
        let secret = Secret::from_hex(&launched.lookup(0, "secret")?);
        let secret = *secret.context("the secret of the job is damaged")?.as_bytes();
        let mut members = Vec::new();
        let mut peers = Vec::new();
        for other in 0..size {
            let peer = peer(&mut launched, &network, other)?;
            ensure!(
                launched.lookup(other, "pipeline")? == digest,
                "the pipeline file of rank {other} on {} is not the same as that of rank {rank} on \
                 {host}",
                peer.host
            );
            // Processes of higher rank connect to this one.
            ensure!(
                other >= rank || !peer.addresses.is_empty(),
                "rank {other} on {} has no address that leads there from here: {}; --interface \
                 chooses others",
                peer.host,
                launched.lookup(other, "address")?
            );
            let role = launched.lookup(other, "role")?;
            let files = Files::of_text(&launched.lookup(other, "files")?);
            members.push(Member { host: peer.host.clone(), role, files });
            peers.push(peer);
        }
        let [limit, patience] = [options.meet_within, options.patience].map(Time::get);
        let called_off = Some(called_off(launched.ending()?));
        let job = ClusterConfig { rank, peers, listener, secret, limit, patience, called_off };
        Ok(Self { launched, job: Some(job), members })
    }

    /// The launcher that started this process.
    pub(crate) fn launcher(&self) -> Launcher {
        self.launched.launcher()
    }

    /// Leaves the job, for a reason that all processes find.
    pub(crate) fn decline(self) {
        // The caller reports the reason.
        let _ = self.launched.finish();
    }

    /// This process has done its part. All have connected, so they have looked up what they need.
    pub(crate) fn finish(self) -> Result<()> {
        self.launched.finish_settled().context("cannot take leave of the launcher")
    }
}

/// Another process, with the addresses at which this one can reach it.
fn peer(launched: &mut seekwire_launch::Job, network: &Network, rank: u32) -> Result<Peer> {
    let host = launched.lookup(rank, "host")?;
    let addresses = launched.lookup(rank, "address")?;
    let parsed: Result<Vec<SocketAddr>, _> = addresses.split_whitespace().map(str::parse).collect();
    let parsed = parsed.with_context(|| format!("rank {rank} has no address: {addresses}"))?;
    let its = launched.lookup(rank, "network")?;
    let is_same = match (its.is_empty(), network.name.is_empty()) {
        (false, false) => its == network.name,
        _ => host == launched.host(),
    };
    Ok(Peer { host, addresses: network.reachable(&parsed, is_same) })
}

/// Reports whether another process has ended the job. Other errors of the directory are no reason
/// to give up: all have looked up what they need.
fn called_off(ending: Ending) -> Arc<AbortCheck> {
    Arc::new(move || match ending.check() {
        Err(error @ Error::Aborted { .. }) => Some(error.to_string()),
        _ => None,
    })
}
