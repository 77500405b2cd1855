//! The time that a call may still wait.

use std::ffi::c_int;
use std::time::{Duration, Instant};

/// A timeout that may have partly elapsed. The clock is not read before the first sleep.
#[derive(Clone, Copy)]
pub(crate) struct Timeout {
    /// `None` means no limit.
    limit: Option<Duration>,
    since: Option<Instant>,
}

impl Timeout {
    /// No limit.
    pub(crate) const ENDLESS: Timeout = Timeout { limit: None, since: None };

    pub(crate) fn new(limit: Duration) -> Timeout {
        Timeout { limit: Some(limit), since: None }
    }

    /// From the argument of poll and epoll_wait: negative means no limit.
    pub(crate) fn from_milliseconds(timeout: c_int) -> Timeout {
        u64::try_from(timeout)
            .map_or(Timeout::ENDLESS, |timeout| Timeout::new(Duration::from_millis(timeout)))
    }

    /// `None` if the kernel would reject it.
    pub(crate) fn from_parts(seconds: i64, nanoseconds: i64) -> Option<Timeout> {
        let nanoseconds =
            u32::try_from(nanoseconds).ok().filter(|&nanoseconds| nanoseconds < 1_000_000_000)?;
        Some(Timeout::new(Duration::new(u64::try_from(seconds).ok()?, nanoseconds)))
    }

    /// True if the call must not wait at all.
    pub(crate) fn is_none(&self) -> bool {
        self.limit == Some(Duration::ZERO)
    }

    /// True if the timeout is much longer than this many nanoseconds.
    pub(crate) fn is_much_more_than(&self, waited: u64) -> bool {
        seekwire_transport::spin::is_little(waited, self.limit)
    }

    /// The remaining time; `None` means no limit. The time runs from the first call on.
    pub(crate) fn left(&mut self) -> Option<Duration> {
        let limit = self.limit?;
        if limit.is_zero() {
            return Some(limit);
        }
        Some(match self.since {
            Some(since) => limit.saturating_sub(since.elapsed()),
            None => {
                self.since = Some(Instant::now());
                limit
            }
        })
    }

    /// Like [`Timeout::left`], but at most `most`.
    pub(crate) fn left_at_most(&mut self, most: Option<Duration>) -> Option<Duration> {
        match (self.left(), most) {
            (Some(left), Some(most)) => Some(left.min(most)),
            (left, most) => left.or(most),
        }
    }

    /// The remaining time, but at most `most`. With a timeout of 0, epoll_wait lets in no signals,
    /// so a call that had some time keeps a nanosecond.
    pub(crate) fn at_most(&mut self, most: Option<Duration>) -> Timeout {
        let least = if self.is_none() { Duration::ZERO } else { Duration::from_nanos(1) };
        self.left_at_most(most).map_or(Timeout::ENDLESS, |left| Timeout::new(left.max(least)))
    }

    /// The remaining time in milliseconds, rounded up; -1 means no limit.
    pub(crate) fn left_milliseconds(&mut self) -> c_int {
        match self.left() {
            None => -1,
            Some(left) => {
                c_int::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
            }
        }
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}

/// Converts to the kernel's format.
pub(crate) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
