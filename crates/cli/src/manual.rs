//! The manual pages, written from the definitions of the commands.

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::arguments::Arguments;

/// Writes seekwire.1 and a seekwire-COMMAND.1 for each documented command into `directory`.
pub(crate) fn write(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    clap_mangen::generate_to(Arguments::command().disable_help_subcommand(true), directory)
        .with_context(|| format!("cannot write manual pages into {}", directory.display()))
}
