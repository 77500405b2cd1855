//! Resources that this process has used so far.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use perf_event::events::{Hardware, Tracepoint};
use perf_event::{Builder, Counter};
use rustix::time::{ClockId, clock_gettime};

use crate::search::counts_instructions;

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
        Ok(Self {
            user: time(usage.user_time()),
            system: time(usage.system_time()),
            clock: Instant::now(),
        })
    }

    /// Nanoseconds of user and system time since `earlier`.
    pub(super) fn since(self, earlier: Self) -> (u64, u64) {
        let nanoseconds =
            |now: Duration, then: Duration| now.saturating_sub(then).as_nanos() as u64;
        (nanoseconds(self.user, earlier.user), nanoseconds(self.system, earlier.system))
    }

    /// Nanoseconds of real time since `earlier`.
    pub(super) fn elapsed(self, earlier: Self) -> u64 {
        (self.clock - earlier.clock).as_nanos() as u64
    }
}

/// Counts instructions of this thread, in user space and in the kernel.
pub(super) enum Instructions {
    /// The processor's own counter.
    Counter(Counter),
    /// Processor time is a number of instructions (see [`crate::search::INSTRUCTION_CLOCK`]).
    Clock,
}

impl Instructions {
    /// `None` where the processor, the hypervisor or the administrator (perf_event_paranoid) does
    /// not allow counting them.
    pub(super) fn new() -> Option<Self> {
        if counts_instructions() {
            return Some(Self::Clock);
        }
        let mut counter =
            Builder::new(Hardware::INSTRUCTIONS).exclude_kernel(false).build().ok()?;
        counter.enable().ok()?;
        Some(Self::Counter(counter))
    }

    /// Number of instructions so far.
    pub(super) fn read(&mut self) -> Option<u64> {
        match self {
            Self::Counter(counter) => counter.read().ok(),
            Self::Clock => {
                let time = clock_gettime(ClockId::ProcessCPUTime);
                Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
            }
        }
    }
}

/// Counts system calls of this thread, which slows each of them down meanwhile; `None` without
/// tracefs, or without permission to read it.
pub(super) fn system_calls() -> Option<Counter> {
    let id =
        std::fs::read_to_string("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id").ok()?;
    let event = Tracepoint::with_id(id.trim().parse().ok()?);
    let mut counter = Builder::new(event).exclude_kernel(false).build().ok()?;
    counter.enable().ok()?;
    Some(counter)
}
