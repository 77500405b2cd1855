//! How copies in other processes are plugged into a stream whose owner is here: one trait for those
//! that send to it, and one for those that receive from it.

use std::sync::Arc;

use bytes::Bytes;

use crate::memory::origin::Origin;
use crate::memory::receipt::Sender;
use crate::policy::fit::Cost;
use crate::policy::priority::UnitId;

/// Where copies that send to the stream learn about it.
pub(crate) trait ProducerLink: Send + Sync {
    /// All others wait for that group.
    fn turn(&self, unit: UnitId, group: u64);

    /// The cost of a block for the receivers.
    fn costs(&self, cost: Cost);
}

/// A process with copies that send to the stream.
pub(crate) struct RemoteProducers {
    pub(crate) process: u32,
    pub(crate) copies: Vec<usize>,
    pub(crate) link: Arc<dyn ProducerLink>,
    /// The same, as the blocks from there know it.
    pub(crate) sender: Arc<dyn Sender>,
}

impl RemoteProducers {
    pub(crate) fn new<L: ProducerLink + Sender + 'static>(
        process: u32,
        copies: Vec<usize>,
        link: L,
    ) -> Self {
        let link = Arc::new(link);
        let sender = Arc::clone(&link);
        Self { process, copies, link, sender }
    }
}

/// The way to a copy that receives from the stream.
pub(crate) trait ConsumerLink: Send + Sync {
    /// The process of the copy.
    fn process(&self) -> u32;

    /// How long blocks occupy the way there; `None` if not known yet.
    fn cost(&self) -> Option<Cost>;

    /// Sends these to the copy, and leaves none.
    fn send(&self, all: &mut Vec<ToConsumer>);
}

/// A message of the owner to a copy elsewhere.
pub(crate) enum ToConsumer {
    /// A block; `is_again` if it was dealt before, to a copy that is lost.
    Block { unit: UnitId, sequence: u64, is_again: bool, origin: Option<Origin>, bytes: Bytes },
    /// The copy should return a block that it has not begun.
    Recall { unit: UnitId, sequence: u64 },
    /// The copy gets no more blocks of the unit.
    Over { unit: UnitId },
}

/// A report from another process that cannot be true: the process is faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unexpected(pub(crate) &'static str);
