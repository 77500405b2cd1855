//! A receiving copy in another process, as the owner of a stream sees it.
//!
//! The owner keeps the room of each block until the copy has finished it and its memory there is
//! free; and the block itself, if it can be dealt to another copy. It sends a copy as many blocks
//! as it takes to always have one to begin, and one more: blocks not dealt yet go to the copy that
//! is idle first.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::memory::block::Block;
use crate::policy::fit::Cost;
use crate::policy::priority::{Priority, UnitId};
use crate::policy::window::window;
use crate::stream::elsewhere::{ConsumerLink, ToConsumer, Unexpected};

/// Number of round trips remembered; the shortest one counts. Others have waited in a queue.
const SAMPLES: usize = 16;

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
    /// When it last finished a block, or got one after having none.
    since: Instant,
    /// The block that it was asked to give back if it has not begun it, until it answers.
    recalled: Option<(UnitId, u64)>,
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
    /// How long each took: at most as long as the last one has been away, whatever the copy
    /// reports.
    pub(crate) took: Duration,
    /// An error if it has reported others, which it does not have.
    pub(crate) stray: Result<(), Unexpected>,
}

/// A block that the copy will not finish, and that any copy can have.
pub(crate) struct Back {
    pub(crate) rank: Priority,
    pub(crate) block: Block,
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
            recalled: None,
        }
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
        if self.unfinished == 0 {
            self.since = sent;
        }
        self.held += bytes;
        self.unfinished += 1;
        let record = Record { rank, block, is_kept, bytes, sent, progress, is_dropped: false };
        self.records.insert((unit, sequence), record);
        self.outgoing.push(ToConsumer::Block { unit, sequence, is_again, origin, bytes: payload });
    }

    pub(crate) fn end(&mut self, unit: UnitId) {
        self.outgoing.push(ToConsumer::Over { unit });
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
        let (mut count, mut bytes, mut unbegun) = (0, 0, 0);
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
            last = Some((record.rank, record.sent));
            self.unfinished -= 1;
            self.remove_if_over(unit, *sequence);
        }
        let (rank, sent) = last.ok_or(STRAY)?;
        self.since = Instant::now();
        let away = sent.elapsed();
        let took = took.min(away);
        self.round_trips[self.samples % SAMPLES] = (away - took).saturating_sub(waited);
        self.samples += 1;
        let stray = if count < sequences.len() { Err(STRAY) } else { Ok(()) };
        Ok(Done { rank, count, bytes, unbegun, took, stray })
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

    /// Whether it may have a block that it has not begun.
    pub(crate) fn can_recall(&self) -> bool {
        self.recalled.is_none() && self.unfinished > 1
    }

    /// Asks for the block that it would begin last.
    pub(crate) fn recall(&mut self) {
        let is_unbegun = |record: &Record| record.is_kept && record.progress == Progress::Sent;
        let unbegun = self.records.iter().filter(|(_, record)| is_unbegun(record));
        let last = unbegun.max_by_key(|((_, sequence), record)| (record.rank, *sequence));
        let Some((&(unit, sequence), _)) = last else { return };
        self.recalled = Some((unit, sequence));
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
        }
        let is_kept = record.is_kept;
        if self.recalled == Some((unit, sequence)) {
            self.recalled = None;
        }
        if is_unbegun && is_kept {
            let back = self.records.remove(&(unit, sequence));
            return Ok((true, back.map(|Record { rank, block, .. }| Back { rank, block })));
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
        self.held = 0;
        self.recalled = None;
        self.outgoing.clear();
        let records = std::mem::take(&mut self.records).into_values();
        let left = records.filter(|record| record.is_kept && record.progress != Progress::Done);
        left.map(|Record { rank, block, .. }| Back { rank, block }).collect()
    }
}
