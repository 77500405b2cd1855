//! Decides which process does what.

use crate::policy::cut::Cut;
use crate::run::graph::{FilterSpec, Graph, StreamSpec};
use crate::run::graph_error::GraphError;
use crate::run::stream_options::least;

use sha2::{Digest, Sha256};

/// A stream, and the processes at its ends.
pub(crate) struct StreamPlacement<'g> {
    pub(crate) from: &'g FilterSpec,
    pub(crate) to: &'g FilterSpec,
    /// The processes that deal its blocks: the one that receives, or all that send, or one of them.
    pub(crate) owners: Vec<u32>,
    /// True if blocks may be sent again.
    pub(crate) is_replayed: bool,
    /// True if blocks may be dealt again.
    pub(crate) is_redealt: bool,
    /// Bytes that each sending process may hold.
    pub(crate) share: usize,
}

fn may_be_lost(filter: &FilterSpec) -> bool {
    filter.is_idempotent && filter.processes().len() > 1
}

impl Graph {
    pub(crate) fn placement_of(&self, stream: &StreamSpec) -> StreamPlacement<'_> {
        let [from, to] = [stream.from, stream.to].map(|(filter, _)| &self.filters[filter]);
        let (senders, receivers) = (from.processes(), to.processes());
        let (is_replayed, is_redealt) = (may_be_lost(from), may_be_lost(to));
        let share = stream.options.limit / senders.len();
        // An order, and blocks that are sent or dealt again, need one process that knows of all
        // blocks.
        let is_one = stream.options.is_ordered || is_replayed || is_redealt;
        let owners = match (&senders[..], &receivers[..]) {
            // A receiver deals the blocks that it has, and nothing waits for an answer.
            (_, [_]) if !is_redealt => receivers,
            ([_], _) => senders,
            // The coordinator is the process that can never be lost.
            _ if is_one => vec![0],
            _ => senders,
        };
        StreamPlacement { from, to, owners, is_replayed, is_redealt, share }
    }

    /// Whether the pipeline can do without that process.
    pub(crate) fn can_lose(&self, rank: u32) -> bool {
        let filters = self.filters.iter().filter(|filter| filter.processes().contains(&rank));
        let is_owner = |stream: &StreamSpec| self.placement_of(stream).owners.contains(&rank);
        rank != 0 && filters.clone().all(may_be_lost) && !self.streams.iter().any(is_owner)
    }

    /// Checks that it can run in this many processes.
    pub(crate) fn check_placements(&self, size: usize) -> Result<(), GraphError> {
        for filter in &self.filters {
            let beyond = filter.ranks.iter().find(|rank| **rank as usize >= size);
            if let Some(rank) = beyond {
                return Err(GraphError::NoRank {
                    filter: filter.name.to_string(),
                    rank: *rank,
                    last: size.saturating_sub(1) as u32,
                });
            }
        }
        let most = usize::from(u16::MAX) + 1;
        if self.streams.len() > most || self.filters.iter().any(|filter| filter.copies > most) {
            return Err(GraphError::TooMany);
        }
        for stream in &self.streams {
            let placement = self.placement_of(stream);
            if placement.is_replayed && matches!(stream.options.cut, Cut::Auto(_)) {
                return Err(GraphError::CutAgain {
                    stream: stream.name.clone(),
                    filter: placement.from.name.to_string(),
                });
            }
            let senders = placement.from.processes();
            let copies = senders.iter().map(|rank| placement.from.copies_in(*rank).count()).max();
            let least = least(&stream.options.cut, copies.unwrap_or(1));
            if placement.share < least {
                return Err(GraphError::LimitTooSmall {
                    stream: stream.name.clone(),
                    least: least * senders.len(),
                    limit: stream.options.limit,
                });
            }
        }
        Ok(())
    }

    /// A digest of everything that is the same in all processes that run this pipeline.
    pub(crate) fn digest(&self, seed: &[u8]) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update((seed.len() as u64).to_le_bytes());
        digest.update(seed);
        for filter in &self.filters {
            let FilterSpec { name, copies, ports, ranks, is_idempotent, .. } = filter;
            let all = format!("{name:?} {copies} {ports:?} {ranks:?} {is_idempotent}\n");
            digest.update(all);
        }
        for StreamSpec { name, from, to, options } in &self.streams {
            digest.update(format!("{name:?} {from:?} {to:?} {options:?}\n"));
        }
        digest.update(format!("{:?}\n", self.guarantee));
        digest.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::graph::Ports;
    use crate::run::stream_options::StreamOptions;
    use crate::{Block, Filter, FilterError, Outputs};

    struct Nothing;

    impl Filter for Nothing {
        fn process(&mut self, _: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
            Ok(())
        }
    }

    /// Source and sink on rank 0, two steps on ranks 1 and 2.
    fn graph(idempotent: &[&str], is_ordered: bool) -> Graph {
        let mut graph = Graph::new();
        graph.filter("source", 1, Ports::source(), || Nothing).unwrap();
        for step in ["first", "second"] {
            graph.filter(step, 1, Ports::step(), || Nothing).unwrap();
            graph.place(step, &[1, 2, 1]).unwrap();
        }
        graph.filter("sink", 1, Ports::sink(), || Nothing).unwrap();
        let options = StreamOptions { is_ordered, ..StreamOptions::default() };
        for (from, to) in [("source", "first"), ("first", "second"), ("second", "sink")] {
            graph.connect(from, to, options.clone()).unwrap();
        }
        for filter in idempotent {
            graph.idempotent(filter).unwrap();
        }
        graph.check().unwrap();
        graph.check_placements(3).unwrap();
        graph
    }

    fn owners(graph: &Graph) -> Vec<Vec<u32>> {
        graph.streams.iter().map(|stream| graph.placement_of(stream).owners).collect()
    }

    #[test]
    fn everybody_deals_his_own_unless_somebody_must_know_all() {
        assert_eq!(owners(&graph(&[], false)), [vec![0], vec![1, 2], vec![0]]);
        assert_eq!(owners(&graph(&[], true)), [vec![0], vec![0], vec![0]]);
        let both = graph(&["first", "second"], false);
        assert_eq!(owners(&both), [vec![0], vec![0], vec![0]]);
        assert_eq!([0, 1, 2].map(|rank| both.can_lose(rank)), [false, true, true]);
        let first = graph(&["first"], false);
        assert_eq!([0, 1, 2].map(|rank| first.can_lose(rank)), [false, false, false]);
        assert_eq!(first.filters[1].copies_in(1).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn placements_are_checked() {
        let mut graph = graph(&[], false);
        graph.place("first", &[3]).unwrap();
        let error = graph.check_placements(3).unwrap_err().to_string();
        assert_eq!(error, "filter first cannot be placed on rank 3: the ranks are 0 to 2");
        assert_ne!(graph.digest(b""), graph.digest(b"x"));
    }
}
