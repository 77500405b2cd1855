//! The pipeline of `flow-peers` (see [`crate::pipeline`]) over runtimes that are Rust libraries.
//!
//! ```text
//! lab-peer pipeline local|crossbeam|timely ORDER        in one process
//! lab-peer pipeline joined RANK ORDER                   one of two processes of seekwire-flow
//! lab-peer pipeline sized local|RANK BLOCK UNIT MILLISECONDS      the same with blocks that a stream cuts
//! ```

mod channels;
mod dataflow;
mod filters;
mod sized;

use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};

use crate::messaging;
use crate::pipeline::{Order, Report, Resident};

/// Work done by the threads of this process.
#[derive(Debug, Default)]
struct Notes(Mutex<Report>);

impl Notes {
    fn add(&self, report: Report) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).join(report);
    }

    fn take(&self) -> Report {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Called before the first block.
    fn begin(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).resident = Resident::begin();
    }

    /// Called after the last one.
    fn end(&self) -> Report {
        let mut report = self.take();
        report.resident = report.resident.map(Resident::end);
        report
    }
}

/// Plays the role with the arguments that follow `lab-peer pipeline`.
pub(super) fn play(arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let arguments: Vec<String> =
        arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let (runtime, order) = arguments.split_first().context("say which runtime")?;
    let report = match runtime.as_str() {
        "local" => filters::local(Order::parse(order)?)?,
        "joined" => {
            let (rank, order) = order.split_first().context("say which rank")?;
            filters::joined(rank.parse().context("a rank is a number")?, Order::parse(order)?)?
        }
        "sized" => {
            let (place, order) = order.split_first().context("say where")?;
            sized::run(place, order)?
        }
        "crossbeam" => channels::run(Order::parse(order)?)?,
        "timely" => dataflow::run(Order::parse(order)?)?,
        _ => bail!("there is no runtime '{runtime}'"),
    };
    messaging::report(&report)
}
