//! What can go wrong with a link.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::layout::LengthError;
use crate::provider::ProviderError;

/// Why a machine could not be attached to a link, or a program not use it.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// This machine does not use it.
    #[error("this machine is not attached to the link {0}; as root: seekwire vm attach {0}")]
    NotAttached(String),
    /// This machine does not use it any more, or the other one has changed the header.
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
    /// The machine attached another region under this name.
    #[error(
        "this machine has attached the link {0} to other memory, or as the other side, than the \
         map says; as root: seekwire vm attach {0}"
    )]
    OtherRegion(String),
    /// Another version of Seekwire has attached it.
    #[error(
        "{}: this is not the state of a link of this version of Seekwire; as root: seekwire vm \
         attach", .0.display()
    )]
    OtherLayout(PathBuf),
    /// Processes still have it mapped.
    #[error(
        "processes still use the link {name} as it was attached before{}; end them, or wait for them, \
         and attach again", with_connections(.pids)
    )]
    InUse {
        /// Of the link.
        name: String,
        /// Those that have connections there.
        pids: Vec<u32>,
    },
    /// Somebody else attaches or detaches it just now.
    #[error("the link {0} is being attached just now; try again")]
    Busy(String),
    /// Another process is the agent of this link.
    #[error("another agent keeps the addresses behind the link {0}; end it first")]
    HasAgent(String),
    /// The region cannot be divided.
    #[error("link {name}: {source}")]
    Length {
        /// Of the link.
        name: String,
        /// Why.
        source: LengthError,
    },
    /// The region could not be opened.
    #[error("link {name}: {source}")]
    Provider {
        /// Of the link.
        name: String,
        /// Why.
        source: ProviderError,
    },
    /// The kernel did not give the memory of the region.
    #[error("{place}: {source}{}", advice(.source))]
    Region {
        /// Where it lies, as the map says it.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel said no.
    #[error("{path}: {source}")]
    Io {
        /// Which file or directory.
        path: String,
        /// Why.
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
            "; a kernel that is locked down (lockdown(7), as under Secure Boot) gives programs no \
             memory of devices"
        }
        Some(Errno::NOSPC) => {
            "; its file system has no room for it: make some there, or a smaller region"
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

/// Why a connection could not be entered.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// A process that chooses an entry is stopped, or does not get to run.
    #[error("another process is choosing its part of the link; it can be tried again")]
    Busy,
    /// All entries are in use.
    #[error("all entries of the link are in use; larger memory has more of them")]
    Full,
    /// This machine does not use the link any more, or was attached anew.
    #[error("the link is detached")]
    Detached,
    /// The kernel said no.
    #[error("the state file of the link: {0}")]
    Io(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_does_not_get_a_region_learns_what_may_be_the_matter() {
        let told = |error: Errno| {
            let place = "ivshmem 0000:00:10.0".to_owned();
            LinkError::Region { place, source: error.into() }.to_string()
        };
        assert!(
            told(Errno::PERM).contains("0000:00:10.0: ") && told(Errno::PERM).contains("lockdown")
        );
        assert!(told(Errno::NOSPC).contains("no room"));
        assert!(!told(Errno::INVAL).contains(';'));
    }
}
