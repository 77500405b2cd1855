//! A block that a copy has had for longer than is usual goes to a second copy, too.
//!
//! After J. Dean and L. Barroso, "The Tail at Scale", Communications of the ACM 56(2), 2013: the
//! second request goes out when the first has taken longer than the 95th percentile, so that few do,
//! and who is first wins. Here it goes out only where a copy has nothing to do and nothing else
//! waits, and there is a budget. What both send is the same, since the filter is idempotent, and is
//! taken from either once (remote, replays).
//!
//! A copy that is still at a block which the other one is done with is beaten: no unit waits for it.
//! Whoever looks first ends units in its place, and when it comes back it forgets them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::block::{Queued, Receipt};
use crate::dealing::Dealer;
use crate::hand::Hand;
use crate::lanes::{Event, State, Taken, count_over};
use crate::ledger::Charge;
use crate::stream::Stream;
use crate::unit::{Rank, UnitId};

/// So many services are remembered of each copy.
const SAMPLES: usize = 32;

/// So many have to be known before anything is unusual.
const LEAST_SAMPLES: usize = 8;

/// No service is unusual before that: to be woken and to have it done again takes time, too.
const LEAST: Duration = Duration::from_millis(1);

/// A block that is dealt adds the percentage of the budget to what there is, and a hedge takes this.
const COST: u32 = 100;

/// So many hedges can be saved up: long work without any does not allow for a storm of them.
const MOST_SAVED: u32 = 64;

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
    /// Blocks that copies in this process were dealt, each counted once.
    pub blocks: u64,
    /// Of these, how many went to a second copy, with this one.
    pub hedges: u64,
}

/// The room that a block takes, which several copies have.
pub(crate) struct Share {
    _charge: Charge,
    _receipt: Option<Box<Receipt>>,
}

/// What the copies here are at, each with one block at most.
pub(crate) struct Hedges {
    percent: u32,
    saved: u32,
    at: Vec<Option<At>>,
    samples: Vec<VecDeque<Duration>>,
    /// The idle copy that looks again by itself, and when.
    watch: Option<(usize, Instant)>,
    pub(crate) counts: Counts,
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
    pub(crate) fn new(percent: u32, copies: usize) -> Self {
        Self {
            percent,
            saved: 0,
            at: (0..copies).map(|_| None).collect(),
            samples: vec![VecDeque::new(); copies],
            watch: None,
            counts: Counts::default(),
        }
    }

    /// The copy has taken that block. What it takes of the limit, it takes until all who have it are
    /// through with it.
    fn took(&mut self, copy: usize, rank: Rank, block: Queued, ledger: Charge) -> Queued {
        let share = Arc::new(Share { _charge: ledger, _receipt: block.receipt });
        self.counts.blocks += 1;
        self.saved = (self.saved + self.percent).min(MOST_SAVED * COST);
        let Queued { bytes, sequence, .. } = block;
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
        let receipt = Some(Box::new(Receipt::Shared { _share: Arc::clone(&at.share) }));
        let block = Queued { bytes: at.bytes.clone(), sequence: at.sequence, held: 0, receipt };
        self.at[copy] = Some(at);
        block
    }

    /// The copy is through with its block, which took so long.
    pub(crate) fn done(&mut self, copy: usize, took: Duration) -> Finished {
        let samples = &mut self.samples[copy];
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back(took);
        let Some(at) = self.at[copy].take() else { return Finished::default() };
        if at.is_hedged && !at.is_beaten {
            let is_same = |other: &&mut At| (other.rank, other.sequence) == (at.rank, at.sequence);
            if let Some(other) = self.at.iter_mut().flatten().find(is_same) {
                other.is_beaten = true;
                self.counts.won += u64::from(at.is_second);
            }
        }
        Finished { is_beaten: at.is_beaten, ended: at.ended }
    }

    /// The unit is over for all: none of its blocks is waited for.
    pub(crate) fn forget(&mut self, unit: UnitId) {
        for at in self.at.iter_mut().flatten() {
            at.is_beaten |= at.rank.unit == unit;
            at.ended.retain(|ended| *ended != unit);
        }
    }

    /// Whether that unit was ended in place of the copy, which has not heard of it.
    pub(crate) fn is_ended_for(&self, copy: usize, unit: UnitId) -> bool {
        self.at[copy].as_ref().is_some_and(|at| at.ended.contains(&unit))
    }

    /// How long a copy usually has a block; as all of them together, while little is known of it.
    fn usual(&self, copy: usize) -> Option<Duration> {
        let own = &self.samples[copy];
        let mut known: Vec<Duration> = match own.len() < LEAST_SAMPLES {
            true => self.samples.iter().flatten().copied().collect(),
            false => own.iter().copied().collect(),
        };
        if known.len() < LEAST_SAMPLES {
            return None;
        }
        known.sort_unstable();
        Some(known[(known.len() * 95).div_ceil(100) - 1].max(LEAST))
    }

    /// The copies that have something for longer than is usual, or will: since when, and from when
    /// on it is unusual. Not those that nobody waits for.
    fn waited_for(&self) -> impl Iterator<Item = (usize, &At, Duration)> {
        let all = self.at.iter().enumerate();
        let all = all.filter_map(|(copy, at)| Some((copy, at.as_ref()?)));
        all.filter(|(_, at)| !at.is_beaten)
            .filter_map(|(copy, at)| Some((copy, at, self.usual(copy)?)))
    }

    /// Others do not leave blocks to a copy that is late with what it has.
    fn tell_dealer(&self, dealer: &mut Dealer, now: Instant) {
        for (copy, at, usual) in self.waited_for() {
            dealer.set_full(copy, now.duration_since(at.since) >= usual);
        }
        let beaten = self.at.iter().enumerate();
        let beaten = beaten.filter(|(_, at)| at.as_ref().is_some_and(|at| at.is_beaten));
        beaten.for_each(|(copy, _)| _ = dealer.set_full(copy, true));
    }

    /// When something becomes unusual that is not yet.
    fn next_look(&self, now: Instant) -> Option<Instant> {
        let all = self.waited_for().filter(|(_, at, _)| !at.is_hedged);
        all.map(|(_, at, usual)| at.since + usual).filter(|at| *at > now).min()
    }

    /// The block that has been away for longest, if that is unusual: it goes to this copy, too.
    fn hedge(&mut self, to: usize, now: Instant) -> Option<(Hedge, Rank, Queued)> {
        if self.saved < COST {
            return None;
        }
        let late = self.waited_for().filter(|(copy, at, usual)| {
            *copy != to && !at.is_hedged && now.duration_since(at.since) >= *usual
        });
        let (from, usual) =
            late.min_by_key(|(_, at, _)| at.since).map(|(copy, _, usual)| (copy, usual))?;
        let first = self.at[from].as_mut()?;
        first.is_hedged = true;
        let second = At {
            bytes: first.bytes.clone(),
            share: Arc::clone(&first.share),
            since: now,
            is_second: true,
            ended: Vec::new(),
            ..*first
        };
        self.saved -= COST;
        self.counts.hedges += 1;
        let (rank, sequence) = (second.rank, second.sequence);
        let Counts { blocks, hedges, .. } = self.counts;
        let waited = now.duration_since(first.since);
        let unit = rank.unit;
        let hedge = Hedge { unit, sequence, from, to, waited, usual, blocks, hedges };
        Some((hedge, rank, self.put(to, second)))
    }
}

impl Stream {
    /// Before a copy here looks for something to do.
    pub(crate) fn before_take(&self, state: &mut State, copy: usize) -> Option<Taken> {
        let State { hedges, dealer, lanes, over, .. } = state;
        let hedges = hedges.as_mut()?;
        if hedges.watch.is_some_and(|(watching, _)| watching == copy) {
            hedges.watch = None;
        }
        hedges.tell_dealer(dealer, Instant::now());
        let beaten = hedges.at.iter_mut().enumerate();
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
                return Some(Taken::EndFor(other, rank.unit));
            }
        }
        None
    }

    /// A copy here has found nothing to do: a block that another one is late with, or when to look
    /// for one again.
    pub(crate) fn hedge(&self, state: &mut State, copy: usize, hand: &mut Hand) -> Option<Taken> {
        let is_left = state.lanes.values().any(|lane| !lane.undealt.is_empty());
        let State { hedges, dealer, to_tell, .. } = state;
        let hedges = hedges.as_mut()?;
        let now = Instant::now();
        let hedge = if is_left { None } else { hedges.hedge(copy, now) };
        let Some((hedge, rank, block)) = hedge else {
            if let Some(at) = hedges.next_look(now) {
                hand.look_again_at(at);
                hedges.watch = Some((copy, at));
            }
            return None;
        };
        if self.observer.is_some() {
            to_tell.push((Event::Hedged(hedge), now));
        }
        hand.take(rank, std::iter::once(block));
        dealer.taken(copy, 1);
        self.watch(state);
        Some(Taken::Blocks)
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
        hedges.done(copy, took)
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
    }
}

impl State {
    /// As [`Stream::clear`]; who is woken after that finds nobody late with something of the unit.
    pub(crate) fn clear(&mut self, unit: UnitId) {
        self.sent_all.remove(&unit);
        if let Some(hedges) = &mut self.hedges {
            hedges.forget(unit);
        }
    }
}
