//! The counts of a running pipeline at one moment.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use seekwire_flow::{CopyReport, CopyState, GuaranteeReport, Running, SizeReport, StreamReport};
use serde::{Deserialize, Serialize};

/// A running pipeline, with its units of work.
pub(crate) struct Watched {
    running: Arc<Running>,
    pipeline: String,
    began: Instant,
    units: Mutex<UnitProgress>,
}

/// Progress of the units.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct UnitProgress {
    /// Number of units requested.
    pub(crate) all: usize,
    pub(crate) done: usize,
    pub(crate) failed: usize,
    /// Argument of the current unit.
    pub(crate) argument: String,
}

/// The content of `/status`. Counts and times are those since the pipeline began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) pid: u32,
    /// The path of the pipeline file.
    pub(crate) pipeline: String,
    pub(crate) seconds: f64,
    pub(crate) units: UnitProgress,
    pub(crate) copies: Vec<CopyStatus>,
    pub(crate) streams: Vec<StreamStatus>,
    /// How well the guarantee was kept, once a unit has ended.
    #[serde(default)]
    pub(crate) guarantee: Option<GuaranteeReport>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CopyStatus {
    pub(crate) filter: String,
    pub(crate) copy: usize,
    /// The rank of the process that it runs in, and the host of that process if there are several.
    pub(crate) process: u32,
    pub(crate) host: Option<String>,
    pub(crate) busy_seconds: f64,
    pub(crate) starved_seconds: f64,
    pub(crate) blocked_seconds: f64,
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    #[serde(default)]
    pub(crate) rejected: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamStatus {
    pub(crate) stream: String,
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    pub(crate) held_bytes: u64,
    pub(crate) peak_bytes: u64,
    pub(crate) limit_bytes: u64,
    /// For a stream that chooses the size of its blocks.
    #[serde(default)]
    pub(crate) block: Option<SizeReport>,
    /// The figures that dealing uses, for each receiving copy.
    #[serde(default)]
    pub(crate) copies: Vec<CopyState>,
}

impl Watched {
    pub(crate) fn new(running: Arc<Running>, pipeline: String, units: usize) -> Self {
        let units = Mutex::new(UnitProgress { all: units, ..UnitProgress::default() });
        Self { running, pipeline, began: Instant::now(), units }
    }

    fn units(&self) -> MutexGuard<'_, UnitProgress> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn unit_begins(&self, argument: &str) {
        argument.clone_into(&mut self.units().argument);
    }

    pub(crate) fn unit_ends(&self, is_done: bool) {
        let mut units = self.units();
        *(if is_done { &mut units.done } else { &mut units.failed }) += 1;
    }

    pub(crate) fn status(&self) -> Status {
        let (copies, streams) = self.running.report();
        Status {
            pid: std::process::id(),
            pipeline: self.pipeline.clone(),
            seconds: self.began.elapsed().as_secs_f64(),
            units: self.units().clone(),
            copies: copies.iter().map(CopyStatus::from).collect(),
            streams: streams.iter().map(StreamStatus::from).collect(),
            guarantee: self.running.guarantee(),
        }
    }
}

impl From<&CopyReport> for CopyStatus {
    fn from(copy: &CopyReport) -> Self {
        Self {
            filter: copy.filter.to_string(),
            copy: copy.copy,
            process: copy.process,
            host: copy.host.as_deref().map(str::to_owned),
            busy_seconds: copy.busy.as_secs_f64(),
            starved_seconds: copy.starved.as_secs_f64(),
            blocked_seconds: copy.blocked.as_secs_f64(),
            blocks: copy.blocks,
            bytes: copy.bytes,
            rejected: copy.rejected,
        }
    }
}

impl From<&StreamReport> for StreamStatus {
    fn from(stream: &StreamReport) -> Self {
        Self {
            stream: stream.name.to_string(),
            blocks: stream.blocks,
            bytes: stream.bytes,
            held_bytes: stream.held as u64,
            peak_bytes: stream.peak as u64,
            limit_bytes: stream.limit as u64,
            block: stream.block.clone(),
            copies: stream.copies.clone(),
        }
    }
}

impl CopyStatus {
    /// The changes since an earlier status of the same copy.
    pub(crate) fn since(&self, before: &Self) -> CopyReport {
        // A status from elsewhere may have any values; times are added up.
        let time = |now: f64, before: f64| {
            let time = Duration::try_from_secs_f64(now - before).unwrap_or_default();
            time.min(Duration::from_secs(u64::from(u32::MAX)))
        };
        CopyReport {
            filter: self.filter.as_str().into(),
            copy: self.copy,
            process: self.process,
            host: self.host.as_deref().map(Into::into),
            busy: time(self.busy_seconds, before.busy_seconds),
            starved: time(self.starved_seconds, before.starved_seconds),
            blocked: time(self.blocked_seconds, before.blocked_seconds),
            blocks: self.blocks.saturating_sub(before.blocks),
            bytes: self.bytes.saturating_sub(before.bytes),
            rejected: self.rejected.saturating_sub(before.rejected),
        }
    }
}
