//! Code that Seekwire's programs share.
//!
//! ```text
//! command_line  the form of all command lines
//! library      where libseekwire.so is, and how it is preloaded
//! table        tables on a terminal, and numbers for people
//! generate     `PROGRAM generate`: the files that are installed beside a program
//! manual       manual pages
//! description  definitions of commands as JSON, for completions
//! metrics      the text format of Prometheus
//! signals      signals that ask a program to end
//! standard     standard input and output, unless they are closed
//! here         where the other programs are, what a program says, and how it ends
//! ```

#![deny(unsafe_code)]
// They panic if the stream cannot be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod command_line;
pub mod description;
pub mod generate;
pub mod library;
pub mod manual;
pub mod metrics;
pub mod signals;
pub mod standard;
pub mod table;

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use thiserror::Error;

/// A program of Seekwire is not installed.
#[derive(Debug, Error)]
#[error(
    "the program {name} was not found (looked at {}); the package {name} has it, `make install` in Seekwire's sources \
     installs it, `cargo build --release --bin {name}` builds it",
    library::listed(looked_at)
)]
pub struct Missing {
    name: String,
    looked_at: Vec<PathBuf>,
}

/// The program `name` that belongs to the running one: beside it, as in a build directory, or in
/// `../lib/seekwire` of its directory, as installed.
///
/// # Errors
///
/// [`Missing`].
pub fn find(name: &str) -> Result<PathBuf, Missing> {
    let own = std::env::current_exe().ok();
    find_from(own.as_deref().and_then(Path::parent), name)
}

fn find_from(directory: Option<&Path>, name: &str) -> Result<PathBuf, Missing> {
    let candidates = |directory: &Path| {
        ["", "../lib/seekwire"].map(|relative| directory.join(relative).join(name))
    };
    let looked_at: Vec<PathBuf> = directory.map(candidates).into_iter().flatten().collect();
    match looked_at.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(Missing { name: name.to_owned(), looked_at }),
    }
}

/// Writes one line, or several, to standard error. Failures are ignored: no other channel is left,
/// and the work goes on. Control characters are replaced, since other programs and hosts may have
/// supplied a part of the text.
pub fn tell(line: impl Display) {
    let text = table::lines(&line.to_string());
    // At once, so that the lines of several processes do not mix.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Prints the error of a program, if any, to standard error, and returns its exit status.
#[must_use]
pub fn finish(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        // The reader of our output has gone (`seekwire status | head`): nothing is left to say, and
        // nothing is wrong.
        Err(error) if is_unread(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tell(format_args!("seekwire: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Whether [standard output](standard::output) could not be written because its reader has gone.
#[must_use]
pub fn is_unread(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .filter_map(std::io::Error::get_ref)
        .any(|cause| cause.is::<standard::Unread>())
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use anyhow::{Context, Result};

    use super::*;

    #[test]
    fn only_the_reader_of_standard_output_may_leave() {
        let error =
            |cause: Error| Result::<()>::Err(cause.into()).context("cannot write").unwrap_err();
        assert!(is_unread(&error(Error::new(ErrorKind::BrokenPipe, standard::Unread))));
        // A peer, or a program that this one has started.
        assert!(!is_unread(&error(ErrorKind::BrokenPipe.into())));
    }

    #[test]
    fn a_program_beside_comes_before_an_installed_one() {
        let prefix = tempfile::tempdir().unwrap();
        let (binaries, private) = (prefix.path().join("bin"), prefix.path().join("lib/seekwire"));
        std::fs::create_dir_all(&binaries).unwrap();
        std::fs::create_dir_all(&private).unwrap();
        let find = || find_from(Some(&binaries), "part").map(|path| path.canonicalize().unwrap());
        let error = find().unwrap_err().to_string();
        assert!(error.contains("bin/part") && error.contains("lib/seekwire/part"), "{error}");
        for advice in ["the package part", "make install", "--bin part"] {
            assert!(error.contains(advice), "{error}");
        }
        std::fs::write(private.join("part"), "").unwrap();
        assert_eq!(find().unwrap(), private.join("part").canonicalize().unwrap());
        std::fs::write(binaries.join("part"), "").unwrap();
        assert_eq!(find().unwrap(), binaries.join("part").canonicalize().unwrap());
    }
}
