//! `seekwire demo`, from the command line. The doc comments are the help and the manual page.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

/// The part of the command `seekwire` for the demo
#[derive(Debug, Parser)]
#[command(
    name = "seekwire",
    bin_name = "seekwire",
    version,
    propagate_version = false,
    max_term_width = 100
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(Demo),
    /// Run one side of a measurement; `demo` starts it
    #[command(hide = true)]
    LabPeer(LabPeer),
}

/// Run real programs plain and accelerated in turn, and write a report
///
/// Runs iperf3, redis-benchmark, a file download from Python's http.server with curl, sockperf
/// ping-pong, and a message search: a receiver that takes messages out of the middle of a stream.
/// Where seekwire-slides is built and a slide was fetched, it also fetches tiles of that.
/// Prints one table and writes report.html, result.json and raw.csv. If a program is not installed,
/// its line says so. Five rounds take about two minutes.
#[derive(Debug, Args)]
struct Demo {
    /// Write the report to this directory
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    out: PathBuf,

    /// Number of rounds; each runs every program once plain and once accelerated
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

#[derive(Debug, Args)]
struct LabPeer {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The commands and options of this program.
#[must_use]
pub fn definitions() -> clap::Command {
    Arguments::command()
}

/// Executes the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = seekwire_program::generate::asked(definitions) {
        return code;
    }
    let outcome = match Arguments::parse().command {
        Command::LabPeer(peer) => return crate::peer::main(peer.arguments),
        Command::Demo(options) => crate::demo::run(&crate::demo::Options {
            out: options.out,
            rounds: options.rounds as usize,
            ..Default::default()
        }),
    };
    seekwire_program::finish(outcome.map(|()| ExitCode::SUCCESS))
}

#[cfg(test)]
#[path = "../../../program/shared/definitions.rs"]
mod tests;
