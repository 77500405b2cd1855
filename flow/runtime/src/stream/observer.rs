//! Observers of a running pipeline: what each copy does, and how much streams hold.

use std::sync::Arc;
use std::time::Instant;

use crate::memory::ledger::Ledger;
use crate::panics::caught;
use crate::policy::copy_state::Deal;
use crate::policy::priority::UnitId;
use crate::policy::size_tuner::SizeDecision;

/// Observes the copies of a running pipeline, in their threads and in those that read from other
/// processes: a call should not take longer than these can wait. One that takes longer than the
/// [patience](crate::ClusterConfig::patience) makes other processes believe that this one is lost. Copies and
/// streams are numbered as [`Running::copies`](crate::Running::copies) and
/// [`Running::streams`](crate::Running::streams) list them. If several processes run the pipeline,
/// an observer sees only its own process.
///
/// The spans of a copy are nested: each one ends before the one around it, unless the observation
/// stops.
pub trait Observer: Send + Sync {
    /// A copy begins a span.
    fn began(&self, copy: usize, span: Span, at: Instant);

    /// A copy ends the span that it began last.
    fn ended(&self, copy: usize, at: Instant);

    /// The number of bytes that a stream held at that time.
    fn held(&self, stream: usize, bytes: usize, at: Instant);

    /// Blocks of a stream were dealt. With policies that deal at once this is called when the copy
    /// takes them.
    fn dealt(&self, stream: usize, deal: &Deal, at: Instant) {
        let _ = (stream, deal, at);
    }

    /// A stream that chooses the size of its blocks has chosen another one. If several processes
    /// send to it, each has its own.
    fn sized(&self, stream: usize, decision: &SizeDecision, at: Instant) {
        let _ = (stream, decision, at);
    }
}

/// An activity of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Span {
    /// The filter is called to begin a unit.
    Init {
        /// The unit.
        unit: UnitId,
    },
    /// The filter is called with a block.
    Process {
        /// Its unit.
        unit: UnitId,
        /// Its number.
        sequence: u64,
        /// Its length.
        bytes: usize,
        /// The number of the input port.
        port: usize,
    },
    /// The filter, a source, is called for blocks.
    Generate {
        /// The unit.
        unit: UnitId,
    },
    /// The filter is called to end a unit.
    Finalize {
        /// The unit.
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

/// One copy, and its observer, if any.
#[derive(Clone)]
pub(crate) struct CopyObserver {
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) copy: usize,
}

impl CopyObserver {
    pub(crate) fn began(&self, span: impl FnOnce() -> Span) {
        if let Some(observer) = &self.observer {
            // A panic of the observer must not end the copy.
            let _ = caught(|| observer.began(self.copy, span(), Instant::now()));
        }
    }

    /// Reports the end of the span, and how much these streams hold now.
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
