//! The filters: repository, clip, subsample, viewer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use seekwire_flow::{Block, Filter, FilterError, Outputs, Step};
use serde::{Deserialize, Serialize};

use super::emulation::Emulation;
use super::image::{self, Image};
use crate::imaging::cost::Compute;
use crate::imaging::{COPIES, ClipWork, Onset, TILE, Update};

/// Shared by the filters of the coordinator: the image, how much of each update was read, and its
/// results.
pub(super) struct Desk {
    pub(super) image: Image,
    updates: Mutex<HashMap<u64, Seen>>,
}

/// The coordinator's view of an update.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    read: u64,
    pub(super) bytes: u64,
    pub(super) sum: u64,
    /// By rank of the host, from 1.
    pub(super) work: [ClipWork; COPIES as usize],
    pub(super) onsets: Vec<Onset>,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self { image: Image::new(), updates: Mutex::default() }
    }

    fn updates(&self) -> MutexGuard<'_, HashMap<u64, Seen>> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next unread bytes of the update: their offset and number.
    fn read(&self, update: &Update) -> Option<(u64, u64)> {
        let mut updates = self.updates();
        let read = &mut updates.entry(update.number).or_default().read;
        let bytes = TILE.min(update.bytes - *read);
        let start = update.start + *read;
        *read += bytes;
        (bytes > 0).then_some((start, bytes))
    }

    /// Takes the view of an update that is done.
    pub(super) fn take(&self, number: u64) -> Seen {
        self.updates().remove(&number).unwrap_or_default()
    }
}

/// Nanoseconds of a clock that all processes of a host share.
fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The update of the unit that begins. Its argument was written by the coordinator.
fn update(argument: &str) -> Result<Update, FilterError> {
    Ok(serde_json::from_str(argument)?)
}

pub(super) struct Repository {
    desk: Arc<Desk>,
    update: Option<Update>,
}

impl Repository {
    pub(super) fn new(desk: Arc<Desk>) -> Self {
        Self { desk, update: None }
    }
}

impl Filter for Repository {
    fn init(&mut self, argument: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.update = Some(update(argument)?);
        Ok(())
    }

    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        let part = self.update.as_ref().and_then(|update| self.desk.read(update));
        let Some((start, bytes)) = part else { return Ok(Step::Done) };
        out.send(0, self.desk.image.part(start, bytes))?;
        Ok(Step::More)
    }
}

/// Reports of clip to the viewer about its own work.
#[derive(Serialize, Deserialize)]
enum Trace {
    /// The host became slow at this time, and its first slow block took this long.
    Onset { at_ns: u64, done_ns: u64 },
    /// Work on the whole unit.
    Work { host: u32, work: ClipWork },
}

pub(super) struct Clip {
    host: u32,
    compute: Compute,
    emulation: Emulation,
    work: ClipWork,
}

impl Clip {
    pub(super) fn new(host: u32) -> Self {
        let (emulation, work) = (Emulation::default(), ClipWork::default());
        Self { host, compute: Compute::NONE, emulation, work }
    }
}

impl Filter for Clip {
    fn init(&mut self, argument: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.compute = update(argument)?.compute;
        Ok(())
    }

    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        let Compute { mode, clip_ns, slow, .. } = self.compute;
        let own = self.work.blocks;
        let onset = slow.is_onset(self.host, own).then(now_ns);
        let base_ns = clip_ns * block.len() as u64;
        let cost_ns = base_ns * slow.factor(self.host, block.sequence(), own);
        let took = self.emulation.spend(Duration::from_nanos(cost_ns), mode);
        let took_ns = took.as_nanos() as u64;
        self.work.add(ClipWork { blocks: 1, base_ns, cost_ns, took_ns });
        out.send(0, block)?;
        if let Some(at_ns) = onset {
            // It is on its way when the dealer is notified that the block is done, over the same
            // connection.
            let done_ns = took_ns;
            out.send(1, serde_json::to_vec(&Trace::Onset { at_ns, done_ns })?)?;
        }
        Ok(())
    }

    fn finalize(&mut self, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        let trace = Trace::Work { host: self.host, work: self.work };
        out.send(1, serde_json::to_vec(&trace)?)
    }
}

#[derive(Default)]
pub(super) struct Subsample {
    compute: Option<Compute>,
    emulation: Emulation,
}

impl Filter for Subsample {
    fn init(&mut self, argument: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.compute = Some(update(argument)?.compute);
        Ok(())
    }

    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        if let Some(Compute { mode, subsample_ns, .. }) = self.compute {
            let cost = Duration::from_nanos(subsample_ns * block.len() as u64);
            self.emulation.spend(cost, mode);
        }
        out.send(0, block)
    }
}

pub(super) struct Viewer {
    desk: Arc<Desk>,
    number: u64,
    seen: Seen,
}

impl Viewer {
    pub(super) fn new(desk: Arc<Desk>) -> Self {
        Self { desk, number: 0, seen: Seen::default() }
    }
}

impl Filter for Viewer {
    fn init(&mut self, argument: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.number = update(argument)?.number;
        Ok(())
    }

    fn process(
        &mut self,
        block: Block,
        port: usize,
        _: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        if port == 0 {
            self.seen.bytes += block.len() as u64;
            self.seen.sum += image::sum(&block);
            return Ok(());
        }
        match serde_json::from_slice(&block)? {
            Trace::Onset { at_ns, done_ns } => {
                let heard_ns = now_ns().saturating_sub(at_ns);
                self.seen.onsets.push(Onset { done_ns, heard_ns });
            }
            Trace::Work { host, work } => {
                let index = (host as usize).checked_sub(1);
                let own = index.and_then(|index| self.seen.work.get_mut(index));
                own.ok_or("a host that does not exist")?.add(work);
            }
        }
        Ok(())
    }

    fn finalize(&mut self, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let mut updates = self.desk.updates();
        let update = updates.entry(self.number).or_default();
        let Seen { bytes, sum, work, ref mut onsets, .. } = self.seen;
        (update.bytes, update.sum, update.work) = (bytes, sum, work);
        update.onsets.append(onsets);
        Ok(())
    }
}
