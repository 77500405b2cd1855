//! How the thread of a copy waits, and is woken.
//!
//! A sleep and a wake-up cost more than many blocks. So a thread that has nothing to do looks for a
//! moment before it sleeps, as long as that has paid.

use std::hint;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// So long a thread looks before it sleeps: about what a sleep and a wake-up take.
const LOOK: Duration = Duration::from_micros(20);

/// So long it does not even let other threads run on its processor. Who is to ring may be one of
/// these, and when it has run, there is more to do.
const SPIN: Duration = Duration::from_nanos(500);

/// After so many looks in vain a thread sleeps at once, and looks again at one in so many waits.
const IN_VAIN: u32 = 4;
const TRY_AGAIN: u32 = 32;

/// One copy's.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    thread: OnceLock<Thread>,
    is_rung: AtomicBool,
    /// Looks in a row that did not pay, and waits without any after these. Its own thread's alone.
    in_vain: AtomicU32,
}

impl Wakeup {
    /// That thread is the one that waits. To be called before anybody can ring: who rings at the
    /// same time may not see the thread, and the thread not that it was rung.
    pub(crate) fn belongs_to(&self, thread: Thread) {
        self.thread.get_or_init(|| thread);
    }

    /// Ends its wait, or the next one if it does not wait.
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

    /// Waits until it was rung since the last wait, but not for longer than that.
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
        // None of them pays.
        let looks = (0..320).filter(|_| wakeup.looks()).count();
        assert_eq!(looks, 10);
    }
}
