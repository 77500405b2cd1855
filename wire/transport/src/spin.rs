//! Spinning: worthwhile only if the other end answers within the time that sleeping and being woken
//! would take, and nobody else wants the processor.
//!
//! Sleeping and being woken costs some microseconds, tens of them in a virtual machine; reading a
//! cache line costs none while it does not change. So a waiter spins for a bounded time first, and
//! learns: after spinning in vain, it spins ever more rarely. It never spins while threads
//! outnumber processors, or if the peer runs on this very processor, or there is only this one:
//! then spinning only delays the answer.
//!
//! A peer on another machine has a processor there. If it sleeps, the network between the two wakes
//! it, which takes longer than between processes of one host. Two ends that each gave up earlier
//! would find each other asleep for ever, so a waiter spins for as long as sleeping and being woken
//! takes: then the answer finds it awake, and it costs at most twice what the best choice would
//! (Karlin, Manasse, McGeoch, Owicki: Competitive randomized algorithms for nonuniform problems,
//! 1990). That may be long enough for others to want the processor, for a signal to come, or for
//! the deadline of the call to pass: so these are checked in steps.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::sys::host;

/// How long to spin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SpinPolicy {
    /// At most this many nanoseconds, and less often after spinning in vain. Longer for a distant
    /// peer on another machine.
    Adaptive(u64),
    /// Always this many nanoseconds (0: never), while a processor is idle.
    Fixed(u64),
}

impl Default for SpinPolicy {
    fn default() -> Self {
        Self::Adaptive(50_000)
    }
}

/// The processor on which the peer runs, which the waiter may have to leave to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerPlace {
    /// The processor on which this thread runs.
    ThisProcessor,
    /// Another processor of this host, or an unknown one.
    ThisHost,
    /// A processor of another machine. A message to it and an answer take this many nanoseconds by
    /// the network.
    AnotherMachine(u64),
}

impl PeerPlace {
    /// Number of nanoseconds to spin, if `limit` of them are worthwhile on one host.
    fn worth(self, policy: SpinPolicy, limit: u64) -> u64 {
        match (self, policy) {
            (Self::AnotherMachine(away), SpinPolicy::Adaptive(_)) => {
                limit.max(away.saturating_mul(2).min(LONGEST))
            }
            _ => limit,
        }
    }

    fn is_far(self) -> bool {
        matches!(self, Self::AnotherMachine(_))
    }
}

/// The result of a look while spinning.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Seen {
    /// Nothing yet.
    Nothing,
    /// The expected action of the peer.
    Answer,
    /// Another event that ends the wait.
    Other,
}

impl From<bool> for Seen {
    fn from(is_answered: bool) -> Self {
        if is_answered { Self::Answer } else { Self::Nothing }
    }
}

/// Maximum number of nanoseconds to spin for a peer that is woken by a network.
const LONGEST: u64 = 2_000_000;
/// How often a waiter that spins for longer than on one host checks its surroundings, in
/// nanoseconds.
const STEP: u64 = 50_000;
/// Nanoseconds between two readings of the clock in which this thread has not run all the time:
/// another thread had its processor, perhaps the peer's machine. In addition to the cost of
/// readings.
const AWAY: u64 = 200_000;
/// Number of waits in vain that are forgiven before spinning becomes rarer.
const FORGIVEN: u32 = 3;
/// The rarest: once in this many waits.
const RAREST: u32 = 64;
/// Number of looks between two readings of the clock: at least this many, and more if they take
/// less time than the reading. In some virtual machines a reading is a system call, during which no
/// answer is seen.
const LOOKS: u32 = 32;
const MOST_LOOKS: u32 = 256;
/// Maximum cost in nanoseconds of a reading that is also made when it is not needed.
const CHEAP: u64 = 100;
/// If a reading costs more, this many answers go unchecked before one is checked.
const UNCHECKED: u32 = 16;
/// After the first time, checking the surroundings takes at most one nanosecond in this many of a
/// wait.
const SHARE: u64 = 4;

/// The experience of one waiter.
#[derive(Debug, Default)]
pub struct Spinner {
    vain: AtomicU32,
    skip: AtomicU32,
    /// Looks between two readings of the clock that the last wait arrived at; 0 before.
    looks: AtomicU32,
    /// Answers that were not checked since one was.
    unchecked: AtomicU32,
}

impl Spinner {
    /// Spins for that peer until `look` sees something or the policy's time has passed; returns
    /// whether it has. Returns at once if spinning is not worthwhile now. In a wait that is longer
    /// than one on this host, `goes_on` is asked now and then whether the call may wait until it
    /// has waited this many nanoseconds.
    pub fn spin<S: Into<Seen>>(
        &self,
        policy: SpinPolicy,
        peer: PeerPlace,
        mut goes_on: impl FnMut(u64) -> bool,
        mut look: impl FnMut() -> S,
    ) -> bool {
        let Some(limit) = self.limit(policy, peer) else { return false };
        let most = peer.worth(policy, limit);
        let reading = host::cost_of_nanoseconds();
        let away = AWAY.saturating_add(reading.saturating_mul(2 * SHARE));
        let mut looks = self.looks.load(Ordering::Relaxed).clamp(LOOKS, MOST_LOOKS);
        // An answer that comes at once reads no expensive clock, unless it is to be checked.
        let checks = self.checks(reading);
        let mut times = checks.then(host::nanoseconds).map(|now| (now, now));
        let (mut next, mut step, mut least) = (limit, STEP, u64::MAX);
        let mut was_away = false;
        let has_seen = loop {
            let seen = look_for(looks, &mut look);
            if seen != Seen::Nothing {
                let gap = |(_, last)| is_gap(last, host::nanoseconds(), away);
                let is_late = || checks && times.is_some_and(gap);
                let is_vain = peer.is_far() && (seen == Seen::Other || was_away || is_late());
                self.learn(is_vain);
                break true;
            }
            let now = host::nanoseconds();
            let Some((begin, last)) = &mut times else {
                times = Some((now, now));
                continue;
            };
            was_away |= is_gap(*last, now, away);
            looks = enough_looks(looks, now.wrapping_sub(*last).saturating_sub(reading), reading);
            *last = now;
            let waited = now.wrapping_sub(*begin);
            if waited >= most {
                self.learn(true);
                break false;
            }
            if waited >= next {
                next = waited.saturating_add(step).min(most);
                if host::threads_outnumber_processors() || !goes_on(next) {
                    self.learn(true);
                    break false;
                }
                // The checks took time, during which no answer was seen.
                *last = host::nanoseconds();
                least = least.min(last.saturating_sub(now));
                step = STEP.max(least.saturating_mul(SHARE));
            }
        };
        self.looks.store(looks, Ordering::Relaxed);
        has_seen
    }

    /// Whether to read the clock before a wait and after its answer, at this cost of a reading: an
    /// answer that came while this thread did not run is rarely the only one.
    fn checks(&self, reading: u64) -> bool {
        let unchecked = self.unchecked.load(Ordering::Relaxed);
        let is_due = unchecked >= UNCHECKED || self.vain.load(Ordering::Relaxed) > 0;
        let checks = reading <= CHEAP || is_due;
        self.unchecked.store(if checks { 0 } else { unchecked + 1 }, Ordering::Relaxed);
        checks
    }

    /// Number of nanoseconds for which spinning is worthwhile now on this host, if at all.
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
                limit
            }
        };
        (limit > 0 && has_processor()).then_some(limit)
    }

    /// Learns that a wait was in vain, or was not.
    fn learn(&self, is_vain: bool) {
        if !is_vain {
            self.vain.store(0, Ordering::Relaxed);
            return;
        }
        let vain = self.vain.load(Ordering::Relaxed).saturating_add(1);
        self.vain.store(vain, Ordering::Relaxed);
        if let Some(excess) = vain.checked_sub(FORGIVEN) {
            self.skip.store((1 << excess.min(16)).min(RAREST), Ordering::Relaxed);
        }
    }
}

/// Looks this many times, or until a look sees something.
fn look_for<S: Into<Seen>>(times: u32, mut look: impl FnMut() -> S) -> Seen {
    for _ in 0..times {
        match look().into() {
            Seen::Nothing => std::hint::spin_loop(),
            seen => return seen,
        }
    }
    Seen::Nothing
}

/// Number of looks to make before the next reading of the clock, which costs `reading` nanoseconds,
/// if the last `looks` took `took` nanoseconds.
fn enough_looks(looks: u32, took: u64, reading: u64) -> u32 {
    if took < reading {
        looks.saturating_mul(2).min(MOST_LOOKS)
    } else if took > reading.saturating_mul(2) {
        (looks / 2).max(LOOKS)
    } else {
        looks
    }
}

/// Whether this many nanoseconds are a small part of the time that a call has (`None`: for ever),
/// whose own clock may not run yet.
#[must_use]
pub fn is_little(waited: u64, of: Option<Duration>) -> bool {
    of.is_none_or(|of| Duration::from_nanos(waited).saturating_mul(16) <= of)
}

fn is_gap(from: u64, to: u64, away: u64) -> bool {
    to.wrapping_sub(from) > away
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADAPTIVE: SpinPolicy = SpinPolicy::Adaptive(50);
    const FAR: PeerPlace = PeerPlace::AnotherMachine(100);

    #[test]
    fn never_means_never() {
        let look = || -> bool { unreachable!("looked") };
        for peer in [PeerPlace::ThisProcessor, PeerPlace::ThisHost, FAR] {
            assert!(!Spinner::default().spin(SpinPolicy::Fixed(0), peer, |_| true, look));
        }
        let always = SpinPolicy::Fixed(1_000_000);
        assert!(!Spinner::default().spin(always, PeerPlace::ThisProcessor, |_| true, look));
    }

    #[test]
    fn a_peer_that_is_woken_by_a_network_is_waited_for_longer() {
        for (away, worth) in [(0, 50), (10, 50), (400, 800), (u64::MAX, LONGEST)] {
            assert_eq!(PeerPlace::AnotherMachine(away).worth(ADAPTIVE, 50), worth);
        }
        assert_eq!(PeerPlace::ThisHost.worth(ADAPTIVE, 50), 50);
        // A fixed time is taken literally.
        assert_eq!(PeerPlace::AnotherMachine(400).worth(SpinPolicy::Fixed(50), 50), 50);
    }

    /// Spins until something is seen, or spinning is not worthwhile.
    fn spin(peer: PeerPlace, mut look: impl FnMut() -> Seen) -> (Spinner, bool) {
        let spinner = Spinner::default();
        // As after waits in vain that were almost forgiven.
        spinner.vain.store(FORGIVEN - 1, Ordering::Relaxed);
        let has_seen = spinner.spin(SpinPolicy::Adaptive(u64::MAX), peer, |_| true, &mut look);
        (spinner, has_seen)
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no load")]
    fn only_what_the_peer_did_itself_counts_as_its_answer() {
        for (peer, seen, is_vain) in [
            (PeerPlace::ThisHost, Seen::Answer, false),
            (PeerPlace::ThisHost, Seen::Other, false),
            (FAR, Seen::Answer, false),
            (FAR, Seen::Other, true),
        ] {
            // A busy machine does not spin; and a thread may have to wait for its turn.
            let learned: Vec<u32> = (0..1000)
                .map(|_| spin(peer, || seen))
                .filter(|(_, has_seen)| *has_seen)
                .map(|(spinner, _)| spinner.vain.load(Ordering::Relaxed))
                .collect();
            let expected = if is_vain { FORGIVEN } else { 0 };
            let is_as_expected = learned.is_empty() || learned.contains(&expected);
            assert!(is_as_expected, "{peer:?}, {seen:?}: {learned:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no load")]
    fn a_longer_wait_goes_on_only_while_the_call_may_wait() {
        let mut asked = 0;
        // A busy machine allows no wait that long.
        let begin = host::nanoseconds();
        while asked == 0 && host::nanoseconds().wrapping_sub(begin) < 2_000_000_000 {
            let far = PeerPlace::AnotherMachine(u64::MAX);
            let may_wait = |waited| {
                asked += 1;
                assert!((1..=LONGEST).contains(&waited), "{waited}");
                false
            };
            assert!(!Spinner::default().spin(SpinPolicy::Adaptive(1), far, may_wait, || false));
        }
        assert!(asked == 1 || !host::has_processor_for_itself(), "asked {asked} times");
    }

    #[test]
    fn an_answer_in_whose_wait_somebody_else_ran_is_no_success() {
        assert!(is_gap(0, 201, 200) && !is_gap(0, 200, 200));
        // Nothing is known of a clock that went back, as in another time namespace.
        assert!(is_gap(1, 0, 200));
    }

    #[test]
    fn where_the_clock_is_dear_few_answers_are_checked_until_one_was_in_vain() {
        let spinner = Spinner::default();
        let checked = |reading| (0..170).filter(|_| spinner.checks(reading)).count();
        assert_eq!((checked(CHEAP), checked(CHEAP + 1)), (170, 170 / (UNCHECKED as usize + 1)));
        spinner.learn(true);
        assert_eq!(checked(CHEAP + 1), 170);
    }

    #[test]
    fn looks_take_about_as_long_as_the_reading_of_the_clock_between_them() {
        let of = |nanoseconds_per_look: u64, reading| {
            let mut looks = LOOKS;
            for _ in 0..20 {
                looks = enough_looks(looks, u64::from(looks) * nanoseconds_per_look, reading);
            }
            looks
        };
        assert_eq!((of(2, 30), of(1000, 30), of(15_000, 50_000)), (LOOKS, LOOKS, LOOKS));
        assert_eq!((of(300, 30_000), of(1, 50_000)), (128, MOST_LOOKS));
        // More sockets are checked than the last time.
        assert_eq!(enough_looks(256, 5_000_000, 50_000), 128);
        assert_eq!(enough_looks(LOOKS, u64::MAX, u64::MAX / 2), LOOKS);
    }

    #[test]
    fn a_sixteenth_of_a_call_is_little() {
        let call = Some(Duration::from_micros(1600));
        assert!(is_little(100_000, call) && !is_little(100_001, call));
        assert!(is_little(u64::MAX, None) && !is_little(1, Some(Duration::ZERO)));
    }

    #[test]
    fn vain_waits_become_rare_and_success_forgives() {
        let spinner = Spinner::default();
        for _ in 0..FORGIVEN + 3 {
            spinner.learn(true);
        }
        let mut skipped = 0;
        while spinner.skip.load(Ordering::Relaxed) > 0 {
            assert_eq!(spinner.limit(ADAPTIVE, FAR), None);
            skipped += 1;
        }
        assert!((1..=RAREST).contains(&skipped), "{skipped}");
        for _ in 0..100 {
            spinner.learn(true);
        }
        assert_eq!(spinner.skip.load(Ordering::Relaxed), RAREST);
        spinner.learn(false);
        assert_eq!(spinner.vain.load(Ordering::Relaxed), 0);
    }
}
