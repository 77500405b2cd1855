//! Builds a process's part of a pipeline: streams whose owner is here, and the ends of streams
//! whose owner is elsewhere.

use std::collections::HashMap;
use std::sync::Arc;

use crate::policy::cut::OVERHEAD;
use crate::policy::size_tuner::Aim;
use crate::remote;
use crate::remote::link::Link;
use crate::remote::node::NodeConfig;
use crate::remote::owner_links::{ToCopy, ToProducers};
use crate::run::graph::{Graph, StreamSpec};
use crate::run::stream_ends::{Input, StreamSender, StreamTarget};
use crate::run::stream_placement::StreamPlacement;
use crate::stream::elsewhere::RemoteProducers;
use crate::stream::owned::{Remote, Stream};
use crate::stream::remote_copy::RemoteCopy;

pub(crate) struct Built {
    /// By stream number.
    pub(crate) owned: Vec<Option<Arc<Stream>>>,
    remote_producers: Vec<Option<Arc<remote::RemoteProducer>>>,
    /// By stream and owner.
    remote_consumers: HashMap<(u16, u32), Arc<remote::RemoteConsumer>>,
}

/// The links to the others, by rank; empty if this process is alone.
type Links = [Option<Arc<Link>>];

fn link(links: &Links, rank: u32) -> Option<&Arc<Link>> {
    links.get(rank as usize).and_then(Option::as_ref)
}

impl Built {
    pub(crate) fn new(graph: &Graph, rank: u32, links: &Links) -> Self {
        let mut built = Self {
            owned: Vec::new(),
            remote_producers: Vec::new(),
            remote_consumers: HashMap::new(),
        };
        let specs = graph.streams.iter().enumerate();
        for (at, spec) in specs.clone() {
            let number = at as u16;
            let placement = graph.placement_of(spec);
            built.owned.push(owned_stream(graph, number, spec, &placement, rank, links));
            for owner in placement.owners.iter().filter(|owner| **owner != rank) {
                let Some(link) = link(links, *owner) else { continue };
                let copies: Vec<usize> = placement.to.copies_in(rank).collect();
                if !copies.is_empty() {
                    let consumer = remote::RemoteConsumer::new(
                        number,
                        Arc::clone(link),
                        copies.into_iter(),
                        spec.options.limit,
                        [
                            spec.options.is_ordered,
                            spec.options.policy.counts_begun(),
                            placement.is_replayed,
                        ],
                        keepers(graph, spec.to.0, rank),
                    );
                    built.remote_consumers.insert((number, *owner), Arc::new(consumer));
                }
            }
        }
        for (at, spec) in specs {
            let producer = built.remote_producer(graph, at as u16, spec, rank, links);
            built.remote_producers.push(producer);
        }
        built
    }

    /// The end at which copies here send, if the owner is elsewhere.
    fn remote_producer(
        &self,
        graph: &Graph,
        number: u16,
        spec: &StreamSpec,
        rank: u32,
        links: &Links,
    ) -> Option<Arc<remote::RemoteProducer>> {
        let placement = graph.placement_of(spec);
        let producers = placement.from.copies_in(rank).count();
        if producers == 0 || placement.owners.contains(&rank) {
            return None;
        }
        let link = link(links, *placement.owners.first()?)?;
        // An idempotent filter has one input, and the stream to it has one owner.
        let source = self
            .remote_consumers
            .iter()
            .find(|((stream, _), _)| graph.streams[usize::from(*stream)].to.0 == spec.from.0);
        let source =
            source.filter(|_| placement.is_replayed).map(|(_, consumer)| Arc::clone(consumer));
        let producer = remote::RemoteProducer::new(
            remote::StreamId { name: spec.name.as_str().into(), number },
            Arc::clone(link),
            placement.share,
            [spec.options.is_ordered && placement.from.copies > 1, placement.is_replayed],
            producers,
            source,
        );
        Some(Arc::new(producer.watched(spec.options.cut, graph.observer.as_ref(), aim(graph))))
    }

    pub(crate) fn inputs(&self, graph: &Graph, filter: usize) -> Vec<(usize, Input)> {
        let mut inputs = Vec::new();
        for (at, spec) in graph.streams.iter().enumerate().filter(|(_, spec)| spec.to.0 == filter) {
            let port = spec.to.1;
            if let Some(stream) = &self.owned[at] {
                inputs.push((port, Input::Here(Arc::clone(stream))));
            }
            for owner in graph.placement_of(spec).owners {
                if let Some(consumer) = self.remote_consumers.get(&(at as u16, owner)) {
                    inputs.push((port, Input::Elsewhere(Arc::clone(consumer))));
                }
            }
        }
        inputs
    }

    pub(crate) fn senders(&self, graph: &Graph, filter: usize) -> Vec<Vec<StreamSender>> {
        let ports = graph.filters[filter].ports.outputs.len();
        let of_port = |port: usize| {
            let specs = graph.streams.iter().enumerate();
            let specs = specs.filter(|(_, spec)| spec.from == (filter, port));
            let sender = |(at, spec): (usize, &StreamSpec)| {
                let stream = match (&self.remote_producers[at], &self.owned[at]) {
                    (Some(producer), _) => StreamTarget::Elsewhere(Arc::clone(producer)),
                    (None, Some(stream)) => StreamTarget::Here(Arc::clone(stream)),
                    (None, None) => return None,
                };
                Some(StreamSender { stream, cut: spec.options.cut })
            };
            specs.filter_map(sender).collect()
        };
        (0..ports).map(of_port).collect()
    }

    /// Everything that a process has to know about the others, with the links.
    pub(crate) fn parts(
        &self,
        graph: &Graph,
        rank: u32,
        hosts: Vec<Arc<str>>,
        links: Vec<Option<Arc<Link>>>,
    ) -> NodeConfig {
        let ranks = 0..hosts.len() as u32;
        let filters = || graph.filters.iter();
        let copies_in =
            |rank| filters().map(|filter| filter.copies_in(rank).count()).sum::<usize>();
        let needed = filters().filter(|filter| filter.is_idempotent);
        let limits = graph.streams.iter().map(|stream| stream.options.limit);
        NodeConfig {
            rank,
            links,
            copies: ranks.clone().map(copies_in).collect(),
            can_lose: ranks.map(|rank| graph.can_lose(rank)).collect(),
            needed: needed.map(|filter| filter.processes()).collect(),
            rejects_to: filters().enumerate().map(|(at, _)| rejects_to(graph, at)).collect(),
            hosts,
            owned: self.owned.clone(),
            producers: self.remote_producers.clone(),
            consumers: self.remote_consumers.clone(),
            largest: limits.max().unwrap_or(0),
        }
    }
}

/// The process to which rejections of that filter are reported: the coordinator; but if others take
/// over the blocks of a lost copy, the one that deals them.
fn rejects_to(graph: &Graph, filter: usize) -> u32 {
    let inputs = graph.streams.iter().filter(|spec| spec.to.0 == filter);
    let mut inputs = inputs.map(|spec| graph.placement_of(spec));
    // An idempotent filter has one input, and the stream to it has one owner.
    let redealt = inputs.find(|input| input.is_redealt);
    redealt.and_then(|input| input.owners.first().copied()).unwrap_or(0)
}

/// The goal for the sizes of blocks.
fn aim(graph: &Graph) -> Aim {
    Aim::of(graph.guarantee, graph.streams.len())
}

/// The stream, if its owner is here.
fn owned_stream(
    graph: &Graph,
    number: u16,
    spec: &StreamSpec,
    placement: &StreamPlacement<'_>,
    rank: u32,
    links: &Links,
) -> Option<Arc<Stream>> {
    let own_number = placement.owners.iter().position(|owner| *owner == rank)?;
    let StreamPlacement { from, to, owners, is_replayed, is_redealt, share } = placement;
    let here = from.copies_in(rank).count();
    // If each process deals its own blocks, no others arrive here.
    let is_only = owners.len() == 1;
    let producers = if is_only { from.copies } else { here };
    let senders = from.processes().into_iter().filter(|sender| is_only && *sender != rank);
    let senders = senders.filter_map(|sender| {
        let copies = from.copies_in(sender).collect();
        let link = Arc::clone(link(links, sender)?);
        Some(RemoteProducers::new(sender, copies, ToProducers { link, stream: number }))
    });
    let senders: Vec<_> = senders.collect();
    let consumer = |copy: usize| {
        let process = to.rank_of(copy);
        let link = link(links, process).filter(|_| process != rank)?;
        let together = to.copies_in(process).count() * owners.len();
        let granted = (spec.options.limit / together).max(1);
        let way = ToCopy { link: Arc::clone(link), to: (number, copy as u16) };
        Some(RemoteCopy::new(Arc::new(way), granted))
    };
    // An idempotent filter has one input, and the stream to it has one owner.
    let input = graph.streams.iter().find(|other| other.to.0 == spec.from.0);
    // Each has room there until its copy drops it, which may be before the copy is done with it.
    let input_blocks = input.map_or(0, |input| input.options.limit / OVERHEAD + from.copies);
    let remote = Remote {
        number,
        own_number: own_number as u64,
        other_owners: owners.len() as u64 - 1,
        input_blocks,
        consumers: (0..to.copies).map(consumer).collect(),
        foreign_limit: share * senders.len(),
        producers: senders,
        is_replayed: *is_replayed,
        is_redealt: *is_redealt,
        local_producers: here,
    };
    let stream = Stream::new(
        spec.name.as_str().into(),
        if here > 0 { *share } else { 0 },
        spec.options.policy,
        spec.options.is_ordered,
        [producers, to.copies],
        graph.filters[spec.to.0].ports.inputs.len() > 1 || !is_only,
        remote,
    );
    Some(Arc::new(stream.watched(spec.options.cut, graph.observer.as_ref(), aim(graph))))
}

/// The number of streams from that filter that confirm what they have from another process.
fn keepers(graph: &Graph, filter: usize, rank: u32) -> usize {
    let outputs = graph.streams.iter().filter(|spec| spec.from.0 == filter);
    let confirms = |spec: &&StreamSpec| {
        let placement = graph.placement_of(spec);
        placement.is_replayed && !placement.owners.contains(&rank)
    };
    outputs.filter(confirms).count()
}
