//! Other projects' test suites, each run on plain TCP and accelerated, and compared: a test that
//! passes plain and fails accelerated is a defect of Seekwire.

#![forbid(unsafe_code)]

mod campaign;
mod counters;
mod execution;
mod mode;
mod record;
mod report;
mod suite;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Runs other projects' test suites on plain TCP and accelerated, and compares")]
struct Arguments {
    /// Where the suites are: a script each
    #[arg(long, default_value = "suites", global = true)]
    suites: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Names the suites
    List,
    /// Runs suites; fails if a test that passes plain fails accelerated
    Run(campaign::Settings),
    /// Writes the document of what has been run, there too, and where it is kept if every suite has
    /// been run
    Report {
        /// Where `run` has put its results
        #[arg(long, default_value = "out/suites")]
        out: PathBuf,
        /// Where it is kept
        #[arg(long, default_value = "docs/compatibility.md")]
        document: PathBuf,
    },
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let well = match arguments.command {
        Command::List => {
            for suite in suite::all(&arguments.suites)? {
                println!("{:12} {}", suite.name, suite.about);
            }
            true
        }
        Command::Run(settings) => campaign::run(&arguments.suites, &settings)?,
        Command::Report { out, document } => {
            let known = suite::all(&arguments.suites)?;
            let records = record::load(&out)?;
            let text = report::document(&known, &records);
            std::fs::write(out.join("compatibility.md"), &text)?;
            let missing = report::missing(&known, &records);
            if missing.is_empty() {
                std::fs::write(&document, text)?;
            } else {
                println!(
                    "{} stays as it is: no results of {}",
                    document.display(),
                    missing.join(", ")
                );
            }
            true
        }
    };
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
