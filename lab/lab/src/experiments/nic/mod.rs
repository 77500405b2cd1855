//! `nic`: the effect of the offloads of network interfaces on messages, after "Network hardware for
//! business messaging", sections 4.1 and 4.2.

mod claims;
mod compare;
mod findings;
mod link;
mod others;
mod tables;
mod thesis;

use std::time::Duration;

use anyhow::Result;
use seekwire_gauge::{Kind, Test};
use seekwire_testbed::{Side, Testbed};
use serde_json::Value;

use crate::claim::{Claim, Comparison};
use crate::experiment::{self, Context, Experiment};
use crate::experiments::by_size::{self, SIZES};
use crate::launch::interrupt;
use crate::network::Measured;
use crate::network::ends::{Ends, Host};
use crate::network::hosts::Hosts;
use crate::network::hosts::Place;
use crate::network::options::Options;
use crate::network::step::Step;
use crate::outcome::{Findings, Outcome, Recorded, ResultFile};
use crate::record::{Better, Metric};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::{stats, text};
use link::Link;

pub(super) struct Nic;

const QUICK_SIZES: [u64; 6] = [1, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10];

/// From this size on, a slow link is little work: CPU time, counted in ticks of 10 ms, takes longer
/// to measure.
const LIGHT: u64 = 4 << 10;

/// Size of the messages at the ends of tables, with which streams are also compared.
const LARGE: usize = 64 << 10;

/// CPU time of the weak receiver over its share, which is 100 %.
const SHARE: Metric =
    Metric { name: "CPU of the receiver, of its share", unit: "%", better: Better::Lower };
/// Throughput over the capacity of the slow link for messages.
const FULLNESS: Metric =
    Metric { name: "throughput, of the link", unit: "%", better: Better::Higher };

/// Part of a packet of 1514 bytes that is left for the message: Ethernet, IP and TCP with time
/// stamps take the rest.
const PAYLOAD: f64 = 1448.0 / 1514.0;

/// Rate of the link of the thesis' weak hosts over their throughput with everything off.
const SLOW_LINK: f64 = thesis::FULL_LINK / thesis::WEAK_THROUGHPUT[0][SIZES.len() - 1];

/// Number of measurements of the weak receiver to find the rate of its link.
const CALIBRATIONS: usize = 7;

/// The ways in which messages go, as the cases are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// Requests and responses, as fast as they go.
    Latency,
    /// A stream over a link that is slower than the hosts.
    Link,
    /// A stream to a host that is slower than the link.
    Weak,
    /// The same, but the link is not much faster than that host: with less work it is full.
    Slow,
}

impl Setting {
    const fn name(self) -> &'static str {
        match self {
            Self::Latency => "request/response",
            Self::Link => "stream",
            Self::Weak => "stream, weak receiver",
            Self::Slow => "stream, weak receiver, slow link",
        }
    }

    fn case(self, size: u64) -> String {
        format!("{}, {}", self.name(), text::size(size))
    }
}

/// How long each test takes, by setting.
#[derive(Clone, Copy)]
struct Times {
    latency: Duration,
    link: Duration,
    /// The same for messages of at least [`LIGHT`] bytes.
    light: Duration,
    weak: Duration,
    slow: Duration,
}

impl Times {
    /// The parameters that hold them, in milliseconds.
    const NAMES: [&str; 5] = [
        "milliseconds of each test of latency",
        "milliseconds of each stream",
        "milliseconds of each stream, messages of 4 KiB and more",
        "milliseconds of each stream to the weak receiver",
        "milliseconds of each stream to the weak receiver over the slow link",
    ];

    fn note(self, note: &mut impl FnMut(&str, Value)) {
        let Self { latency, link, light, weak, slow } = self;
        for (name, time) in Self::NAMES.into_iter().zip([latency, link, light, weak, slow]) {
            note(name, (time.as_millis() as u64).into());
        }
    }

    /// Those that [`Times::note`] has stored.
    fn noted(recorded: Recorded<'_>) -> Self {
        let time = |name| Duration::from_millis(recorded.number(name).unwrap_or(0));
        let [latency, link, light, weak, slow] = Self::NAMES.map(time);
        Self { latency, link, light, weak, slow }
    }
}

impl Experiment for Nic {
    fn name(&self) -> &'static str {
        "nic"
    }

    fn question(&self) -> &'static str {
        "How offloads of network interfaces change latency, throughput and CPU load of messages."
    }

    fn about(&self) -> &'static str {
        "Offloads of network interfaces are switched on in steps: everything off; checksums; scatter-gather, \
         TSO and GSO; GRO. In each step, with messages of 1 B to 64 KiB, four things are measured: the \
         latency of requests and responses; throughput and CPU load of a stream over a link of 1 Gb/s; the \
         same to a receiver with little processor time, without that limit; and the same over a link that \
         such a receiver cannot quite fill. Both ends are in network namespaces of this host, joined by a \
         veth pair, whose switches are real. With --peer, the other end is on another host, and the link is \
         the one that leads there. The numbers of the thesis, and those of iperf3, qperf and sockperf, stand \
         beside ours."
    }

    fn paper_reference(&self) -> Option<&'static str> {
        Some(
            "\"Network hardware for business messaging\", tables 4.1.1 and 4.2.1 to 4.2.6, graphs 4.1.1 and 4.2.1 \
             to 4.2.3",
        )
    }

    fn claims(&self) -> &'static [Claim] {
        claims::CLAIMS
    }

    fn comparisons(&self, result: &ResultFile) -> Vec<Comparison> {
        compare::with_the_thesis(result)
    }

    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 42 } else { 800 })
    }

    fn unavailable(&self, options: &experiment::Options) -> Option<String> {
        // With another host, namespaces are not needed.
        let made = options.network.peer.is_none().then(Testbed::new)?;
        made.err().map(|error| error.to_string())
    }

    fn own_options(&self) -> &'static [&'static str] {
        &["peer", "weak-peer", "iface", "default-route", "netns", "weak-cpu"]
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let options = context.network();
        Hosts::with(options, |hosts| {
            let ends = Ends::start(context, hosts, options.weak_cpu)?;
            measure(context, options, &ends)
        })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let (link, sizes) = (Link::noted(recorded), recorded.numbers("sizes"));
        let found = findings::find(recorded.samples, &sizes, &link);
        let rows = recorded.samples.rows(Step::Off.name());
        let words = tables::Words::new(&link, Times::noted(recorded));
        let mut tables = vec![findings::table(&found)];
        tables.extend(by_size::tables(&tables::views(&words), &rows, &sizes));
        tables.extend(tables::one_way(&rows, &sizes));
        tables.extend(tables::cpu_time(&rows, &words));
        tables.extend(by_size::parts(&tables::parts(&words), &rows, &sizes));
        Findings {
            summary: findings::summary(&found),
            tables,
            figures: by_size::figures(&tables::views(&words), &rows),
        }
    }
}

fn measure(context: &Context<'_>, options: &Options, ends: &Ends<'_, '_>) -> Result<Outcome> {
    let rounds = context.rounds(3, 5);
    let milliseconds = Duration::from_millis;
    let times = Times {
        latency: milliseconds(context.pick(40, 200)),
        link: milliseconds(context.pick(60, 200)),
        light: milliseconds(context.pick(120, 700)),
        weak: milliseconds(context.pick(60, 300)),
        slow: milliseconds(context.pick(50, 200)),
    };
    let sizes: &[u64] = context.pick(&QUICK_SIZES, &SIZES);
    let mut settings = vec![Setting::Latency, Setting::Link];
    let weak = ends.has_weak();
    settings.extend(weak.is_ok().then_some(Setting::Weak));
    let slow_link = match (ends.hosts().place(), weak) {
        (Place::Namespaces(_), Ok(())) => {
            calibrate(context, ends, times).map_err(|error| format!("{error:#}"))
        }
        (Place::Namespaces(_), Err(why)) => Err(why.to_owned()),
        (Place::Peer(_), _) => {
            Err("a link to another host cannot be slowed down from here".to_owned())
        }
    };
    interrupt::check()?;
    settings.extend(slow_link.is_ok().then_some(Setting::Slow));

    let rate = *slow_link.as_ref().unwrap_or(&0);
    let stage = &Stage { ends, times, weak_cpu: options.weak_cpu, slow_link: rate };
    let settings = &settings;
    let mut groups: Vec<Group<'_>> = sizes
        .iter()
        .map(|&size| {
            let variant = |step: Step| {
                Variant::new(step.name(), move |trial: &mut Trial| {
                    ends.hosts().set(step)?;
                    settings.iter().try_for_each(|&setting| stage.run(trial, setting, size))
                })
            };
            Group::new(text::size(size), Step::ALL.map(variant).into())
        })
        .collect();
    let mut samples = alternate(&mut groups, rounds, context.progress())?;
    drop(groups);

    let mut parameters = context.parameters(rounds);
    let link = match ends.hosts().place() {
        Place::Namespaces(_) => Link::made(),
        Place::Peer(peer) => Link::to(peer),
    };
    link.note(&mut parameters);
    let mut note = |name: &str, value: Value| drop(parameters.insert(name.to_owned(), value));
    match ends.hosts().place() {
        Place::Namespaces(testbed) => {
            samples.0.extend(others::measure(context, testbed, ends, rounds)?.0);
            note("hosts", "two network namespaces of this host, joined by a veth pair".into());
            for (name, value) in others::notes(rounds, context) {
                note(name, value.into());
            }
        }
        Place::Peer(peer) => {
            note("hosts", "this one, whose interface is set, and another one".into());
            note("peer", peer.address.to_string().into());
            note("interface", peer.interface.clone().into());
            if let Some(weak) = peer.weak {
                note("weak peer", weak.to_string().into());
            }
        }
    }
    note("sizes", sizes.into());
    match weak {
        Ok(()) => note("weak receiver: percent of one processor", options.weak_cpu.into()),
        Err(why) => note("weak receiver", format!("not measured: {why}").into()),
    };
    match slow_link {
        Ok(rate) => note("slow link of the weak receiver (b/s)", rate.into()),
        Err(why) => note("slow link of the weak receiver", format!("not measured: {why}").into()),
    };
    times.note(&mut note);
    note("TCP congestion control", "cubic, or reno where there is none".into());

    Ok(Outcome { parameters, samples, baseline: Step::Off.name(), violation: None })
}

/// Parameters of the tests.
struct Stage<'e, 'a, 'h> {
    ends: &'e Ends<'a, 'h>,
    times: Times,
    /// Percent of one processor.
    weak_cpu: f64,
    /// In bits per second.
    slow_link: u64,
}

impl Stage<'_, '_, '_> {
    /// One test of one step.
    fn run(&self, trial: &mut Trial, setting: Setting, size: u64) -> Result<()> {
        let Times { latency, link, light, weak, slow } = self.times;
        let (kind, host, time) = match setting {
            Setting::Latency => (Kind::RequestResponse, Host::Strong, latency),
            Setting::Link if size >= LIGHT => (Kind::Stream, Host::Strong, light),
            Setting::Link => (Kind::Stream, Host::Strong, link),
            Setting::Weak => (Kind::Stream, Host::Weak, weak),
            Setting::Slow => (Kind::Stream, Host::Weak, slow),
        };
        let time = if trial.is_warm_up() { time / 10 } else { time };
        let rate = match setting {
            Setting::Link => link::RATE,
            Setting::Slow => self.slow_link,
            Setting::Latency | Setting::Weak => 0,
        };
        let measured = self.over(
            rate,
            host,
            &Test { warm_up: time / 4, ..Test::new(kind, size as usize, time) },
        )?;
        let mut record =
            |metric, value| trial.record(setting.case(size), Some(size as f64), metric, value);
        for (metric, value) in measured.readings(self.ends.hosts().count()) {
            record(metric, value);
        }
        if host == Host::Weak {
            record(SHARE, 100.0 * measured.remote.process() / (self.weak_cpu / 100.0));
        }
        if setting == Setting::Slow {
            record(FULLNESS, 100.0 * measured.bits_per_second() / (rate as f64 * PAYLOAD));
        }
        Ok(())
    }

    /// One test, in namespaces over a link of this rate in bits per second; 0 is no limit. A real
    /// link keeps its own rate.
    fn over(&self, rate: u64, host: Host, test: &Test) -> Result<Measured> {
        let Place::Namespaces(testbed) = self.ends.hosts().place() else {
            return self.ends.run(host, test);
        };
        if rate == 0 {
            return self.ends.run(host, test);
        }
        let near = testbed.end(Side::Near);
        near.limit_rate(rate)?;
        let measured = self.ends.run(host, test);
        near.limit_rate(0)?;
        measured
    }
}

/// The rate of a link that carries [`SLOW_LINK`] times what the weak receiver takes with everything
/// off.
fn calibrate(context: &Context<'_>, ends: &Ends<'_, '_>, times: Times) -> Result<u64> {
    context.progress().note("measuring how much the weak receiver takes");
    ends.hosts().set(Step::Off)?;
    let test = Test { warm_up: times.weak / 4, ..Test::new(Kind::Stream, LARGE, times.weak) };
    let measure = |_| Ok(ends.run(Host::Weak, &test)?.bits_per_second());
    let measured = (0..CALIBRATIONS).map(measure).collect::<Result<Vec<f64>>>()?;
    let median = stats::median(&measured).expect("it was measured");
    Ok((median * SLOW_LINK / PAYLOAD) as u64)
}
