//! `seekwire flow`: pipelines of filters. The command `seekwire` starts this program.
//!
//! ```text
//! check     what is wrong with a pipeline                           pipeline, expression, located_error
//! run       run it, once for each argument; where the time went     run, time_report, monitor
//! plan      run a part of it, and say how fast it can be            plan, prediction
//! top       a pipeline that runs, from another process              monitor
//! filters   the filters that there are, and their options           builtin
//! ```

#![forbid(unsafe_code)]
// They panic if the stream cannot be written; `seekwire_program::tell` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod builtin;
mod decision_text;
mod expression;
mod job;
mod located_error;
mod monitor;
mod options;
mod origin;
mod outputs;
mod pipeline;
mod placement;
mod plan;
mod prediction;
mod run;
mod time_report;
mod unit_argument;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches};
use seekwire_program::command_line::command_line;
use seekwire_program::standard;

use crate::arguments::{Arguments, Command, Flow, FlowCheck};

/// The commands and options of this program.
#[must_use]
pub fn definitions() -> clap::Command {
    let filters = builtin::help().lines().map(|line| format!("  {line}\n")).collect::<String>();
    let list = |command: clap::Command| {
        command.after_long_help(format!("Filters:\n{filters}\nExit status:\n  0  always"))
    };
    let all = Arguments::command();
    command_line(all.mut_subcommand("flow", |flow| flow.mut_subcommand("filters", list)))
}

/// Does what the arguments of this process say.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = seekwire_program::generate::asked(definitions) {
        return code;
    }
    let matches = definitions().get_matches();
    let Command::Flow(command) =
        Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command;
    seekwire_program::finish(match command {
        Flow::Check(options) => check(&options),
        Flow::Plan(options) => plan::plan(&options),
        Flow::Run(options) => run::run(&options),
        Flow::Top(options) => monitor::top::top(&options),
        Flow::Filters => filters(),
    })
}

fn check(options: &FlowCheck) -> Result<ExitCode> {
    let pipeline = pipeline::read(options.origin())?;
    pipeline.check_programs()?;
    writeln!(standard::output()?.lock(), "{}", pipeline.summary())?;
    Ok(ExitCode::SUCCESS)
}

fn filters() -> Result<ExitCode> {
    standard::output()?.lock().write_all(builtin::help().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
#[path = "../../../program/shared/definitions.rs"]
mod tests;
