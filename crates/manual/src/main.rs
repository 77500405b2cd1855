//! Writes the manual pages and shell completions from the definitions of the commands. It is not
//! installed.

#![forbid(unsafe_code)]

mod definitions;
#[cfg(test)]
mod documents;
mod pages;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;
use clap_complete::Shell;

/// Write what is installed beside the programs
#[derive(Debug, Parser)]
enum Arguments {
    /// Write the manual pages
    Man {
        /// Directory to write seekwire.1 and seekwire-*.1 into; created when missing
        directory: PathBuf,
    },
    /// Print what a shell needs to complete the command
    Completion {
        /// The shell
        shell: Shell,
    },
}

fn main() -> Result<()> {
    match Arguments::parse() {
        Arguments::Man { directory } => man(&directory),
        Arguments::Completion { shell } => {
            // In one piece: what is written to is asked for its errors.
            let mut script = Vec::new();
            clap_complete::generate(
                shell,
                &mut definitions::definitions(),
                "seekwire",
                &mut script,
            );
            Ok(io::stdout().lock().write_all(&script)?)
        }
    }
}

fn man(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    pages::write(definitions::definitions(), directory)
        .with_context(|| format!("cannot write manual pages into {}", directory.display()))
}
