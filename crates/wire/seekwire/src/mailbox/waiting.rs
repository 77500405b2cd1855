//! Who waits, and for what.

use std::sync::{Arc, Condvar};

use seekwire_protocol::message::{Selector, Ticket};

use super::reader::Wait;

/// What a thread sleeps for.
#[derive(Clone, Copy, Debug)]
pub(super) enum On {
    /// A receive that waits.
    Ticket(Ticket),
    /// A message that matches.
    Probe(Selector),
    /// More of the message that it is receiving.
    Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) leader: bool,
    pub(super) sleepers: Vec<Sleeper>,
    pub(super) next: u64,
    /// What a sleeper needs that is in the middle of a message: it comes before all else.
    pub(super) urgent: Option<Wait>,
    /// Where the bytes begin for which there was no room at the last attempt.
    pub(super) starved: Option<u64>,
    pub(super) polls: u32,
}

#[derive(Debug)]
pub(super) struct Sleeper {
    pub(super) id: u64,
    pub(super) on: On,
    pub(super) condvar: Arc<Condvar>,
}

impl Waiting {
    pub(super) fn wake_if(&self, wakes: impl Fn(On) -> bool) {
        self.sleepers
            .iter()
            .filter(|sleeper| wakes(sleeper.on))
            .for_each(|sleeper| sleeper.condvar.notify_one());
    }

    pub(super) fn wake(&self, ticket: Ticket) {
        self.wake_if(|on| matches!(on, On::Ticket(other) if other == ticket));
    }

    pub(super) fn wake_probes(&self, tag: u64) {
        self.wake_if(|on| matches!(on, On::Probe(selector) if selector.matches(tag)));
    }

    pub(super) fn wake_all(&self) {
        self.wake_if(|_| true);
    }
}
