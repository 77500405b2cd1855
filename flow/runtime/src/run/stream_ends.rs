//! The ends of streams at the copies here. The owner of a stream is here, or in another process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::memory::batch::Batch;
use crate::memory::ledger::Ledger;
use crate::memory::wakeup::Wakeup;
use crate::policy::cut::Cut;
use crate::policy::priority::UnitId;
use crate::remote::{RemoteConsumer, RemoteProducer};
use crate::stream::owned::Stream;
use crate::stream::sizing::Sizing;
use crate::stream::unit::Open;
use crate::stream::work::NextWork;

/// An input of a copy: a stream whose owner is here, or in another process.
pub(crate) enum Input {
    Here(Arc<Stream>),
    Elsewhere(Arc<RemoteConsumer>),
}

impl Input {
    /// Fills the batch of the copy, or announces the end of a unit.
    pub(crate) fn take(
        &self,
        copy: usize,
        own: &Arc<Wakeup>,
        batch: &mut Batch,
    ) -> Option<NextWork> {
        match self {
            Self::Here(stream) => stream.take(copy, own, batch),
            Self::Elsewhere(consumer) => consumer.take(copy, own, batch),
        }
    }

    /// The number of the stream, and the ledger for its bytes here.
    pub(crate) fn account(&self) -> (usize, &'static Ledger) {
        match self {
            Self::Here(stream) => (stream.number(), stream.ledger),
            Self::Elsewhere(consumer) => (consumer.stream.into(), consumer.ledger),
        }
    }

    /// The copy has finished with the blocks it took: it processed `processed` of them in that
    /// time.
    pub(crate) fn done(&self, copy: usize, batch: &mut Batch, processed: usize, took: Duration) {
        match self {
            Self::Here(stream) => stream.done(copy, batch, processed, took),
            Self::Elsewhere(consumer) => consumer.done(copy, batch, processed, took),
        }
    }

    /// Whether a block that precedes that one waits for the copy.
    pub(crate) fn has_earlier(&self, copy: usize, unit: &Open, sequence: u64) -> bool {
        match self {
            Self::Here(stream) => stream.has_earlier(copy, unit, sequence),
            Self::Elsewhere(consumer) => consumer.has_earlier(copy, unit, sequence),
        }
    }
}

/// One end of a stream, at one copy of the sending filter.
pub(crate) struct StreamSender {
    pub(crate) stream: StreamTarget,
    pub(crate) cut: Cut,
}

/// A stream whose owner is here, or in another process.
#[derive(Clone)]
pub(crate) enum StreamTarget {
    Here(Arc<Stream>),
    Elsewhere(Arc<RemoteProducer>),
}

impl StreamTarget {
    pub(crate) fn name(&self) -> &Arc<str> {
        match self {
            Self::Here(stream) => &stream.name,
            Self::Elsewhere(producer) => &producer.name,
        }
    }

    /// The number of the stream, and the ledger for its bytes here.
    pub(crate) fn account(&self) -> (usize, &'static Ledger) {
        match self {
            Self::Here(stream) => (stream.number(), stream.ledger),
            Self::Elsewhere(producer) => (producer.stream.into(), producer.ledger),
        }
    }

    pub(crate) fn number(&self) -> usize {
        self.account().0
    }

    /// Set for a stream that chooses the size of its blocks.
    pub(crate) fn sizing(&self) -> Option<&Sizing> {
        match self {
            Self::Here(stream) => stream.sizing.as_ref(),
            Self::Elsewhere(producer) => producer.sizing.as_ref(),
        }
    }

    /// The size of the next block, which is for that unit, if the stream chooses it.
    pub(crate) fn next_size(&self, unit: UnitId) -> Option<usize> {
        let (size, decision) = self.sizing()?.next(unit);
        let observer = match self {
            Self::Here(stream) => stream.observer.as_ref(),
            Self::Elsewhere(producer) => producer.observer.as_ref(),
        };
        if let (Some(decision), Some(observer)) = (decision, observer) {
            observer.sized(self.number(), &decision, Instant::now());
        }
        Some(size)
    }

    pub(crate) fn ledger(&self) -> &'static Ledger {
        self.account().1
    }

    pub(crate) fn is_ordered(&self) -> bool {
        match self {
            Self::Here(stream) => stream.is_ordered(),
            Self::Elsewhere(producer) => producer.is_ordered,
        }
    }

    /// True if the outputs of different input blocks must not be mixed.
    pub(crate) fn keeps_groups(&self) -> bool {
        match self {
            Self::Here(stream) => stream.keeps_groups(),
            Self::Elsewhere(producer) => producer.is_ordered || producer.keeps_groups,
        }
    }

    pub(crate) fn is_replayed(&self) -> bool {
        match self {
            Self::Here(stream) => stream.is_replayed(),
            Self::Elsewhere(producer) => producer.keeps_groups,
        }
    }

    pub(crate) fn largest(&self) -> usize {
        match self {
            Self::Here(stream) => stream.largest(),
            Self::Elsewhere(producer) => producer.largest(),
        }
    }

    pub(crate) fn share(&self) -> usize {
        match self {
            Self::Here(stream) => stream.share(),
            Self::Elsewhere(producer) => producer.share(),
        }
    }

    pub(crate) fn most(&self, unit: &Open, group: u64) -> usize {
        match self {
            Self::Here(stream) => stream.most(unit, group),
            Self::Elsewhere(producer) => producer.most(unit, group),
        }
    }

    /// True if that group has its turn, and groups of other units may have theirs.
    pub(crate) fn is_one_of_turns(&self, unit: &Open, group: u64) -> bool {
        match self {
            Self::Here(stream) => stream.is_one_of_turns(unit, group),
            Self::Elsewhere(producer) => producer.is_one_of_turns(unit, group),
        }
    }
}
