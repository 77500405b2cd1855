//! The goals of a search: what to improve, how to measure it, and when one reading is better than
//! another.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use seekwire_gauge::{Load, Reading, Test, TestKind};
use serde::Serialize;

/// The quantity to improve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Faster answers to requests.
    Latency,
    /// More bytes per second in streams of both directions.
    Throughput,
    /// Less CPU time of this host per byte of such streams.
    Cpu,
    /// All three, with equal weight.
    Mixed,
}

impl Goal {
    /// All goals.
    pub const ALL: [Self; 4] = [Self::Latency, Self::Throughput, Self::Cpu, Self::Mixed];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Cpu => "cpu",
            Self::Mixed => "mixed",
        }
    }

    /// The tests of the goal, each taking `slot`. `sizes`, unless empty, replaces the default
    /// message sizes.
    pub(crate) fn tests(self, sizes: &[usize], slot: Duration) -> Vec<Test> {
        // One size fits into a packet; the other takes a dozen, where offloads begin to matter.
        const REQUESTS: [usize; 2] = [64, 16 << 10];
        const STREAMS: [usize; 1] = [64 << 10];
        let of = |kind: TestKind, usual: &[usize]| -> Vec<Test> {
            let sizes = if sizes.is_empty() { usual } else { sizes };
            let warm_up = slot / 5;
            let test = |size: &usize| Test { warm_up, ..Test::new(kind, *size, slot - warm_up) };
            sizes.iter().map(test).collect()
        };
        let mut tests = Vec::new();
        if matches!(self, Self::Latency | Self::Mixed) {
            tests.extend(of(TestKind::RequestResponse, &REQUESTS));
        }
        if !matches!(self, Self::Latency) {
            tests.extend(of(TestKind::Stream, &STREAMS));
            tests.extend(of(TestKind::StreamBack, &STREAMS));
        }
        tests
    }

    /// The number by which candidates are compared; larger is better. `None` if a figure is
    /// missing.
    pub(crate) fn score(self, figures: &Figures) -> Option<f64> {
        let latency = figures.latency_seconds.map(|seconds| 1.0 / seconds);
        let cpu = figures.cpu_seconds_per_gigabyte.map(|seconds| 1.0 / seconds);
        let score = match self {
            Self::Latency => latency,
            Self::Throughput => figures.bytes_per_second,
            Self::Cpu => cpu,
            Self::Mixed => geometric_mean(&[latency?, figures.bytes_per_second?, cpu?]),
        };
        score.filter(|score| score.is_finite() && *score > 0.0)
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|goal| goal.name() == name);
        named.ok_or_else(|| format!("no goal `{name}`: {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The measured figures of one candidate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Figures {
    /// One-way latency in seconds: 1 / (2 x rate of requests); the geometric mean over several
    /// sizes.
    pub latency_seconds: Option<f64>,
    /// Half of the 99th percentile of the times from request to response, in seconds; the geometric
    /// mean over several sizes.
    pub p99_seconds: Option<f64>,
    /// Throughput of streams; the geometric mean over several streams.
    pub bytes_per_second: Option<f64>,
    /// CPU time of this host, including interrupts, per 10^9 bytes of streams.
    pub cpu_seconds_per_gigabyte: Option<f64>,
}

impl Figures {
    pub(crate) fn of(readings: &[Reading]) -> Self {
        let all = |figure: fn(&Reading) -> Option<f64>| -> Vec<f64> {
            readings.iter().filter_map(figure).collect()
        };
        let is_stream = |reading: &&Reading| reading.histogram.is_none();
        let streams: Vec<&Reading> = readings.iter().filter(is_stream).collect();
        let bytes: f64 =
            streams.iter().map(|reading| reading.bytes_per_second * reading.local.seconds).sum();
        let cpu: f64 = streams.iter().map(|reading| cpu_seconds(&reading.local)).sum();
        Self {
            latency_seconds: geometric_mean(&all(Reading::one_way_seconds)),
            p99_seconds: geometric_mean(&all(|reading| reading.one_way_quantile(0.99))),
            bytes_per_second: geometric_mean(
                &streams.iter().map(|reading| reading.bytes_per_second).collect::<Vec<_>>(),
            ),
            cpu_seconds_per_gigabyte: (bytes > 0.0 && cpu > 0.0).then(|| cpu / bytes * 1e9),
        }
    }

    /// The median of each figure.
    pub(crate) fn median(all: &[Self]) -> Self {
        let median = |figure: fn(&Self) -> Option<f64>| {
            let mut values: Vec<f64> = all.iter().filter_map(figure).collect();
            values.sort_by(f64::total_cmp);
            let middle = values.len() / 2;
            let upper = *values.get(middle)?;
            Some(if values.len() % 2 == 0 { (values[middle - 1] + upper) / 2.0 } else { upper })
        };
        Self {
            latency_seconds: median(|figures| figures.latency_seconds),
            p99_seconds: median(|figures| figures.p99_seconds),
            bytes_per_second: median(|figures| figures.bytes_per_second),
            cpu_seconds_per_gigabyte: median(|figures| figures.cpu_seconds_per_gigabyte),
        }
    }
}

/// CPU time of the whole host, or that of this process if it is larger: the latter has a finer
/// resolution.
fn cpu_seconds(load: &Load) -> f64 {
    let machine =
        load.machine.map_or(0.0, |machine| machine.busy() * f64::from(machine.cpus) * load.seconds);
    machine.max(load.user + load.system)
}

/// Returns `None` for no values.
fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (logs / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekwire_gauge::CpuTimes;

    #[test]
    fn each_goal_measures_what_it_needs() {
        let slot = Duration::from_millis(100);
        let kinds = |goal: Goal, sizes: &[usize]| -> Vec<(TestKind, usize)> {
            goal.tests(sizes, slot).iter().map(|test| (test.kind, test.size)).collect()
        };
        assert_eq!(
            kinds(Goal::Latency, &[]),
            [(TestKind::RequestResponse, 64), (TestKind::RequestResponse, 16384)]
        );
        assert_eq!(kinds(Goal::Cpu, &[7]), [(TestKind::Stream, 7), (TestKind::StreamBack, 7)]);
        assert_eq!(
            kinds(Goal::Throughput, &[]),
            [(TestKind::Stream, 65536), (TestKind::StreamBack, 65536)]
        );
        assert_eq!(kinds(Goal::Mixed, &[]).len(), 4);
        assert!(Goal::Mixed.tests(&[], slot).iter().all(|test| test.time + test.warm_up == slot));
    }

    #[test]
    fn better_figures_have_larger_scores() {
        let figures = Figures {
            latency_seconds: Some(1e-5),
            p99_seconds: None,
            bytes_per_second: Some(1e9),
            cpu_seconds_per_gigabyte: Some(2.0),
        };
        let better = Figures {
            latency_seconds: Some(0.5e-5),
            bytes_per_second: Some(2e9),
            cpu_seconds_per_gigabyte: Some(1.0),
            ..figures
        };
        for goal in Goal::ALL {
            let ratio = goal.score(&better).unwrap() / goal.score(&figures).unwrap();
            assert!((ratio - 2.0).abs() < 1e-9, "{goal}: {ratio}");
            assert_eq!(goal.score(&Figures::default()), None);
            assert_eq!(goal.name().parse(), Ok(goal));
        }
        assert!("speed".parse::<Goal>().unwrap_err().contains("latency, throughput, cpu, mixed"));
    }

    #[test]
    fn the_median_is_that_of_each_figure() {
        let of = |latency, bytes| Figures {
            latency_seconds: latency,
            bytes_per_second: bytes,
            ..Figures::default()
        };
        let all = [of(Some(3.0), Some(10.0)), of(Some(1.0), None), of(Some(2.0), Some(20.0))];
        assert_eq!(Figures::median(&all), of(Some(2.0), Some(15.0)));
        assert_eq!(Figures::median(&[]), Figures::default());
    }

    #[test]
    fn cpu_time_is_that_of_all_processors() {
        let machine =
            CpuTimes { user: 0.1, system: 0.2, softirq: 0.2, idle: 0.5, stolen: 0.0, cpus: 4 };
        let load = Load { seconds: 2.0, user: 0.5, system: 0.5, machine: Some(machine) };
        assert!((cpu_seconds(&load) - 4.0).abs() < 1e-9);
        assert_eq!(cpu_seconds(&Load { machine: None, ..load }), 1.0);
    }
}
