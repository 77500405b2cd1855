//! Errors of this crate, each with its remedy.

use std::io;

use rustix::io::Errno;

/// Reasons why a testbed or a quota cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This process lacks a capability.
    #[error(
        "cannot {what}: it needs the capability {capability}: run this with sudo, or give the container \
         --cap-add {}", capability.trim_start_matches("CAP_")
    )]
    NotPermitted {
        /// The operation.
        what: &'static str,
        /// The capability that it needs.
        capability: &'static str,
    },
    /// The kernel lacks a module.
    #[error("cannot {what}: this kernel has no {module}; try `modprobe {module}`")]
    Unsupported {
        /// The operation.
        what: &'static str,
        /// The missing module.
        module: &'static str,
    },
    /// No cgroup that limits processor time can be created.
    #[error(
        "cannot limit processor time: {0}; it needs a cgroup with the cpu controller that this user may write to: run \
         this with sudo, or under `systemd-run --user --scope -p Delegate=yes`"
    )]
    NoQuota(String),
    /// Any other failure of a system call.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// `capability` is named in the error if `source` is a lack of permission.
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
