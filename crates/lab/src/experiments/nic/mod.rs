//! `nic`: what the offloads of network interfaces do for messages, after "Network hardware for business messaging",
//! sections 4.1 and 4.2.

mod claims;
mod findings;
mod tables;
mod thesis;

use std::time::Duration;

use anyhow::Result;
use gauge::{Kind, Test};
use testbed::{Side, Testbed};

use crate::claim::Claim;
use crate::experiment::{self, Context, Experiment};
use crate::experiments::by_size::{self, SIZES};
use crate::network::ends::{Ends, Host};
use crate::network::hosts::{Hosts, Place};
use crate::network::others::Tool;
use crate::network::step::Step;
use crate::network::{LATENCY, Options, THROUGHPUT};
use crate::outcome::Outcome;
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::text;

pub(super) struct Nic;

/// Rate of the link between the thesis' hosts, in bits per second.
const LINK: u64 = 1_000_000_000;

const QUICK_SIZES: [u64; 6] = [1, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10];

/// From here on a slow link is little work: CPU time that is counted in ticks of 10 ms takes longer to be told.
const LIGHT: u64 = 4 << 10;

/// What is compared with other programs: a stream of large messages, and the latency of small ones.
const LARGE: usize = 64 << 10;
/// Bytes of messages, and the program; sockperf's have 14 at least.
const SMALL: [(usize, Tool); 2] = [(1, Tool::Qperf), (64, Tool::Sockperf)];

/// The ways in which messages go, as the cases are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// Requests and responses, as fast as they go.
    Latency,
    /// A stream over a link that is slower than the hosts.
    Link,
    /// A stream to a host that is slower than the link.
    Weak,
}

impl Setting {
    const fn name(self) -> &'static str {
        match self {
            Self::Latency => "request/response",
            Self::Link => "stream",
            Self::Weak => "stream, weak receiver",
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
    /// Of other programs, which know whole seconds only.
    others: u64,
}

impl Experiment for Nic {
    fn name(&self) -> &'static str {
        "nic"
    }

    fn question(&self) -> &'static str {
        "What the offloads of network interfaces change in latency, throughput and CPU load of messages."
    }

    fn about(&self) -> &'static str {
        "Offloads of network interfaces, switched on in steps: everything off; checksums; scatter-gather, TSO and \
         GSO; GRO. Latency of requests and responses, throughput and CPU load of a stream over a link of 1 Gb/s, \
         and the same without that limit to a receiver that has little processor time, for messages of 1 B to 64 \
         KiB. Both ends are in network namespaces of this host, joined by a veth pair, whose switches are real; \
         with --peer the other end is on another host. Beside it the numbers of the thesis, and those of iperf3, \
         qperf and sockperf."
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

    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 35 } else { 600 })
    }

    fn unavailable(&self, options: &experiment::Options) -> Option<String> {
        // With another host, namespaces are not needed.
        let made = options.network.peer.is_none().then(Testbed::new)?;
        made.err().map(|error| error.to_string())
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let options = context.network();
        Hosts::with(options, |hosts| {
            let ends = Ends::start(context, hosts, options.weak_cpu)?;
            measure(context, options, &ends)
        })
    }
}

fn measure(context: &Context<'_>, options: &Options, ends: &Ends<'_, '_>) -> Result<Outcome> {
    let rounds = context.rounds(3, 5);
    let milliseconds = Duration::from_millis;
    let times = Times {
        latency: milliseconds(context.pick(50, 200)),
        link: milliseconds(context.pick(80, 200)),
        light: milliseconds(context.pick(150, 700)),
        weak: milliseconds(context.pick(80, 300)),
        others: 1,
    };
    let sizes: &[u64] = context.pick(&QUICK_SIZES, &SIZES);
    let mut settings = vec![Setting::Latency, Setting::Link];
    let weak = ends.has_weak();
    settings.extend(weak.is_ok().then_some(Setting::Weak));

    let settings = &settings;
    let mut groups: Vec<Group<'_>> = sizes
        .iter()
        .map(|&size| {
            let variant = |step: Step| {
                Variant::new(step.name(), move |trial: &mut Trial| {
                    ends.hosts().set(step)?;
                    settings.iter().try_for_each(|&setting| run(trial, ends, setting, size, times))
                })
            };
            Group::new(text::size(size), Step::ALL.map(variant).into())
        })
        .collect();
    if let Place::Namespaces(testbed) = ends.hosts().place() {
        groups.extend(others(context, testbed, ends, times));
    }
    let samples = alternate(&mut groups, rounds, context.progress())?;
    drop(groups);

    let mut parameters = context.parameters(rounds);
    let mut note = |name: &str, value: serde_json::Value| parameters.insert(name.to_owned(), value);
    note("sizes", sizes.into());
    match ends.hosts().place() {
        Place::Namespaces(_) => {
            note("hosts", "two network namespaces of this host, joined by a veth pair".into());
            note("link of the streams (b/s), by a token bucket (tbf) at the sender", LINK.into());
        }
        Place::Peer(address) => {
            note("hosts", "this one, whose interface is set, and another one".into());
            note("peer", address.to_string().into());
        }
    }
    match weak {
        Ok(()) => note("weak receiver: percent of one processor", options.weak_cpu.into()),
        Err(why) => note("weak receiver", format!("not measured: {why}").into()),
    };
    let milliseconds = |time: Duration| serde_json::Value::from(time.as_millis() as u64);
    note("milliseconds of each test of latency", milliseconds(times.latency));
    note("milliseconds of each stream", milliseconds(times.link));
    note("milliseconds of each stream, messages of 4 KiB and more", milliseconds(times.light));
    note("milliseconds of each stream to the weak receiver", milliseconds(times.weak));
    note("seconds of each test of other programs", times.others.into());
    note("TCP congestion control", "cubic, or reno where there is none".into());

    let found = findings::find(&samples, sizes);
    let rows = samples.rows(Step::Off.name());
    let mut tables = vec![findings::table(&found)];
    tables.extend(by_size::tables(&tables::VIEWS, &rows, sizes));
    tables.extend(by_size::parts(&tables::PARTS, &rows, sizes));
    Ok(Outcome {
        parameters,
        summary: findings::summary(&found),
        tables,
        figures: by_size::figures(&tables::VIEWS, &rows),
        samples,
        baseline: Step::Off.name(),
        violation: None,
    })
}

/// One test of one step.
fn run(trial: &mut Trial, ends: &Ends<'_, '_>, setting: Setting, size: u64, times: Times) -> Result<()> {
    let (kind, host, time) = match setting {
        Setting::Latency => (Kind::RequestResponse, Host::Strong, times.latency),
        Setting::Link if size >= LIGHT => (Kind::Stream, Host::Strong, times.light),
        Setting::Link => (Kind::Stream, Host::Strong, times.link),
        Setting::Weak => (Kind::Stream, Host::Weak, times.weak),
    };
    let time = if trial.is_warm_up() { time / 10 } else { time };
    let test = Test { warm_up: time / 4, ..Test::new(kind, size as usize, time) };
    let measured = match (setting, ends.hosts().place()) {
        (Setting::Link, Place::Namespaces(testbed)) => {
            let near = testbed.end(Side::Near);
            near.limit_rate(LINK)?;
            let measured = ends.run(host, &test);
            near.limit_rate(0)?;
            measured
        }
        _ => ends.run(host, &test),
    }?;
    for (metric, value) in measured.readings(ends.hosts().count()) {
        trial.record(setting.case(size), Some(size as f64), metric, value);
    }
    Ok(())
}

/// Our own program and those of others, in turns, with all offloads on and neither a slow link nor a weak host.
fn others<'a>(
    context: &Context<'_>,
    testbed: &'a Testbed,
    ends: &'a Ends<'_, '_>,
    times: Times,
) -> Vec<Group<'a>> {
    let own = move |case: String, kind: Kind, size: usize| {
        Variant::new(findings::OWN, move |trial: &mut Trial| {
            ends.hosts().set(Step::Joining)?;
            let time = Duration::from_secs(times.others);
            let time = if trial.is_warm_up() { time / 10 } else { time };
            let measured = ends.run(Host::Strong, &Test::new(kind, size, time))?;
            for (metric, value) in measured.readings(1) {
                if [THROUGHPUT, LATENCY].contains(&metric) {
                    trial.record(case.clone(), None, metric, value);
                }
            }
            Ok(())
        })
    };
    let case = findings::against_others(LARGE as u64, THROUGHPUT);
    let stream = |tool: Tool, case: String| {
        Variant::new(tool.name(), move |trial: &mut Trial| {
            ends.hosts().set(Step::Joining)?;
            let seconds = if trial.is_warm_up() { 1 } else { times.others };
            let value = tool.stream(testbed, LARGE, seconds)?;
            trial.record(case.clone(), None, THROUGHPUT, value);
            Ok(())
        })
    };
    let mut variants = vec![own(case.clone(), Kind::Stream, LARGE), stream(Tool::Iperf3, case.clone())];
    // In a hurry only what the summary needs: sockperf alone takes its time to calibrate itself.
    if !context.quick() {
        variants.push(stream(Tool::Qperf, case.clone()));
    }
    let mut groups = vec![Group::new(case, variants)];
    for (size, tool) in SMALL.into_iter().filter(|_| !context.quick()) {
        let case = findings::against_others(size as u64, LATENCY);
        let name = case.clone();
        let other = Variant::new(tool.name(), move |trial: &mut Trial| {
            ends.hosts().set(Step::Joining)?;
            let seconds = if trial.is_warm_up() { 1 } else { times.others };
            let value = tool.latency(testbed, size, seconds)?;
            trial.record(name.clone(), None, LATENCY, value);
            Ok(())
        });
        groups.push(Group::new(case.clone(), vec![own(case, Kind::RequestResponse, size), other]));
    }
    groups
}
