//! `seekwire demo` and `seekwire bench`, from the command line. The doc comments are the help and the manual page.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueHint};
use regex_lite::Regex;
use seekwire_program::command_line::command_line;
use seekwire_values::Time;

use crate::bench;

/// The part of the command `seekwire` for measuring programs
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(Demo),
    Bench(Bench),
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

/// Measure a server and a client of yours, plain and accelerated in turn
///
/// Each round runs CLIENT once plain and once accelerated, in an order that changes from round to
/// round, after one round that does not count. The server is started for each run in the same way
/// as the client, and ended by SIGTERM. Prints the medians of the time that the client takes, how
/// many times as fast it is accelerated, with a 95 % interval, and how many of its bytes went
/// through shared memory.
///
/// Without --server, the client is to bring its peer along, or one runs already under `seekwire
/// run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status:
  0  the runs were measured, whatever they showed
  1  a server did not listen, or a client failed

Examples:
  seekwire bench --server 'redis-server --save \"\" --port 7000' --port 7000 \\
      -- redis-benchmark -p 7000 -t get -n 100000 -q
  seekwire bench --rounds 20 --rate-pattern '([0-9.]+) requests per second' \\
      --server 'redis-server --save \"\" --port 7000' --port 7000 \\
      -- redis-benchmark -p 7000 -t get -n 100000 -q")]
struct Bench {
    /// Number of rounds; each runs the client once plain and once accelerated
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Command line of the server, quoted as for a shell; it stays in the foreground
    #[arg(long, value_name = "CMD", requires = "port", value_hint = ValueHint::CommandString)]
    server: Option<String>,

    /// TCP port of the server: the client starts when something listens there
    #[arg(long, value_name = "PORT", requires = "server", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// Also compare a rate, which this regular expression finds in the client's output
    ///
    /// The last match counts: its part in ( ), or else the whole match, must be a number. More is
    /// better.
    #[arg(long, alias = "rate", value_name = "REGEX", value_parser = pattern)]
    rate_pattern: Option<Regex>,

    /// Time that a run of the client may take
    #[arg(long, value_name = "TIME", default_value = "10min")]
    #[arg(value_parser = Time::within(Duration::from_secs(1)..=Duration::from_secs(86_400)))]
    limit: Time,

    /// The client and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CLIENT", value_hint = ValueHint::CommandWithArguments)]
    client: Vec<OsString>,
}

fn pattern(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| error.to_string())
}

impl Bench {
    fn parsed(self) -> Result<bench::Bench> {
        let server = match self.server.zip(self.port) {
            None => None,
            Some((line, port)) => {
                let words = shlex::split(&line);
                let words = words.context("--server: a quotation mark is not closed")?;
                Some(bench::Server { words, port })
            }
        };
        Ok(bench::Bench {
            rounds: self.rounds as usize,
            server,
            rate: self.rate_pattern,
            limit: self.limit.get(),
            client: self.client,
        })
    }
}

#[derive(Debug, Args)]
struct LabPeer {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The commands and options of this program.
#[must_use]
pub fn definitions() -> clap::Command {
    command_line(Arguments::command())
}

/// Executes the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = seekwire_program::generate::asked(definitions) {
        return code;
    }
    let matches = definitions().get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = match arguments.command {
        Command::LabPeer(peer) => return crate::peer::main(peer.arguments),
        Command::Bench(options) => options.parsed().and_then(|bench| bench::run(&bench)),
        Command::Demo(options) => crate::demo::run(&crate::demo::DemoOptions {
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
