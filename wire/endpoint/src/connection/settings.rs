//! The settings of a socket, as this process knows them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The settings of the socket that calls depend on, as this process knows them.
#[derive(Debug)]
pub struct Settings {
    pub(super) nonblocking: AtomicBool,
    /// Nanoseconds; 0 waits for ever.
    pub(super) recv_timeout: AtomicU64,
    pub(super) send_timeout: AtomicU64,
    /// SO_RCVLOWAT, until the connection is attached: then it is in shared memory.
    pub(super) low_water: AtomicU64,
    /// The control messages that a receive returns, until then.
    pub(super) messages: AtomicU64,
}

impl Default for Settings {
    /// The settings of a new socket.
    fn default() -> Self {
        Self {
            nonblocking: AtomicBool::new(false),
            recv_timeout: AtomicU64::new(0),
            send_timeout: AtomicU64::new(0),
            low_water: AtomicU64::new(1),
            messages: AtomicU64::new(0),
        }
    }
}

impl Settings {
    /// A timeout for calls that never wait, though the socket blocks.
    pub const AT_ONCE: Duration = Duration::from_nanos(1);

    /// O_NONBLOCK was set or cleared.
    pub fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Relaxed);
    }

    /// Whether calls do not wait.
    #[inline]
    #[must_use]
    pub fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// SO_RCVTIMEO was set; `None` waits for ever.
    pub fn set_recv_timeout(&self, timeout: Option<Duration>) {
        self.recv_timeout.store(to_nanoseconds(timeout), Ordering::Relaxed);
    }

    /// SO_SNDTIMEO was set; `None` waits for ever.
    pub fn set_send_timeout(&self, timeout: Option<Duration>) {
        self.send_timeout.store(to_nanoseconds(timeout), Ordering::Relaxed);
    }

    /// SO_RCVTIMEO.
    #[must_use]
    pub fn recv_timeout(&self) -> Option<Duration> {
        from_nanoseconds(self.recv_timeout.load(Ordering::Relaxed))
    }

    /// SO_SNDTIMEO.
    #[must_use]
    pub fn send_timeout(&self) -> Option<Duration> {
        from_nanoseconds(self.send_timeout.load(Ordering::Relaxed))
    }

    /// Whether a receive that finds no bytes first sleeps, until its timeout.
    #[must_use]
    pub fn receives_for_a_time(&self) -> bool {
        !self.is_nonblocking() && self.recv_timeout().is_some_and(|timeout| timeout > Self::AT_ONCE)
    }
}

fn to_nanoseconds(timeout: Option<Duration>) -> u64 {
    timeout.map_or(0, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

fn from_nanoseconds(nanoseconds: u64) -> Option<Duration> {
    (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
}
