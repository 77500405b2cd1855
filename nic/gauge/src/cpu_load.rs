//! Measures the CPU cost of a test on one host: getrusage(2) for the process, and `/proc/stat`
//! (proc(5)) for work that the kernel does outside of any process, which is most of the work of a
//! network interface.

use std::fs;
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};

/// CPU use of one host between the start and the end of a test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Seconds between start and end.
    pub seconds: f64,
    /// CPU time of the process and all its threads in user mode, in seconds.
    pub user: f64,
    /// The same in kernel mode.
    pub system: f64,
    /// CPU use of the whole host. `None` if `/proc/stat` cannot be read or not one tick has passed.
    pub machine: Option<CpuTimes>,
}

/// CPU use of a whole host; each part is a fraction (0 to 1) of the time of all CPUs together.
///
/// The kernel measures `idle` with a clock and counts the others in ticks of usually 10 ms, which a
/// sleeping CPU does not get. Work in short bursts between sleeps is therefore in none of the
/// parts: it is the difference of their sum to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuTimes {
    /// Time in programs.
    pub user: f64,
    /// Time in the kernel on behalf of programs.
    pub system: f64,
    /// Time in interrupts and softirqs: received packets, timers.
    pub softirq: f64,
    /// Idle time.
    pub idle: f64,
    /// Time in which the hypervisor ran other machines.
    pub stolen: f64,
    /// Number of CPUs: 1 to 65536.
    pub cpus: u32,
}

impl Load {
    /// CPU time of the process per second; 1 is one CPU.
    #[must_use]
    pub fn process(&self) -> f64 {
        (self.user + self.system) / self.seconds
    }

    /// True if the values are possible. They may come from another host.
    pub(crate) fn is_plausible(&self) -> bool {
        let is_time = |seconds: f64| (0.0..1e9).contains(&seconds);
        let machine = self.machine.is_none_or(|machine| {
            let parts =
                [machine.user, machine.system, machine.softirq, machine.idle, machine.stolen];
            parts.iter().all(|part| (0.0..=1.0).contains(part))
                && (1..=65_536).contains(&machine.cpus)
        });
        self.seconds > 0.0
            && [self.seconds, self.user, self.system].into_iter().all(is_time)
            && machine
    }
}

impl CpuTimes {
    /// The fraction of the time that was neither idle nor stolen. It also contains work in short
    /// bursts.
    #[must_use]
    pub fn busy(&self) -> f64 {
        (1.0 - self.idle - self.stolen).max(0.0)
    }
}

/// A moment on this host; two of them bound a [`Load`].
///
/// Threads may share it: it covers the whole process and the whole host.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Usage before and after `/proc/stat` was read, which takes long on a host with many CPUs.
    reached: Usage,
    left: Usage,
    ticks: Option<Ticks>,
}

impl Moment {
    /// Takes the present moment. Reads `/proc/stat`, which takes some 10 µs per CPU; if that cannot
    /// be read, loads from here on have no [`Load::machine`].
    #[must_use]
    pub fn now() -> Self {
        let reached = Usage::now();
        let ticks = fs::read_to_string("/proc/stat").ok().and_then(|text| Ticks::parse(&text));
        Self { reached, left: Usage::now(), ticks }
    }

    /// The load from this moment to `end`, without the cost of taking either moment.
    #[must_use]
    pub fn until(&self, end: &Self) -> Load {
        let (from, to) = (self.left, end.reached);
        let seconds = (to.at - from.at).as_secs_f64();
        Load {
            seconds,
            user: to.user - from.user,
            system: to.system - from.system,
            machine: self.ticks.zip(end.ticks).and_then(|(start, end)| start.until(&end, seconds)),
        }
    }
}

/// The clock, and CPU time of the process in seconds.
#[derive(Debug, Clone, Copy)]
struct Usage {
    at: Instant,
    user: f64,
    system: f64,
}

impl Usage {
    fn now() -> Self {
        let at = Instant::now();
        // getrusage fails for invalid arguments only.
        let (user, system) = getrusage(UsageWho::RUSAGE_SELF).map_or((0.0, 0.0), |usage| {
            let seconds = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64 / 1e6;
            (seconds(usage.user_time()), seconds(usage.system_time()))
        });
        Self { at, user, system }
    }
}

/// The first line of `/proc/stat`: ticks since the start of the host, summed over its CPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ticks {
    /// user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user.
    parts: [u64; 8],
    cpus: u32,
}

impl Ticks {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
        let mut parts = [0; 8];
        for part in &mut parts {
            *part = words.next()?.parse().ok()?;
        }
        let is_cpu = |line: &&str| {
            line.strip_prefix("cpu")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        Some(Self { parts, cpus: u32::try_from(text.lines().filter(is_cpu).count()).ok()? })
    }

    /// CPU use from these ticks to `end`, `seconds` later.
    fn until(&self, end: &Self, seconds: f64) -> Option<CpuTimes> {
        // Idle and iowait of a CPU may go backwards (proc(5)).
        let passed: [u64; 8] =
            std::array::from_fn(|part| end.parts[part].saturating_sub(self.parts[part]));
        let counted: u64 = passed.iter().sum();
        let all = seconds * rustix::param::clock_ticks_per_second() as f64 * f64::from(end.cpus);
        let all = all.max(counted as f64);
        let [user, nice, system, idle, iowait, irq, softirq, steal] = passed;
        let fraction = |ticks: u64| ticks as f64 / all;
        (counted > 0).then(|| CpuTimes {
            user: fraction(user + nice),
            system: fraction(system),
            softirq: fraction(irq + softirq),
            idle: fraction(idle + iowait),
            stolen: fraction(steal),
            cpus: end.cpus,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  100 10 50 1000 5 1 20 7 0 0\ncpu0 50 5 25 500 2 0 10 3 0 0\n\
                          cpu1 50 5 25 500 3 1 10 4 0 0\nintr 1 2\nctxt 5\n";

    #[test]
    fn fractions_are_of_all_time() {
        let before = Ticks::parse(BEFORE).unwrap();
        let after = Ticks::parse("cpu  110 20 80 1030 5 2 29 17 0 0\ncpu0 1\ncpu1 1\n").unwrap();
        assert_eq!((before.cpus, before.until(&before, 1.0)), (2, None));
        // 100 ticks in all, 10 of them stolen.
        let second = 1.0 / rustix::param::clock_ticks_per_second() as f64;
        let machine = before.until(&after, 50.0 * second).unwrap();
        assert_eq!(
            (machine.user, machine.system, machine.softirq, machine.idle),
            (0.2, 0.3, 0.1, 0.3)
        );
        assert!(
            (machine.stolen, (machine.busy() - 0.6).abs() < 1e-12) == (0.1, true),
            "{machine:?}"
        );
        // Twice the time with the same ticks: the rest of the work met no tick.
        let machine = before.until(&after, 100.0 * second).unwrap();
        assert_eq!((machine.user, machine.softirq, machine.idle), (0.1, 0.05, 0.15));
        assert!((machine.busy() - 0.8).abs() < 1e-12, "{machine:?}");
    }

    #[test]
    fn nonsense_is_not_ticks() {
        for text in ["", "cpu  1 2 3", "cpu  1 2 3 4 5 6 7 x", "intr 1 2 3 4 5 6 7 8"] {
            assert_eq!(Ticks::parse(text), None, "{text}");
        }
    }

    #[test]
    fn taking_a_moment_does_not_count() {
        let moment = Moment::now();
        assert!(moment.reached.at < moment.left.at);
        let next = Moment::now();
        let between = (next.reached.at - moment.left.at).as_secs_f64();
        assert_eq!(moment.until(&next).seconds, between);
    }

    #[test]
    fn time_that_is_spent_is_counted() {
        let start = Moment::now();
        let mut end = Moment::now();
        let mut sum = 0u64;
        while start.until(&end).user + start.until(&end).system == 0.0 {
            sum = std::hint::black_box(sum + 1);
            end = Moment::now();
        }
        let load = start.until(&end);
        assert!(load.is_plausible() && load.process() > 0.0, "{load:?}");
    }

    #[test]
    fn what_cannot_be_is_not_plausible() {
        let machine =
            CpuTimes { user: 0.5, system: 0.5, softirq: 0.0, idle: 0.0, stolen: 0.0, cpus: 2 };
        let good = Load { seconds: 1.0, user: 0.5, system: 0.0, machine: Some(machine) };
        assert!(good.is_plausible());
        for bad in [
            Load { seconds: 0.0, ..good },
            Load { seconds: f64::NAN, ..good },
            Load { user: -1.0, ..good },
            Load { system: f64::INFINITY, ..good },
            Load { machine: Some(CpuTimes { user: 1.5, ..machine }), ..good },
            Load { machine: Some(CpuTimes { cpus: 0, ..machine }), ..good },
        ] {
            assert!(!bad.is_plausible(), "{bad:?}");
        }
    }
}
