//! The ends of units for copies in other processes, and when these are late with them.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::policy::hedging::usual_of;
use crate::policy::priority::UnitId;
use crate::stream::remote_copy::RemoteCopy;

/// The end of a unit takes too long if it takes this many times as long as usual: giving up a copy
/// that would soon be done gains nothing.
const STALL: u32 = 8;

/// A unit that has ended for a copy, which is done with it or no longer awaited.
pub(crate) struct EndedForCopy {
    pub(crate) copy: usize,
    /// The process of the copy; `None` if it is here.
    pub(crate) process: Option<u32>,
    pub(crate) unit: UnitId,
}

/// The ends of units, for copies elsewhere.
#[derive(Default)]
pub(crate) struct EndTracker {
    /// When the end of a unit was announced to copies that have not yet reported that they are
    /// done.
    pub(crate) announced: BTreeMap<(UnitId, usize), Instant>,
    /// How long such reports took.
    pub(crate) took: VecDeque<Duration>,
    /// Ends to announce to the others.
    pub(crate) ended: Vec<EndedForCopy>,
}

impl EndTracker {
    /// The unit has ended for all copies.
    pub(crate) fn forget(&mut self, unit: UnitId) {
        self.announced.retain(|(of, _), _| *of != unit);
        self.ended.retain(|one| one.unit != unit);
    }

    /// When each copy will be late with the end of a unit, if that can be known.
    pub(crate) fn due<'s>(
        &'s self,
        usual_of_copy: impl Fn(usize) -> Option<Duration> + 's,
        remote_copies: &'s [Option<RemoteCopy>],
    ) -> impl Iterator<Item = (UnitId, usize, Instant)> + 's {
        let usual = usual_of(self.took.iter()).map(|usual| usual.saturating_mul(STALL));
        self.announced.iter().filter_map(move |((unit, copy), at)| {
            let own = remote_copies[*copy].as_ref()?;
            let is_stuck = |one: &RemoteCopy| one.process() == own.process() && one.is_stuck();
            // If another copy of its process is stuck, this one may also be.
            let usual = match remote_copies.iter().flatten().any(is_stuck) {
                true => usual_of_copy(*copy).or(usual)?,
                false => usual?,
            };
            Some((*unit, *copy, *at + usual))
        })
    }
}
