//! Errors of this crate, each with what to do about it.

use std::io;

use rustix::io::Errno;

/// Why there is no testbed here, or no quota.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not let this process.
    #[error(
        "cannot {what}: it needs the capability {capability}: run this with sudo, or give the container \
         --cap-add {}", capability.trim_start_matches("CAP_")
    )]
    NotPermitted {
        /// What was tried.
        what: &'static str,
        /// What it takes.
        capability: &'static str,
    },
    /// The kernel cannot do it.
    #[error("cannot {what}: this kernel has no {module}; try `modprobe {module}`")]
    Unsupported {
        /// What was tried.
        what: &'static str,
        /// What it lacks.
        module: &'static str,
    },
    /// No cgroup can be made in which processor time is limited.
    #[error(
        "cannot limit processor time: {0}; it needs a cgroup with the cpu controller that this user may write to: run \
         this with sudo, or under `systemd-run --user --scope -p Delegate=yes`"
    )]
    NoQuota(String),
    /// Anything else that the system refused.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// `capability` is what is missing when it is a matter of permission.
    pub(crate) fn new(
        what: &'static str,
        capability: &'static str,
        source: impl Into<io::Error>,
    ) -> Self {
        let source = source.into();
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::PERM | Errno::ACCESS) => Self::NotPermitted { what, capability },
            _ => Self::System { what, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_capability_is_named() {
        let error = Error::new("make it", "CAP_SYS_ADMIN", Errno::PERM).to_string();
        assert!(
            error.contains("CAP_SYS_ADMIN") && error.contains("--cap-add SYS_ADMIN"),
            "{error}"
        );
        let error = Error::new("make it", "CAP_SYS_ADMIN", Errno::NOSPC);
        assert!(matches!(error, Error::System { .. }), "{error}");
    }
}
