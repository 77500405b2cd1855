//! How the thread of a copy waits and is woken.
//!
//! Sleeping and waking up cost more than many blocks. So an idle thread spins for a moment before
//! it sleeps, while that pays off.

use std::hint;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a thread spins before it sleeps: about the cost of sleeping and waking up.
const LOOK: Duration = Duration::from_micros(20);

/// How long it does not even yield its processor. The thread that will ring may need it, and when
/// that has run, there is more to do.
const SPIN: Duration = Duration::from_nanos(500);

/// After this many vain attempts a thread sleeps at once, and spins again in one of so many waits.
const IN_VAIN: u32 = 4;
const TRY_AGAIN: u32 = 32;

/// The wake-up of one copy.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    thread: OnceLock<Thread>,
    is_rung: AtomicBool,
    /// Vain attempts in a row, and waits without any after these. Only its own thread uses it.
    in_vain: AtomicU32,
}

impl Wakeup {
    /// Sets the thread that waits. Must be called before any thread can ring: a concurrent ring may
    /// miss the thread, and the thread may miss the ring.
    pub(crate) fn belongs_to(&self, thread: Thread) {
        self.thread.get_or_init(|| thread);
    }

    /// Ends the current wait, or the next one.
    pub(crate) fn ring(&self) {
        self.is_rung.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Waits until it was rung since the last wait.
    pub(crate) fn wait(&self) {
        self.wait_until(None);
    }

    /// Waits until it was rung since the last wait, but at most this long.
    pub(crate) fn wait_for(&self, time: Duration) {
        self.wait_until(Some(Instant::now() + time));
    }

    fn wait_until(&self, end: Option<Instant>) {
        if self.is_rung.swap(false, Ordering::Acquire) {
            return;
        }
        if self.looks() {
            let began = Instant::now();
            loop {
                for _ in 0..16 {
                    if self.is_rung.load(Ordering::Relaxed) {
                        self.is_rung.swap(false, Ordering::Acquire);
                        self.in_vain.store(0, Ordering::Relaxed);
                        return;
                    }
                    hint::spin_loop();
                }
                let looked = began.elapsed();
                if looked > LOOK {
                    break;
                }
                if looked > SPIN {
                    thread::yield_now();
                }
            }
            self.in_vain.fetch_add(1, Ordering::Relaxed);
        }
        while !self.is_rung.swap(false, Ordering::Acquire) {
            match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => return,
                Some(left) => thread::park_timeout(left),
            }
        }
    }

    fn looks(&self) -> bool {
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if in_vain < IN_VAIN {
            return true;
        }
        let is_time = in_vain + 1 >= IN_VAIN + TRY_AGAIN;
        self.in_vain.store(if is_time { IN_VAIN } else { in_vain + 1 }, Ordering::Relaxed);
        is_time
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn no_ring_is_lost() {
        let there = Arc::new(Wakeup::default());
        let back = Arc::new(Wakeup::default());
        let (other, answer) = (Arc::clone(&there), Arc::clone(&back));
        back.belongs_to(thread::current());
        let thread = thread::spawn(move || {
            for _ in 0..20_000 {
                other.wait();
                answer.ring();
            }
        });
        there.belongs_to(thread.thread().clone());
        for _ in 0..20_000 {
            there.ring();
            back.wait();
        }
        thread.join().unwrap();
    }

    #[test]
    fn a_wait_for_some_time_ends_with_it_or_with_a_ring() {
        let wakeup = Wakeup::default();
        wakeup.wait_for(Duration::from_millis(1));
        wakeup.ring();
        wakeup.wait_for(Duration::from_secs(1 << 30));
        assert!(!wakeup.is_rung.load(Ordering::Relaxed));
    }

    #[test]
    fn looks_in_vain_become_rare() {
        let wakeup = Wakeup::default();
        wakeup.in_vain.store(IN_VAIN, Ordering::Relaxed);
        // None of them pays off.
        let looks = (0..320).filter(|_| wakeup.looks()).count();
        assert_eq!(looks, 10);
    }
}
