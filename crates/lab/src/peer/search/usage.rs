//! What this process has used so far.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use perf_event::events::Hardware;
use perf_event::{Builder, Counter};

/// getrusage(2), and the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    user: Duration,
    system: Duration,
    clock: Instant,
}

impl Usage {
    pub(super) fn now() -> Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_SELF).context("getrusage")?;
        let time = |time: TimeVal| {
            Duration::from_secs(time.tv_sec() as u64) + Duration::from_micros(time.tv_usec() as u64)
        };
        Ok(Self { user: time(usage.user_time()), system: time(usage.system_time()), clock: Instant::now() })
    }

    /// Nanoseconds of user and system time since `earlier`.
    pub(super) fn since(self, earlier: Self) -> (u64, u64) {
        let nanoseconds = |now: Duration, then: Duration| now.saturating_sub(then).as_nanos() as u64;
        (nanoseconds(self.user, earlier.user), nanoseconds(self.system, earlier.system))
    }

    /// Nanoseconds by the clock since `earlier`.
    pub(super) fn elapsed(self, earlier: Self) -> u64 {
        (self.clock - earlier.clock).as_nanos() as u64
    }
}

/// Instructions of this thread, in user space and in the kernel; `None` where the processor, the hypervisor or the
/// administrator (perf_event_paranoid) does not let them be counted.
pub(super) fn instructions() -> Option<Counter> {
    let mut counter = Builder::new(Hardware::INSTRUCTIONS).exclude_kernel(false).build().ok()?;
    counter.enable().ok()?;
    Some(counter)
}
