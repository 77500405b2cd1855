//! The measurements that streams pass on to choose the sizes of their blocks (sizing).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fit::Cost;
use crate::lanes::{Event, State};
use crate::remote::Outlet;
use crate::remote::distant::Distant;
use crate::remote::link::Link;
use crate::remote::message::Message;
use crate::report::StreamReport;
use crate::stream::Stream;

impl Stream {
    /// Notes that a copy has processed this many blocks and bytes in that time.
    pub(crate) fn served(
        &self,
        state: &mut State,
        copy: usize,
        (blocks, bytes): (usize, usize),
        took: Duration,
    ) {
        let Some(sizing) = &self.sizing else { return };
        let mut tuner = sizing.tuner();
        tuner.served(copy, blocks, bytes, took);
        if !tuner.is_time() {
            return;
        }
        tuner.units(state.over.0, state.over.1);
        let together = tuner.together();
        drop(tuner);
        let links = state.distant.iter().flatten().map(Distant::link_cost);
        // Also if no copy here sends: this sets the time of the next decision.
        let decision = sizing.think(links);
        let decision = decision.filter(|_| self.sizing_here().is_some() && self.observer.is_some());
        state.to_tell.extend(decision.map(|decision| (Event::Sized(decision), Instant::now())));
        if let Some(cost) = together {
            for (link, _) in &self.remote.producers {
                link.send(Message::Costs { stream: self.remote.number, cost });
            }
        }
    }

    /// Notes how long it took to send a timed block, without the wait for room.
    pub(crate) fn sending_took(&self, took: Duration) {
        if let Some(sizing) = &self.sizing {
            sizing.tuner().sent(took);
        }
    }
}

impl Outlet {
    /// As [`Stream::sending_took`].
    pub(crate) fn sending_took(&self, took: Duration) {
        let Some(sizing) = &self.sizing else { return };
        let mut tuner = sizing.tuner();
        tuner.sent(took);
        tuner.counts(sizing.sizes.count() as u64);
        if !tuner.is_time() {
            return;
        }
        drop(tuner);
        let home: &Link = &self.home;
        if let Some(decision) = sizing.think(std::iter::once((home.rank, home.cost()))) {
            if let Some(observer) = &self.observer {
                observer.sized(self.stream.into(), &decision, Instant::now());
            }
        }
    }

    /// The size of its blocks, if it chooses that; the home reports the rest.
    pub(crate) fn report(&self) -> Option<StreamReport> {
        let block = Some(self.sizing.as_ref()?.report());
        let name = Arc::clone(&self.name);
        Some(StreamReport {
            name,
            blocks: 0,
            bytes: 0,
            held: 0,
            peak: 0,
            limit: 0,
            block,
            copies: Vec::new(),
            hedged: 0,
            hedges_won: 0,
        })
    }

    /// Notes the common cost of the receiving copies, as reported by the home.
    pub(crate) fn costs(&self, cost: Cost) {
        if let Some(sizing) = &self.sizing {
            sizing.tuner().told(cost);
        }
    }
}
