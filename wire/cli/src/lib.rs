//! The `seekwire` command.
//!
//! ```text
//! run       start a program with the library loaded               run, executable, supervise, summary
//! status    live connections of the user's processes              status, proc
//! reasons   why connections stay on TCP                            reasons
//! doctor    what this host supports, and what to fix               doctor, probe
//! vm        memory that this machine shares with others            vm
//! others    subcommands that are programs of their own             external_commands
//! generate  manual pages and completions, for `make install`       generate
//! ```
//!
//! The definitions of commands and options, with their help, are in `arguments`.

#![forbid(unsafe_code)]

mod arguments;
mod doctor;
mod executable;
mod external_commands;
mod foreign;
mod generate;
mod place;
mod probe;
mod proc;
mod reasons;
mod registry;
mod run;
mod status;
mod summary;
mod supervise;
mod tcp_table;
mod unknown_variables;
mod vm;

use std::ffi::OsString;
use std::process::ExitCode;

use arguments::{Arguments, Command, Probe};
use clap::{CommandFactory, FromArgMatches, Parser};
use seekwire_program::command_line::command_line;

/// The commands and options; for separate programs, their names and purposes.
#[must_use]
pub fn definitions() -> clap::Command {
    command_line(Arguments::command().subcommands(external_commands::definitions()))
}

/// Runs the command in the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(program) = external_commands::program(&words) {
        return seekwire_program::finish(external_commands::become_it(program, &words));
    }
    if words.get(1).is_some_and(|word| word == probe::NAME) {
        let side = Probe::parse_from(&words[1..]);
        return seekwire_program::finish(probe::side(&side).map(|()| ExitCode::SUCCESS));
    }
    if words.get(1).is_some_and(|word| word == seekwire_program::generate::NAME) {
        let generated = generate::generate(&words[1..]);
        return seekwire_program::finish(generated.map(|()| ExitCode::SUCCESS));
    }
    let matches = definitions().get_matches_from(words);
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    seekwire_program::finish(match arguments.command {
        Command::Run(options) => return run::run(&options),
        Command::Doctor(options) => doctor::doctor(&options),
        Command::Status(options) => status::status(&options).map(|()| ExitCode::SUCCESS),
        Command::Reasons(options) => reasons::reasons(&options.reason).map(|()| ExitCode::SUCCESS),
        Command::Vm(options) => vm::vm(&options.command),
    })
}

#[cfg(test)]
#[path = "../../../program/shared/definitions.rs"]
mod tests;
