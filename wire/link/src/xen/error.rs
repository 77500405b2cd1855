//! Errors of memory from Xen.

use std::io;
use std::path::Path;

use crate::holder::HolderError;

/// Why the memory of another Xen domain is not available, or cannot be granted to it. Each message
/// names a remedy.
#[derive(Debug, thiserror::Error)]
pub enum XenError {
    /// This machine lacks a Xen device.
    #[error("this machine has no {device}; as root: modprobe {module} (only Xen domains have it)")]
    NoDevice {
        /// The device.
        device: &'static str,
        /// The kernel module that provides it.
        module: &'static str,
    },
    /// The link needs more pages than the kernel module may allocate.
    #[error(
        "the link needs {needed} pages, and the kernel grants {limit} in all; as root: echo \
         {needed} >/sys/module/xen_gntalloc/parameters/limit, or more if other programs also grant \
         pages; to keep it across reboots: options xen-gntalloc limit={needed} in \
         /etc/modprobe.d/seekwire.conf"
    )]
    Limit {
        /// Number of pages of the link.
        needed: u64,
        /// The module parameter of gntalloc.
        limit: u64,
    },
    /// The kernel or Xen has no room for this many grants.
    #[error(
        "domain {domain} could not be granted {needed} pages: {source}; give this domain a larger \
         max_grant_frames (seekwire vm plan --for xen prints it), raise the limit of gntalloc, or \
         give the link less memory"
    )]
    Grant {
        /// The number of the other domain.
        domain: u16,
        /// Number of pages of the link.
        needed: u64,
        /// The cause.
        source: io::Error,
    },
    /// The error of the process that holds the memory on this machine, the first side.
    #[error(transparent)]
    Holder(#[from] HolderError),
    /// The map has changed in the meantime.
    #[error(
        "the memory that is held for this link has {found} bytes, but the map says {expected}; as \
         root, restart seekwire vm hold"
    )]
    Differs {
        /// Length of the held memory in bytes.
        found: u64,
        /// Length in the map, in bytes.
        expected: u64,
    },
    /// This machine has not looked up the granted pages yet, or only those of another domain.
    #[error(
        "this machine does not know which pages domain {domain} grants it; as root: seekwire vm \
         attach {name}"
    )]
    NotTaken {
        /// The number of the other domain.
        domain: u16,
        /// The name of the link.
        name: String,
    },
    /// The other domain offers no memory for the link.
    #[error(
        "domain {domain} offers no memory for the link {name} ({why}); on that machine: seekwire \
         vm hold {name}. The map there must have the number of this domain, and the map here the \
         number of that one: a domain gets a new number each time it starts"
    )]
    NotOffered {
        /// The number of the other domain.
        domain: u16,
        /// The name of the link.
        name: String,
        /// The missing item.
        why: String,
    },
    /// The pages cannot be mapped.
    #[error(
        "the pages of domain {domain} cannot be mapped: {source}; as root: seekwire vm attach, \
         since that domain may have granted other pages, or give this domain a larger \
         max_maptrack_frames (seekwire vm plan --for xen prints it)"
    )]
    Map {
        /// The number of the other domain.
        domain: u16,
        /// The cause.
        source: io::Error,
    },
    /// An error of the kernel or xenstore.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
}

impl XenError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }

    /// The error of opening a device.
    pub(super) fn device(device: &'static str, module: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::NoDevice { device, module },
            _ => Self::io(device.as_ref(), source),
        }
    }
}

pub(super) fn not_taken(domain: u16, name: &str) -> XenError {
    XenError::NotTaken { domain, name: name.to_owned() }
}
