//! Why a child gave no result.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a child gave no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such program.
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
        /// What it failed to do.
        what: &'static str,
        /// How long it was given.
        after: Duration,
        /// What it had printed by then.
        stdout: String,
        /// What it had complained about by then.
        stderr: String,
    },
    /// The child ended with an error.
    #[error("{program} failed ({status}){}", last_words(if stderr.trim().is_empty() { stdout } else { stderr }))]
    Failed {
        /// Name of the program.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What it had printed by then.
        stdout: String,
        /// What it complained about.
        stderr: String,
    },
    /// The child ended, without an error, before it was ready.
    #[error("{program} ended before it was ready{}", last_words(if stderr.trim().is_empty() { stdout } else { stderr }))]
    EndedEarly {
        /// Name of the program.
        program: String,
        /// What it printed.
        stdout: String,
        /// What it complained about.
        stderr: String,
    },
    /// The user asked to stop (^C, SIGTERM, SIGHUP).
    #[error("interrupted")]
    Interrupted,
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// A system call that failed while doing `what`.
    pub fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }

    /// What the child had printed on standard output before things went wrong; empty if nothing is
    /// known.
    pub fn stdout(&self) -> &str {
        match self {
            Self::TimedOut { stdout, .. }
            | Self::Failed { stdout, .. }
            | Self::EndedEarly { stdout, .. } => stdout,
            Self::NotInstalled { .. } | Self::Interrupted | Self::System { .. } => "",
        }
    }
}

/// The last two lines of a program's complaint: where the reason usually stands.
pub fn last_words(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match &lines[lines.len().saturating_sub(2)..] {
        [] => String::new(),
        words => format!(": {}", words.join("; ")),
    }
}
