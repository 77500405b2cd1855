//! Who watches a pipeline while it runs: what each copy is at, and what streams hold.

use std::sync::Arc;
use std::time::Instant;

use crate::deal::Deal;
use crate::hedging::Hedge;
use crate::ledger::Ledger;
use crate::panics::caught;
use crate::tune::SizeDecision;
use crate::unit::UnitId;

/// Hears what the copies of a running pipeline do, in their threads and in those that hear of other
/// processes: it should take no longer than these can wait. One that takes longer than the
/// [patience](crate::Job::patience) lets others think that this process is lost. Copies and streams are numbered as [`Running::copies`](crate::Running::copies) and
/// [`Running::streams`](crate::Running::streams) list them. Where several processes run the pipeline,
/// it hears of what is in its own.
///
/// The spans of a copy are nested: each that begins ends before the one around it, unless the
/// pipeline is watched no longer.
pub trait Observer: Send + Sync {
    /// A copy begins something.
    fn began(&self, copy: usize, span: Span, at: Instant);

    /// A copy ends what it began last.
    fn ended(&self, copy: usize, at: Instant);

    /// What a stream held at that time, in bytes.
    fn held(&self, stream: usize, bytes: usize, at: Instant);

    /// Blocks of a stream were dealt. With policies that deal at once it is told when the copy takes
    /// them.
    fn dealt(&self, stream: usize, deal: &Deal, at: Instant) {
        let _ = (stream, deal, at);
    }

    /// A block that a copy has had for longer than is usual was given to a second one, too.
    fn hedged(&self, stream: usize, hedge: &Hedge, at: Instant) {
        let _ = (stream, hedge, at);
    }

    /// A stream that finds the size of its blocks has chosen another one. Where several processes
    /// send to it, each has its own.
    fn sized(&self, stream: usize, decision: &SizeDecision, at: Instant) {
        let _ = (stream, decision, at);
    }
}

/// What a copy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Span {
    /// The filter is called: a unit begins.
    Init {
        /// Which.
        unit: UnitId,
    },
    /// The filter is called with a block.
    Process {
        /// Of which unit it is.
        unit: UnitId,
        /// Its number.
        sequence: u64,
        /// How long it is.
        bytes: usize,
        /// The number of the input port.
        port: usize,
    },
    /// The filter, a source, is called for blocks.
    Generate {
        /// Of which unit.
        unit: UnitId,
    },
    /// The filter is called: a unit is over.
    Finalize {
        /// Which.
        unit: UnitId,
    },
    /// It waits for something to do.
    Starved,
    /// It waits for room in the stream with this number.
    Blocked {
        /// The stream.
        stream: usize,
    },
}

/// One copy, and who watches it, if anybody does.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) copy: usize,
}

impl Watch {
    pub(crate) fn began(&self, span: impl FnOnce() -> Span) {
        if let Some(observer) = &self.observer {
            // A copy must not end with who watches it.
            let _ = caught(|| observer.began(self.copy, span(), Instant::now()));
        }
    }

    /// Of these streams, it is told what they hold now.
    pub(crate) fn ended(&self, streams: impl Iterator<Item = (usize, &'static Ledger)>) {
        if let Some(observer) = &self.observer {
            let now = Instant::now();
            let _ = caught(|| {
                observer.ended(self.copy, now);
                for (stream, ledger) in streams {
                    observer.held(stream, ledger.held().0, now);
                }
            });
        }
    }
}
