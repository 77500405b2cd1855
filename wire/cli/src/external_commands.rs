//! Subcommands that are separate programs, so that `seekwire run` stays small.
//!
//! This process becomes the other program by exec(2): pid, signals and exit status stay the same.
//! The other program gets the same arguments, including the name of the subcommand.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

/// The program for network interfaces.
pub(crate) const INTERFACES: &str = "seekwire-nic";
const DEMO: &str = "seekwire-demo";
const FLOW: &str = "seekwire-flow";
const LABORATORY: &str = "seekwire-lab";
const SLIDES: &str = "seekwire-slides";

/// Name, program and purpose.
const SUBCOMMANDS: [(&str, &str, &str); 7] = [
    ("demo", DEMO, "Run real programs plain and accelerated in turn, and write a report"),
    ("bench", DEMO, "Measure a server and a client of yours, plain and accelerated in turn"),
    ("lab", LABORATORY, "Run the experiments behind BENCHMARKING.md on this machine"),
    ("calibrate", LABORATORY, "Measure from which size on to take messages in place"),
    ("flow", FLOW, "Run pipelines of filters"),
    ("slides", SLIDES, "Serve whole slides to browsers"),
    ("nic", INTERFACES, "Show and change the settings of network interfaces"),
];

/// For the help, and for suggestions when a name is mistyped.
pub(crate) fn definitions() -> impl Iterator<Item = clap::Command> {
    SUBCOMMANDS.into_iter().map(|(name, _, about)| clap::Command::new(name).about(about))
}

/// The program that runs `seekwire NAME ...` and answers `seekwire help NAME ...`.
pub(crate) fn program(words: &[OsString]) -> Option<&'static str> {
    let word = words.get(if words.get(1)? == "help" { 2 } else { 1 })?;
    SUBCOMMANDS.into_iter().find(|(name, ..)| word == name).map(|(_, program, _)| program)
}

/// Whether another program has the command `seekwire NAME`.
pub(crate) fn has(name: &str) -> bool {
    SUBCOMMANDS.into_iter().any(|(other, ..)| other == name)
}

/// The other programs.
pub(crate) fn programs() -> BTreeSet<&'static str> {
    SUBCOMMANDS.into_iter().map(|(_, program, _)| program).collect()
}

/// Replaces this process; returns only when that fails.
pub(crate) fn become_it(program: &str, words: &[OsString]) -> Result<ExitCode> {
    let path = seekwire_program::find(program)?;
    let error = Command::new(&path).arg0(&words[0]).args(&words[1..]).exec();
    Err(error).with_context(|| format!("cannot run {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_or_the_one_after_help_decides() {
        let of = |line: &str| program(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of("seekwire lab run --help"), Some(LABORATORY));
        assert_eq!(of("seekwire help nic show"), Some(INTERFACES));
        for line in
            ["seekwire", "seekwire help", "seekwire run lab", "seekwire help run", "seekwire labs"]
        {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
