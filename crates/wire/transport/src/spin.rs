//! Waiting awake: worth it only when the other end answers within microseconds and a processor is
//! idle.
//!
//! Sleeping and being woken costs some microseconds, tens of them in a virtual machine; looking at
//! a cache line costs none while it does not change. So a waiter looks for a bounded time first,
//! and learns: waits that were in vain are tried ever more rarely. Nothing is spun while threads
//! outnumber processors, or when the peer runs on this very processor: then waiting awake only
//! keeps the answer away.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::host;

/// How long to wait awake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SpinPolicy {
    /// At most this many nanoseconds, less often when it is in vain.
    Adaptive(u64),
    /// Always this many nanoseconds (0: never), as long as a processor is idle.
    Fixed(u64),
}

impl Default for SpinPolicy {
    fn default() -> Self {
        Self::Adaptive(50_000)
    }
}

/// Waits in vain that are forgiven before they become rarer.
const FORGIVEN: u32 = 3;
/// The rarest: once in this many waits.
const RAREST: u32 = 64;
/// Looks between two readings of the clock.
const LOOKS: u32 = 32;

/// What one waiter has learned.
#[derive(Debug, Default)]
pub struct Spinner {
    vain: AtomicU32,
    skip: AtomicU32,
}

impl Spinner {
    /// Waits awake until `ready` or the policy's time is over; returns whether it is ready. Returns
    /// at once when spinning is not worth it now.
    pub fn spin(&self, policy: SpinPolicy, mut ready: impl FnMut() -> bool) -> bool {
        let Some(limit) = self.limit(policy) else { return false };
        let begin = host::nanoseconds();
        loop {
            for _ in 0..LOOKS {
                if ready() {
                    self.vain.store(0, Ordering::Relaxed);
                    return true;
                }
                std::hint::spin_loop();
            }
            if host::nanoseconds().wrapping_sub(begin) >= limit {
                self.in_vain();
                return false;
            }
        }
    }

    /// For how many nanoseconds spinning is worth it now, if at all.
    fn limit(&self, policy: SpinPolicy) -> Option<u64> {
        let limit = match policy {
            SpinPolicy::Fixed(limit) => limit,
            SpinPolicy::Adaptive(limit) => {
                let skip = self.skip.load(Ordering::Relaxed);
                if skip > 0 {
                    self.skip.store(skip - 1, Ordering::Relaxed);
                    return None;
                }
                limit
            }
        };
        (limit > 0 && host::has_idle_processor()).then_some(limit)
    }

    fn in_vain(&self) {
        let vain = self.vain.load(Ordering::Relaxed).saturating_add(1);
        self.vain.store(vain, Ordering::Relaxed);
        if let Some(excess) = vain.checked_sub(FORGIVEN) {
            self.skip.store((1 << excess.min(16)).min(RAREST), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_means_never() {
        assert!(!Spinner::default().spin(SpinPolicy::Fixed(0), || unreachable!("looked")));
    }

    #[test]
    fn vain_waits_become_rare_and_success_forgives() {
        let spinner = Spinner::default();
        for _ in 0..FORGIVEN + 3 {
            spinner.in_vain();
        }
        let mut skipped = 0;
        while spinner.skip.load(Ordering::Relaxed) > 0 {
            assert_eq!(spinner.limit(SpinPolicy::Adaptive(1)), None);
            skipped += 1;
        }
        assert!((1..=RAREST).contains(&skipped), "{skipped}");
        for _ in 0..100 {
            spinner.in_vain();
        }
        assert_eq!(spinner.skip.load(Ordering::Relaxed), RAREST);
    }
}
