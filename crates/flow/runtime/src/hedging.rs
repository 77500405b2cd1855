//! A block that a copy has had for longer than is usual goes to a second copy, too.
//!
//! After J. Dean and L. Barroso, "The Tail at Scale", Communications of the ACM 56(2), 2013: the
//! second request goes out when the first has taken longer than the 95th percentile, so that few do,
//! and who is first wins. Here it goes out only where a copy has nothing to do and nothing else
//! waits, and there is a budget, which a block needs no more when it is late by far. Both send the
//! same, since the filter is idempotent, and it is taken from either once (remote, replays).
//!
//! Where an order is kept, all that comes after a late block waits for it, and would soon take all the
//! room that there is: then no copy can begin anything more, this block included. So there it goes to a
//! copy that can begin one before what nobody has yet, if it is late by as much again, or behind a
//! block that another copy was first with.
//!
//! A copy that is still at a block which the other one is done with is beaten: no unit waits for it.
//! Whoever looks first ends units in its place, and when it comes back it forgets them.
//!
//! Either copy may be in another process, of which the home knows what it has (distant). Who looks
//! then, and what is different, is in late.

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

/// So many services are remembered of each copy.
const SAMPLES: usize = 32;

/// So many have to be known before anything is unusual.
const LEAST_SAMPLES: usize = 8;

/// No service is unusual before that: to be woken and to have it done again takes time, too.
pub(crate) const LEAST: Duration = Duration::from_millis(1);

/// A block that is dealt adds the percentage of the budget to what there is, and a hedge takes this.
const COST: u32 = 100;

/// So many hedges can be saved up: long work without any does not allow for a storm of them.
const MOST_SAVED: u32 = 64;

/// A block that is late by this much goes to a second copy though the budget is spent: the copy that
/// has it may stand still for ever.
const PATIENCE: Duration = Duration::from_secs(1);

/// A block that was given to a second copy, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hedge {
    /// Of which unit it is.
    pub unit: UnitId,
    /// Its number.
    pub sequence: u64,
    /// The copy that has it.
    pub from: usize,
    /// The copy that gets it, too.
    pub to: usize,
    /// How long the first one has had it.
    pub waited: Duration,
    /// How long is usual there: 95 % of its blocks took no longer, but a millisecond always is.
    pub usual: Duration,
    /// Blocks that this process has dealt to copies, here and elsewhere, each counted once.
    pub blocks: u64,
    /// Of these, how many went to a second copy, with this one.
    pub hedges: u64,
}

/// The room that a block takes, which several copies have, and where the block comes from.
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

/// What the copies here are at, each with one block at most, and how long each of all copies takes.
pub(crate) struct Hedges {
    percent: u32,
    /// What comes of the blocks is put in their order, or what they are part of.
    keeps_order: bool,
    saved: u32,
    at: Vec<Option<At>>,
    samples: Vec<VecDeque<Duration>>,
    /// Of each copy with enough of these.
    known: Vec<Option<Duration>>,
    /// The idle copy that looks again by itself, and when; where copies are elsewhere, the thread
    /// that does.
    pub(crate) watch: Option<(usize, Instant)>,
    /// That thread is looking.
    pub(crate) is_looking: bool,
    pub(crate) ends: Ends,
    pub(crate) counts: Counts,
}

/// A block that a copy has and nobody else, and from when on that is unusual.
pub(crate) struct Alone {
    copy: usize,
    rank: Rank,
    sequence: u64,
    since: Instant,
    usual: Duration,
    pub(crate) due: Instant,
}

/// Which late blocks are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// All: nothing else is to be done.
    Any,
    /// Those that others wait for who keep an order, if they are of a unit that is no less urgent than
    /// this one, of which there are blocks that nobody has.
    Before(Option<Rank>),
}

/// What a second copy gets.
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

/// How often it was done, and how often it was of use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    blocks: u64,
    pub(crate) hedges: u64,
    /// The second copy was first.
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
    /// This is the second one.
    is_second: bool,
    /// Nobody waits for it any more.
    is_beaten: bool,
    /// Units under way that others have ended in place of this copy.
    ended: Vec<UnitId>,
}

/// How a copy fared with a block.
#[derive(Default)]
pub(crate) struct Finished {
    /// Another copy was done with it before, or the unit had ended.
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

    /// A copy was dealt a block that nobody has.
    pub(crate) fn dealt(&mut self) {
        self.counts.blocks += 1;
        self.saved = (self.saved + self.percent).min(MOST_SAVED * COST);
    }

    /// It has come back, and is dealt another time.
    pub(crate) fn undealt(&mut self) {
        self.counts.blocks = self.counts.blocks.saturating_sub(1);
        self.saved = self.saved.saturating_sub(self.percent);
    }

    /// The copy has taken that block. What it takes of the limit, it takes until all who have it are
    /// through with it.
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

    /// A copy was at a block for so long.
    pub(crate) fn sample(&mut self, copy: usize, took: Duration) {
        keep(&mut self.samples[copy], took);
        self.known[copy] = usual_of(self.samples[copy].iter());
    }

    /// What a copy here that is through with its block was at, which took so long.
    fn done(&mut self, copy: usize, took: Duration) -> Option<At> {
        self.sample(copy, took);
        self.at[copy].take()
    }

    /// Of those that copies here have and somebody waits for.
    fn awaited(&mut self, unit: UnitId, sequence: u64) -> Option<&mut At> {
        let mut all = self.at.iter_mut().flatten();
        all.find(|at| (at.rank.unit, at.sequence) == (unit, sequence) && !at.is_beaten)
    }

    /// Another copy than one here is done with that block; true: there is one here.
    fn beat(&mut self, unit: UnitId, sequence: u64) -> bool {
        let Some(at) = self.awaited(unit, sequence) else { return false };
        at.is_beaten = true;
        true
    }

    /// The other copy that had that block has it no more; true: one here has it.
    fn is_alone_again(&mut self, unit: UnitId, sequence: u64) -> bool {
        let Some(at) = self.awaited(unit, sequence) else { return false };
        (at.is_hedged, at.is_second) = (false, false);
        true
    }

    /// The unit is over for all: none of its blocks is waited for.
    pub(crate) fn forget(&mut self, unit: UnitId) {
        for at in self.at.iter_mut().flatten() {
            at.is_beaten |= at.rank.unit == unit;
            at.ended.retain(|ended| *ended != unit);
        }
        self.ends.forget(unit);
    }

    /// Whether that unit was ended in place of the copy, which has not heard of it.
    pub(crate) fn is_ended_for(&self, copy: usize, unit: UnitId) -> bool {
        self.at[copy].as_ref().is_some_and(|at| at.ended.contains(&unit))
    }

    /// How long a copy usually has a block; as all of them together, while little is known of it.
    pub(crate) fn usual(&self, copy: usize) -> Option<Duration> {
        self.known[copy].or_else(|| usual_of(self.samples.iter().flatten()))
    }

    /// The copies here that have something for longer than is usual, or will: since when, and from
    /// when on it is unusual. Not those that nobody waits for.
    fn waited_for(&self) -> impl Iterator<Item = (usize, &At, Duration)> {
        let all = self.at.iter().enumerate();
        let all = all.filter_map(|(copy, at)| Some((copy, at.as_ref()?)));
        all.filter(|(_, at)| !at.is_beaten)
            .filter_map(|(copy, at)| Some((copy, at, self.usual(copy)?)))
    }

    /// Of each copy, what it has had for longest and nobody else has.
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
            // It has to do the others before, and nothing is back sooner than from there.
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

    /// Whether a copy elsewhere is late with what it has.
    pub(crate) fn is_late(&self, copy: usize, one: &Distant, now: Instant) -> bool {
        let is_unusual = |usual: Duration| now.duration_since(one.since()) >= usual;
        one.is_stuck() || one.unfinished() > 0 && self.usual(copy).is_some_and(is_unusual)
    }

    /// Whether a copy here is at something that nobody waits for.
    pub(crate) fn has_beaten(&self, copy: usize) -> bool {
        self.at[copy].as_ref().is_some_and(|at| at.is_beaten)
    }

    /// Others do not leave blocks to a copy here that is late with what it has. True: they may have,
    /// to one that was not late before.
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

    /// When each copy that has something is late with that.
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

    /// When something becomes unusual that is not yet.
    fn next_look(&self, distant: &[Option<Distant>], now: Instant) -> Option<Instant> {
        let looks = self.alone(distant).flat_map(|one| [one.due, one.due + PATIENCE]);
        looks.filter(|at| *at > now).min()
    }

    /// The block that has been away for longest, if that is unusual, for this copy. Not if the one
    /// that has it is in the same other process, which may be what is late.
    fn late_for(
        &self,
        to: usize,
        distant: &[Option<Distant>],
        now: Instant,
        which: Which,
    ) -> Option<Alone> {
        // What a process has that does nothing, as it seems, is dealt again as after a loss. If it goes
        // on, it gives back what it has not begun.
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

    /// Whether there is one.
    pub(crate) fn has_any_for(&self, to: usize, distant: &[Option<Distant>], now: Instant) -> bool {
        self.late_for(to, distant, now, Which::Any).is_some()
    }

    /// It goes to this copy, too.
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

/// One more of the last ones.
pub(crate) fn keep(samples: &mut VecDeque<Duration>, one: Duration) {
    if samples.len() == SAMPLES {
        samples.pop_front();
    }
    samples.push_back(one);
}

/// So long 95 % of them took at the most; `None`: there are too few.
pub(crate) fn usual_of<'s>(samples: impl Iterator<Item = &'s Duration>) -> Option<Duration> {
    let mut known: Vec<Duration> = samples.copied().collect();
    if known.len() < LEAST_SAMPLES {
        return None;
    }
    known.sort_unstable();
    Some(known[(known.len() * 95).div_ceil(100) - 1].max(LEAST))
}

impl State {
    /// The late blocks that come before those that nobody has; `None`: there are none.
    pub(crate) fn pressing(&self) -> Option<Which> {
        self.hedges.as_ref().filter(|hedges| hedges.keeps_order)?;
        if self.lanes.values().any(|lane| lane.again > 0) {
            return None;
        }
        let undealt = self.lanes.iter().find(|(_, lane)| !lane.undealt.is_empty());
        Some(Which::Before(undealt.map(|(rank, _)| *rank)))
    }

    /// A copy is done with a block that another one has, too.
    pub(crate) fn has_won(&mut self, (unit, sequence): (UnitId, u64), is_second: bool) {
        let Some(hedges) = &mut self.hedges else { return };
        let mut elsewhere = self.distant.iter_mut().flatten();
        if hedges.beat(unit, sequence) || elsewhere.any(|one| one.beat(unit, sequence)) {
            hedges.counts.won += u64::from(is_second);
        }
    }

    /// One of two copies that had that block has it no more; true: the other one has it.
    pub(crate) fn is_alone_again(&mut self, unit: UnitId, sequence: u64) -> bool {
        let mut elsewhere = self.distant.iter_mut().flatten();
        let here = self.hedges.as_mut();
        here.is_some_and(|hedges| hedges.is_alone_again(unit, sequence))
            || elsewhere.any(|one| one.is_alone_again(unit, sequence))
    }

    /// A unit that is over, for a copy here that is late with something that nobody waits for: it is
    /// ended in its place.
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
    /// Before a copy here looks for something to do.
    pub(crate) fn before_take(&self, state: &mut State, copy: usize) -> Option<Taken> {
        let State { hedges, dealer, .. } = state;
        let hedges = hedges.as_mut()?;
        if hedges.watch.is_some_and(|(watching, _)| watching == copy) {
            hedges.watch = None;
        }
        hedges.tell_dealer(dealer, Instant::now());
        state.end_for_beaten().map(|(other, unit)| Taken::EndFor(other, unit))
    }

    /// A copy here has found nothing to do: a block that another one is late with, or when to look
    /// for one again.
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

    /// A copy here takes what is late and comes before all that nobody has.
    pub(crate) fn hedge_first(
        &self,
        state: &mut State,
        copy: usize,
        hand: &mut Hand,
    ) -> Option<Taken> {
        let which = state.pressing()?;
        self.hedge_any(state, copy, hand, (which, Instant::now())).then_some(Taken::Blocks)
    }

    /// False: there is no such block.
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

    /// A copy here has taken a block.
    pub(crate) fn is_at(&self, state: &mut State, copy: usize, hand: &mut Hand) {
        let Some(hedges) = &mut state.hedges else { return };
        let (Some(rank), Some(block)) = (hand.rank(), hand.blocks.pop_front()) else { return };
        let charge = Charge::new(self.ledger, block.held);
        let block = hedges.took(copy, rank, block, charge);
        hand.blocks.push_front(block);
        self.watch(state);
    }

    /// Somebody who has nothing to do has to see when something becomes unusual.
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

    /// Of a copy here, which is through with its block.
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

    /// The unit was done, or has ended early.
    pub(crate) fn clear(&self, unit: UnitId) {
        self.ledger.repay(unit, u64::MAX);
        if !self.is_hedged && !self.is_replayed() {
            return;
        }
        self.state().clear(unit);
        // A copy that is late may wait for room for what nobody wants.
        self.ledger.wake_all();
    }
}

impl State {
    /// As [`Stream::clear`]; who is woken after that finds nobody late with something of the unit.
    pub(crate) fn clear(&mut self, unit: UnitId) {
        self.sent_all.remove(&unit);
        let Self { hedges, distant, .. } = self;
        if let Some(hedges) = hedges {
            hedges.forget(unit);
            distant.iter_mut().flatten().for_each(|one| one.beat_all(unit));
        }
    }
}
