//! Builds a process's part of a pipeline: streams whose home is here, and the ends of streams whose
//! home is elsewhere.

use std::collections::HashMap;
use std::sync::Arc;

use crate::dealing::Policy;
use crate::graph::{Graph, StreamSpec};
use crate::late::Next;
use crate::output::{Outlet, Way};
use crate::remote;
use crate::remote::distant::Distant;
use crate::remote::link::Link;
use crate::remote::node::Parts;
use crate::remote::place::Place;
use crate::shared::Input;
use crate::stream::{Remote, Stream};
use crate::tune::Aim;

pub(crate) struct Built {
    /// By stream number.
    pub(crate) homes: Vec<Option<Arc<Stream>>>,
    outlets: Vec<Option<Arc<remote::Outlet>>>,
    /// By stream and home.
    inlets: HashMap<(u16, u32), Arc<remote::Inlet>>,
    /// Streams with copies elsewhere that may be late, and the streams that these send to.
    pub(crate) looked_after: Vec<(Arc<Stream>, Vec<Next>)>,
}

/// The links to the others, by rank; empty if this process is alone.
type Links = [Option<Arc<Link>>];

fn link(links: &Links, rank: u32) -> Option<&Arc<Link>> {
    links.get(rank as usize).and_then(Option::as_ref)
}

impl Built {
    pub(crate) fn new(graph: &Graph, rank: u32, links: &Links) -> Self {
        let mut built = Self {
            homes: Vec::new(),
            outlets: Vec::new(),
            inlets: HashMap::new(),
            looked_after: Vec::new(),
        };
        let specs = graph.streams.iter().enumerate();
        for (at, spec) in specs.clone() {
            let number = at as u16;
            let place = graph.place_of(spec);
            built.homes.push(home(graph, (number, spec), &place, rank, links));
            for home in place.homes.iter().filter(|home| **home != rank) {
                let Some(link) = link(links, *home) else { continue };
                let copies: Vec<usize> = place.to.copies_in(rank).collect();
                if !copies.is_empty() {
                    let inlet = remote::Inlet::new(
                        number,
                        Arc::clone(link),
                        copies.into_iter(),
                        spec.options.limit,
                        [
                            spec.options.is_ordered,
                            spec.options.policy == Policy::Demand,
                            place.is_replayed,
                            place.hedge.is_some(),
                        ],
                        keepers(graph, spec.to.0, rank),
                    );
                    built.inlets.insert((number, *home), Arc::new(inlet));
                }
            }
        }
        for (at, spec) in specs {
            let outlet = built.outlet(graph, (at as u16, spec), rank, links);
            built.outlets.push(outlet);
            if let Some(home) = built.homes[at].as_ref().filter(|home| home.looker.is_some()) {
                let next = built.next(graph, spec.to.0, links);
                built.looked_after.push((Arc::clone(home), next));
            }
        }
        built
    }

    /// The streams from that filter.
    fn next(&self, graph: &Graph, filter: usize, links: &Links) -> Vec<Next> {
        let specs = graph.streams.iter().enumerate();
        let specs = specs.filter(|(_, spec)| spec.from.0 == filter);
        let next = |(at, spec): (usize, &StreamSpec)| {
            if let Some(home) = &self.homes[at] {
                return Some(Next::Here(Arc::clone(home)));
            }
            let home = link(links, *graph.place_of(spec).homes.first()?)?;
            Some(Next::Elsewhere(at as u16, Arc::clone(home)))
        };
        specs.filter_map(next).collect()
    }

    /// The end at which copies here send, if the home is elsewhere.
    fn outlet(
        &self,
        graph: &Graph,
        (number, spec): (u16, &StreamSpec),
        rank: u32,
        links: &Links,
    ) -> Option<Arc<remote::Outlet>> {
        let place = graph.place_of(spec);
        let producers = place.from.copies_in(rank).count();
        if producers == 0 || place.homes.contains(&rank) {
            return None;
        }
        let link = link(links, *place.homes.first()?)?;
        // An idempotent filter has one input, and the stream to it has one home.
        let source = self
            .inlets
            .iter()
            .find(|((stream, _), _)| graph.streams[usize::from(*stream)].to.0 == spec.from.0);
        let source = source.filter(|_| place.is_replayed).map(|(_, inlet)| Arc::clone(inlet));
        let outlet = remote::Outlet::new(
            (spec.name.as_str().into(), number),
            Arc::clone(link),
            place.share,
            [spec.options.is_ordered && place.from.copies > 1, place.is_replayed],
            producers,
            source,
        );
        Some(Arc::new(outlet.watched(spec.options.cut, graph.observer.as_ref(), aim(graph))))
    }

    pub(crate) fn inputs(&self, graph: &Graph, filter: usize) -> Vec<(usize, Input)> {
        let mut inputs = Vec::new();
        for (at, spec) in graph.streams.iter().enumerate().filter(|(_, spec)| spec.to.0 == filter) {
            let port = spec.to.1;
            if let Some(home) = &self.homes[at] {
                inputs.push((port, Input::Here(Arc::clone(home))));
            }
            for home in graph.place_of(spec).homes {
                if let Some(inlet) = self.inlets.get(&(at as u16, home)) {
                    inputs.push((port, Input::Elsewhere(Arc::clone(inlet))));
                }
            }
        }
        inputs
    }

    pub(crate) fn outlets(&self, graph: &Graph, filter: usize) -> Vec<Vec<Outlet>> {
        let ports = graph.filters[filter].ports.outputs.len();
        let of_port = |port: usize| {
            let specs = graph.streams.iter().enumerate();
            let specs = specs.filter(|(_, spec)| spec.from == (filter, port));
            let outlet = |(at, spec): (usize, &StreamSpec)| {
                let stream = match (&self.outlets[at], &self.homes[at]) {
                    (Some(outlet), _) => Way::Elsewhere(Arc::clone(outlet)),
                    (None, Some(home)) => Way::Here(Arc::clone(home)),
                    (None, None) => return None,
                };
                Some(Outlet { stream, cut: spec.options.cut })
            };
            specs.filter_map(outlet).collect()
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
    ) -> Parts {
        let ranks = 0..hosts.len() as u32;
        let filters = || graph.filters.iter();
        let copies_in =
            |rank| filters().map(|filter| filter.copies_in(rank).count()).sum::<usize>();
        let needed = filters().filter(|filter| filter.is_idempotent);
        let limits = graph.streams.iter().map(|stream| stream.options.limit);
        Parts {
            rank,
            links,
            copies: ranks.clone().map(copies_in).collect(),
            can_lose: ranks.map(|rank| graph.can_lose(rank)).collect(),
            needed: needed.map(|filter| filter.processes()).collect(),
            hosts,
            homes: self.homes.clone(),
            outlets: self.outlets.clone(),
            inlets: self.inlets.clone(),
            largest: limits.max().unwrap_or(0),
        }
    }
}

/// The goal for the sizes of blocks.
fn aim(graph: &Graph) -> Aim {
    Aim::of(graph.guarantee, graph.streams.len())
}

/// The stream, if its home is here.
fn home(
    graph: &Graph,
    (number, spec): (u16, &StreamSpec),
    place: &Place<'_>,
    rank: u32,
    links: &Links,
) -> Option<Arc<Stream>> {
    if !place.homes.contains(&rank) {
        return None;
    }
    let Place { from, to, homes, is_replayed, is_redealt, hedge, share } = place;
    let here = from.copies_in(rank).count();
    // If each process deals its own blocks, no others arrive here.
    let is_only = homes.len() == 1;
    let producers = if is_only { from.copies } else { here };
    let senders = from.processes().into_iter().filter(|sender| is_only && *sender != rank);
    let senders = senders.filter_map(|sender| {
        let copies = from.copies_in(sender).collect();
        link(links, sender).map(|link| (Arc::clone(link), copies))
    });
    let senders: Vec<_> = senders.collect();
    let consumer = |copy: usize| {
        let process = to.rank_of(copy);
        let link = link(links, process).filter(|_| process != rank)?;
        let together = to.copies_in(process).count() * homes.len();
        let granted = (spec.options.limit / together).max(1);
        Some(Distant::new(Arc::clone(link), (number, copy as u16), granted))
    };
    // An idempotent filter has one input, and the stream to it has one home.
    let input = graph.streams.iter().find(|other| other.to.0 == spec.from.0);
    let input = input.map(|input| graph.place_of(input)).filter(|input| input.hedge.is_some());
    let ender = input.and_then(|input| input.homes.first().copied());
    let remote = Remote {
        number,
        ender,
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
    let mut next = graph.streams.iter().filter(|other| other.from.0 == spec.to.0);
    let keeps_order = spec.options.is_ordered || next.any(|stream| stream.options.is_ordered);
    let stream = stream.hedged(*hedge, keeps_order);
    Some(Arc::new(stream.watched(spec.options.cut, graph.observer.as_ref(), aim(graph))))
}

/// The number of streams from that filter that confirm what they have from another process.
fn keepers(graph: &Graph, filter: usize, rank: u32) -> usize {
    let outputs = graph.streams.iter().filter(|spec| spec.from.0 == filter);
    let confirms = |spec: &&StreamSpec| {
        let place = graph.place_of(spec);
        place.is_replayed && !place.homes.contains(&rank)
    };
    outputs.filter(confirms).count()
}
