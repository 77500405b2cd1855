//! The experiments.

mod by_size;
mod connections;
mod flow;
mod flow_peers;
mod links;
mod mailbox;
mod models;
mod nic;
mod pairs;
mod programs;
mod published_seek;
mod published_yasmin;
mod result_names;
mod ring_size;
mod search_keys;
mod seek;
mod seek_fragments;
mod seek_module;
mod slides;
mod sockets;
mod sweep;
mod vm;
mod zeromq;

use anyhow::{Result, bail};

use crate::experiment::Experiment;

/// Every experiment, in the order in which they are listed.
pub fn experiments() -> &'static [&'static dyn Experiment] {
    &[
        &sockets::Sockets,
        &ring_size::RingSize,
        &pairs::Pairs,
        &links::Links,
        &vm::Vm,
        &connections::Connections,
        &programs::Programs,
        &seek::Seek,
        &seek_fragments::SeekFragments,
        &seek_module::SeekModule,
        &mailbox::Mailbox,
        &nic::Nic,
        &zeromq::Zeromq,
        &models::Models,
        &flow::demand::Demand,
        &flow::reaction::Reaction,
        &flow::latency::Latency,
        &flow::updates::Updates,
        &flow_peers::FlowPeers,
        &slides::Slides,
    ]
}

/// The experiment of that name.
///
/// # Errors
///
/// If none exists, with the names of the existing ones.
pub(crate) fn by_name(name: &str) -> Result<&'static dyn Experiment> {
    let all = experiments();
    match all.iter().find(|experiment| experiment.name() == name) {
        Some(experiment) => Ok(*experiment),
        None => {
            let names: Vec<&str> = all.iter().map(|experiment| experiment.name()).collect();
            bail!("there is no experiment '{name}'; there are {}", names.join(", "))
        }
    }
}
