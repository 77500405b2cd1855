//! Runs other projects' test suites on plain TCP and accelerated, and compares them. A test that
//! passes plain and fails accelerated is a defect of Seekwire.

#![forbid(unsafe_code)]

mod campaign;
mod counters;
mod execution;
mod mode;
mod outcome;
mod page;
mod record;
mod report;
mod suite;
mod verdict;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use crate::page::Page;

#[derive(Parser)]
#[command(about = "Runs other projects' test suites on plain TCP and accelerated, and compares")]
struct Arguments {
    /// Directory of the suites: a script each
    #[arg(long, default_value = "wire/suites/projects", global = true)]
    suites: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the suites
    List,
    /// Runs suites; fails if a test that passes plain fails accelerated
    Run(campaign::SuiteSettings),
    /// Writes the page of results and joins it with the existing one: suites that have not been run
    /// keep their parts
    Report {
        /// Directory with the results of `run`
        #[arg(long, default_value = "out/suites")]
        out: PathBuf,
        /// The page to write
        #[arg(long, default_value = "wire/docs/compatibility.md")]
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
            let suites = suite::all(&arguments.suites)?;
            let records = record::load(&out)?;
            let mut page = report::page(&suites, &records);
            std::fs::write(out.join("compatibility.md"), page.to_string())?;
            let earlier = match std::fs::read_to_string(&document) {
                Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
                text => text.with_context(|| format!("cannot read {}", document.display()))?,
            };
            page.keep(Page::read(&earlier));
            page.0.retain(|name, _| suites.iter().any(|suite| suite.name == *name));
            std::fs::write(&document, page.to_string())
                .with_context(|| format!("cannot write {}", document.display()))?;
            let missing = report::missing(&suites, &page);
            if !missing.is_empty() {
                println!("{} has no results of {}", document.display(), missing.join(", "));
            }
            true
        }
    };
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
