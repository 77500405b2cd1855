//! The output of the commands.

use std::fmt::Display;
use std::io::Write;

use anyhow::{Context, Result};
use seekwire_program::standard;

/// Writes what was asked for to standard output.
pub(super) fn print(text: &str) -> Result<()> {
    let written = standard::output().and_then(|out| out.lock().write_all(text.as_bytes()));
    written.context("cannot write to standard output")
}

/// Reports a finished change on standard output. A failure to write is reported on standard error,
/// and changes neither the exit status nor the rest of the command.
pub(super) fn say(line: impl Display) {
    match print(&format!("{line}\n")) {
        Err(error) if !seekwire_program::is_unread(&error) => {
            seekwire_program::tell(format_args!("seekwire: {error:#}"));
        }
        _ => {}
    }
}
