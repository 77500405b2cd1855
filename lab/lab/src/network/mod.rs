//! Two hosts, real or made of network namespaces, with interfaces whose offloads are switched
//! between runs.
//!
//! ```text
//!   step            which offloads are on, in steps from none to all
//!   hosts           where the two ends are, and how their interfaces are set
//!   options         which hosts these are
//!   test_processes  the processes at both ends, and the tests that they run
//!   machines        two namespaces that share memory, as virtual machines do
//!   other_programs  iperf3, sockperf and qperf between the same hosts
//! ```

pub(crate) mod hosts;
pub(crate) mod machines;
pub(crate) mod test_processes;
pub use seekwire_harness::network as options;
pub(crate) mod other_programs;
pub(crate) mod step;

use std::net::SocketAddr;

use seekwire_gauge::{Load, Test};
use serde::{Deserialize, Serialize};

use crate::record::Metric;

/// Rate of requests, turned into a time: 1 / (2 × rate).
pub(crate) const LATENCY: Metric = Metric::lower("one-way latency", "µs");
pub(crate) const ROUND_TRIP: [Metric; 3] = [
    Metric::lower("round trip p50", "µs"),
    Metric::lower("round trip p99", "µs"),
    Metric::lower("round trip p99.9", "µs"),
];
/// Half of the median round trip.
pub(crate) const ONE_WAY: Metric = Metric::lower("one-way latency, p50", "µs");
pub(crate) const THROUGHPUT: Metric = Metric::higher("throughput", "Mb/s");
/// Load of the processors of both hosts, or of the one that both ends are on; 100 % is one of them.
/// It exceeds the sum of its parts, which are counted at ticks.
pub(crate) const CPU: Metric = Metric::lower("CPU load", "%");
pub(crate) const CPU_USER: Metric = Metric::lower("CPU load, user", "%");
pub(crate) const CPU_SYSTEM: Metric = Metric::lower("CPU load, system", "%");
pub(crate) const CPU_SOFTIRQ: Metric = Metric::lower("CPU load, softirq", "%");
/// The parts of [`CPU`], by name.
pub(crate) const CPU_PARTS: [(&str, Metric); 3] =
    [("user", CPU_USER), ("system", CPU_SYSTEM), ("softirq", CPU_SOFTIRQ)];
/// The rest of [`CPU`] that is in none of its parts: work between two ticks, and time charged to no
/// process.
pub(crate) const CPU_REST: Metric = Metric::lower("CPU load, in no tick", "%");
/// Load of the host that has less left, in percent of all its processors.
pub(crate) const BUSIEST: Metric =
    Metric::lower("CPU load of the busier host", "% of its processors");
/// [`CPU`] and its parts of this host and of the other one, where there are two.
pub(crate) const OF_HOST: [[Metric; 5]; 2] = [
    of_host([
        "CPU load, this host",
        "CPU load, this host, user",
        "CPU load, this host, system",
        "CPU load, this host, softirq",
        "CPU load, this host, in no tick",
    ]),
    of_host([
        "CPU load, other host",
        "CPU load, other host, user",
        "CPU load, other host, system",
        "CPU load, other host, softirq",
        "CPU load, other host, in no tick",
    ]),
];
/// CPU time of one process (getrusage).
pub(crate) const CLIENT: Metric = Metric::lower("CPU of the client", "%");
pub(crate) const SERVER: Metric = Metric::lower("CPU of the server", "%");
/// The same in user mode and in the kernel.
pub(crate) const OF_CLIENT: [Metric; 2] = [
    Metric::lower("CPU of the client, user", "%"),
    Metric::lower("CPU of the client, system", "%"),
];
pub(crate) const OF_SERVER: [Metric; 2] = [
    Metric::lower("CPU of the server, user", "%"),
    Metric::lower("CPU of the server, system", "%"),
];
/// [`CPU`] for each byte.
pub(crate) const EFFORT: Metric = Metric::lower("CPU time", "s/GB");

/// A test for a `gauge-drive` peer, one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GaugeOrder {
    pub(crate) turn: u64,
    pub(crate) server: SocketAddr,
    pub(crate) test: Test,
}

/// Its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GaugeResult {
    pub(crate) turn: u64,
    pub(crate) outcome: Result<GaugeReading, String>,
}

/// The part of a reading that the laboratory needs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct GaugeReading {
    pub(crate) seconds: f64,
    /// Bytes of messages, in one direction.
    pub(crate) bytes: u64,
    /// Messages or round trips per second.
    pub(crate) rate: f64,
    /// p50, p99 and p99.9; `None` for streams.
    pub(crate) round_trip_us: [Option<f64>; 3],
    /// `None` for streams.
    pub(crate) one_way_p50_us: Option<f64>,
    pub(crate) local: Load,
    pub(crate) remote: Load,
}

impl GaugeReading {
    /// Bits of messages, in one direction.
    pub(crate) fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds
    }

    /// The metrics of it. `hosts` is their number: where both ends are on one, either sees the load
    /// of both.
    pub(crate) fn readings(&self, hosts: usize) -> Vec<(Metric, f64)> {
        let mut readings = Vec::new();
        let is_stream = self.round_trip_us[0].is_none();
        if is_stream {
            readings.push((THROUGHPUT, self.bits_per_second() / 1e6));
        } else {
            readings.push((LATENCY, 1e6 / (2.0 * self.rate)));
        }
        for (metric, value) in ROUND_TRIP.into_iter().zip(self.round_trip_us) {
            readings.extend(value.map(|value| (metric, value)));
        }
        readings.extend(self.one_way_p50_us.map(|value| (ONE_WAY, value)));
        let ends = [(self.local, CLIENT, OF_CLIENT), (self.remote, SERVER, OF_SERVER)];
        for (load, all, [user, system]) in ends {
            readings.push((all, 100.0 * load.process()));
            readings.push((user, 100.0 * load.user / load.seconds));
            readings.push((system, 100.0 * load.system / load.seconds));
        }
        let machines: Option<Vec<_>> =
            [self.local, self.remote].iter().take(hosts).map(|load| load.machine).collect();
        if let Some(machines) = machines {
            let load = of_machines(&machines);
            let [(_, busy), ..] = load;
            readings.extend(load);
            readings.push((CPU_REST, rest(&load)));
            let busiest = machines.iter().map(seekwire_gauge::CpuTimes::busy).fold(0.0, f64::max);
            readings.push((BUSIEST, 100.0 * busiest));
            if is_stream {
                readings.push((EFFORT, busy / 100.0 * self.seconds / (self.bytes as f64 / 1e9)));
            }
        }
        // One of two hosts may not report its load. The load of a single one has been recorded
        // above.
        let each = [self.local, self.remote].into_iter().zip(OF_HOST).filter(|_| hosts > 1);
        for (load, metrics) in each {
            let Some(machine) = load.machine else { continue };
            let load = of_machines(&[machine]);
            let values = load.iter().map(|(_, value)| *value).chain([rest(&load)]);
            readings.extend(metrics.into_iter().zip(values));
        }
        readings
    }
}

const fn of_host(names: [&'static str; 5]) -> [Metric; 5] {
    let [all, user, system, softirq, rest] = names;
    [metric(all), metric(user), metric(system), metric(softirq), metric(rest)]
}

const fn metric(name: &'static str) -> Metric {
    Metric::lower(name, "%")
}

/// The rest of the load that is in no part. Ticks may count more than the clock does.
fn rest([(_, busy), parts @ ..]: &[(Metric, f64); 4]) -> f64 {
    (busy - parts.iter().map(|(_, part)| part).sum::<f64>()).max(0.0)
}

/// Load of the processors of these hosts together.
pub(crate) fn of_machines(machines: &[seekwire_gauge::CpuTimes]) -> [(Metric, f64); 4] {
    let sum = |of: fn(&seekwire_gauge::CpuTimes) -> f64| -> f64 {
        machines.iter().map(|machine| 100.0 * of(machine) * f64::from(machine.cpus)).sum()
    };
    [
        (CPU, sum(seekwire_gauge::CpuTimes::busy)),
        (CPU_USER, sum(|machine| machine.user)),
        (CPU_SYSTEM, sum(|machine| machine.system)),
        (CPU_SOFTIRQ, sum(|machine| machine.softirq)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(round_trip_us: [Option<f64>; 3]) -> GaugeReading {
        let machine = seekwire_gauge::CpuTimes {
            user: 0.1,
            system: 0.3,
            softirq: 0.1,
            idle: 0.5,
            stolen: 0.0,
            cpus: 2,
        };
        let load = Load { seconds: 2.0, user: 0.2, system: 0.4, machine: Some(machine) };
        GaugeReading {
            seconds: 2.0,
            bytes: 1_000_000_000,
            rate: 10_000.0,
            round_trip_us,
            one_way_p50_us: round_trip_us[0].map(|time| time / 2.0),
            local: load,
            remote: Load {
                machine: Some(seekwire_gauge::CpuTimes { idle: 0.0, ..machine }),
                user: 0.1,
                ..load
            },
        }
    }

    fn value(readings: &[(Metric, f64)], wanted: Metric) -> Option<f64> {
        readings.iter().find(|(metric, _)| *metric == wanted).map(|(_, value)| *value)
    }

    #[test]
    fn a_stream_has_a_rate_and_a_cost() {
        let readings = measured([None; 3]).readings(1);
        assert_eq!(value(&readings, THROUGHPUT), Some(4000.0));
        assert_eq!(value(&readings, CPU), Some(100.0));
        assert_eq!(value(&readings, EFFORT), Some(2.0));
        assert!((value(&readings, CLIENT).unwrap() - 30.0).abs() < 1e-9);
        assert_eq!((value(&readings, LATENCY), value(&readings, ROUND_TRIP[0])), (None, None));
        assert_eq!(value(&readings, BUSIEST), Some(50.0));
        assert_eq!(value(&readings, OF_HOST[0][0]), None, "there is only one");
    }

    #[test]
    fn two_hosts_have_a_load_each() {
        let readings = measured([None; 3]).readings(2);
        let of = |metric| value(&readings, metric).unwrap();
        assert_eq!(of(CPU), 300.0);
        assert_eq!(of(BUSIEST), 100.0, "the other one has nothing left");
        assert_eq!(OF_HOST.map(|[all, ..]| of(all)), [100.0, 200.0]);
        let parts = OF_HOST.map(|[_, parts @ ..]| parts.map(of).map(f64::round));
        assert_eq!(parts, [[20.0, 60.0, 20.0, 0.0], [20.0, 60.0, 20.0, 100.0]]);
        assert_eq!(OF_CLIENT.map(of).map(f64::round), [10.0, 20.0]);
        assert_eq!(OF_SERVER.map(of).map(f64::round), [5.0, 20.0]);
        assert_eq!(of(CPU_REST).round(), 100.0, "time that no tick has seen");
    }

    #[test]
    fn requests_have_times() {
        let readings = measured([Some(95.0), Some(120.0), Some(400.0)]).readings(1);
        assert_eq!(value(&readings, LATENCY), Some(50.0));
        assert_eq!(value(&readings, ROUND_TRIP[2]), Some(400.0));
        assert_eq!(value(&readings, ONE_WAY), Some(47.5));
        assert_eq!((value(&readings, THROUGHPUT), value(&readings, EFFORT)), (None, None));
    }

    #[test]
    fn what_is_said_is_understood() {
        let test =
            Test::new(seekwire_gauge::TestKind::Stream, 64, std::time::Duration::from_millis(10));
        let order = GaugeOrder { turn: 7, server: "198.18.0.2:5".parse().unwrap(), test };
        let text = serde_json::to_string(&order).unwrap();
        assert_eq!(serde_json::from_str::<GaugeOrder>(&text).unwrap().test, order.test);
        for outcome in [Ok(measured([None; 3])), Err("it has gone".to_owned())] {
            let text = serde_json::to_string(&GaugeResult { turn: 7, outcome }).unwrap();
            assert!(text.starts_with("{\"turn\":7,"), "{text}");
            serde_json::from_str::<GaugeResult>(&text).unwrap();
        }
    }
}
