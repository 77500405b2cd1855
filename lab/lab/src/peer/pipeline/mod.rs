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
mod notes;
mod sized;

use std::ffi::OsString;

use anyhow::{Context as _, Result, bail};

use crate::messaging;
use crate::pipeline::PipelineOrder;

/// Plays the role with the arguments that follow `lab-peer pipeline`.
pub(super) fn play(arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let arguments: Vec<String> =
        arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let (runtime, order) = arguments.split_first().context("say which runtime")?;
    let report = match runtime.as_str() {
        "local" => filters::local(PipelineOrder::parse(order)?)?,
        "joined" => {
            let (rank, order) = order.split_first().context("say which rank")?;
            filters::joined(
                rank.parse().context("a rank is a number")?,
                PipelineOrder::parse(order)?,
            )?
        }
        "sized" => {
            let (location, order) = order.split_first().context("say where")?;
            sized::run(location, order)?
        }
        "crossbeam" => channels::run(PipelineOrder::parse(order)?)?,
        "timely" => dataflow::run(PipelineOrder::parse(order)?)?,
        _ => bail!("there is no runtime '{runtime}'"),
    };
    messaging::report(&report)
}
