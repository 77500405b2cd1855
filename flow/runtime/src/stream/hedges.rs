//! The blocks that copies here are processing, so that late ones can be hedged (hedging).
//!
//! A copy that is still working on a block which the other one has finished is beaten: no unit
//! waits for it. The first thread that looks ends units in its place, and when the copy returns it
//! forgets them.
//!
//! Either copy may be in another process; the owner knows which blocks it has (remote_copy).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::memory::block::Queued;
use crate::memory::ledger::Charge;
use crate::memory::receipt::Share;
use crate::policy::dealing::Dealer;
use crate::policy::hedging::{Alone, Hedge, Hedging, Which};
use crate::policy::priority::{Priority, UnitId};
use crate::stream::end_tracker::EndTracker;
use crate::stream::remote_copy::RemoteCopy;

/// The block that each copy here is processing, at most one, and the policy.
pub(crate) struct Hedges {
    pub(crate) policy: Hedging,
    /// True if the output is put in the order of the blocks, or the blocks belong to such an order.
    pub(crate) keeps_order: bool,
    at: Vec<Option<At>>,
    /// The idle copy that looks again on its own, and when; if copies are elsewhere, the thread
    /// that does.
    pub(crate) watch: Option<(usize, Instant)>,
    /// True while that thread looks.
    pub(crate) is_looking: bool,
    pub(crate) ends: EndTracker,
}

/// A block for a second copy.
pub(crate) struct Second {
    pub(crate) rank: Priority,
    pub(crate) hedge: Hedge,
    bytes: Bytes,
    share: Arc<Share>,
}

impl Second {
    pub(crate) fn block(&self) -> Queued {
        Queued::shared(self.bytes.clone(), self.hedge.sequence, Arc::clone(&self.share))
    }
}

/// A block at a copy here.
pub(crate) struct At {
    pub(crate) rank: Priority,
    pub(crate) sequence: u64,
    bytes: Bytes,
    share: Arc<Share>,
    since: Instant,
    /// Two copies have it, or had.
    pub(crate) is_hedged: bool,
    /// This is the second copy.
    pub(crate) is_second: bool,
    /// No unit waits for it any more.
    pub(crate) is_beaten: bool,
    /// Units under way that others have ended in place of this copy.
    pub(crate) ended: Vec<UnitId>,
}

impl Hedges {
    pub(crate) fn new(percent: u32, keeps_order: bool, copies: usize) -> Self {
        Self {
            policy: Hedging::new(percent, copies),
            keeps_order,
            at: (0..copies).map(|_| None).collect(),
            watch: None,
            is_looking: false,
            ends: EndTracker::default(),
        }
    }

    /// Notes that the copy has taken that block. Its room is occupied until all copies that have it
    /// are done.
    pub(crate) fn took(
        &mut self,
        copy: usize,
        rank: Priority,
        block: Queued,
        ledger: Charge,
    ) -> Queued {
        let Queued { bytes, origin, sequence, receipt, .. } = block;
        let share = Arc::new(Share::new(ledger, receipt, origin));
        self.policy.dealt();
        self.put(
            copy,
            At {
                rank,
                sequence,
                bytes,
                share,
                since: Instant::now(),
                is_hedged: false,
                is_second: false,
                is_beaten: false,
                ended: Vec::new(),
            },
        )
    }

    fn put(&mut self, copy: usize, at: At) -> Queued {
        let block = Queued::shared(at.bytes.clone(), at.sequence, Arc::clone(&at.share));
        self.at[copy] = Some(at);
        block
    }

    /// Takes the block that a copy here has finished after this time.
    pub(crate) fn done(&mut self, copy: usize, took: Duration) -> Option<At> {
        self.policy.sample(copy, took);
        self.at[copy].take()
    }

    /// The block, if a copy here has it and a unit waits for it.
    fn awaited(&mut self, unit: UnitId, sequence: u64) -> Option<&mut At> {
        let mut all = self.at.iter_mut().flatten();
        all.find(|at| (at.rank.unit, at.sequence) == (unit, sequence) && !at.is_beaten)
    }

    /// Notes that another copy has finished that block; true if a copy here has it.
    pub(crate) fn beat(&mut self, unit: UnitId, sequence: u64) -> bool {
        let Some(at) = self.awaited(unit, sequence) else { return false };
        at.is_beaten = true;
        true
    }

    /// Notes that the other copy no longer has that block; true if a copy here has it.
    pub(crate) fn is_alone_again(&mut self, unit: UnitId, sequence: u64) -> bool {
        let Some(at) = self.awaited(unit, sequence) else { return false };
        (at.is_hedged, at.is_second) = (false, false);
        true
    }

    /// The unit has ended for all: none of its blocks is awaited.
    pub(crate) fn forget(&mut self, unit: UnitId) {
        for at in self.at.iter_mut().flatten() {
            at.is_beaten |= at.rank.unit == unit;
            at.ended.retain(|ended| *ended != unit);
        }
        self.ends.forget(unit);
    }

    /// Whether that unit was ended in place of the copy, which does not know of it.
    pub(crate) fn is_ended_for(&self, copy: usize, unit: UnitId) -> bool {
        self.at[copy].as_ref().is_some_and(|at| at.ended.contains(&unit))
    }

    /// The copies here with a block that is awaited: each with its block, and the time that is
    /// usual.
    pub(crate) fn waited_for(&self) -> impl Iterator<Item = (usize, &At, Duration)> {
        let all = self.at.iter().enumerate();
        let all = all.filter_map(|(copy, at)| Some((copy, at.as_ref()?)));
        all.filter(|(_, at)| !at.is_beaten)
            .filter_map(|(copy, at)| Some((copy, at, self.policy.usual(copy)?)))
    }

    /// For each copy, the block that it has had for longest and that no other copy has.
    pub(crate) fn alone<'s>(
        &'s self,
        remote_copies: &'s [Option<RemoteCopy>],
        now: Instant,
    ) -> impl Iterator<Item = Alone> + 's {
        let here = self.waited_for().filter(|(_, at, _)| !at.is_hedged);
        let here = here.map(|(copy, at, usual)| Alone {
            copy,
            process: None,
            rank: at.rank,
            sequence: at.sequence,
            since: at.since,
            usual,
            due: at.since + usual,
            is_silent: false,
            is_stuck: false,
        });
        let elsewhere = remote_copies.iter().enumerate().filter_map(move |(copy, one)| {
            let one = one.as_ref()?;
            let oldest = one.oldest_alone()?;
            let usual = self.policy.usual(copy)?;
            // It has to process the others before it, and no answer can be faster than the round
            // trip.
            let due = one.since() + usual.saturating_mul(oldest.position);
            let soonest = oldest.sent + one.round_trip().unwrap_or_default() + usual;
            Some(Alone {
                copy,
                process: Some(one.process()),
                rank: oldest.rank,
                sequence: oldest.sequence,
                since: oldest.sent,
                usual,
                due: due.max(soonest),
                is_silent: one.is_silent(now),
                is_stuck: one.is_stuck(),
            })
        });
        here.chain(elsewhere)
    }

    /// Whether a copy elsewhere is late with its blocks.
    pub(crate) fn is_late(&self, copy: usize, one: &RemoteCopy, now: Instant) -> bool {
        let is_unusual = |usual: Duration| now.duration_since(one.since()) >= usual;
        one.is_stuck() || one.unfinished() > 0 && self.policy.usual(copy).is_some_and(is_unusual)
    }

    /// The copies here with a block that is no longer awaited, each with the block.
    pub(crate) fn beaten(&mut self) -> impl Iterator<Item = (usize, &mut At)> {
        let all = self.at.iter_mut().enumerate();
        let all = all.filter_map(|(copy, at)| at.as_mut().map(|at| (copy, at)));
        all.filter(|(_, at)| at.is_beaten)
    }

    /// Whether a copy here is processing a block that is no longer awaited.
    pub(crate) fn has_beaten(&self, copy: usize) -> bool {
        self.at[copy].as_ref().is_some_and(|at| at.is_beaten)
    }

    /// Tells the dealer not to leave blocks to late copies here. True if a copy has become late, to
    /// which others may have left blocks.
    pub(crate) fn tell_dealer(&self, dealer: &mut Dealer, now: Instant) -> bool {
        let mut is_news = false;
        for (copy, at, usual) in self.waited_for() {
            is_news |= dealer.set_full(copy, now.duration_since(at.since) >= usual);
        }
        for copy in (0..self.at.len()).filter(|copy| self.has_beaten(*copy)) {
            is_news |= dealer.set_full(copy, true);
        }
        is_news
    }

    /// When each copy that has blocks becomes late.
    pub(crate) fn late_at<'s>(
        &'s self,
        remote_copies: &'s [Option<RemoteCopy>],
    ) -> impl Iterator<Item = Instant> + 's {
        let here = self.waited_for().map(|(_, at, usual)| at.since + usual);
        let elsewhere = remote_copies.iter().enumerate().filter_map(|(copy, one)| {
            let one = one.as_ref().filter(|one| one.unfinished() > 0 && !one.is_stuck())?;
            Some(one.since() + self.policy.usual(copy)?)
        });
        here.chain(elsewhere)
    }

    /// When the next block becomes late.
    pub(crate) fn next_look(
        &self,
        remote_copies: &[Option<RemoteCopy>],
        now: Instant,
    ) -> Option<Instant> {
        let looks = self.alone(remote_copies, now).flat_map(|one| one.looks());
        looks.filter(|at| *at > now).min()
    }

    /// The late block for this copy that has been out for longest.
    fn late_for(
        &self,
        to: usize,
        remote_copies: &[Option<RemoteCopy>],
        now: Instant,
        which: Which,
    ) -> Option<Alone> {
        let process = remote_copies[to].as_ref().map(RemoteCopy::process);
        self.policy.late_for((to, process), self.alone(remote_copies, now), now, which)
    }

    /// Whether there is a late block for this copy.
    pub(crate) fn has_any_for(
        &self,
        to: usize,
        remote_copies: &[Option<RemoteCopy>],
        now: Instant,
    ) -> bool {
        self.late_for(to, remote_copies, now, Which::Any).is_some()
    }

    /// Also gives the late block to this copy.
    pub(crate) fn second(
        &mut self,
        to: usize,
        remote_copies: &mut [Option<RemoteCopy>],
        now: Instant,
        which: Which,
    ) -> Option<Second> {
        let late = self.late_for(to, remote_copies, now, which)?;
        let Alone { copy: from, rank, sequence, .. } = late;
        let (bytes, share) = match (&mut self.at[from], &mut remote_copies[from]) {
            (_, Some(one)) => one.share(rank.unit, sequence)?,
            (Some(at), None) => {
                at.is_hedged = true;
                (at.bytes.clone(), Arc::clone(&at.share))
            }
            (None, None) => return None,
        };
        let hedge = self.policy.hedged(&late, to, now);
        Some(Second { rank, hedge, bytes, share })
    }

    /// The same, for a copy here.
    pub(crate) fn hedge(
        &mut self,
        to: usize,
        remote_copies: &mut [Option<RemoteCopy>],
        now: Instant,
        which: Which,
    ) -> Option<(Hedge, Priority, Queued)> {
        let Second { rank, hedge, bytes, share } = self.second(to, remote_copies, now, which)?;
        let second = At {
            rank,
            sequence: hedge.sequence,
            bytes,
            share,
            since: now,
            is_hedged: true,
            is_second: true,
            is_beaten: false,
            ended: Vec::new(),
        };
        Some((hedge, rank, self.put(to, second)))
    }
}
