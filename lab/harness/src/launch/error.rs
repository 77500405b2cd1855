//! Why a child gave no result.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a child gave no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program does not exist.
    #[error("{program} is not installed")]
    NotInstalled {
        /// Name of the program.
        program: String,
    },
    /// The child did not finish, or did not become ready, in time. It has been killed.
    #[error("{program} {what} within {} s and was stopped{}", after.as_secs_f64(), last_words(stderr))]
    TimedOut {
        /// Name of the program.
        program: String,
        /// Its failure in words, e.g. `was not ready`.
        what: &'static str,
        /// How long it was given.
        after: Duration,
        /// Its output by then.
        stdout: String,
        /// Its standard error by then.
        stderr: String,
    },
    /// The child ended with an error.
    #[error("{program} failed ({status}){}", last_words(if stderr.trim().is_empty() { stdout } else { stderr }))]
    Failed {
        /// Name of the program.
        program: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its output by then.
        stdout: String,
        /// Its standard error.
        stderr: String,
    },
    /// The child ended, without an error, before it was ready.
    #[error("{program} ended before it was ready{}", last_words(if stderr.trim().is_empty() { stdout } else { stderr }))]
    EndedEarly {
        /// Name of the program.
        program: String,
        /// Its output.
        stdout: String,
        /// Its standard error.
        stderr: String,
    },
    /// The user asked to stop (^C, SIGTERM, SIGHUP).
    #[error("interrupted")]
    Interrupted,
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The action that failed, after "cannot".
        what: String,
        /// The error that the system returned.
        source: io::Error,
    },
}

impl Error {
    /// A system call that failed while doing `what`.
    pub fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }

    /// The child's standard output before the failure; empty if nothing is known.
    pub fn stdout(&self) -> &str {
        match self {
            Self::TimedOut { stdout, .. }
            | Self::Failed { stdout, .. }
            | Self::EndedEarly { stdout, .. } => stdout,
            Self::NotInstalled { .. } | Self::Interrupted | Self::System { .. } => "",
        }
    }
}

/// The last two lines of a program's standard error, which usually give the reason.
pub fn last_words(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match &lines[lines.len().saturating_sub(2)..] {
        [] => String::new(),
        words => format!(": {}", words.join("; ")),
    }
}
