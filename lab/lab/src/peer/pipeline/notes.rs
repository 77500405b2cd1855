//! The report of this process, to which its threads add.

use std::sync::{Mutex, PoisonError};

use crate::pipeline::{PipelineReport, Resident};

/// Work done by the threads of this process.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<PipelineReport>);

impl Notes {
    pub(super) fn add(&self, report: PipelineReport) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).join(report);
    }

    pub(super) fn take(&self) -> PipelineReport {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Called before the first block.
    pub(super) fn begin(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).resident = Resident::begin();
    }

    /// Called after the last one.
    pub(super) fn end(&self) -> PipelineReport {
        let mut report = self.take();
        report.resident = report.resident.map(Resident::end);
        report
    }
}
