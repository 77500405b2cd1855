//! Generates random programs of socket calls, runs each on plain TCP and accelerated, in lockstep,
//! and compares the runs. A program must not be able to tell the difference.

mod actor;
mod bench;
mod campaign;
mod circumstances;
mod compare;
mod epilogue;
mod generate;
mod program;
mod run;
mod shrink;
mod streams;
#[allow(clippy::disallowed_methods, reason = "here the calls are to come to the library")]
mod sys;
mod trace;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Compares random programs of socket calls on plain TCP and accelerated")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs random programs
    Run(campaign::Settings),
    /// Runs programs from files; fails if one can tell the difference
    Replay {
        files: Vec<PathBuf>,
        /// libseekwire.so; by default the one beside this program
        #[arg(long)]
        library: Option<PathBuf>,
        /// Number of runs of each program
        #[arg(long, default_value_t = 1)]
        times: usize,
        /// Print the library's log, and each step with its result
        #[arg(long)]
        verbose: bool,
    },
    /// Makes the program of a seed smaller and prints it
    Shrink {
        seed: u64,
        #[arg(long)]
        library: Option<PathBuf>,
    },
    /// Prints the program of a seed
    Show { seed: u64 },
    #[command(hide = true)]
    Actor,
}

fn main() -> Result<ExitCode> {
    let well = match Arguments::parse().command {
        Command::Run(settings) => campaign::run_many(&settings)?,
        Command::Replay { files, library, times, verbose } => {
            campaign::replay(&files, library, times, verbose)?
        }
        Command::Shrink { seed, library } => {
            campaign::print_shrunk(seed, library)?;
            true
        }
        Command::Show { seed } => {
            println!("{}", serde_json::to_string_pretty(&generate::generate(seed))?);
            true
        }
        Command::Actor => {
            actor::main()?;
            true
        }
    };
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
