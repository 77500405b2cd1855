//! Errors of a link.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::layout::LengthError;
use crate::provider::ProviderError;

/// Why a machine could not be attached to a link, or a program could not use it.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// This machine does not use the link.
    #[error("this machine is not attached to the link {0}; as root: seekwire vm attach {0}")]
    NotAttached(String),
    /// This machine no longer uses the link, or the other one has changed the header.
    #[error("the link {0} is detached; as root: seekwire vm attach {0}")]
    Detached(String),
    /// This process may not use the state file.
    #[error(
        "{path}: permission denied; as root: seekwire vm attach --group GROUP, where GROUP is a \
         group of this user"
    )]
    Permission {
        /// The state file, or its directory.
        path: String,
    },
    /// The machine has attached another region under this name.
    #[error(
        "this machine has attached the link {0} to other memory, or as the other side, than the \
         map says; as root: seekwire vm attach {0}"
    )]
    OtherRegion(String),
    /// The file was made by another version of Seekwire.
    #[error(
        "{}: this is not the state of a link of this version of Seekwire; as root: seekwire vm \
         attach", .0.display()
    )]
    OtherLayout(PathBuf),
    /// Processes still have the old attachment mapped.
    #[error(
        "processes still use the link {name} as it was attached before{}; end them, or wait until \
         they end, and attach again", with_connections(.pids)
    )]
    InUse {
        /// The name of the link.
        name: String,
        /// The processes that have connections on the link.
        pids: Vec<u32>,
    },
    /// Another process is attaching or detaching it.
    #[error("the link {0} is being attached just now; try again")]
    Busy(String),
    /// Another process is the agent of this link.
    #[error("another agent already runs for the link {0}; stop it first")]
    HasAgent(String),
    /// The region cannot be divided.
    #[error("link {name}: {source}")]
    Length {
        /// The name of the link.
        name: String,
        /// The cause.
        source: LengthError,
    },
    /// The region could not be opened.
    #[error("link {name}: {source}")]
    Provider {
        /// The name of the link.
        name: String,
        /// The cause.
        source: ProviderError,
    },
    /// The kernel did not provide the memory of the region.
    #[error("{place}: {source}{}", advice(.source))]
    Region {
        /// The location of the memory, as in the map.
        place: String,
        /// The cause.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: String,
        /// The cause.
        source: io::Error,
    },
}

impl LinkError {
    pub(crate) fn of(path: &Path, source: io::Error) -> Self {
        let path = path.display().to_string();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission { path },
            _ => Self::Io { path, source },
        }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::PERM) => {
            "; a kernel that is locked down (lockdown(7), as under Secure Boot) does not let \
             programs map device memory"
        }
        Some(Errno::NOSPC) => {
            "; its file system has no room for it: free some, or make the region smaller"
        }
        _ => "",
    }
}

fn with_connections(pids: &[u32]) -> String {
    match pids {
        [] => String::new(),
        _ => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!(" (with connections: {})", pids.join(", "))
        }
    }
}

/// Why a connection could not get an entry.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// A process that chooses an entry is stopped or not scheduled.
    #[error("another process is choosing its part of the link; try again")]
    Busy,
    /// All entries are in use.
    #[error("all entries of the link are in use; a larger region has more of them")]
    Full,
    /// This machine no longer uses the link, or has attached it again.
    #[error("the link is detached")]
    Detached,
    /// A system call failed.
    #[error("the state file of the link: {0}")]
    Io(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_does_not_get_a_region_learns_what_may_be_the_matter() {
        let advice_on = |error: Errno| {
            let place = "ivshmem 0000:00:10.0".to_owned();
            LinkError::Region { place, source: error.into() }.to_string()
        };
        assert!(
            advice_on(Errno::PERM).contains("0000:00:10.0: ")
                && advice_on(Errno::PERM).contains("lockdown")
        );
        assert!(advice_on(Errno::NOSPC).contains("no room"));
        assert!(!advice_on(Errno::INVAL).contains(';'));
    }
}
