//! Limits of the process (getrlimit(2)).

use rustix::process::{Resource, Rlimit};

/// The soft and hard limit on descriptor numbers.
#[must_use]
pub fn descriptor_limit() -> (u64, u64) {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX))
}

/// How many descriptors the library may have of its own. Above the soft limit these are none of the
/// application's. Where the hard limit leaves no room there, they are a quarter of all, but none of
/// so few that the application may need them all.
#[must_use]
pub fn own_descriptors() -> u64 {
    const MANY: u64 = 1024;
    match descriptor_limit() {
        (soft, hard) if hard > soft => hard - soft,
        (soft, _) if soft >= MANY => soft / 4,
        _ => 0,
    }
}

/// Whether a real-time thread of this process is ended that has not slept for a time
/// (`RLIMIT_RTTIME`): it sleeps in every receive from a socket, and so may never wait awake. Which
/// threads are real-time ones can change at any moment and from outside, as rtkit does.
#[must_use]
pub fn must_sleep() -> bool {
    rustix::process::getrlimit(Resource::Rttime) != Rlimit { current: None, maximum: None }
}

/// Sets the soft limit on descriptor numbers; the hard one stays.
///
/// # Errors
/// EPERM above the hard limit.
pub fn set_descriptor_limit(soft: u64) -> std::io::Result<()> {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    Ok(rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum })?)
}
