//! A receiving copy in another process, as the owner of a stream sees it.
//!
//! The owner keeps the room of each block until the copy has finished it and its memory there is
//! free; and the block itself, if it can be dealt to another copy. It sends a copy as many blocks
//! as it takes to always have one to begin, and one more: blocks not dealt yet go to the copy that
//! is idle first.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::memory::block::Block;
use crate::memory::receipt::Share;
use crate::policy::fit::Cost;
use crate::policy::priority::{Priority, UnitId};
use crate::policy::window::window;
use crate::stream::elsewhere::{ConsumerLink, ToConsumer, Unexpected};

/// Number of round trips remembered; the shortest one counts. Others have waited in a queue.
const SAMPLES: usize = 16;

/// How long, besides a few round trips, a running process takes at most to answer.
const SILENCE: Duration = Duration::from_millis(100);

pub(crate) struct RemoteCopy {
    link: Arc<dyn ConsumerLink>,
    process: u32,
    /// Bytes that it may have received and not dropped.
    granted: usize,
    held: usize,
    /// Blocks that it has not finished.
    unfinished: usize,
    records: HashMap<(UnitId, u64), Record>,
    /// Sent to it at the next flush.
    outgoing: Vec<ToConsumer>,
    round_trips: [Duration; SAMPLES],
    samples: usize,
    /// When it last finished a block, or got one after having none. If it is looked after, the
    /// earliest time at which it can have got the first block of the order.
    since: Instant,
    /// If it is looked after, the blocks sent to it, in order, and when; also some that it has
    /// finished.
    order: Option<VecDeque<((UnitId, u64), Instant)>>,
    /// The block that it was asked to give back if it has not begun it, until it answers.
    recalled: Option<(UnitId, u64)>,
    /// When it was asked.
    recalled_at: Instant,
    /// Blocks that it has not finished and that are no longer awaited.
    beaten: usize,
}

/// A block that was sent to it.
struct Record {
    rank: Priority,
    block: Block,
    /// False if the block is without its bytes, so that no other copy can have it.
    is_kept: bool,
    bytes: usize,
    sent: Instant,
    progress: Progress,
    is_dropped: bool,
    /// True if another copy also has it.
    is_hedged: bool,
    /// True if the other copy had it first.
    is_second: bool,
    /// True if it is no longer awaited.
    is_beaten: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Sent,
    Begun,
    Done,
}

/// The blocks that a copy has finished.
pub(crate) struct Done {
    pub(crate) rank: Priority,
    pub(crate) count: usize,
    /// Their bytes.
    pub(crate) bytes: usize,
    /// Number of those that were not known to be begun.
    pub(crate) unbegun: usize,
    /// Number of those that were awaited.
    pub(crate) awaited: usize,
    /// Those that another copy also has: the number, and whether that copy had it first.
    pub(crate) hedged: Vec<(u64, bool)>,
    /// How long each took: at most as long as the last one has been away, whatever the copy
    /// reports.
    pub(crate) took: Duration,
    /// How long it had them, as seen from here.
    pub(crate) was_at: Duration,
    /// An error if it has reported others, which it does not have.
    pub(crate) stray: Result<(), Unexpected>,
}

/// A block that the copy will not finish, and that any copy can have.
pub(crate) struct Back {
    pub(crate) rank: Priority,
    pub(crate) block: Block,
    /// True if another copy also has it.
    pub(crate) is_hedged: bool,
}

/// The block that a copy has had for longest, of those that no other copy has.
pub(crate) struct Oldest {
    pub(crate) rank: Priority,
    pub(crate) sequence: u64,
    pub(crate) sent: Instant,
    /// Number of blocks that it has to process until it has finished this one.
    pub(crate) position: u32,
}

const STRAY: Unexpected = Unexpected("a block that it does not have");

impl RemoteCopy {
    pub(crate) fn new(link: Arc<dyn ConsumerLink>, granted: usize) -> Self {
        Self {
            process: link.process(),
            link,
            granted,
            held: 0,
            unfinished: 0,
            records: HashMap::new(),
            outgoing: Vec::new(),
            round_trips: [Duration::ZERO; SAMPLES],
            samples: 0,
            since: Instant::now(),
            order: None,
            recalled: None,
            recalled_at: Instant::now(),
            beaten: 0,
        }
    }

    /// Prepares for checks whether it is late.
    pub(crate) fn look_after(&mut self) {
        self.order = Some(VecDeque::new());
    }

    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Its process, and the cost of the link there.
    pub(crate) fn link_cost(&self) -> (u32, Option<Cost>) {
        (self.process, self.link.cost())
    }

    /// Round-trip time of a block and its acknowledgement; `None` if not known yet.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.round_trips[..self.samples.min(SAMPLES)].iter().min().copied()
    }

    /// Whether it may get another block, if it takes this long for one.
    pub(crate) fn has_room(&self, service: Option<Duration>) -> bool {
        self.recalled.is_none()
            && self.unfinished < window(service, self.round_trip())
            && self.has_memory()
    }

    /// Whether it may hold another block. One is always allowed: it may be larger than the grant.
    pub(crate) fn has_memory(&self) -> bool {
        self.held < self.granted || self.records.is_empty()
    }

    /// `is_kept`: the block may be dealt again, to others.
    pub(crate) fn send(&mut self, rank: Priority, mut block: Block, is_again: bool, is_kept: bool) {
        let (unit, sequence) = (block.unit(), block.sequence());
        let payload = if is_kept { block.bytes().clone() } else { block.take_bytes() };
        let (bytes, origin) = (payload.len(), block.origin().cloned());
        let (sent, progress) = (Instant::now(), Progress::Sent);
        let is_first = self.unfinished == 0;
        self.held += bytes;
        self.unfinished += 1;
        let record = Record {
            rank,
            block,
            is_kept,
            bytes,
            sent,
            progress,
            is_dropped: false,
            is_hedged: false,
            is_second: false,
            is_beaten: false,
        };
        self.records.insert((unit, sequence), record);
        if let Some(order) = &mut self.order {
            order.push_back(((unit, sequence), sent));
        }
        if is_first {
            self.is_at_next(sent);
        }
        self.outgoing.push(ToConsumer::Block { unit, sequence, is_again, origin, bytes: payload });
    }

    /// Sends a block that another copy is late with.
    pub(crate) fn send_second(&mut self, rank: Priority, block: Block) {
        let key = (block.unit(), block.sequence());
        self.send(rank, block, false, true);
        if let Some(record) = self.records.get_mut(&key) {
            (record.is_hedged, record.is_second) = (true, true);
        }
    }

    pub(crate) fn end(&mut self, unit: UnitId) {
        self.outgoing.push(ToConsumer::Over { unit });
    }

    /// Notifies it that the unit has ended without it.
    pub(crate) fn ended_for(&mut self, unit: UnitId) {
        self.outgoing.push(ToConsumer::EndedFor { unit });
    }

    /// Notes that it goes on to its next block, having finished one or having got one again.
    fn is_at_next(&mut self, now: Instant) {
        self.since = now;
        let round_trip = self.round_trip().unwrap_or_default();
        let Some(order) = &mut self.order else { return };
        let records = &self.records;
        let is_over = |(key, sent): &((UnitId, u64), Instant)| {
            let record = records.get(key).filter(|one| one.sent == *sent);
            record.is_none_or(|one| one.progress == Progress::Done)
        };
        while order.front().is_some_and(is_over) {
            order.pop_front();
        }
        if let Some((_, sent)) = order.front() {
            self.since = now.max(*sent + round_trip);
        }
    }

    /// Sends what waits for that.
    pub(crate) fn flush(&mut self) {
        if !self.outgoing.is_empty() {
            self.link.send(&mut self.outgoing);
        }
    }

    pub(crate) fn started(&mut self, unit: UnitId, sequence: u64) -> Result<(), Unexpected> {
        let record = self.records.get_mut(&(unit, sequence)).ok_or(STRAY)?;
        if record.progress != Progress::Sent {
            return Err(STRAY);
        }
        record.progress = Progress::Begun;
        Ok(())
    }

    /// Notes that it has finished blocks of a unit.
    pub(crate) fn done(
        &mut self,
        unit: UnitId,
        sequences: &[u64],
        took: Duration,
        waited: Duration,
    ) -> Result<Done, Unexpected> {
        let (mut count, mut bytes, mut unbegun, mut awaited) = (0, 0, 0, 0);
        let mut hedged = Vec::new();
        let mut last = None;
        for sequence in sequences {
            let record = self.records.get_mut(&(unit, *sequence));
            let Some(record) = record.filter(|record| record.progress != Progress::Done) else {
                break;
            };
            let was = std::mem::replace(&mut record.progress, Progress::Done);
            if self.recalled == Some((unit, *sequence)) {
                self.recalled = None;
            }
            count += 1;
            bytes += record.bytes;
            unbegun += usize::from(was == Progress::Sent);
            if record.is_beaten {
                self.beaten -= 1;
            } else {
                awaited += 1;
                if record.is_hedged {
                    hedged.push((*sequence, record.is_second));
                }
            }
            last = Some((record.rank, record.sent));
            self.unfinished -= 1;
            self.remove_if_over(unit, *sequence);
        }
        let (rank, sent) = last.ok_or(STRAY)?;
        let now = Instant::now();
        let was_at = now.duration_since(self.since);
        self.is_at_next(now);
        let away = sent.elapsed();
        let took = took.min(away);
        self.round_trips[self.samples % SAMPLES] = (away - took).saturating_sub(waited);
        self.samples += 1;
        let stray = if count < sequences.len() { Err(STRAY) } else { Ok(()) };
        Ok(Done { rank, count, bytes, unbegun, awaited, hedged, took, was_at, stray })
    }

    /// Blocks that it has not finished.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished
    }

    pub(crate) fn has_nothing(&self) -> bool {
        self.unfinished == 0 && self.recalled.is_none()
    }

    /// How long it has been processing its current block, at least.
    pub(crate) fn since_done(&self) -> Duration {
        self.since.elapsed()
    }

    /// Since when.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Whether it is processing a block that is no longer awaited.
    pub(crate) fn is_stuck(&self) -> bool {
        self.beaten > 0
    }

    /// Whether its process should have answered the recall by now: the answer does not wait for the
    /// copy.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        let soon = SILENCE + 4 * self.round_trip().unwrap_or_default();
        self.recalled.is_some() && now.duration_since(self.recalled_at) > soon
    }

    pub(crate) fn oldest_alone(&self) -> Option<Oldest> {
        let unfinished = || self.records.iter().filter(|(_, one)| one.progress != Progress::Done);
        let is_alone = |one: &Record| one.is_kept && !one.is_hedged && !one.is_beaten;
        let alone = unfinished().filter(|(_, one)| is_alone(one));
        let at = |((_, sequence), one): (&(UnitId, u64), &Record)| (one.sent, *sequence);
        let ((_, sequence), record) = alone.min_by_key(|one| at(*one))?;
        let own = (record.sent, *sequence);
        let position = unfinished().filter(|one| at(*one) <= own).count();
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        Some(Oldest { rank: record.rank, sequence: *sequence, sent: record.sent, position })
    }

    /// The bytes and the room of a block that it has not finished, to share with another copy.
    pub(crate) fn share(&mut self, unit: UnitId, sequence: u64) -> Option<(Bytes, Arc<Share>)> {
        let record = self.awaited(unit, sequence)?;
        record.is_hedged = true;
        Some((record.block.bytes().clone(), record.block.share()))
    }

    /// The block, if it is unfinished and awaited.
    fn awaited(&mut self, unit: UnitId, sequence: u64) -> Option<&mut Record> {
        let record = self.records.get_mut(&(unit, sequence))?;
        Some(record).filter(|one| one.progress != Progress::Done && !one.is_beaten)
    }

    /// Notes that another copy has finished that block; true if this one has not.
    pub(crate) fn beat(&mut self, unit: UnitId, sequence: u64) -> bool {
        let Some(record) = self.awaited(unit, sequence) else { return false };
        record.is_beaten = true;
        if record.progress == Progress::Sent {
            // If it has not begun the block, it need not.
            self.outgoing.push(ToConsumer::Recall { unit, sequence });
        }
        self.beaten += 1;
        true
    }

    /// The unit has ended for all: none of its blocks is awaited.
    pub(crate) fn beat_all(&mut self, unit: UnitId) {
        let records = self.records.iter_mut().filter(|((of, _), _)| *of == unit);
        for (_, record) in records.filter(|(_, one)| one.progress != Progress::Done) {
            self.beaten += usize::from(!std::mem::replace(&mut record.is_beaten, true));
        }
    }

    /// Notes that the other copy no longer has that block; true if this one has it.
    pub(crate) fn is_alone_again(&mut self, unit: UnitId, sequence: u64) -> bool {
        let Some(record) = self.awaited(unit, sequence) else { return false };
        (record.is_hedged, record.is_second) = (false, false);
        true
    }

    /// Whether it may have a block that it has not begun.
    pub(crate) fn can_recall(&self) -> bool {
        self.recalled.is_none() && self.unfinished > 1
    }

    /// Asks for the block that it would begin last.
    pub(crate) fn recall(&mut self) {
        let is_unbegun = |record: &Record| {
            record.is_kept && record.progress == Progress::Sent && !record.is_beaten
        };
        let unbegun = self.records.iter().filter(|(_, record)| is_unbegun(record));
        let last = unbegun.max_by_key(|((_, sequence), record)| (record.rank, *sequence));
        let Some((&(unit, sequence), _)) = last else { return };
        (self.recalled, self.recalled_at) = (Some((unit, sequence)), Instant::now());
        self.outgoing.push(ToConsumer::Recall { unit, sequence });
    }

    /// The memory of a block is free there. True if the copy will not finish it. A kept block then
    /// goes to any copy: it was called back, or the unit has ended there, which this process does
    /// not know yet.
    pub(crate) fn dropped(
        &mut self,
        unit: UnitId,
        sequence: u64,
        is_begun: bool,
    ) -> Result<(bool, Option<Back>), Unexpected> {
        let record = self.records.get_mut(&(unit, sequence)).ok_or(STRAY)?;
        if record.is_dropped {
            return Err(STRAY);
        }
        record.is_dropped = true;
        self.held -= record.bytes;
        let is_unbegun = record.progress == Progress::Sent && !is_begun;
        if is_unbegun {
            record.progress = Progress::Done;
            self.unfinished -= 1;
            self.beaten -= usize::from(record.is_beaten);
        }
        let is_wanted = record.is_kept && !record.is_beaten;
        if self.recalled == Some((unit, sequence)) {
            self.recalled = None;
        }
        if is_unbegun && is_wanted {
            let back = self.records.remove(&(unit, sequence));
            let back =
                back.map(|Record { rank, block, is_hedged, .. }| Back { rank, block, is_hedged });
            return Ok((true, back));
        }
        self.remove_if_over(unit, sequence);
        Ok((is_unbegun, None))
    }

    fn remove_if_over(&mut self, unit: UnitId, sequence: u64) {
        let Entry::Occupied(record) = self.records.entry((unit, sequence)) else { return };
        if record.get().is_dropped && record.get().progress == Progress::Done {
            record.remove();
        }
    }

    /// It is lost. Returns its unfinished blocks that others can have.
    pub(crate) fn lose(&mut self) -> Vec<Back> {
        self.unfinished = 0;
        self.beaten = 0;
        self.held = 0;
        self.recalled = None;
        self.outgoing.clear();
        let records = std::mem::take(&mut self.records).into_values();
        let left = records.filter(|record| record.is_kept && record.progress != Progress::Done);
        let left = left.filter(|record| !record.is_beaten);
        left.map(|Record { rank, block, is_hedged, .. }| Back { rank, block, is_hedged }).collect()
    }
}
