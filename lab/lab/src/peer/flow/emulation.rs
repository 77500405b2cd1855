//! Computation of a given duration.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::imaging::cost::EmulationMode;

/// A shorter wait spins, because a sleep would take longer.
const SHORT: Duration = Duration::from_micros(20);

/// One copy's computation of one unit.
#[derive(Debug, Default)]
pub(super) struct Emulation {
    carried: Carried,
}

impl Emulation {
    /// Takes this long, on average over the blocks; returns how long it took.
    pub(super) fn spend(&mut self, cost: Duration, mode: EmulationMode) -> Duration {
        if cost.is_zero() {
            return Duration::ZERO;
        }
        let begin = Instant::now();
        match mode {
            EmulationMode::Sleep => {
                let wait = self.carried.wait(cost);
                sleep_until(begin + wait);
                self.carried.waited(wait, begin.elapsed());
            }
            EmulationMode::Burn => {
                let until = processor_time() + cost;
                while processor_time() < until {
                    hint::spin_loop();
                }
            }
        }
        begin.elapsed()
    }
}

fn sleep_until(end: Instant) {
    let left = end.saturating_duration_since(Instant::now());
    if left > SHORT {
        thread::sleep(left);
    }
    while Instant::now() < end {
        hint::spin_loop();
    }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Excess of earlier sleeps, which shortens the next ones.
#[derive(Debug, Default)]
struct Carried(Duration);

impl Carried {
    /// How long to wait for a given cost.
    fn wait(&mut self, cost: Duration) -> Duration {
        let wait = cost.saturating_sub(self.0);
        self.0 = self.0.saturating_sub(cost);
        wait
    }

    /// Records how long a wait took.
    fn waited(&mut self, wait: Duration, took: Duration) {
        self.0 += took.saturating_sub(wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sleep_was_too_long_the_next_ones_are_shorter() {
        let us = Duration::from_micros;
        let mut carried = Carried::default();
        let mut all = Duration::ZERO;
        // Each sleep takes 55 µs longer than it should.
        for _ in 0..1000 {
            let wait = carried.wait(us(37));
            let took = if wait.is_zero() { Duration::ZERO } else { wait + us(55) };
            carried.waited(wait, took);
            all += took;
        }
        assert!(all >= us(37_000) && all <= us(37_000 + 55), "{all:?}");
    }

    #[test]
    fn burning_takes_processor_time() {
        let before = processor_time();
        let took = Emulation::default().spend(Duration::from_micros(500), EmulationMode::Burn);
        let used = processor_time() - before;
        assert!(used >= Duration::from_micros(500) && took >= Duration::from_micros(500));
    }
}
