//! Limits of the process (getrlimit(2)).

use rustix::process::{Resource, Rlimit};

/// The soft and hard limit on descriptor numbers.
#[must_use]
pub fn descriptor_limit() -> (u64, u64) {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX))
}

/// Maximum number of the library's own descriptors. Above the soft limit they take none of the
/// application's. If the hard limit leaves no room there, they are a quarter of all, but none if
/// there are so few that the application may need them all.
#[must_use]
pub fn own_descriptors() -> u64 {
    const MANY: u64 = 1024;
    match descriptor_limit() {
        (soft, hard) if hard > soft => hard - soft,
        (soft, _) if soft >= MANY => soft / 4,
        _ => 0,
    }
}

/// Whether the kernel ends a real-time thread of this process that has not slept for a time
/// (`RLIMIT_RTTIME`): a program may rely on sleeping in every receive from a socket, so it must
/// never spin. Which threads are real-time ones can change at any moment and from outside, as rtkit
/// does.
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
