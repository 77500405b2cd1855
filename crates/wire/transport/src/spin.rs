//! Waiting awake: worth it only when the other end answers within microseconds and a processor is
//! idle.
//!
//! Sleeping and being woken costs some microseconds, tens of them in a virtual machine; looking at
//! a cache line costs none while it does not change. So a waiter looks for a bounded time first,
//! and learns: waits that were in vain are tried ever more rarely. Nothing is spun while threads
//! outnumber processors, or when the peer runs on this very processor, or there is only this one:
//! then waiting awake only keeps the answer away.
//!
//! A peer on another machine has a processor there. If it sleeps, it is woken by the network between
//! the two, which takes longer than the time above. Two ends that each gave up before would find each
//! other asleep for ever, so a waiter looks for as long as sleeping and being woken takes: then the
//! answer finds it awake, and it costs at most twice what the best choice would (Karlin, Manasse,
//! McGeoch, Owicki: Competitive randomized algorithms for nonuniform problems, 1990).

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

/// Where the peer runs, for which a waiter may have to make room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerPlace {
    /// On the processor that this thread runs on.
    ThisProcessor,
    /// On another processor of this host, or nobody knows on which.
    ThisHost,
    /// On a machine with processors of its own. A message there and an answer take this many
    /// nanoseconds by the network.
    AnotherMachine(u64),
}

impl PeerPlace {
    /// Whether an answer after so many nanoseconds, at most `limit`, would have come as soon to who
    /// sleeps. Machines that share a processor get it in turns of about a millisecond, as long as
    /// none gives it up; so the clock has to be read after the answer was seen.
    fn is_late(self, waited: impl FnOnce() -> u64, limit: u64) -> bool {
        matches!(self, Self::AnotherMachine(_)) && waited() > limit / 2
    }

    /// For how many nanoseconds to wait awake, of which `limit` are worth it on one host.
    fn worth(self, limit: u64) -> u64 {
        match self {
            Self::AnotherMachine(away) => limit.max(away.saturating_mul(2).min(LONGEST)),
            Self::ThisProcessor | Self::ThisHost => limit,
        }
    }
}

/// Nanoseconds for which one waits awake at most for a peer that is woken by a network.
const LONGEST: u64 = 2_000_000;
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
    /// Waits awake for that peer until `ready` or the policy's time is over; returns whether it is
    /// ready. Returns at once when spinning is not worth it now.
    pub fn spin(
        &self,
        policy: SpinPolicy,
        peer: PeerPlace,
        mut ready: impl FnMut() -> bool,
    ) -> bool {
        let Some(limit) = self.limit(policy, peer) else { return false };
        let begin = host::nanoseconds();
        let waited = || host::nanoseconds().wrapping_sub(begin);
        loop {
            for _ in 0..LOOKS {
                if ready() {
                    if peer.is_late(waited, limit) {
                        self.in_vain();
                    } else {
                        self.vain.store(0, Ordering::Relaxed);
                    }
                    return true;
                }
                std::hint::spin_loop();
            }
            if waited() >= limit {
                self.in_vain();
                return false;
            }
        }
    }

    /// For how many nanoseconds spinning is worth it now, if at all.
    fn limit(&self, policy: SpinPolicy, peer: PeerPlace) -> Option<u64> {
        let has_processor = match peer {
            PeerPlace::ThisProcessor => return None,
            PeerPlace::ThisHost => host::has_idle_processor,
            PeerPlace::AnotherMachine(_) => host::has_processor_for_itself,
        };
        let limit = match policy {
            SpinPolicy::Fixed(limit) => limit,
            SpinPolicy::Adaptive(limit) => {
                let skip = self.skip.load(Ordering::Relaxed);
                if skip > 0 {
                    self.skip.store(skip - 1, Ordering::Relaxed);
                    return None;
                }
                peer.worth(limit)
            }
        };
        (limit > 0 && has_processor()).then_some(limit)
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
        let far = PeerPlace::AnotherMachine(100);
        for peer in [PeerPlace::ThisProcessor, PeerPlace::ThisHost, far] {
            let look = || unreachable!("looked");
            assert!(!Spinner::default().spin(SpinPolicy::Fixed(0), peer, look));
        }
        let look = || unreachable!("kept the peer away");
        let always = SpinPolicy::Fixed(1_000_000);
        assert!(!Spinner::default().spin(always, PeerPlace::ThisProcessor, look));
    }

    #[test]
    fn a_peer_that_is_woken_by_a_network_is_waited_for_longer() {
        for (away, worth) in [(0, 50), (10, 50), (400, 800), (u64::MAX, LONGEST)] {
            assert_eq!(PeerPlace::AnotherMachine(away).worth(50), worth);
        }
        assert_eq!(PeerPlace::ThisHost.worth(50), 50);
    }

    #[test]
    fn an_answer_that_a_sleeper_would_have_as_soon_is_no_success() {
        let far = PeerPlace::AnotherMachine(1000);
        assert!(far.is_late(|| 51, 100) && !far.is_late(|| 50, 100));
        assert!(!PeerPlace::ThisHost.is_late(|| unreachable!("asked the clock"), 100));
    }

    #[test]
    fn vain_waits_become_rare_and_success_forgives() {
        let spinner = Spinner::default();
        for _ in 0..FORGIVEN + 3 {
            spinner.in_vain();
        }
        let mut skipped = 0;
        while spinner.skip.load(Ordering::Relaxed) > 0 {
            let adaptive = SpinPolicy::Adaptive(1);
            assert_eq!(spinner.limit(adaptive, PeerPlace::AnotherMachine(100)), None);
            skipped += 1;
        }
        assert!((1..=RAREST).contains(&skipped), "{skipped}");
        for _ in 0..100 {
            spinner.in_vain();
        }
        assert_eq!(spinner.skip.load(Ordering::Relaxed), RAREST);
    }
}
