//! Writes the manual pages from the definitions of the commands. Not installed.

#![forbid(unsafe_code)]

mod definitions;
#[cfg(test)]
mod documents;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;

/// Write what is installed beside the programs
#[derive(Debug, Parser)]
enum Arguments {
    /// Write the manual pages
    Man {
        /// Directory to write seekwire.1 and seekwire-*.1 into; created when missing
        directory: PathBuf,
    },
}

fn main() -> Result<()> {
    match Arguments::parse() {
        Arguments::Man { directory } => man(&directory),
    }
}

fn man(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    clap_mangen::generate_to(definitions::definitions(), directory)
        .with_context(|| format!("cannot write manual pages into {}", directory.display()))
}
