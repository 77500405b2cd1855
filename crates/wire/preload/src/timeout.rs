//! How long a call may still wait.

use std::ffi::c_int;
use std::time::{Duration, Instant};

/// A timeout, of which some may have passed. The clock is not read before the first sleep.
#[derive(Clone, Copy)]
pub(crate) struct Timeout {
    /// `None`: for ever.
    limit: Option<Duration>,
    since: Option<Instant>,
}

impl Timeout {
    /// For ever.
    pub(crate) const ENDLESS: Timeout = Timeout { limit: None, since: None };

    pub(crate) fn new(limit: Duration) -> Timeout {
        Timeout { limit: Some(limit), since: None }
    }

    /// As poll and epoll_wait take it: negative means for ever.
    pub(crate) fn from_milliseconds(timeout: c_int) -> Timeout {
        u64::try_from(timeout)
            .map_or(Timeout::ENDLESS, |timeout| Timeout::new(Duration::from_millis(timeout)))
    }

    /// `None` if the kernel would refuse it.
    pub(crate) fn from_parts(seconds: i64, nanoseconds: i64) -> Option<Timeout> {
        let nanoseconds =
            u32::try_from(nanoseconds).ok().filter(|&nanoseconds| nanoseconds < 1_000_000_000)?;
        Some(Timeout::new(Duration::new(u64::try_from(seconds).ok()?, nanoseconds)))
    }

    /// Whether the call must not wait at all.
    pub(crate) fn is_none(&self) -> bool {
        self.limit == Some(Duration::ZERO)
    }

    /// Whether so many nanoseconds are hardly anything of it.
    pub(crate) fn is_much_more_than(&self, waited: u64) -> bool {
        seekwire_transport::spin::is_little(waited, self.limit)
    }

    /// What is left; `None` for ever. The time runs from the first call on.
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

    /// As [`Timeout::left`], but not more than `most`.
    pub(crate) fn left_at_most(&mut self, most: Option<Duration>) -> Option<Duration> {
        match (self.left(), most) {
            (Some(left), Some(most)) => Some(left.min(most)),
            (left, most) => left.or(most),
        }
    }

    /// The time that is left, but not more than `most`. Without any time, epoll_wait lets in no
    /// signals, so a call that had some keeps a nanosecond.
    pub(crate) fn at_most(&mut self, most: Option<Duration>) -> Timeout {
        let least = if self.is_none() { Duration::ZERO } else { Duration::from_nanos(1) };
        self.left_at_most(most).map_or(Timeout::ENDLESS, |left| Timeout::new(left.max(least)))
    }

    /// What is left in milliseconds, rounded up; -1 for ever.
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

/// As the kernel takes it.
pub(crate) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
