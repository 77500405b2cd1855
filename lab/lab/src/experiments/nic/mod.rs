//! `nic`: the effect of the offloads of network interfaces on messages, after "Network hardware for
//! business messaging", sections 4.1 and 4.2.

mod cases;
mod claims;
mod findings;
mod link;
mod other_programs;
mod published;
mod tables;

use std::time::Duration;

use anyhow::Result;
use seekwire_gauge::{Test, TestKind};
use seekwire_testbed::{Side, Testbed};
use serde_json::Value;

use crate::claim::{Evidence, PublishedComparison};
use crate::experiment::{self, Context, Experiment};
use crate::experiments::by_size::{BySize, SIZES};
use crate::launch::interrupt;
use crate::network::GaugeReading;
use crate::network::hosts::Hosts;
use crate::network::hosts::ServerLocation;
use crate::network::options::NetworkOptions;
use crate::network::step::OffloadStep;
use crate::network::test_processes::{Host, TestProcesses};
use crate::outcome::{Findings, Outcome, Recorded, ResultFile};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::{stats, text};
use cases::{FULLNESS, LARGE, LIGHT, SHARE, Setting, Times};
use link::Link;

pub(super) struct Nic;

const QUICK_SIZES: [u64; 6] = [1, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10];

/// Part of a packet of 1514 bytes that is left for the message: Ethernet, IP and TCP with time
/// stamps take the rest.
const PAYLOAD: f64 = 1448.0 / 1514.0;

/// Rate of the link of the thesis' weak hosts over their throughput with everything off.
fn slow_link() -> f64 {
    published::FULL_LINK / Nic.file().published["weak_throughput"][0].values[SIZES.len() - 1]
}

/// Number of measurements of the weak receiver to find the rate of its link.
const CALIBRATIONS: usize = 7;

impl Experiment for Nic {
    experiment_file!("nic");

    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        claims::computed(words, result)
    }

    fn comparisons(&self, result: &ResultFile) -> Vec<PublishedComparison> {
        BySize { file: self.file(), words: &[], rows: &result.rows }.published()
    }

    fn unavailable(&self, options: &experiment::Options) -> Option<String> {
        // With another host, namespaces are not needed.
        let made = options.network.peer.is_none().then(Testbed::new)?;
        made.err().map(|error| error.to_string())
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let options = context.network();
        Hosts::with(options, |hosts| {
            let ends = TestProcesses::start(context, hosts, options.weak_cpu)?;
            measure(context, options, &ends)
        })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let (link, sizes) = (Link::noted(recorded), recorded.numbers("sizes"));
        let all_findings = findings::find(self.file(), recorded.samples, &sizes, &link);
        let rows = recorded.samples.rows(OffloadStep::Off.name());
        let words = &tables::words(&link, Times::noted(recorded));
        let by_size = BySize { file: self.file(), words, rows: &rows };
        let mut tables = vec![findings::table(&all_findings)];
        tables.extend(by_size.tables(&sizes));
        tables.extend(tables::one_way(&rows, &sizes));
        tables.extend(tables::cpu_time(&rows, &link));
        tables.extend(by_size.parts(&sizes));
        Findings { summary: findings::summary(&all_findings), tables, figures: by_size.figures() }
    }
}

fn measure(
    context: &Context<'_>,
    options: &NetworkOptions,
    ends: &TestProcesses<'_, '_>,
) -> Result<Outcome> {
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
    let slow_link = match (ends.hosts().location(), weak) {
        (ServerLocation::Namespaces(_), Ok(())) => {
            calibrate(context, ends, times).map_err(|error| format!("{error:#}"))
        }
        (ServerLocation::Namespaces(_), Err(why)) => Err(why.to_owned()),
        (ServerLocation::Peer(_), _) => {
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
            let variant = |step: OffloadStep| {
                Variant::new(step.name(), move |trial: &mut Trial| {
                    ends.hosts().set(step)?;
                    settings.iter().try_for_each(|&setting| stage.run(trial, setting, size))
                })
            };
            Group::new(text::size(size), OffloadStep::ALL.map(variant).into())
        })
        .collect();
    let mut samples = alternate(&mut groups, rounds, context.progress())?;
    drop(groups);

    let mut parameters = context.parameters(rounds);
    let link = match ends.hosts().location() {
        ServerLocation::Namespaces(_) => Link::made(),
        ServerLocation::Peer(peer) => Link::to(peer),
    };
    link.note(&mut parameters);
    let mut note = |name: &str, value: Value| drop(parameters.insert(name.to_owned(), value));
    match ends.hosts().location() {
        ServerLocation::Namespaces(testbed) => {
            samples.0.extend(other_programs::measure(context, testbed, ends, rounds)?.0);
            note("hosts", "two network namespaces of this host, joined by a veth pair".into());
            for (name, value) in other_programs::notes(rounds, context) {
                note(name, value.into());
            }
        }
        ServerLocation::Peer(peer) => {
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

    Ok(Outcome { parameters, samples, baseline: OffloadStep::Off.name(), violation: None })
}

/// Parameters of the tests.
struct Stage<'e, 'a, 'h> {
    ends: &'e TestProcesses<'a, 'h>,
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
            Setting::Latency => (TestKind::RequestResponse, Host::Strong, latency),
            Setting::Link if size >= LIGHT => (TestKind::Stream, Host::Strong, light),
            Setting::Link => (TestKind::Stream, Host::Strong, link),
            Setting::Weak => (TestKind::Stream, Host::Weak, weak),
            Setting::Slow => (TestKind::Stream, Host::Weak, slow),
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
    fn over(&self, rate: u64, host: Host, test: &Test) -> Result<GaugeReading> {
        let ServerLocation::Namespaces(testbed) = self.ends.hosts().location() else {
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

/// The rate of a link that carries [`slow_link`] times what the weak receiver takes with everything
/// off.
fn calibrate(context: &Context<'_>, ends: &TestProcesses<'_, '_>, times: Times) -> Result<u64> {
    context.progress().note("measuring how much the weak receiver takes");
    ends.hosts().set(OffloadStep::Off)?;
    let test = Test { warm_up: times.weak / 4, ..Test::new(TestKind::Stream, LARGE, times.weak) };
    let measure = |_| Ok(ends.run(Host::Weak, &test)?.bits_per_second());
    let measured = (0..CALIBRATIONS).map(measure).collect::<Result<Vec<f64>>>()?;
    let median = stats::median(&measured).expect("it was measured");
    Ok((median * slow_link() / PAYLOAD) as u64)
}
