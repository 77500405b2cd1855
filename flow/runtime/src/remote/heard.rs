//! The memory of a thread that reads from a link, from one message to the next.

use std::sync::Arc;

use crate::memory::origin::Origin;
use crate::memory::wakeup::Wakeup;
use crate::stream::unit::Open;

/// The state of a thread that reads from a link.
#[derive(Default)]
pub(super) struct Heard {
    /// The unit of the last block, if it is under way.
    pub(super) unit: Option<Arc<Open>>,
    /// Copies that have got blocks: they are rung when nothing more is there, or before the thread
    /// waits.
    pub(super) to_ring: Vec<Arc<Wakeup>>,
    /// The source of the last block that has one.
    source: Option<Arc<str>>,
}

impl Heard {
    /// Shares the memory of the name among blocks of one source.
    pub(super) fn origin(&mut self, origin: Option<Origin>) -> Option<Origin> {
        origin.map(|origin| origin.share(&mut self.source))
    }

    pub(super) fn ring(&mut self) {
        self.to_ring.drain(..).for_each(|wakeup| wakeup.ring());
    }
}
