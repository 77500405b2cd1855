//! Two hosts, real or made of network namespaces, with interfaces whose offloads are switched between runs.
//!
//! ```text
//!   step      which offloads are on, in steps from none to all
//!   hosts     where the two ends are, and how their interfaces are set
//!   ends      the processes at both ends, and the tests that they run
//!   others    iperf3, sockperf and qperf between the same hosts
//! ```

pub(crate) mod ends;
pub(crate) mod hosts;
pub(crate) mod others;
pub(crate) mod step;

use std::net::SocketAddr;

use gauge::{Load, Test};
use serde::{Deserialize, Serialize};

use crate::record::{Better, Metric};

/// How network tests find their hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The other host, `HOST` or `HOST:PORT`, where `seekwire nic serve` runs; `None`: two network namespaces.
    pub peer: Option<String>,
    /// The interface whose settings are changed, if it is not to be the one that leads to the peer.
    pub interface: Option<String>,
    /// Whether this may be an interface that carries the default route.
    pub default_route: bool,
    /// What the receiver of a weak host gets, in percent of one processor.
    pub weak_cpu: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { peer: None, interface: None, default_route: false, weak_cpu: 20.0 }
    }
}

/// Rate of requests, turned into a time: 1 / (2 × rate).
pub(crate) const LATENCY: Metric = Metric { name: "one-way latency", unit: "µs", better: Better::Lower };
pub(crate) const ROUND_TRIP: [Metric; 3] = [
    Metric { name: "round trip p50", unit: "µs", better: Better::Lower },
    Metric { name: "round trip p99", unit: "µs", better: Better::Lower },
    Metric { name: "round trip p99.9", unit: "µs", better: Better::Lower },
];
pub(crate) const THROUGHPUT: Metric = Metric { name: "throughput", unit: "Mb/s", better: Better::Higher };
/// Of the processors of both hosts, or of the one that both ends are on; 100 % is one of them. More than its parts,
/// which are counted at ticks.
pub(crate) const CPU: Metric = Metric { name: "CPU load", unit: "%", better: Better::Lower };
pub(crate) const CPU_USER: Metric = Metric { name: "CPU load, user", unit: "%", better: Better::Lower };
pub(crate) const CPU_SYSTEM: Metric = Metric { name: "CPU load, system", unit: "%", better: Better::Lower };
pub(crate) const CPU_SOFTIRQ: Metric = Metric { name: "CPU load, softirq", unit: "%", better: Better::Lower };
/// What [`CPU`] consists of, by name.
pub(crate) const CPU_PARTS: [(&str, Metric); 3] =
    [("user", CPU_USER), ("system", CPU_SYSTEM), ("softirq", CPU_SOFTIRQ)];
/// Of one process.
pub(crate) const CLIENT: Metric = Metric { name: "CPU of the client", unit: "%", better: Better::Lower };
pub(crate) const SERVER: Metric = Metric { name: "CPU of the server", unit: "%", better: Better::Lower };
/// [`CPU`] for each byte.
pub(crate) const EFFORT: Metric = Metric { name: "CPU time", unit: "s/GB", better: Better::Lower };

/// A test for a `gauge-drive` peer, one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) turn: u64,
    pub(crate) server: SocketAddr,
    pub(crate) test: Test,
}

/// Its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) turn: u64,
    pub(crate) outcome: Result<Measured, String>,
}

/// The part of a reading that the laboratory needs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    /// Of messages, in one direction.
    pub(crate) bytes: u64,
    /// Messages or round trips per second.
    pub(crate) rate: f64,
    /// p50, p99 and p99.9; none of streams.
    pub(crate) round_trip_us: [Option<f64>; 3],
    pub(crate) local: Load,
    pub(crate) remote: Load,
}

impl Measured {
    /// As metrics. `hosts` is their number: where both ends are on one, either sees the load of both.
    pub(crate) fn readings(&self, hosts: usize) -> Vec<(Metric, f64)> {
        let mut readings = Vec::new();
        let is_stream = self.round_trip_us[0].is_none();
        if is_stream {
            readings.push((THROUGHPUT, self.bytes as f64 * 8.0 / self.seconds / 1e6));
        } else {
            readings.push((LATENCY, 1e6 / (2.0 * self.rate)));
        }
        for (metric, value) in ROUND_TRIP.into_iter().zip(self.round_trip_us) {
            readings.extend(value.map(|value| (metric, value)));
        }
        readings.push((CLIENT, 100.0 * self.local.process()));
        readings.push((SERVER, 100.0 * self.remote.process()));
        let machines: Option<Vec<_>> =
            [self.local, self.remote].iter().take(hosts).map(|load| load.machine).collect();
        if let Some(machines) = machines {
            let load = of_machines(&machines);
            let [(_, busy), ..] = load;
            readings.extend(load);
            if is_stream {
                readings.push((EFFORT, busy / 100.0 * self.seconds / (self.bytes as f64 / 1e9)));
            }
        }
        readings
    }
}

/// Load of the processors of these hosts together.
pub(crate) fn of_machines(machines: &[gauge::Machine]) -> [(Metric, f64); 4] {
    let sum = |of: fn(&gauge::Machine) -> f64| -> f64 {
        machines.iter().map(|machine| 100.0 * of(machine) * f64::from(machine.cpus)).sum()
    };
    [
        (CPU, sum(gauge::Machine::busy)),
        (CPU_USER, sum(|machine| machine.user)),
        (CPU_SYSTEM, sum(|machine| machine.system)),
        (CPU_SOFTIRQ, sum(|machine| machine.softirq)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(round_trip_us: [Option<f64>; 3]) -> Measured {
        let machine =
            gauge::Machine { user: 0.1, system: 0.3, softirq: 0.1, idle: 0.5, stolen: 0.0, cpus: 2 };
        let load = Load { seconds: 2.0, user: 0.2, system: 0.4, machine: Some(machine) };
        Measured {
            seconds: 2.0,
            bytes: 1_000_000_000,
            rate: 10_000.0,
            round_trip_us,
            local: load,
            remote: load,
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
        assert_eq!(value(&measured([None; 3]).readings(2), CPU), Some(200.0), "two hosts, two loads");
    }

    #[test]
    fn requests_have_times() {
        let readings = measured([Some(95.0), Some(120.0), Some(400.0)]).readings(1);
        assert_eq!(value(&readings, LATENCY), Some(50.0));
        assert_eq!(value(&readings, ROUND_TRIP[2]), Some(400.0));
        assert_eq!((value(&readings, THROUGHPUT), value(&readings, EFFORT)), (None, None));
    }

    #[test]
    fn what_is_said_is_understood() {
        let test = Test::new(gauge::Kind::Stream, 64, std::time::Duration::from_millis(10));
        let order = Order { turn: 7, server: "198.18.0.2:5".parse().unwrap(), test };
        let text = serde_json::to_string(&order).unwrap();
        assert_eq!(serde_json::from_str::<Order>(&text).unwrap().test, order.test);
        for outcome in [Ok(measured([None; 3])), Err("it has gone".to_owned())] {
            let text = serde_json::to_string(&Done { turn: 7, outcome }).unwrap();
            assert!(text.starts_with("{\"turn\":7,"), "{text}");
            serde_json::from_str::<Done>(&text).unwrap();
        }
    }
}
