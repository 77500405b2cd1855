//! The threads that wait.

use std::sync::{Arc, Condvar};

use seekwire_protocol::message::{Selector, Ticket};

use super::reader::Wait;

/// The event that a thread sleeps for.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitTarget {
    /// A waiting receive gets its message.
    Ticket(Ticket),
    /// A message that matches arrives.
    Probe(Selector),
    /// More bytes arrive of the message that the thread is receiving.
    Bytes,
}

#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    pub(super) leader: bool,
    pub(super) sleepers: Vec<Sleeper>,
    pub(super) next: u64,
    /// The bytes that a sleeper in the middle of a message needs. They come before all else.
    pub(super) urgent: Option<Wait>,
    /// Start of the bytes for which there was no room at the last attempt.
    pub(super) starved: Option<u64>,
    pub(super) polls: u32,
}

#[derive(Debug)]
pub(super) struct Sleeper {
    pub(super) id: u64,
    pub(super) on: WaitTarget,
    pub(super) condvar: Arc<Condvar>,
}

impl WaitQueue {
    pub(super) fn wake_if(&self, wakes: impl Fn(WaitTarget) -> bool) {
        self.sleepers
            .iter()
            .filter(|sleeper| wakes(sleeper.on))
            .for_each(|sleeper| sleeper.condvar.notify_one());
    }

    pub(super) fn wake(&self, ticket: Ticket) {
        self.wake_if(|on| matches!(on, WaitTarget::Ticket(other) if other == ticket));
    }

    pub(super) fn wake_probes(&self, tag: u64) {
        self.wake_if(|on| matches!(on, WaitTarget::Probe(selector) if selector.matches(tag)));
    }

    pub(super) fn wake_all(&self) {
        self.wake_if(|_| true);
    }
}
