//! Runs a pipeline, once for each unit of work.

use std::process::ExitCode;

use anyhow::{Context, Result};
use seekwire_flow::Unit;

use crate::arguments::FlowRun;
use crate::{pipeline, shares};

pub(crate) fn run(options: &FlowRun) -> Result<ExitCode> {
    let pipeline = pipeline::read(&options.file)?;
    let running = pipeline.graph.start().context("the pipeline does not start")?;
    let once = [String::new()];
    let arguments = if options.units.is_empty() { &once[..] } else { &options.units };
    let mut failed = 0;
    for argument in arguments {
        // One after the other: what several write to one place would mix.
        let unit = running.submit(Unit::new(argument.clone()));
        if let Err(failure) = unit.wait() {
            failed += 1;
            let which = if argument.is_empty() { String::new() } else { format!("{argument}: ") };
            seekwire_program::tell(format_args!("seekwire: {which}{failure}"));
        }
    }
    if !options.quiet {
        let report = shares::table(&running.copies(), &running.streams());
        seekwire_program::tell(report);
    }
    if failed > 0 && arguments.len() > 1 {
        let all = arguments.len();
        seekwire_program::tell(format_args!("seekwire: {failed} of {all} units of work failed"));
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
