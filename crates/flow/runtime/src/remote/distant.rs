//! What the home of a stream knows of a copy that receives in another process.
//!
//! It keeps what each block takes of the limit until the copy is done with it and its memory there
//! is free; and the block itself, if it can be dealt to another one. So many blocks are under way to
//! a copy that it has one to begin whenever it is done with one, and one more: what is not dealt
//! yet goes to who is idle first.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::link::Link;
use super::message::{End, Frame, Garbled, Message, Sequences};
use crate::block::Block;
use crate::dealing::BATCH;
use crate::fit::Cost;
use crate::hedging::Share;
use crate::unit::{Rank, UnitId};

/// So many round trips are remembered; the shortest one counts. Others have waited in a queue.
const SAMPLES: usize = 16;

/// Blocks under way to a copy of which nobody knows yet how fast it is: one to process, one to come.
const FIRST_WINDOW: usize = 2;

/// So long, and a few round trips, a process takes to answer if it runs at all.
const SILENCE: Duration = Duration::from_millis(100);

/// The most blocks under way to one copy.
const LARGEST_WINDOW: usize = 4096;

pub(crate) struct Distant {
    link: Arc<Link>,
    to: End,
    /// Bytes that it may be sent and not have dropped.
    granted: usize,
    held: usize,
    /// Blocks that it is not done with.
    unfinished: usize,
    records: HashMap<(UnitId, u64), Record>,
    /// What it is to be sent at once.
    outgoing: Vec<Frame>,
    round_trips: [Duration; SAMPLES],
    samples: usize,
    /// Since it was done with a block, or had none. Where it is looked after, since it has the one that
    /// it was sent first, at the soonest, as far as can be seen from here.
    since: Instant,
    /// If it is looked after, what it was sent in that order, and when; others, too, that it is done
    /// with.
    order: Option<VecDeque<((UnitId, u64), Instant)>>,
    /// It was asked to give back that block, if it has not begun it, and has not answered.
    recalled: Option<(UnitId, u64)>,
    /// When it was asked that.
    asked: Instant,
    /// Blocks that it is not done with, and nobody waits for.
    beaten: usize,
}

/// A block that it was sent.
struct Record {
    rank: Rank,
    block: Block,
    /// Else it is without its bytes, and nobody else can have it.
    is_kept: bool,
    bytes: usize,
    sent: Instant,
    progress: Progress,
    is_dropped: bool,
    /// Another copy has it, too.
    is_hedged: bool,
    /// That one had it before.
    is_second: bool,
    /// Nobody waits for it any more.
    is_beaten: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Sent,
    Begun,
    Done,
}

/// What a copy was done with.
pub(crate) struct Done {
    pub(crate) rank: Rank,
    pub(crate) count: usize,
    /// Of these.
    pub(crate) bytes: usize,
    /// Of these, those that were not known to be begun.
    pub(crate) unbegun: usize,
    /// Of these, those that somebody has waited for.
    pub(crate) awaited: usize,
    /// Of these, those that another copy has, too: the number, and whether that one had it before.
    pub(crate) hedged: Vec<(u64, bool)>,
    /// How long each took: no longer than the last has been away, whatever is said.
    pub(crate) took: Duration,
    /// How long it was at them, as is seen here.
    pub(crate) was_at: Duration,
    /// Whether it has told of others, which it does not have.
    pub(crate) stray: Result<(), Garbled>,
}

/// A block that will not be done with, and is anybody's again.
pub(crate) struct Back {
    pub(crate) rank: Rank,
    pub(crate) block: Block,
    /// Another copy has it, too.
    pub(crate) is_hedged: bool,
}

/// What a copy has had for longest, of what nobody else has.
pub(crate) struct Oldest {
    pub(crate) rank: Rank,
    pub(crate) sequence: u64,
    pub(crate) sent: Instant,
    /// So many it has to do until it is done with this one.
    pub(crate) place: u32,
}

const STRAY: Garbled = Garbled::Unexpected("a block that it does not have");

impl Distant {
    pub(crate) fn new(link: Arc<Link>, to: End, granted: usize) -> Self {
        Self {
            link,
            to,
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
            asked: Instant::now(),
            beaten: 0,
        }
    }

    /// Somebody looks whether it is late with what it has.
    pub(crate) fn look_after(&mut self) {
        self.order = Some(VecDeque::new());
    }

    pub(crate) fn process(&self) -> u32 {
        self.link.rank
    }

    /// Its process, and what the link there costs.
    pub(crate) fn link_cost(&self) -> (u32, Option<Cost>) {
        (self.link.rank, self.link.cost())
    }

    /// How long a block and its acknowledgement are on their way; `None`: nobody knows yet.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.round_trips[..self.samples.min(SAMPLES)].iter().min().copied()
    }

    /// Whether it may be sent another block, if it takes so long for one.
    pub(crate) fn has_room(&self, service: Option<Duration>) -> bool {
        let window = match (service, self.round_trip()) {
            (Some(service), Some(way)) => {
                let service = service.as_nanos().max(1);
                // It says that it is done with a batch when it is done with all of it, and begins
                // the next one then.
                let ahead = (way + 2 * BATCH).as_nanos().div_ceil(service);
                // One that it is at, and one for round trips that take longer than the shortest, as
                // most do where processors are shared.
                usize::try_from(ahead).unwrap_or(LARGEST_WINDOW).saturating_add(2)
            }
            _ => FIRST_WINDOW,
        };
        self.recalled.is_none() && self.unfinished < window.min(LARGEST_WINDOW) && self.has_memory()
    }

    /// Whether it may hold another block. One is always allowed: it may be larger than what was
    /// granted.
    pub(crate) fn has_memory(&self) -> bool {
        self.held < self.granted || self.records.is_empty()
    }

    /// `is_kept`: it may be dealt again, to others.
    pub(crate) fn send(&mut self, rank: Rank, mut block: Block, is_again: bool, is_kept: bool) {
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
        let message = Message::Block { to: self.to, unit, sequence, is_again, origin };
        self.outgoing.push(Frame { message, payload });
    }

    /// A block that another copy is late with.
    pub(crate) fn send_second(&mut self, rank: Rank, block: Block) {
        let key = (block.unit(), block.sequence());
        self.send(rank, block, false, true);
        if let Some(record) = self.records.get_mut(&key) {
            (record.is_hedged, record.is_second) = (true, true);
        }
    }

    pub(crate) fn end(&mut self, unit: UnitId) {
        self.outgoing.push(Message::Over { to: self.to, unit }.into());
    }

    /// The unit is over without it.
    pub(crate) fn ended_for(&mut self, unit: UnitId) {
        self.outgoing.push(Message::EndedFor { to: self.to, unit }.into());
    }

    /// It is done with something, or has something again.
    fn is_at_next(&mut self, now: Instant) {
        self.since = now;
        let way = self.round_trip().unwrap_or_default();
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
            self.since = now.max(*sent + way);
        }
    }

    /// What it was to be sent goes.
    pub(crate) fn flush(&mut self) {
        if !self.outgoing.is_empty() {
            self.link.send_all(&mut self.outgoing);
        }
    }

    pub(crate) fn started(&mut self, unit: UnitId, sequence: u64) -> Result<(), Garbled> {
        let record = self.records.get_mut(&(unit, sequence)).ok_or(STRAY)?;
        if record.progress != Progress::Sent {
            return Err(STRAY);
        }
        record.progress = Progress::Begun;
        Ok(())
    }

    /// It is done with blocks of a unit.
    pub(crate) fn done(
        &mut self,
        unit: UnitId,
        Sequences(sequences): &Sequences,
        took: Duration,
        waited: Duration,
    ) -> Result<Done, Garbled> {
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

    /// Blocks that it is not done with.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished
    }

    pub(crate) fn has_nothing(&self) -> bool {
        self.unfinished == 0 && self.recalled.is_none()
    }

    /// So long it has been at what it does, at the least.
    pub(crate) fn since_done(&self) -> Duration {
        self.since.elapsed()
    }

    /// Since when that is.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Whether it is at something that nobody waits for.
    pub(crate) fn is_stuck(&self) -> bool {
        self.beaten > 0
    }

    /// Whether its process should have said by now whether it gives a block back: that does not wait
    /// for the copy.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        let soon = SILENCE + 4 * self.round_trip().unwrap_or_default();
        self.recalled.is_some() && now.duration_since(self.asked) > soon
    }

    pub(crate) fn oldest_alone(&self) -> Option<Oldest> {
        let unfinished = || self.records.iter().filter(|(_, one)| one.progress != Progress::Done);
        let is_alone = |one: &Record| one.is_kept && !one.is_hedged && !one.is_beaten;
        let alone = unfinished().filter(|(_, one)| is_alone(one));
        let at = |((_, sequence), one): (&(UnitId, u64), &Record)| (one.sent, *sequence);
        let ((_, sequence), record) = alone.min_by_key(|one| at(*one))?;
        let own = (record.sent, *sequence);
        let place = unfinished().filter(|one| at(*one) <= own).count();
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        Some(Oldest { rank: record.rank, sequence: *sequence, sent: record.sent, place })
    }

    /// Of a block that it is not done with, for another copy, too: the bytes, and what it takes.
    pub(crate) fn share(&mut self, unit: UnitId, sequence: u64) -> Option<(Bytes, Arc<Share>)> {
        let record = self.awaited(unit, sequence)?;
        record.is_hedged = true;
        Some((record.block.bytes().clone(), record.block.share()))
    }

    /// What it is not done with and somebody waits for.
    fn awaited(&mut self, unit: UnitId, sequence: u64) -> Option<&mut Record> {
        let record = self.records.get_mut(&(unit, sequence))?;
        Some(record).filter(|one| one.progress != Progress::Done && !one.is_beaten)
    }

    /// Another copy is done with that block; true: this one is not.
    pub(crate) fn beat(&mut self, unit: UnitId, sequence: u64) -> bool {
        let Some(record) = self.awaited(unit, sequence) else { return false };
        record.is_beaten = true;
        if record.progress == Progress::Sent {
            // If it has not begun it, it need not.
            self.outgoing.push(Message::Recall { to: self.to, unit, sequence }.into());
        }
        self.beaten += 1;
        true
    }

    /// The unit is over for all: nobody waits for anything of it.
    pub(crate) fn beat_all(&mut self, unit: UnitId) {
        let records = self.records.iter_mut().filter(|((of, _), _)| *of == unit);
        for (_, record) in records.filter(|(_, one)| one.progress != Progress::Done) {
            self.beaten += usize::from(!std::mem::replace(&mut record.is_beaten, true));
        }
    }

    /// The other copy that had that block has it no more; true: this one has it.
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
        (self.recalled, self.asked) = (Some((unit, sequence)), Instant::now());
        self.outgoing.push(Message::Recall { to: self.to, unit, sequence }.into());
    }

    /// The memory of a block is free there. True: it will not be done with. If it was kept, it is
    /// anybody's again: it was called back, or the unit has ended there, of which nobody here has heard.
    pub(crate) fn dropped(
        &mut self,
        unit: UnitId,
        sequence: u64,
        is_begun: bool,
    ) -> Result<(bool, Option<Back>), Garbled> {
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

    /// It is lost: what it was not done with and others can have.
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
