//! The consumers of a stream whose owner is in another process.
//!
//! The owner deals a block to a copy only if that has room: the memory here is bounded by the
//! grants of the copies. The owner is notified when a copy begins and finishes a block.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::deferred_messages::DeferredMessages;
use super::link::Link;
use super::message::{Message, Sequences, StreamEnd};
use super::owner_links::ToOwner;
use super::protocol_error::ProtocolError;
use crate::memory::batch::Batch;
use crate::memory::block::Queued;
use crate::memory::ledger::Ledger;
use crate::memory::origin::Origin;
use crate::memory::receipt::{Owner, Receipt};
use crate::memory::wakeup::Wakeup;
use crate::policy::dealing::Service;
use crate::policy::priority::{Priority, UnitId};
use crate::stream::unit::Open;
use crate::stream::work::NextWork;

pub(crate) struct RemoteConsumer {
    pub(crate) stream: u16,
    pub(crate) owner: Arc<Link>,
    /// The same, as the blocks from there know it.
    receipts: Arc<dyn Owner>,
    /// True if blocks are taken in the order of arrival, regardless of urgency (as at the owner).
    is_first_come: bool,
    /// True if the owner counts the blocks that a copy has begun.
    tells_of_begun: bool,
    /// True if senders may take room beyond the limit after a loss.
    is_replayed: bool,
    /// Number of output streams that confirm complete groups.
    keepers: usize,
    pub(crate) ledger: &'static Ledger,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The copies that are here, by number.
    copies: HashMap<usize, Local>,
    tickets: u64,
    /// Blocks that a copy has finished, with the confirmations still missing.
    unconfirmed: HashMap<(u16, UnitId, u64), Unconfirmed>,
}

#[derive(Default)]
struct Local {
    queues: BTreeMap<Priority, ConsumerQueue>,
    /// The blocks that it has begun.
    begun: Option<Begun>,
    service: Service,
    wakeup: Option<Arc<Wakeup>>,
    is_idle: bool,
    /// The block that the owner wants back, which may be in its batch.
    recalled: Option<(UnitId, u64)>,
}

struct Begun {
    rank: Priority,
    sequences: Vec<u64>,
    /// When the last of these arrived.
    since: Instant,
    /// True if the unit has ended meanwhile: the output for the block will not be confirmed.
    is_forgotten: bool,
}

#[derive(Default)]
struct ConsumerQueue {
    blocks: VecDeque<Waiting>,
    /// Number of those that were dealt before, to a copy that is lost.
    again: usize,
    is_over: bool,
}

struct Waiting {
    ticket: u64,
    since: Instant,
    is_again: bool,
    block: Queued,
}

#[derive(Default)]
struct Unconfirmed {
    confirmed: usize,
    done: Option<Message>,
}

/// A block from the owner of the stream.
pub(crate) struct Arrival {
    pub(crate) sequence: u64,
    /// True if it was dealt before, to a copy that is lost.
    pub(crate) is_again: bool,
    pub(crate) bytes: Bytes,
    pub(crate) origin: Option<Origin>,
}

impl RemoteConsumer {
    pub(crate) fn new(
        stream: u16,
        owner: Arc<Link>,
        copies: impl Iterator<Item = usize>,
        limit: usize,
        [is_first_come, tells_of_begun, is_replayed]: [bool; 3],
        keepers: usize,
    ) -> Self {
        let copies = copies.map(|copy| (copy, Local::default())).collect();
        let state = State { copies, ..State::default() };
        let ledger = Ledger::new(limit);
        let receipts = Arc::new(ToOwner { link: Arc::clone(&owner), stream });
        Self {
            stream,
            owner,
            receipts,
            is_first_come,
            tells_of_begun,
            is_replayed,
            keepers,
            ledger,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a block for that copy. Returns its wake-up if it has to be rung. `has_lost` as at the
    /// owner ([`sent`](crate::stream::owned::Stream::sent)).
    pub(crate) fn block(
        &self,
        to: StreamEnd,
        unit: &Open,
        arrival: Arrival,
        has_lost: impl FnOnce() -> bool,
    ) -> Result<Option<Arc<Wakeup>>, ProtocolError> {
        let Arrival { sequence, is_again, bytes, origin } = arrival;
        let (owner, copy, unit_id) = (Arc::clone(&self.receipts), to.1, unit.rank.unit);
        let receipt = Receipt::Memory { owner, copy, unit: unit_id, sequence, is_begun: false };
        let held = bytes.len();
        let receipt = Some(Box::new(receipt));
        let block = Queued { sequence, origin, receipt, ..Queued::new(bytes, held) };
        if self.ledger.add(held) > self.ledger.limit() && !(self.is_replayed && has_lost()) {
            self.ledger.give(held);
            return Err(ProtocolError::Unexpected("more than there is room for"));
        }
        let mut state = self.state();
        let ticket = state.tickets;
        state.tickets += 1;
        let copy = state.copies.get_mut(&usize::from(to.1));
        let Some(copy) = copy.filter(|copy| copy.waiting() < MOST_WAITING) else {
            drop(state);
            self.ledger.give(held);
            return Err(STRAY);
        };
        if unit.is_closed() {
            // Outside the lock: this sends to the owner.
            drop(state);
            self.ledger.give(held);
            return Ok(None);
        }
        let queue = copy.queues.entry(unit.rank).or_default();
        let at = queue.blocks.partition_point(|other| other.block.sequence < sequence);
        queue.again += usize::from(is_again);
        queue.blocks.insert(at, Waiting { ticket, since: Instant::now(), is_again, block });
        // It may be waiting for room, which there will be only after this one.
        let is_waited_for = is_again && copy.begun.is_some();
        let is_rung = std::mem::take(&mut copy.is_idle) || is_waited_for;
        Ok(copy.wakeup.as_ref().filter(|_| is_rung).map(Arc::clone))
    }

    /// No more blocks of the unit come to that copy.
    pub(crate) fn over(&self, to: StreamEnd, unit: &Open) -> Result<(), ProtocolError> {
        let mut state = self.state();
        let copy = state.copies.get_mut(&usize::from(to.1)).ok_or(STRAY)?;
        if !unit.is_closed() {
            copy.queues.entry(unit.rank).or_default().is_over = true;
            copy.wake();
        }
        Ok(())
    }

    /// The owner wants a block back, if the copy has not begun it.
    pub(crate) fn recall(
        &self,
        to: StreamEnd,
        unit: UnitId,
        sequence: u64,
    ) -> Result<(), ProtocolError> {
        let mut state = self.state();
        let copy = state.copies.get_mut(&usize::from(to.1)).ok_or(STRAY)?;
        let back = copy.give_back(unit, sequence);
        // It may be in its batch, and be put back later.
        copy.recalled = Some((unit, sequence)).filter(|_| back.is_none() && copy.begun.is_some());
        drop(state);
        self.drop_back(back);
        Ok(())
    }

    /// Drops a returned block. Outside the lock: this sends to the owner.
    fn drop_back(&self, back: Option<Queued>) {
        if let Some(block) = back {
            self.ledger.give(block.held);
        }
    }

    /// Whether a copy takes several blocks at once. If there is an order, or the owner must know of
    /// each block, it takes one.
    fn takes_batches(&self) -> bool {
        let is_ordered = self.is_first_come || self.is_replayed || self.keepers > 0;
        !is_ordered && !self.tells_of_begun
    }

    /// Takes the next item for that copy; if there is none, the copy is woken when there is.
    pub(crate) fn take(
        &self,
        copy: usize,
        own: &Arc<Wakeup>,
        batch: &mut Batch,
    ) -> Option<NextWork> {
        let mut state = self.state();
        let local = state.copies.get_mut(&copy)?;
        local.wakeup.get_or_insert_with(|| Arc::clone(own));
        let work = local.take(self.is_first_come, self.takes_batches(), batch);
        local.is_idle = work.is_none();
        if let (true, Some(NextWork::Blocks)) = (self.tells_of_begun, &work) {
            let begun = local.begun.as_ref().map(|begun| (begun.rank.unit, begun.sequences[0]));
            drop(state);
            if let Some((unit, sequence)) = begun {
                self.owner.send(Message::Started {
                    to: (self.stream, copy as u16),
                    unit,
                    sequence,
                });
            }
        }
        work
    }

    /// Whether a block that precedes that one waits for the copy (as at the owner).
    pub(crate) fn has_earlier(&self, copy: usize, unit: &Open, sequence: u64) -> bool {
        let state = self.state();
        let mut queues = state.copies.get(&copy).into_iter().flat_map(|local| &local.queues);
        queues.any(|(rank, queue)| {
            let mut again = queue.blocks.iter().filter(|one| one.is_again);
            again.any(|one| *rank != unit.rank || one.block.sequence < sequence)
        })
    }

    /// Notes that the copy has finished with the blocks it took last: it processed `processed` of
    /// them in that time. The rest is left for later.
    pub(crate) fn done(&self, copy: usize, batch: &mut Batch, processed: usize, took: Duration) {
        if !self.takes_batches() {
            // Before the owner learns that the copy is done.
            batch.clear();
        }
        let mut state = self.state();
        let local = state.copies.get_mut(&copy);
        let begun = local.and_then(|local| Some((local.begun.take()?, local)));
        let Some((begun, local)) = begun else { return };
        let Begun { rank, mut sequences, since, is_forgotten } = begun;
        let (to, unit) = ((self.stream, copy as u16), rank.unit);
        if self.takes_batches() {
            sequences.truncate(processed);
            if let Some(queue) = local.queues.get_mut(&rank).filter(|_| !is_forgotten) {
                queue.put_back(batch, since);
            }
        }
        let count = u32::try_from(sequences.len()).unwrap_or(1).max(1);
        let (each, blocked) = (took / count, batch.blocked / count);
        // The block that was called back in vain may have been put back now.
        let back =
            local.recalled.take().and_then(|(unit, sequence)| local.give_back(unit, sequence));
        if sequences.is_empty() {
            drop(state);
            self.drop_back(back);
            return batch.clear();
        }
        local.service.add(each);
        let waited = since.elapsed().saturating_sub(each);
        let key = (to.1, unit, sequences[0]);
        let sequences = Sequences(sequences);
        let done = Message::Done { to, unit, sequences, took: each, blocked, waited };
        if self.keepers > 0 && !is_forgotten {
            state.unconfirmed.entry(key).or_default().done = Some(done);
            self.confirm(state, key);
        } else {
            drop(state);
            self.owner.send(done);
        }
        self.drop_back(back);
        batch.clear();
    }

    /// A stream that the copy sends to has all output for a block, which the copy is processing or
    /// has finished.
    pub(crate) fn confirmed(&self, copy: u16, unit: &Open, group: u64) {
        let mut state = self.state();
        let key = (copy, unit.rank.unit, group);
        let begun = state.copies.get(&usize::from(copy)).and_then(|copy| copy.begun.as_ref());
        let is_at = begun.is_some_and(|at| at.rank == unit.rank && at.sequences.contains(&group));
        if !unit.is_closed() && (is_at || state.unconfirmed.contains_key(&key)) {
            state.unconfirmed.entry(key).or_default().confirmed += 1;
            self.confirm(state, key);
        }
    }

    fn confirm(&self, mut state: MutexGuard<'_, State>, key: (u16, UnitId, u64)) {
        let is_whole = |one: &mut Unconfirmed| one.done.is_some() && one.confirmed >= self.keepers;
        if state.unconfirmed.get_mut(&key).is_some_and(is_whole) {
            let one = state.unconfirmed.remove(&key);
            drop(state);
            if let Some(done) = one.and_then(|one| one.done) {
                self.owner.send(done);
            }
        }
    }

    /// Drops the blocks of a unit that has ended, and wakes the copies.
    pub(crate) fn forget(&self, unit: &Open) {
        let mut dropped = Vec::new();
        let mut state = self.state();
        for copy in state.copies.values_mut() {
            dropped.extend(copy.queues.remove(&unit.rank));
            for begun in copy.begun.iter_mut().filter(|begun| begun.rank == unit.rank) {
                begun.is_forgotten = true;
            }
            copy.wake();
        }
        // The owner counts unfinished blocks of a copy, even if the unit has ended.
        let done = state.no_more_confirmed(unit.rank.unit);
        drop(state);
        done.into_iter().for_each(|done| self.owner.send(done));
        self.give_back(dropped);
    }

    fn give_back(&self, queues: Vec<ConsumerQueue>) {
        // A message for each of many copies' blocks could be more than may wait.
        let _together = DeferredMessages::begin();
        let blocks = queues.iter().flat_map(|queue| &queue.blocks);
        let held = blocks.map(|waiting| waiting.block.held).sum();
        if held > 0 {
            self.ledger.give(held);
        }
        drop(queues);
    }
}

impl Drop for RemoteConsumer {
    fn drop(&mut self) {
        let copies = std::mem::take(&mut self.state().copies);
        self.give_back(copies.into_values().flat_map(|copy| copy.queues.into_values()).collect());
        self.ledger.retire();
    }
}

const STRAY: ProtocolError = ProtocolError::Unexpected("no such copy is here, or it has no room");

/// No copy has this many blocks that it has not begun, however small they are.
const MOST_WAITING: usize = 1 << 20;

impl State {
    /// Blocks of that unit will not be confirmed any more. Returns the messages to the owner about
    /// them.
    fn no_more_confirmed(&mut self, unit: UnitId) -> Vec<Message> {
        let mut done = Vec::new();
        self.unconfirmed.retain(|(_, of, _), one| {
            let is_kept = *of != unit;
            if !is_kept {
                done.extend(one.done.take());
            }
            is_kept
        });
        done
    }
}

impl ConsumerQueue {
    /// Puts the blocks that a copy has not begun back in their places.
    fn put_back(&mut self, batch: &mut Batch, since: Instant) {
        for block in batch.blocks.drain(..) {
            let at = self.blocks.partition_point(|other| other.block.sequence < block.sequence);
            self.blocks.insert(at, Waiting { ticket: 0, since, is_again: false, block });
        }
    }
}

impl Local {
    /// Takes out a block that it has not begun, if it is here.
    fn give_back(&mut self, unit: UnitId, sequence: u64) -> Option<Queued> {
        let (_, queue) = self.queues.iter_mut().find(|(rank, _)| rank.unit == unit)?;
        let at = queue.blocks.iter().position(|one| one.block.sequence == sequence)?;
        let back = queue.blocks.remove(at)?;
        queue.again -= usize::from(back.is_again);
        Some(back.block)
    }

    fn waiting(&self) -> usize {
        self.queues.values().map(|queue| queue.blocks.len()).sum()
    }

    fn wake(&mut self) {
        if std::mem::take(&mut self.is_idle) {
            self.ring();
        }
    }

    fn ring(&self) {
        self.wakeup.iter().for_each(|wakeup| wakeup.ring());
    }

    fn take(
        &mut self,
        is_first_come: bool,
        takes_batches: bool,
        batch: &mut Batch,
    ) -> Option<NextWork> {
        let rank = {
            let again = self.queues.iter().find(|(_, queue)| queue.again > 0);
            let mut queues = self.queues.iter().filter(|(_, queue)| !queue.blocks.is_empty());
            let first = match is_first_come {
                _ if again.is_some() => again,
                true => queues.min_by_key(|(_, queue)| queue.blocks.front().map(|one| one.ticket)),
                false => queues.next(),
            };
            first.map(|(rank, _)| *rank)
        };
        let over =
            |(_, queue): &(&Priority, &ConsumerQueue)| queue.is_over && queue.blocks.is_empty();
        let over = self.queues.iter().find(over).map(|(rank, _)| *rank);
        // A unit that has ended comes before less urgent ones.
        match (rank, over) {
            (rank, Some(over)) if rank.is_none_or(|rank| over < rank) => {
                self.queues.remove(&over);
                Some(NextWork::End(over.unit))
            }
            (Some(rank), _) => {
                let queue = self.queues.get_mut(&rank)?;
                let count = if takes_batches { self.service.batch() } else { 1 };
                let count = count.min(queue.blocks.len());
                let since = queue.blocks.get(count - 1)?.since;
                let mut sequences = Vec::with_capacity(count);
                let blocks = queue.blocks.drain(..count).map(|one| {
                    queue.again -= usize::from(one.is_again);
                    sequences.push(one.block.sequence);
                    let mut block = one.block;
                    if !takes_batches {
                        block.begin();
                    }
                    block
                });
                batch.take(rank, blocks);
                self.begun = Some(Begun { rank, sequences, since, is_forgotten: false });
                Some(NextWork::Blocks)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::remote::connect::SILENCE_LIMIT;
    use crate::stream::unit::{Unit, Units};

    /// The consumer of copy 0.
    fn consumer() -> RemoteConsumer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = seekwire::Stream::from_connected(socket).unwrap();
        let link = Arc::new(Link::new(1, stream, SILENCE_LIMIT, Duration::ZERO).unwrap());
        RemoteConsumer::new(0, link, std::iter::once(0), 1000, [true, false, true], 0)
    }

    #[test]
    fn what_is_dealt_again_comes_before_all_else() {
        let consumer = consumer();
        let units = Units::default();
        let [urgent, other] = [(); 2].map(|()| units.begin(Unit::new(""), vec![1]));
        let own = Arc::new(Wakeup::default());
        let mut batch = Batch::new(consumer.ledger);
        let come = |unit: &Open, sequence, is_again| {
            let arrival = Arrival { sequence, is_again, bytes: Bytes::new(), origin: None };
            let bell = consumer.block((0, 0), unit, arrival, || false).unwrap();
            bell.iter().for_each(|wakeup| wakeup.ring());
        };
        let mut take = || {
            consumer.take(0, &own, &mut batch);
            batch.next().map(|block| (block.unit(), block.sequence()))
        };
        for sequence in [4, 5] {
            come(&urgent, sequence, false);
        }
        assert_eq!(take(), Some((UnitId(0), 4)));
        assert!(!consumer.has_earlier(0, &urgent, 4));
        come(&other, 7, true);
        // It may wait for room that others occupy until they have the output of that block.
        own.wait();
        assert!(consumer.has_earlier(0, &urgent, 4));
        assert_eq!([take(), take()], [Some((UnitId(1), 7)), Some((UnitId(0), 5))]);
        assert!(!consumer.has_earlier(0, &urgent, 4));
    }
}
