//! State that the copies of a pipeline share in one process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::policy::priority::UnitId;
use crate::stream::feed::Feed;
use crate::stream::owned::Stream;
use crate::stream::report::Failure;
use crate::stream::unit::{Open, Units};

/// The other processes that run parts of the pipeline.
pub(crate) trait Others: Send + Sync {
    /// The name of this host.
    fn host(&self) -> Arc<str>;

    /// Notifies them that a unit has ended early here.
    fn tell_of_end(&self, unit: UnitId, failure: Failure);

    /// The unit has ended early: drops its blocks that come from them or go to them.
    fn forget(&self, unit: &Open);

    /// A copy here is done with the unit.
    fn copy_is_done(&self, unit: UnitId);

    /// A copy here of the filter with that number has rejected some of its input.
    fn copy_has_rejected(&self, filter: usize);
}

/// State that all copies of a running pipeline in this process share.
pub(crate) struct LocalPipeline {
    pub(crate) units: Units,
    /// Streams whose owner is here.
    pub(crate) streams: Vec<Arc<Stream>>,
    /// The units that each copy of each source has not begun.
    pub(crate) feeds: Vec<Arc<Feed>>,
    pub(crate) is_stopped: AtomicBool,
    /// The other processes, if there are any.
    pub(crate) others: Option<Arc<dyn Others>>,
    /// Set if a copy here cannot continue: the failure of all later units.
    pub(crate) broken: OnceLock<Failure>,
    /// How often each filter has rejected some of its input: its copies here, and at the
    /// coordinator also those of the other processes.
    pub(crate) rejected: Vec<AtomicU64>,
}

impl LocalPipeline {
    /// Ends the unit, if it is under way, in all processes.
    pub(crate) fn end_early(&self, unit: UnitId, failure: Failure) {
        if self.end_here(unit, failure.clone()) {
            if let Some(others) = &self.others {
                others.tell_of_end(unit, failure);
            }
        }
    }

    /// The same in this process. True if it was under way.
    pub(crate) fn end_here(&self, unit: UnitId, failure: Failure) -> bool {
        let Some(open) = self.units.find(unit) else { return false };
        let is_first = self.units.end_early(unit, failure);
        if is_first {
            self.streams.iter().for_each(|stream| stream.forget(&open));
            if let Some(others) = &self.others {
                others.forget(&open);
            }
            self.feeds.iter().for_each(|feed| feed.wake());
        }
        is_first
    }

    /// No unit can be done here any more: ends those that are under way, and those that
    /// [begin](LocalPipeline::has_begun).
    pub(crate) fn break_for(&self, failure: impl Fn(UnitId) -> Failure) {
        let _ = self.broken.set(failure(UnitId(0)));
        for unit in self.units.all() {
            self.end_early(unit, failure(unit));
        }
    }

    /// A unit has begun; ends it at once if none can be done.
    pub(crate) fn has_begun(&self, unit: UnitId) {
        if let Some(failure) = self.broken.get() {
            self.end_early(unit, failure.of(unit));
        }
    }

    /// A copy here is done with the unit.
    pub(crate) fn copy_is_done(&self, unit: UnitId) {
        match &self.others {
            Some(others) => others.copy_is_done(unit),
            None => {
                if self.units.copy_is_done(unit, 0) == Some(true) {
                    self.streams.iter().for_each(|stream| stream.clear(unit));
                }
            }
        }
    }

    /// A copy here of the filter with that number has rejected some of its input.
    pub(crate) fn copy_has_rejected(&self, filter: usize) {
        self.count_rejected(filter, 1);
        if let Some(others) = &self.others {
            others.copy_has_rejected(filter);
        }
    }

    /// Counts rejections. False if there is no such filter.
    pub(crate) fn count_rejected(&self, filter: usize, more: u64) -> bool {
        let Some(rejected) = self.rejected.get(filter) else { return false };
        // The number may come from another process and be anything.
        let add = |count: u64| Some(count.saturating_add(more));
        rejected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// The name of this host, if other processes run parts of the pipeline.
    pub(crate) fn host(&self) -> Option<Arc<str>> {
        self.others.as_ref().map(|others| others.host())
    }
}
