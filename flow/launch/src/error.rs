//! Errors of this crate, each with what to do about it.

use std::io;
use std::path::PathBuf;

use crate::Launcher;

/// Why a process could not join its job, or has lost it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable of the environment has an impossible value.
    #[error(
        "the environment variable {variable} is `{value}`, but has to be {expected}; start the \
        program by mpiexec, mpirun or srun, or correct the variable"
    )]
    Environment {
        /// Its name.
        variable: &'static str,
        /// Its value; empty if it is not set.
        value: String,
        /// The required value.
        expected: String,
    },
    /// The processes have no way to exchange values.
    #[error(
        "{launcher} has started {size} processes, but gives them no way to exchange their \
        addresses; {}set SEEKWIRE_FLOW_RENDEZVOUS, for all processes, to an empty directory which \
        all hosts of the job share and in which only you can write (`mktemp -d` makes one)",
        if *launcher == Launcher::Slurm { "give srun the option --mpi=pmi2, or " } else { "" }
    )]
    NoExchange {
        /// The launcher that has started them.
        launcher: Launcher,
        /// The number of processes.
        size: u32,
    },
    /// A launcher has started this process without telling it the number of processes.
    #[error(
        "the launcher speaks only PMIx, which this program does not: give srun the option \
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
        /// Length of the name that it has in the launcher.
        length: usize,
        /// The longest name that the launcher carries.
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
        /// Length of the value as it would be sent.
        length: usize,
        /// The longest value that can be sent.
        limit: usize,
    },
    /// This process has already published the key.
    #[error("`{0}` has been published before, and others may have looked it up; take another key")]
    Twice(String),
    /// There is no such process.
    #[error("there is no rank {rank} in a job of {size}; ranks begin with 0")]
    NoSuchRank {
        /// The requested rank.
        rank: u32,
        /// The number of processes.
        size: u32,
    },
    /// The process has published no value for the key.
    #[error(
        "rank {rank} had published no `{key}` by the last exchange; let all processes run the \
        same program"
    )]
    NotPublished {
        /// The rank of the process.
        rank: u32,
        /// The key.
        key: String,
    },
    /// The launcher gave an answer that makes no sense here.
    #[error(
        "the launcher answered `{said}` when asked {purpose}; it does not speak PMI-1 as MPICH's \
        Hydra and Slurm do"
    )]
    Protocol {
        /// The question, in words.
        purpose: String,
        /// The printable part of its answer.
        said: String,
    },
    /// The launcher refused a request.
    #[error("the launcher refused when asked {purpose}: {why}; its own messages may say more")]
    Refused {
        /// The request, in words.
        purpose: String,
        /// Its answer.
        why: String,
    },
    /// The launcher has exited, or the connection to it is lost.
    #[error(
        "the launcher has gone when asked {purpose}: {reason}; look for the first error among those \
        of all processes"
    )]
    Gone {
        /// The request, in words.
        purpose: String,
        /// The error.
        reason: io::Error,
    },
    /// Nothing arrived within the limit.
    #[error(
        "waited {seconds} s for {waited}; look for processes that have not come as far, or wait for \
        longer: SEEKWIRE_FLOW_LIMIT is that time"
    )]
    Silent {
        /// The awaited event, with the processes if they are known.
        waited: String,
        /// The limit.
        seconds: u64,
    },
    /// After one of the errors above, no answer of the launcher can be trusted.
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
        /// The reason.
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
        /// The process, and the reason that it gave.
        why: String,
        /// The file with the reason.
        path: PathBuf,
    },
    /// Any other error of the system.
    #[error("cannot {what}: {reason}")]
    System {
        /// The attempted operation.
        what: String,
        /// The error of the system.
        reason: io::Error,
    },
}

impl Error {
    pub(crate) fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |reason| Self::System { what, reason: reason.into() }
    }
}

/// A text received from others, for a terminal: not too long, and without control characters.
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
