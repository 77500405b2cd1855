//! Hedging: a block that a copy has had for unusually long also goes to a second copy.
//!
//! After J. Dean and L. Barroso, "The Tail at Scale", Communications of the ACM 56(2), 2013: the
//! second request is sent when the first has taken longer than the 95th percentile, so that few are
//! sent, and the first answer wins. Here it is sent only if a copy is idle and nothing else waits,
//! and within a budget, which does not apply to a block that is very late. Both copies send the
//! same output, since the filter is idempotent, and it is accepted only once (remote, replays).
//!
//! If an order is kept, everything that comes after a late block waits for it, and would soon
//! occupy all the room: then no copy can begin anything more, this block included. So there the
//! block goes to a copy that can begin one before those that no copy has yet, if it has waited for
//! twice the usual time, or its copy is still working on a beaten block.
//!
//! A copy that is still working on a block which the other one has finished is beaten: no unit
//! waits for it. The first thread that looks ends units in its place, and when the copy returns it
//! forgets them.
//!
//! Either copy may be in another process; the home knows which blocks it has (distant). The module
//! late has the thread that looks in that case, and the differences.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::block::{Block, Queued, Receipt};
use crate::dealing::Dealer;
use crate::hand::Hand;
use crate::lanes::{Event, State, Taken, count_over};
use crate::late::Ends;
use crate::ledger::Charge;
use crate::origin::Origin;
use crate::remote::distant::Distant;
use crate::stream::Stream;
use crate::unit::{Rank, UnitId};

/// Number of service times remembered for each copy.
const SAMPLES: usize = 32;

/// How many of them must be known before any can be unusual.
const LEAST_SAMPLES: usize = 8;

/// Never hedge earlier than this: waking a second copy and redoing the work costs time as well.
pub(crate) const LEAST: Duration = Duration::from_millis(1);

/// Price of a hedge. Each block dealt adds the percentage of the budget to the savings.
const COST: u32 = 100;

/// Most hedges that can be saved up: long work without any must not allow a storm of them.
const MOST_SAVED: u32 = 64;

/// A block that is late by this much goes to a second copy even if the budget is spent: the first
/// copy may be stuck forever.
const PATIENCE: Duration = Duration::from_secs(1);

/// A block that was given to a second copy, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hedge {
    /// Its unit.
    pub unit: UnitId,
    /// Its number.
    pub sequence: u64,
    /// The copy that has it.
    pub from: usize,
    /// The copy that also gets it.
    pub to: usize,
    /// How long the first copy has had it.
    pub waited: Duration,
    /// The usual time there: 95 % of its blocks took no longer. At least a millisecond.
    pub usual: Duration,
    /// Blocks that this process has dealt to copies, here and elsewhere, each counted once.
    pub blocks: u64,
    /// Blocks of these that went to a second copy, including this one.
    pub hedges: u64,
}

/// The room of a block that several copies have, and the origin of the block.
pub(crate) struct Share {
    _charge: Charge,
    _receipt: Option<Box<Receipt>>,
    pub(crate) origin: Option<Origin>,
}

impl Share {
    pub(crate) fn new(
        charge: Charge,
        receipt: Option<Box<Receipt>>,
        origin: Option<Origin>,
    ) -> Self {
        Self { _charge: charge, _receipt: receipt, origin }
    }
}

/// The block that each copy here is processing, at most one, and the service times of all copies.
pub(crate) struct Hedges {
    percent: u32,
    /// True if the output is put in the order of the blocks, or the blocks belong to such an order.
    keeps_order: bool,
    saved: u32,
    at: Vec<Option<At>>,
    samples: Vec<VecDeque<Duration>>,
    /// The usual time of each copy that has enough samples.
    known: Vec<Option<Duration>>,
    /// The idle copy that looks again on its own, and when; if copies are elsewhere, the thread
    /// that does.
    pub(crate) watch: Option<(usize, Instant)>,
    /// True while that thread looks.
    pub(crate) is_looking: bool,
    pub(crate) ends: Ends,
    pub(crate) counts: Counts,
}

/// A block that only one copy has, and since when that is unusual.
pub(crate) struct Alone {
    copy: usize,
    rank: Rank,
    sequence: u64,
    since: Instant,
    usual: Duration,
    pub(crate) due: Instant,
}

/// The late blocks to look for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// All: there is nothing else to do.
    Any,
    /// Those that hold up an order, if their unit is at least as urgent as this one, which has
    /// blocks that no copy has.
    Before(Option<Rank>),
}

/// A block for a second copy.
pub(crate) struct Second {
    pub(crate) rank: Rank,
    pub(crate) hedge: Hedge,
    bytes: Bytes,
    share: Arc<Share>,
}

impl Second {
    pub(crate) fn block(&self) -> Queued {
        Queued::shared(self.bytes.clone(), self.hedge.sequence, Arc::clone(&self.share))
    }
}

/// How often blocks were hedged, and how often it helped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    blocks: u64,
    pub(crate) hedges: u64,
    /// Times that the second copy was first.
    pub(crate) won: u64,
}

struct At {
    rank: Rank,
    sequence: u64,
    bytes: Bytes,
    share: Arc<Share>,
    since: Instant,
    /// Two copies have it, or had.
    is_hedged: bool,
    /// This is the second copy.
    is_second: bool,
    /// No unit waits for it any more.
    is_beaten: bool,
    /// Units under way that others have ended in place of this copy.
    ended: Vec<UnitId>,
}

/// The outcome of a block at a copy.
#[derive(Default)]
pub(crate) struct Finished {
    /// Another copy had finished it before, or the unit had ended.
    pub(crate) is_beaten: bool,
    /// Units that were ended in its place.
    pub(crate) ended: Vec<UnitId>,
}

impl Hedges {
    pub(crate) fn new(percent: u32, keeps_order: bool, copies: usize) -> Self {
        Self {
            percent,
            keeps_order,
            saved: 0,
            at: (0..copies).map(|_| None).collect(),
            samples: vec![VecDeque::new(); copies],
            known: vec![None; copies],
            watch: None,
            is_looking: false,
            ends: Ends::default(),
            counts: Counts::default(),
        }
    }

    /// Notes that a copy was dealt a block that no other copy has.
    pub(crate) fn dealt(&mut self) {
        self.counts.blocks += 1;
        self.saved = (self.saved + self.percent).min(MOST_SAVED * COST);
    }

    /// Notes that the block has come back, and will be dealt again.
    pub(crate) fn undealt(&mut self) {
        self.counts.blocks = self.counts.blocks.saturating_sub(1);
        self.saved = self.saved.saturating_sub(self.percent);
    }

    /// Notes that the copy has taken that block. Its room is occupied until all copies that have it
    /// are done.
    fn took(&mut self, copy: usize, rank: Rank, block: Queued, ledger: Charge) -> Queued {
        let Queued { bytes, origin, sequence, receipt, .. } = block;
        let share = Arc::new(Share::new(ledger, receipt, origin));
        self.dealt();
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

    /// Notes how long a copy had a block.
    pub(crate) fn sample(&mut self, copy: usize, took: Duration) {
        keep(&mut self.samples[copy], took);
        self.known[copy] = usual_of(self.samples[copy].iter());
    }

    /// Takes the block that a copy here has finished after this time.
    fn done(&mut self, copy: usize, took: Duration) -> Option<At> {
        self.sample(copy, took);
        self.at[copy].take()
    }

    /// The block, if a copy here has it and a unit waits for it.
    fn awaited(&mut self, unit: UnitId, sequence: u64) -> Option<&mut At> {
        let mut all = self.at.iter_mut().flatten();
        all.find(|at| (at.rank.unit, at.sequence) == (unit, sequence) && !at.is_beaten)
    }

    /// Notes that another copy has finished that block; true if a copy here has it.
    fn beat(&mut self, unit: UnitId, sequence: u64) -> bool {
        let Some(at) = self.awaited(unit, sequence) else { return false };
        at.is_beaten = true;
        true
    }

    /// Notes that the other copy no longer has that block; true if a copy here has it.
    fn is_alone_again(&mut self, unit: UnitId, sequence: u64) -> bool {
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

    /// How long a copy usually has a block; the value for all copies while little is known of this
    /// one.
    pub(crate) fn usual(&self, copy: usize) -> Option<Duration> {
        self.known[copy].or_else(|| usual_of(self.samples.iter().flatten()))
    }

    /// The copies here with a block that is awaited: each with its block, and the time that is
    /// usual.
    fn waited_for(&self) -> impl Iterator<Item = (usize, &At, Duration)> {
        let all = self.at.iter().enumerate();
        let all = all.filter_map(|(copy, at)| Some((copy, at.as_ref()?)));
        all.filter(|(_, at)| !at.is_beaten)
            .filter_map(|(copy, at)| Some((copy, at, self.usual(copy)?)))
    }

    /// For each copy, the block that it has had for longest and that no other copy has.
    pub(crate) fn alone<'s>(
        &'s self,
        distant: &'s [Option<Distant>],
    ) -> impl Iterator<Item = Alone> + 's {
        let here = self.waited_for().filter(|(_, at, _)| !at.is_hedged);
        let here = here.map(|(copy, at, usual)| Alone {
            copy,
            rank: at.rank,
            sequence: at.sequence,
            since: at.since,
            usual,
            due: at.since + usual,
        });
        let elsewhere = distant.iter().enumerate().filter_map(|(copy, one)| {
            let one = one.as_ref()?;
            let oldest = one.oldest_alone()?;
            let usual = self.usual(copy)?;
            // It has to process the others before it, and no answer can be faster than the round
            // trip.
            let due = one.since() + usual.saturating_mul(oldest.place);
            let soonest = oldest.sent + one.round_trip().unwrap_or_default() + usual;
            Some(Alone {
                copy,
                rank: oldest.rank,
                sequence: oldest.sequence,
                since: oldest.sent,
                usual,
                due: due.max(soonest),
            })
        });
        here.chain(elsewhere)
    }

    /// Whether a copy elsewhere is late with its blocks.
    pub(crate) fn is_late(&self, copy: usize, one: &Distant, now: Instant) -> bool {
        let is_unusual = |usual: Duration| now.duration_since(one.since()) >= usual;
        one.is_stuck() || one.unfinished() > 0 && self.usual(copy).is_some_and(is_unusual)
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
        distant: &'s [Option<Distant>],
    ) -> impl Iterator<Item = Instant> + 's {
        let here = self.waited_for().map(|(_, at, usual)| at.since + usual);
        let elsewhere = distant.iter().enumerate().filter_map(|(copy, one)| {
            let one = one.as_ref().filter(|one| one.unfinished() > 0 && !one.is_stuck())?;
            Some(one.since() + self.usual(copy)?)
        });
        here.chain(elsewhere)
    }

    /// When the next block becomes late.
    fn next_look(&self, distant: &[Option<Distant>], now: Instant) -> Option<Instant> {
        let looks = self.alone(distant).flat_map(|one| [one.due, one.due + PATIENCE]);
        looks.filter(|at| *at > now).min()
    }

    /// The late block for this copy that has been out for longest. Not one that a copy in the same
    /// other process has: the whole process may be late.
    fn late_for(
        &self,
        to: usize,
        distant: &[Option<Distant>],
        now: Instant,
        which: Which,
    ) -> Option<Alone> {
        // Blocks at a process that seems to be stopped are dealt again as after a loss. If it
        // continues, it returns those that it has not begun.
        let has_budget = self.saved >= COST;
        let is_silent = |copy: usize| distant[copy].as_ref().is_some_and(|one| one.is_silent(now));
        let may_cost = |one: &Alone| has_budget || is_silent(one.copy) || now >= one.due + PATIENCE;
        let process = |copy: usize| distant[copy].as_ref().map(Distant::process);
        let is_other =
            |copy: usize| copy != to && (process(copy).is_none() || process(copy) != process(to));
        let late = self.alone(distant).filter(|one| is_other(one.copy) && now >= one.due);
        let late = late.filter(may_cost);
        let is_stuck = |copy: usize| distant[copy].as_ref().is_some_and(Distant::is_stuck);
        let late = late.filter(|one| match which {
            Which::Any => true,
            Which::Before(undealt) => {
                let is_later = undealt.is_none_or(|undealt| one.rank <= undealt);
                is_later && (now >= one.due + one.usual || is_stuck(one.copy))
            }
        });
        late.min_by_key(|one| one.since)
    }

    /// Whether there is a late block for this copy.
    pub(crate) fn has_any_for(&self, to: usize, distant: &[Option<Distant>], now: Instant) -> bool {
        self.late_for(to, distant, now, Which::Any).is_some()
    }

    /// Also gives the late block to this copy.
    pub(crate) fn second(
        &mut self,
        to: usize,
        distant: &mut [Option<Distant>],
        now: Instant,
        which: Which,
    ) -> Option<Second> {
        let Alone { copy: from, rank, sequence, since, usual, .. } =
            self.late_for(to, distant, now, which)?;
        let unit = rank.unit;
        let (bytes, share) = match (&mut self.at[from], &mut distant[from]) {
            (_, Some(one)) => one.share(unit, sequence)?,
            (Some(at), None) => {
                at.is_hedged = true;
                (at.bytes.clone(), Arc::clone(&at.share))
            }
            (None, None) => return None,
        };
        if !distant[from].as_ref().is_some_and(|one| one.is_silent(now)) {
            self.saved = self.saved.saturating_sub(COST);
        }
        self.counts.hedges += 1;
        let Counts { blocks, hedges, .. } = self.counts;
        let waited = now.duration_since(since);
        let hedge = Hedge { unit, sequence, from, to, waited, usual, blocks, hedges };
        Some(Second { rank, hedge, bytes, share })
    }

    /// The same, for a copy here.
    fn hedge(
        &mut self,
        to: usize,
        distant: &mut [Option<Distant>],
        now: Instant,
        which: Which,
    ) -> Option<(Hedge, Rank, Queued)> {
        let Second { rank, hedge, bytes, share } = self.second(to, distant, now, which)?;
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

/// Adds a sample to the last ones.
pub(crate) fn keep(samples: &mut VecDeque<Duration>, one: Duration) {
    if samples.len() == SAMPLES {
        samples.pop_front();
    }
    samples.push_back(one);
}

/// The time within which 95 % of them finished; `None` if there are too few.
pub(crate) fn usual_of<'s>(samples: impl Iterator<Item = &'s Duration>) -> Option<Duration> {
    let mut known: Vec<Duration> = samples.copied().collect();
    if known.len() < LEAST_SAMPLES {
        return None;
    }
    known.sort_unstable();
    Some(known[(known.len() * 95).div_ceil(100) - 1].max(LEAST))
}

impl State {
    /// The late blocks that precede those that no copy has; `None` if they need not be looked for.
    pub(crate) fn pressing(&self) -> Option<Which> {
        self.hedges.as_ref().filter(|hedges| hedges.keeps_order)?;
        if self.lanes.values().any(|lane| lane.again > 0) {
            return None;
        }
        let undealt = self.lanes.iter().find(|(_, lane)| !lane.undealt.is_empty());
        Some(Which::Before(undealt.map(|(rank, _)| *rank)))
    }

    /// Notes that a copy has finished a block that another one also has.
    pub(crate) fn has_won(&mut self, (unit, sequence): (UnitId, u64), is_second: bool) {
        let Some(hedges) = &mut self.hedges else { return };
        let mut elsewhere = self.distant.iter_mut().flatten();
        if hedges.beat(unit, sequence) || elsewhere.any(|one| one.beat(unit, sequence)) {
            hedges.counts.won += u64::from(is_second);
        }
    }

    /// Notes that one of two copies no longer has that block; true if the other one has it.
    pub(crate) fn is_alone_again(&mut self, unit: UnitId, sequence: u64) -> bool {
        let mut elsewhere = self.distant.iter_mut().flatten();
        let here = self.hedges.as_mut();
        here.is_some_and(|hedges| hedges.is_alone_again(unit, sequence))
            || elsewhere.any(|one| one.is_alone_again(unit, sequence))
    }

    /// Takes a unit that has ended, for a copy here that is late with a block that is no longer
    /// awaited: the unit is ended in its place.
    pub(crate) fn end_for_beaten(&mut self) -> Option<(usize, UnitId)> {
        let Self { hedges, lanes, over, .. } = self;
        let beaten = hedges.as_mut()?.at.iter_mut().enumerate();
        let beaten = beaten.filter_map(|(copy, at)| at.as_mut().map(|at| (copy, at)));
        for (other, at) in beaten.filter(|(_, at)| at.is_beaten) {
            let mut lanes_over = lanes.iter_mut().filter(|(_, lane)| lane.is_over(true));
            if let Some((rank, lane)) = lanes_over.find(|(_, lane)| !lane.told.has(other)) {
                let rank = *rank;
                at.ended.push(rank.unit);
                lane.told.add(other);
                if lane.told.is_all() {
                    count_over(over, lane);
                    lanes.remove(&rank);
                }
                return Some((other, rank.unit));
            }
        }
        None
    }
}

impl Stream {
    /// Called before a copy here looks for something to do.
    pub(crate) fn before_take(&self, state: &mut State, copy: usize) -> Option<Taken> {
        let State { hedges, dealer, .. } = state;
        let hedges = hedges.as_mut()?;
        if hedges.watch.is_some_and(|(watching, _)| watching == copy) {
            hedges.watch = None;
        }
        hedges.tell_dealer(dealer, Instant::now());
        state.end_for_beaten().map(|(other, unit)| Taken::EndFor(other, unit))
    }

    /// For an idle copy here: takes a block that another copy is late with, or sets when to look
    /// again.
    pub(crate) fn hedge(&self, state: &mut State, copy: usize, hand: &mut Hand) -> Option<Taken> {
        let is_left = state.lanes.values().any(|lane| !lane.undealt.is_empty());
        let now = Instant::now();
        if !is_left && self.hedge_any(state, copy, hand, (Which::Any, now)) {
            return Some(Taken::Blocks);
        }
        {
            let State { hedges, distant, .. } = &mut *state;
            let hedges = hedges.as_mut()?;
            if self.looker.is_some() {
                self.watch(state);
                return None;
            }
            if let Some(at) = hedges.next_look(distant, now) {
                hand.look_again_at(at);
                hedges.watch = Some((copy, at));
            }
        }
        None
    }

    /// Lets a copy here take a late block that precedes all blocks that no copy has.
    pub(crate) fn hedge_first(
        &self,
        state: &mut State,
        copy: usize,
        hand: &mut Hand,
    ) -> Option<Taken> {
        let which = state.pressing()?;
        self.hedge_any(state, copy, hand, (which, Instant::now())).then_some(Taken::Blocks)
    }

    /// False if there is no such block.
    fn hedge_any(
        &self,
        state: &mut State,
        copy: usize,
        hand: &mut Hand,
        (which, now): (Which, Instant),
    ) -> bool {
        let State { hedges, dealer, distant, to_tell, .. } = &mut *state;
        let hedge = hedges.as_mut().and_then(|hedges| hedges.hedge(copy, distant, now, which));
        let Some((hedge, rank, block)) = hedge else { return false };
        if self.observer.is_some() {
            to_tell.push((Event::Hedged(hedge), now));
        }
        hand.take(rank, std::iter::once(block));
        dealer.taken(copy, 1);
        self.watch(state);
        true
    }

    /// The same for a copy elsewhere.
    pub(crate) fn send_late(&self, state: &mut State, to: usize, which: Which) -> bool {
        let now = Instant::now();
        let State { hedges, distant, dealer, to_tell, .. } = &mut *state;
        let second = hedges.as_mut().and_then(|hedges| hedges.second(to, distant, now, which));
        let (Some(second), Some(one)) = (second, &mut distant[to]) else { return false };
        let block = Block::new(second.block(), second.rank.unit, self.ledger);
        dealer.taken(to, 1);
        one.send_second(second.rank, block);
        if self.observer.is_some() {
            to_tell.push((Event::Hedged(second.hedge), now));
        }
        true
    }

    /// Notes that a copy here has taken a block.
    pub(crate) fn is_at(&self, state: &mut State, copy: usize, hand: &mut Hand) {
        let Some(hedges) = &mut state.hedges else { return };
        let (Some(rank), Some(block)) = (hand.rank(), hand.blocks.pop_front()) else { return };
        let charge = Charge::new(self.ledger, block.held);
        let block = hedges.took(copy, rank, block, charge);
        hand.blocks.push_front(block);
        self.watch(state);
    }

    /// Makes sure that an idle copy or the thread notices when a block becomes late.
    fn watch(&self, state: &mut State) {
        if self.looker.is_some() {
            return self.watch_all(state);
        }
        let Some(hedges) = &state.hedges else { return };
        let is_watched = hedges.watch.is_some_and(|(_, at)| at > Instant::now());
        if state.idle == 0 || is_watched || hedges.waited_for().next().is_none() {
            return;
        }
        if let Some(idle) = state.consumers.iter().position(|consumer| consumer.is_idle) {
            state.wake(idle);
        }
    }

    /// Notes that a copy here has finished its block.
    pub(crate) fn is_through(&self, state: &mut State, copy: usize, took: Duration) -> Finished {
        let State { hedges, dealer, .. } = state;
        let Some(hedges) = hedges else { return Finished::default() };
        dealer.set_full(copy, false);
        let Some(at) = hedges.done(copy, took) else { return Finished::default() };
        if at.is_hedged && !at.is_beaten {
            state.has_won((at.rank.unit, at.sequence), at.is_second);
        }
        Finished { is_beaten: at.is_beaten, ended: at.ended }
    }

    /// Whether others have ended that unit in place of the copy.
    pub(crate) fn is_ended_for(&self, copy: usize, unit: UnitId) -> bool {
        self.is_hedged
            && self.state().hedges.as_ref().is_some_and(|hedges| hedges.is_ended_for(copy, unit))
    }

    /// Forgets a unit that was done, or has ended early.
    pub(crate) fn clear(&self, unit: UnitId) {
        self.ledger.repay(unit, u64::MAX);
        if !self.is_hedged && !self.is_replayed() {
            return;
        }
        self.state().clear(unit);
        // A late copy may be waiting for room for output that is no longer needed.
        self.ledger.wake_all();
    }
}

impl State {
    /// As [`Stream::clear`]; threads that are woken later find no copy late with the unit.
    pub(crate) fn clear(&mut self, unit: UnitId) {
        self.sent_all.remove(&unit);
        let Self { hedges, distant, .. } = self;
        if let Some(hedges) = hedges {
            hedges.forget(unit);
            distant.iter_mut().flatten().for_each(|one| one.beat_all(unit));
        }
    }
}
