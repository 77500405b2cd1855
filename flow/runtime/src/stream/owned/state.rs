//! The locked state of a stream: its blocks by unit of work, and which copy takes which next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use crate::memory::batch::Batch;
use crate::memory::block::Queued;
use crate::memory::wakeup::Wakeup;
use crate::panics::caught;
use crate::policy::copy_state::{CopyState, Deal};
use crate::policy::dealing::{Backlog, Dealer};
use crate::policy::priority::{Priority, UnitId};
use crate::policy::size_tuner::SizeDecision;
use crate::stream::observer::Observer;
use crate::stream::remote_copy::RemoteCopy;
use crate::stream::unit_queue::{UnitQueue, count_over};
use crate::stream::work::NextWork;

pub(super) struct StreamState {
    pub(super) dealer: Dealer,
    pub(super) queues: BTreeMap<Priority, UnitQueue>,
    pub(super) consumers: Vec<ConsumerState>,
    /// The blocks that copies in other processes have.
    pub(super) remote_copies: Vec<Option<RemoteCopy>>,
    /// Sending copies whose process is lost.
    pub(super) lost_producers: Vec<usize>,
    /// Number of consumers that wait to be rung.
    pub(super) idle: usize,
    /// True if a copy in another process has room and there is no block for it.
    pub(super) is_hungry: bool,
    /// Consumers to ring after the lock is released: otherwise they would wait for it.
    pub(super) to_ring: Vec<Arc<Wakeup>>,
    /// Buffer for the blocks of an inbox.
    pub(super) emptied: VecDeque<Queued>,
    /// Number of blocks sent, and their bytes.
    pub(super) blocks: u64,
    pub(super) bytes: u64,
    /// Number of ended units that had blocks, and the bytes of these.
    pub(super) over: (u64, u64),
    /// Events to report to the observer after the lock is released.
    pub(super) to_tell: Vec<(Event, Instant)>,
    /// Counts the blocks that were dealt at once.
    pub(super) tickets: u64,
    /// True if consumers take blocks in the order in which these were dealt, regardless of urgency:
    /// each has its part of an order that others keep, and if they took theirs in different orders,
    /// each could wait for the others.
    pub(super) is_first_come: bool,
    /// If blocks may be sent again, units under way with nothing new to come.
    pub(super) sent_all: BTreeSet<UnitId>,
}

/// An event for the observer.
pub(super) enum Event {
    Dealt(Deal),
    Sized(SizeDecision),
}

/// The observer, and the number of the stream.
pub(super) type Watcher<'s> = (Option<&'s Arc<dyn Observer>>, usize);

/// The locked state of a stream.
pub(super) struct Locked<'s> {
    /// `Some` until it is dropped.
    state: Option<MutexGuard<'s, StreamState>>,
    has_idle: &'s AtomicBool,
    watcher: Watcher<'s>,
}

impl<'s> Locked<'s> {
    pub(super) fn new(
        state: MutexGuard<'s, StreamState>,
        has_idle: &'s AtomicBool,
        watcher: Watcher<'s>,
    ) -> Self {
        Self { state: Some(state), has_idle, watcher }
    }
}

impl Deref for Locked<'_> {
    type Target = StreamState;

    fn deref(&self) -> &StreamState {
        self.state.as_deref().expect("it is there until it is dropped")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut StreamState {
        self.state.as_deref_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        StreamState::publish(self, self.has_idle);
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
                Event::Sized(decision) => observer.sized(stream, &decision, at),
            });
        }
    }
}

#[derive(Default)]
pub(super) struct ConsumerState {
    pub(super) wakeup: Option<Arc<Wakeup>>,
    /// True if it has found nothing to do and waits to be rung.
    pub(super) is_idle: bool,
    /// True if its process is lost.
    pub(super) is_lost: bool,
}

impl StreamState {
    /// Fills the batch, none of whose blocks the copy has begun.
    pub(super) fn take(
        &mut self,
        copy: usize,
        is_redealt: bool,
        batch: &mut Batch,
    ) -> Option<NextWork> {
        // Another process gets blocks one by one.
        let is_remote = self.remote_copies[copy].is_some();
        let is_one_of_several = self.consumers.len() > 1;
        let Self { dealer, queues, is_first_come, .. } = self;
        if let Some((rank, queue)) = queues.iter_mut().find(|(_, queue)| queue.again > 0) {
            // Copies that wait for its output hold up others, also of other units.
            batch.take_again(*rank, queue.undealt.pop_front());
            queue.again -= 1;
            queue.undone += usize::from(is_redealt);
            dealer.assigned(copy, 1);
            return Some(NextWork::Blocks);
        }
        if *is_first_come {
            let fronts = queues.iter_mut().filter(|(_, queue)| !queue.dealt[copy].is_empty());
            let first =
                fronts.min_by_key(|(_, queue)| queue.dealt[copy].front().map(|(at, _)| *at));
            if let Some((rank, queue)) = first {
                let block = queue.dealt[copy].pop_front().map(|(_, block)| block);
                batch.take(*rank, block.into_iter());
                queue.undone += usize::from(is_redealt);
                return Some(NextWork::Blocks);
            }
        }
        for (rank, queue) in queues.iter_mut() {
            let rank = *rank;
            let is_last = queue.ended.is_all();
            if let Some((_, block)) = queue.dealt[copy].pop_front() {
                batch.take(rank, std::iter::once(block));
                queue.undone += usize::from(is_redealt);
                return Some(NextWork::Blocks);
            }
            let backlog = Backlog { blocks: queue.undealt.len(), is_last };
            if dealer.may_take(copy, backlog) || queue.is_overdue(copy, dealer, batch) {
                let blocks = match is_remote || (*is_first_come && is_one_of_several) {
                    // Everything waits for the first of them, so the others cannot be left to
                    // another copy.
                    true => 1,
                    false => dealer.batch(copy, backlog),
                };
                batch.take(rank, queue.undealt.drain(..blocks));
                dealer.assigned(copy, blocks);
                queue.in_batches += blocks - 1;
                if is_redealt {
                    queue.undone += blocks;
                }
                if queue.is_over(is_redealt) {
                    // Copies that waited in vain for this one learn of the end.
                    self.wake_all();
                }
                return Some(NextWork::Blocks);
            }
            if queue.is_over(is_redealt) && !queue.notified.has(copy) {
                return Some(self.end_for(copy, rank));
            }
        }
        None
    }

    /// Announces to that copy that a unit has ended, which is forgotten when all copies know.
    pub(super) fn end_for(&mut self, copy: usize, rank: Priority) -> NextWork {
        let Self { queues, over, .. } = self;
        if let Some(queue) = queues.get_mut(&rank) {
            queue.notified.add(copy);
            if queue.notified.is_all() {
                count_over(over, queue);
                queues.remove(&rank);
            }
        }
        NextWork::End(rank.unit)
    }

    /// Publishes to threads without the lock whether a consumer is idle.
    pub(super) fn publish(&self, has_idle: &AtomicBool) {
        let is_any = self.idle > 0 || self.is_hungry;
        if has_idle.load(Ordering::Relaxed) != is_any {
            has_idle.store(is_any, Ordering::Relaxed);
        }
    }

    pub(super) fn wake(&mut self, copy: usize) {
        let consumer = &mut self.consumers[copy];
        if std::mem::take(&mut consumer.is_idle) {
            self.idle -= 1;
            self.to_ring.extend(consumer.wakeup.as_ref().map(Arc::clone));
        }
    }

    pub(super) fn wake_all(&mut self) {
        (0..self.consumers.len()).for_each(|copy| self.wake(copy));
    }

    /// Notes that all producers have sent everything of the unit.
    pub(super) fn has_sent_all(&mut self, unit: UnitId, is_replayed: bool) {
        if is_replayed {
            self.sent_all.insert(unit);
        }
    }

    pub(super) fn purge(&mut self, rank: Priority) -> Option<UnitQueue> {
        let queue = self.queues.remove(&rank)?;
        for (copy, dealt) in queue.dealt.iter().enumerate() {
            dealt.iter().for_each(|_| self.dealer.dropped(copy));
        }
        Some(queue)
    }

    /// The state of each copy.
    pub(super) fn copies(&self) -> Vec<CopyState> {
        let one = |copy: usize| CopyState {
            round_trip: self.remote_copies[copy].as_ref().and_then(RemoteCopy::round_trip),
            ..self.dealer.copy_state(copy)
        };
        (0..self.consumers.len()).map(one).collect()
    }
}
