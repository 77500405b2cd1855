//! The blocks of a stream by unit of work, and which copy takes which next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use crate::block::Queued;
use crate::deal::Deal;
use crate::dealing::{Backlog, Dealer};
use crate::hand::Hand;
use crate::hedging::{Hedge, Hedges};
use crate::ledger::Ledger;
use crate::merge::Merge;
use crate::observer::Observer;
use crate::panics::caught;
use crate::remote::distant::Distant;
use crate::remote::replays::Replays;
use crate::tune::SizeDecision;
use crate::unit::{Rank, UnitId};
use crate::wakeup::Wakeup;

/// The next item for a consumer.
pub(crate) enum Taken {
    /// Blocks, which are in its hand.
    Blocks,
    /// No more blocks of this unit come to this copy.
    End(UnitId),
    /// The same for that copy, which is late with a block that is no longer awaited.
    EndFor(usize, UnitId),
    /// The home has ended these units without this copy.
    Beaten(Vec<UnitId>),
}

pub(crate) struct State {
    pub(crate) dealer: Dealer,
    pub(crate) lanes: BTreeMap<Rank, Lane>,
    pub(crate) consumers: Vec<Consumer>,
    /// The blocks that copies in other processes have.
    pub(crate) distant: Vec<Option<Distant>>,
    /// Sending copies whose process is lost.
    pub(crate) lost_producers: Vec<usize>,
    /// Number of consumers that wait to be rung.
    pub(crate) idle: usize,
    /// True if a copy in another process has room and there is no block for it.
    pub(crate) is_hungry: bool,
    /// Consumers to ring after the lock is released: otherwise they would wait for it.
    pub(crate) to_ring: Vec<Arc<Wakeup>>,
    /// Buffer for the blocks of an inbox.
    pub(crate) emptied: VecDeque<Queued>,
    /// Number of blocks sent, and their bytes.
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    /// Number of ended units that had blocks, and the bytes of these.
    pub(crate) over: (u64, u64),
    /// Events to report to the observer after the lock is released.
    pub(crate) to_tell: Vec<(Event, Instant)>,
    /// Counts the blocks that were dealt at once.
    pub(crate) tickets: u64,
    /// True if consumers take blocks in the order in which these were dealt, regardless of urgency:
    /// each has its part of an order that others keep, and if they took theirs in different orders,
    /// each could wait for the others.
    pub(crate) is_first_come: bool,
    /// The blocks that the copies here are processing, if late ones may be hedged.
    pub(crate) hedges: Option<Hedges>,
    /// If blocks may be sent again, units under way with nothing new to come.
    pub(crate) sent_all: BTreeSet<UnitId>,
}

/// An event for the observer.
pub(crate) enum Event {
    Dealt(Deal),
    Sized(SizeDecision),
    Hedged(Hedge),
}

/// The observer, and the number of the stream.
pub(crate) type Watcher<'s> = (Option<&'s Arc<dyn Observer>>, usize);

/// The locked state of a stream.
pub(crate) struct Locked<'s> {
    /// `Some` until it is dropped.
    state: Option<MutexGuard<'s, State>>,
    has_idle: &'s AtomicBool,
    watcher: Watcher<'s>,
}

impl<'s> Locked<'s> {
    pub(crate) fn new(
        state: MutexGuard<'s, State>,
        has_idle: &'s AtomicBool,
        watcher: Watcher<'s>,
    ) -> Self {
        Self { state: Some(state), has_idle, watcher }
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state.as_deref().expect("it is there until it is dropped")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_deref_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        State::publish(self, self.has_idle);
        let Some(mut state) = self.state.take() else { return };
        let mut to_ring = std::mem::take(&mut state.to_ring);
        let to_tell = std::mem::take(&mut state.to_tell);
        drop(state);
        to_ring.drain(..).for_each(|wakeup| wakeup.ring());
        let (Some(observer), stream) = self.watcher else { return };
        for (event, at) in to_tell {
            // A panic of the observer must not end a thread that reads a link.
            let _ = caught(|| match event {
                Event::Dealt(deal) => observer.dealt(stream, &deal, at),
                Event::Hedged(hedge) => observer.hedged(stream, &hedge, at),
                Event::Sized(decision) => observer.sized(stream, &decision, at),
            });
        }
    }
}

#[derive(Default)]
pub(crate) struct Consumer {
    pub(crate) wakeup: Option<Arc<Wakeup>>,
    /// True if it has found nothing to do and waits to be rung.
    pub(crate) is_idle: bool,
    /// True if its process is lost.
    pub(crate) is_lost: bool,
}

/// The blocks of one unit of work.
pub(crate) struct Lane {
    pub(crate) ledger: &'static Ledger,
    /// If the order matters, the blocks that arrived too early.
    pub(crate) merge: Option<Merge<Queued>>,
    pub(crate) undealt: VecDeque<Queued>,
    /// Number of blocks at the front that go first: they were dealt before, to a copy that is lost.
    pub(crate) again: usize,
    /// For each copy, the blocks that it was dealt, each with its ticket.
    pub(crate) dealt: Vec<VecDeque<(u64, Queued)>>,
    pub(crate) next: u64,
    /// Bytes of the blocks that were dealt.
    pub(crate) bytes: u64,
    /// If blocks may be sent again, those that were accepted.
    pub(crate) replays: Option<Replays>,
    /// Copies that have left blocks to faster ones, and until when these should have finished them.
    pub(crate) left_until: Vec<(usize, Instant)>,
    /// Blocks that copies have taken and not begun.
    pub(crate) in_hands: usize,
    /// Blocks that copies have taken and not finished.
    pub(crate) undone: usize,
    /// Producers that have sent everything but their final output, and producers that have sent
    /// all.
    pub(crate) ending: Count,
    pub(crate) ended: Count,
    /// Consumers that know that nothing more comes.
    pub(crate) told: Count,
}

/// The set of participants that have done something.
pub(crate) struct Count {
    who: Vec<bool>,
    left: usize,
}

impl Count {
    /// Expects this many of them to do it.
    pub(crate) fn new(left: usize) -> Self {
        Self { who: Vec::new(), left }
    }

    pub(crate) fn add(&mut self, one: usize) {
        if self.has(one) {
            return;
        }
        if one >= self.who.len() {
            self.who.resize(one + 1, false);
        }
        self.who[one] = true;
        self.left = self.left.saturating_sub(1);
    }

    pub(crate) fn has(&self, one: usize) -> bool {
        self.who.get(one) == Some(&true)
    }

    pub(crate) fn is_all(&self) -> bool {
        self.left == 0
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let dealt = self.dealt.iter().flatten().map(|(_, block)| block);
        let merge = self.merge.iter().flat_map(Merge::waiting);
        let held = dealt.chain(&self.undealt).chain(merge).map(|block| block.held).sum();
        if held > 0 {
            self.ledger.give(held);
        }
    }
}

impl Lane {
    /// Numbers the block and deals it. Returns the copy that gets it, if it is dealt at once.
    pub(crate) fn deal(
        &mut self,
        dealer: &mut Dealer,
        tickets: &mut u64,
        block: Queued,
    ) -> Option<usize> {
        let block = Queued { sequence: self.next, ..block };
        self.next += 1;
        self.bytes += block.bytes.len() as u64;
        let copy = dealer.deal();
        match copy {
            Some(copy) => {
                self.dealt[copy].push_back((*tickets, block));
                *tickets += 1;
            }
            None => self.undealt.push_back(block),
        }
        copy
    }

    /// Adds blocks that copies have to ask for. Returns their bytes.
    pub(crate) fn keep(&mut self, blocks: &mut VecDeque<Queued>) -> u64 {
        let mut bytes = 0;
        for block in blocks.iter_mut() {
            block.sequence = self.next;
            self.next += 1;
            bytes += block.bytes.len() as u64;
        }
        self.bytes += bytes;
        match self.undealt.is_empty() {
            true => std::mem::swap(&mut self.undealt, blocks),
            false => self.undealt.extend(blocks.drain(..)),
        }
        bytes
    }

    /// Whether blocks are left that the copy has left to faster ones, and these were not as fast as
    /// expected. Before that time, sets when to look again.
    fn is_overdue(&mut self, copy: usize, dealer: &Dealer, hand: &mut Hand) -> bool {
        let Some(time) = dealer.leaves_for(copy).filter(|_| !self.undealt.is_empty()) else {
            return false;
        };
        let now = Instant::now();
        let known = self.left_until.iter().find(|(other, _)| *other == copy);
        let until = known.map_or_else(|| now.checked_add(time), |(_, until)| Some(*until));
        let Some(until) = until else { return false };
        if known.is_none() {
            self.left_until.push((copy, until));
        }
        if now < until {
            hand.look_again_at(until);
        }
        now >= until
    }

    /// True if nothing more comes, and no block is left that copies could take, now or after a
    /// loss.
    pub(crate) fn is_over(&self, is_redealt: bool) -> bool {
        let is_undone = || self.undone > 0 || self.dealt.iter().any(|dealt| !dealt.is_empty());
        let is_taken = self.ended.is_all() && self.undealt.is_empty() && self.in_hands == 0;
        is_taken && !(is_redealt && is_undone())
    }

    /// Puts a block back in its former place: others may have put back later ones.
    pub(crate) fn put_back(&mut self, block: Queued) {
        let at = self.undealt.partition_point(|other| other.sequence < block.sequence);
        self.undealt.insert(at, block);
    }
}

/// Most groups of a unit for which something is kept here. Fewer are always enough: the finished
/// groups have no more gaps between them than copies have blocks.
const MOST_GROUPS: usize = 1 << 18;

impl Lane {
    /// Whether the number of groups is within the limit.
    pub(crate) fn is_bounded(&self) -> bool {
        let merge = self.merge.as_ref().map_or(0, Merge::entries);
        let replays = self.replays.as_ref().map_or(0, Replays::entries);
        merge + replays <= MOST_GROUPS
    }
}

/// Counts that unit as ended.
pub(crate) fn count_over((units, bytes): &mut (u64, u64), lane: &Lane) {
    if lane.bytes > 0 {
        *units += 1;
        *bytes += lane.bytes;
    }
}

impl State {
    /// Fills the hand, none of whose blocks the copy has begun.
    pub(crate) fn take(&mut self, copy: usize, is_redealt: bool, hand: &mut Hand) -> Option<Taken> {
        // Another process gets blocks one by one.
        let is_distant = self.distant[copy].is_some();
        let is_one_of_several = self.consumers.len() > 1;
        let is_alone = is_distant || self.hedges.is_some();
        let Self { dealer, lanes, over, is_first_come, .. } = self;
        if let Some((rank, lane)) = lanes.iter_mut().find(|(_, lane)| lane.again > 0) {
            // Copies that wait for its output hold up others, also of other units.
            hand.take_again(*rank, lane.undealt.pop_front());
            lane.again -= 1;
            lane.undone += usize::from(is_redealt);
            dealer.taken(copy, 1);
            return Some(Taken::Blocks);
        }
        if *is_first_come {
            let fronts = lanes.iter_mut().filter(|(_, lane)| !lane.dealt[copy].is_empty());
            let first = fronts.min_by_key(|(_, lane)| lane.dealt[copy].front().map(|(at, _)| *at));
            if let Some((rank, lane)) = first {
                let block = lane.dealt[copy].pop_front().map(|(_, block)| block);
                hand.take(*rank, block.into_iter());
                lane.undone += usize::from(is_redealt);
                return Some(Taken::Blocks);
            }
        }
        for (rank, lane) in lanes.iter_mut() {
            let rank = *rank;
            let is_last = lane.ended.is_all();
            if let Some((_, block)) = lane.dealt[copy].pop_front() {
                hand.take(rank, std::iter::once(block));
                lane.undone += usize::from(is_redealt);
                return Some(Taken::Blocks);
            }
            let backlog = Backlog { blocks: lane.undealt.len(), is_last };
            if dealer.may_take(copy, backlog) || lane.is_overdue(copy, dealer, hand) {
                let blocks = match is_alone || (*is_first_come && is_one_of_several) {
                    // Everything waits for the first of them, so the others cannot be left to
                    // another copy.
                    true => 1,
                    false => dealer.batch(copy, backlog),
                };
                hand.take(rank, lane.undealt.drain(..blocks));
                dealer.taken(copy, blocks);
                lane.in_hands += blocks - 1;
                if is_redealt {
                    lane.undone += blocks;
                }
                if lane.is_over(is_redealt) {
                    // Copies that waited in vain for this one learn of the end.
                    self.wake_all();
                }
                return Some(Taken::Blocks);
            }
            if lane.is_over(is_redealt) && !lane.told.has(copy) {
                lane.told.add(copy);
                if lane.told.is_all() {
                    count_over(over, lane);
                    lanes.remove(&rank);
                }
                return Some(Taken::End(rank.unit));
            }
        }
        None
    }

    /// Publishes to threads without the lock whether a consumer is idle.
    pub(crate) fn publish(&self, has_idle: &AtomicBool) {
        let is_any = self.idle > 0 || self.is_hungry;
        if has_idle.load(Ordering::Relaxed) != is_any {
            has_idle.store(is_any, Ordering::Relaxed);
        }
    }

    pub(crate) fn wake(&mut self, copy: usize) {
        let consumer = &mut self.consumers[copy];
        if std::mem::take(&mut consumer.is_idle) {
            self.idle -= 1;
            self.to_ring.extend(consumer.wakeup.as_ref().map(Arc::clone));
        }
    }

    pub(crate) fn wake_all(&mut self) {
        (0..self.consumers.len()).for_each(|copy| self.wake(copy));
    }

    /// Notes that all producers have sent everything of the unit.
    pub(crate) fn has_sent_all(&mut self, unit: UnitId, is_replayed: bool) {
        if is_replayed {
            self.sent_all.insert(unit);
        }
    }

    pub(crate) fn purge(&mut self, rank: Rank) -> Option<Lane> {
        let lane = self.lanes.remove(&rank)?;
        for (copy, dealt) in lane.dealt.iter().enumerate() {
            dealt.iter().for_each(|_| self.dealer.dropped(copy));
        }
        Some(lane)
    }
}
