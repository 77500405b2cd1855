//! Errors of this crate, each with what to do about it.

use std::io;
use std::path::PathBuf;

use crate::Launcher;

/// Why a process has not become part of its job, or has lost it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The environment says something that cannot be.
    #[error(
        "the environment variable {variable} is `{value}`, but has to be {expected}; start the \
        program by mpiexec, mpirun or srun, or correct the variable"
    )]
    Environment {
        /// Its name.
        variable: &'static str,
        /// What it is; empty where it is not set.
        value: String,
        /// What it would have to be.
        expected: String,
    },
    /// Nothing carries what the processes have to tell each other.
    #[error(
        "{launcher} has started {size} processes, but gives them no way to exchange their \
        addresses; {}set SEEKWIRE_FLOW_RENDEZVOUS, for all processes, to an empty directory which \
        all hosts of the job share and in which only you can write (`mktemp -d` makes one)",
        if *launcher == Launcher::Slurm { "give srun the option --mpi=pmi2, or " } else { "" }
    )]
    NoExchange {
        /// Who has started them.
        launcher: Launcher,
        /// How many.
        size: u32,
    },
    /// A launcher has started this process, and does not say how many there are.
    #[error(
        "the launcher speaks PMIx alone, which this program does not: give srun the option \
        --mpi=pmi2, or set SEEKWIRE_FLOW_RANK, SEEKWIRE_FLOW_SIZE and SEEKWIRE_FLOW_RENDEZVOUS \
        for each process"
    )]
    UnknownLauncher,
    /// A key has characters that not every launcher carries.
    #[error("`{0}` cannot be a key: take 1 to 32 letters, digits, `_` and `-`")]
    Key(String),
    /// A key is longer than this launcher carries.
    #[error(
        "the key `{key}` takes {length} characters with the rank, and this launcher carries \
        {limit}; take a shorter key"
    )]
    LongKey {
        /// The key.
        key: String,
        /// Of the name that it has in the launcher.
        length: usize,
        /// What the launcher carries.
        limit: usize,
    },
    /// A value is longer than a launcher carries.
    #[error(
        "the value of `{key}` has {length} bytes, and at most {limit} can be published; publish \
        less"
    )]
    TooLong {
        /// The key.
        key: String,
        /// Of the value as it would be sent.
        length: usize,
        /// What can be sent.
        limit: usize,
    },
    /// This process has published the key before.
    #[error("`{0}` has been published before, and others may have looked it up; take another key")]
    Twice(String),
    /// There is no such process.
    #[error("there is no rank {rank} in a job of {size}; ranks begin with 0")]
    NoSuchRank {
        /// What was asked for.
        rank: u32,
        /// The number of processes.
        size: u32,
    },
    /// Nothing of this name has come from there.
    #[error(
        "rank {rank} had published no `{key}` by the last exchange; let all processes run the \
        same program"
    )]
    NotPublished {
        /// Whose it would be.
        rank: u32,
        /// The key.
        key: String,
    },
    /// The launcher says what makes no sense here.
    #[error(
        "the launcher answered `{said}` when asked {asked}; it does not speak PMI-1 as MPICH's \
        Hydra and Slurm do"
    )]
    Protocol {
        /// What it was asked.
        asked: String,
        /// What it said, as far as it is fit to be shown.
        said: String,
    },
    /// The launcher does not do it.
    #[error("the launcher refused when asked {asked}: {why}; its own messages may say more")]
    Refused {
        /// What it was asked.
        asked: String,
        /// What it said.
        why: String,
    },
    /// The launcher has ended, or the way to it has.
    #[error(
        "the launcher has gone when asked {asked}: {reason}; look for the first error among those \
        of all processes"
    )]
    Gone {
        /// What it was asked.
        asked: String,
        /// Why.
        reason: io::Error,
    },
    /// Nothing has come for as long as one waits.
    #[error(
        "waited {seconds} s for {waited}; look for processes that have not come as far, or wait for \
        longer: SEEKWIRE_FLOW_LIMIT is the number of seconds"
    )]
    Silent {
        /// For what, and for whom where it is known.
        waited: String,
        /// How long.
        seconds: u64,
    },
    /// After one of the errors above, nothing that the launcher says can be trusted.
    #[error(
        "the exchange with the launcher has failed before; end this process and look at the first \
        error"
    )]
    Broken,
    /// Others could have put anything there.
    #[error(
        "{} will not do as the directory of a rendezvous: {why}; `mktemp -d` makes one that does",
        path.display()
    )]
    Unsafe {
        /// The directory, or a file in it.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Another process has this rank, or had it in an earlier job.
    #[error(
        "{} is there already: give each process a rank of its own, and each job an empty directory",
        path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A process has ended the job.
    #[error(
        "the job was ended by {why}; its own messages may say more (an earlier job's message: \
        remove {})",
        path.display()
    )]
    Aborted {
        /// Who, and what it had to say.
        why: String,
        /// Where that stands.
        path: PathBuf,
    },
    /// Anything else that the system refused.
    #[error("cannot {what}: {reason}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        reason: io::Error,
    },
}

impl Error {
    pub(crate) fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |reason| Self::System { what, reason: reason.into() }
    }
}

/// What others have said, for a terminal: not too long, and without control characters.
pub(crate) fn shown(said: &[u8]) -> String {
    const MOST: usize = 120;
    let mut text: String = String::from_utf8_lossy(&said[..said.len().min(MOST)])
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if said.len() > MOST {
        text.push_str("...");
    }
    text
}
