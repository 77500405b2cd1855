//! `vm`: the gains of programs in two virtual machines that share memory, after YASMIN, whose
//! machines were domains of Xen.

mod cases;
mod claims;
mod findings;
mod guest_programs;

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use seekwire_transport::layout::Geometry;
use serde_json::Value;

use super::result_names::pairs_case;
use super::sweep::sweep;
use crate::bench::{BANDWIDTH, Operation, Report, Test};
use crate::claim::Evidence;
use crate::experiment::{self, Context, Experiment};
use crate::guests::{
    Clock, Contents, Guest, GuestImage, GuestKind, GuestSettings, Guests, requirements,
};
use crate::launch::{ACCELERATED, Mode, PLAIN, interrupt};
use crate::outcome::{At, Findings, Outcome, Recorded, ResultFile};
use crate::programs::redis::RedisCase;
use crate::programs::{WorkAmount, iperf3};
use crate::record::Samples;
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::{streambench, text};
use cases::{BULK, KINDS, SMALL, VARIANTS, VCHAN, case, counted, named, reverse, ring};
use findings::{against_vchan, figures, how};
use guest_programs::{Ends, INSTRUCTIONS, STREAMBENCH, StartMode};

pub(super) struct Vm;

/// The tests and sizes of a run.
#[derive(Clone, Debug)]
struct Workload {
    /// Duration of a test.
    time: Duration,
    sizes: Vec<u64>,
    /// Bytes of the pool of an end's memory, in which messages of 64 KiB lie.
    rings: Vec<u64>,
    pairs: Vec<usize>,
    iperf3_seconds: u64,
    redis: Vec<RedisCase>,
    /// Message sizes for which instructions are counted.
    counted: Vec<u64>,
    /// Message sizes between domains of Xen; none: they are left out.
    xen: Vec<u64>,
}

impl Workload {
    /// Where processors are emulated, it takes longer until a connection has moved to the region.
    fn of(quick: bool, is_emulated: bool) -> Self {
        let slower = if is_emulated { 4 } else { 1 };
        let redis = |get, size, clients| RedisCase { get, size, clients, pipeline: 1 };
        match quick {
            true => Self {
                time: Duration::from_millis(100) * slower,
                sizes: vec![SMALL, BULK],
                rings: Vec::new(),
                pairs: vec![2],
                iperf3_seconds: if is_emulated { 2 } else { 1 },
                redis: vec![redis(true, 64, 1)],
                counted: Vec::new(),
                xen: Vec::new(),
            },
            false => Self {
                time: Duration::from_millis(500) * slower,
                // A dip is claimed for 4 MiB.
                sizes: vec![
                    SMALL,
                    64,
                    1 << 10,
                    16 << 10,
                    BULK,
                    256 << 10,
                    1 << 20,
                    2 << 20,
                    4 << 20,
                ],
                rings: vec![256 << 10, 512 << 10, 1 << 20, 2 << 20],
                pairs: vec![1, 2, 4],
                iperf3_seconds: if is_emulated { 4 } else { 2 },
                redis: vec![
                    redis(true, 64, 1),
                    redis(false, 64, 1),
                    redis(true, 16 << 10, 1),
                    redis(true, 64, 4),
                ],
                counted: vec![1 << 10, BULK],
                xen: vec![SMALL, 1 << 10, BULK, 1 << 20],
            },
        }
    }

    fn test(&self, operation: Operation, size: u64) -> Test {
        Test { operation, size, time: self.time }
    }
}

impl Experiment for Vm {
    experiment_file!("vm");

    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        (words == ["four pairs"]).then(|| claims::four_pairs(result))
    }

    fn reason(&self, result: &ResultFile, at: At<'_>) -> Option<String> {
        claims::reason(result, at)
    }

    fn unavailable(&self, options: &experiment::Options) -> Option<String> {
        requirements::unavailable(options)
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(2, 7);
        let library = match context.accelerated()? {
            Mode::Accelerated { library, .. } => library,
            mode => bail!("no library is loaded by {mode:?}"),
        };
        let command = requirements::command(&context.peer()?).map_err(|why| anyhow!("{why}"))?;
        let programs = [(STREAMBENCH, streambench::path()?)];
        let contents = Contents { command: &command, library: &library, programs: &programs };

        // Without these nothing can be compared.
        let (image, bed) = start(context, GuestKind::Machines, &contents)?;
        let workload = Workload::of(context.quick(), bed.guests.setting.is_emulated);
        let setting = bed.guests.setting.clone();
        let mut samples = machines(context, &workload, rounds, bed)?;
        samples.0.extend(instructions(context, &workload, &image)?.0);
        drop(image);
        let (of_xen, setting_of_xen) = xen(context, &workload, rounds, &contents)?;
        samples.0.extend(of_xen.0);

        let mut parameters = context.parameters(rounds);
        let mut set = |name: &str, value: Value| drop(parameters.insert(name.to_owned(), value));
        // Programs in guests inherit none of this host's.
        set("environment", Value::Object(Default::default()));
        set("milliseconds per test", (workload.time.as_millis() as u64).into());
        set("iperf3 seconds", workload.iperf3_seconds.into());
        set("sizes", workload.sizes.into());
        set("sizes between domains of Xen", workload.xen.into());
        set("ring sizes", workload.rings.into());
        set("pairs", workload.pairs.into());
        for (kind, setting) in KINDS.into_iter().zip([Some(setting), setting_of_xen]) {
            for (what, value) in setting.iter().flat_map(settings) {
                set(&case(kind, what), value.into());
            }
        }
        Ok(Outcome { parameters, samples, baseline: PLAIN, violation: None })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let rows = recorded.samples.rows(PLAIN);
        Findings {
            summary: self.file().summary(
                recorded.samples,
                &[("xen_vs_vchan_bulk", against_vchan(recorded.samples))],
            ),
            tables: vec![how(recorded)],
            figures: figures(&rows, &recorded),
        }
    }
}

/// Guests that are measured, and why programs in them cannot be accelerated, if so.
struct Bed {
    kind: GuestKind,
    guests: Rc<Guests>,
    link: Result<(), String>,
}

impl Bed {
    fn new(kind: GuestKind, guests: Guests) -> Self {
        if guests.setting.is_emulated {
            seekwire_program::tell(format_args!(
                "vm: the guests’ processors are {}; only ratios within this run are meaningful",
                guests.setting.processors
            ));
        }
        let link = guests.attach().map_err(|error| format!("{error:#}"));
        Self { kind, guests: Rc::new(guests), link }
    }

    fn ends(&self, mode: StartMode, server: Guest) -> Ends {
        Ends { guests: Rc::clone(&self.guests), mode, server }
    }

    /// Plain and accelerated; `run` runs it in either mode.
    fn compare<F>(&self, server: Guest, run: impl Fn(Ends) -> F) -> Vec<Variant<'static>>
    where
        F: FnMut(&mut Trial) -> Result<()> + 'static,
    {
        let plain = Variant::new(PLAIN, run(self.ends(StartMode::Plain, server)));
        vec![plain, self.accelerated(Vec::new(), server, run)]
    }

    fn accelerated<F>(
        &self,
        variables: Vec<(&'static str, u64)>,
        server: Guest,
        run: impl Fn(Ends) -> F,
    ) -> Variant<'static>
    where
        F: FnMut(&mut Trial) -> Result<()> + 'static,
    {
        match &self.link {
            Ok(()) => {
                Variant::new(ACCELERATED, run(self.ends(StartMode::Accelerated(variables), server)))
            }
            Err(why) => Variant::unavailable(ACCELERATED, why.clone()),
        }
    }

    /// Messages of each size, to and fro, and one way.
    fn messages(&self, tests: &[Test], server: Guest, name: fn(u64) -> String) -> Group<'static> {
        let kind = self.kind;
        let mut variants = self.compare(server, |ends| {
            let tests = tests.to_vec();
            move |trial: &mut Trial| {
                ends.with(|ends| {
                    ends.exchange(&tests, trial, |trial, report| {
                        record(trial, &case(kind, &name(report.size)), &report);
                    })
                })
            }
        });
        if kind == GuestKind::Xen {
            let (ends, tests) = (self.ends(StartMode::Plain, server), tests.to_vec());
            variants.push(Variant::new(VCHAN, move |trial: &mut Trial| {
                for test in &tests {
                    let report = ends.with(|ends| ends.vchan(test))?;
                    record(trial, &case(kind, &name(report.size)), &report);
                }
                Ok(())
            }));
        }
        Group::new(case(kind, &format!("messages to guest {}", server as usize)), variants)
    }

    /// Large messages through a ring of another size.
    fn ring(&self, size: u64, test: Test) -> Group<'static> {
        let name = case(self.kind, &ring(size));
        let segment = Geometry::default().segment_size() as u64;
        let variables =
            vec![("SEEKWIRE_SEGMENT_SIZE", segment), ("SEEKWIRE_SEGMENTS", size / segment)];
        let variant = self.accelerated(variables, Guest::One, |ends| {
            let name = name.clone();
            move |trial: &mut Trial| {
                ends.with(|ends| {
                    ends.exchange(&[test], trial, |trial, report| record(trial, &name, &report))
                })
            }
        });
        Group::new(name.clone(), vec![variant])
    }

    fn pairs(&self, count: usize, test: Test) -> Group<'static> {
        let name = case(self.kind, &pairs_case(count));
        let variants = self.compare(Guest::One, |ends| {
            let name = name.clone();
            move |trial: &mut Trial| {
                let bandwidth = ends.with(|ends| ends.together(count, &test, trial))?;
                trial.record(&name, Some(count as f64), BANDWIDTH, bandwidth);
                Ok(())
            }
        });
        Group::new(name.clone(), variants)
    }

    fn iperf3(&self, reverse: bool, seconds: u64) -> Group<'static> {
        let name = case(self.kind, if reverse { iperf3::REVERSE } else { iperf3::FORWARD });
        let variants = self.compare(Guest::One, |ends| {
            let name = name.clone();
            move |trial: &mut Trial| {
                let bandwidth = ends.with(|ends| ends.iperf3(reverse, seconds, trial))?;
                trial.record(&name, None, BANDWIDTH, bandwidth);
                Ok(())
            }
        });
        Group::new(name.clone(), variants)
    }

    fn redis(&self, what: RedisCase, time: Duration) -> Group<'static> {
        let (name, work) = (case(self.kind, &what.name()), WorkAmount::default());
        let variants = self.compare(Guest::One, |ends| {
            let (name, work) = (name.clone(), work.clone());
            move |trial: &mut Trial| {
                for (metric, value) in ends.with(|ends| ends.redis(what, &work, time, trial))? {
                    trial.record(&name, None, metric, value);
                }
                Ok(())
            }
        });
        Group::new(name.clone(), variants)
    }

    fn instructions(&self, test: Test) -> Group<'static> {
        let name = case(self.kind, &counted(test.size));
        let variants = self.compare(Guest::One, |ends| {
            let name = name.clone();
            move |trial: &mut Trial| {
                let executed = ends.with(|ends| ends.count(&test, trial))?;
                trial.record(&name, None, INSTRUCTIONS, executed);
                Ok(())
            }
        });
        Group::new(name.clone(), variants)
    }
}

fn record(trial: &mut Trial, case: &str, report: &Report) {
    // Messages of one size in rings of several would be points of the same curve.
    let x = (!case.contains("ring") && !case.contains("reverse")).then_some(report.size as f64);
    for (metric, value) in report.readings() {
        trial.record(case, x, metric, value);
    }
}

/// Guests of a kind, and the image they were started from.
fn start(
    context: &Context<'_>,
    kind: GuestKind,
    contents: &Contents<'_>,
) -> Result<(GuestImage, Bed)> {
    context.progress().note(&format!("making guests ({})", named(kind)));
    let image = GuestImage::make(kind, contents)?;
    context.progress().note(&format!("starting guests ({})", named(kind)));
    let bed = Bed::new(kind, Guests::start(&image, Clock::Time)?);
    Ok((image, bed))
}

/// Between two virtual machines.
fn machines(
    context: &Context<'_>,
    workload: &Workload,
    rounds: usize,
    bed: Bed,
) -> Result<Samples> {
    let tests = sweep(&[Operation::Pingpong, Operation::Bandwidth], &workload.sizes, workload.time);
    let bulk = workload.test(Operation::Bandwidth, BULK);
    let mut groups = vec![bed.messages(&tests, Guest::One, text::size)];
    groups.extend(workload.rings.iter().map(|&size| bed.ring(size, bulk)));
    groups.extend(workload.pairs.iter().map(|&count| bed.pairs(count, bulk)));
    groups.push(bed.iperf3(false, workload.iperf3_seconds));
    if !context.quick() {
        groups.push(bed.iperf3(true, workload.iperf3_seconds));
    }
    groups.extend(workload.redis.iter().map(|&case| bed.redis(case, workload.time)));
    alternate(&mut groups, rounds, context.progress())
}

/// Instructions that both machines execute for a message, which an emulator can count.
fn instructions(context: &Context<'_>, workload: &Workload, image: &GuestImage) -> Result<Samples> {
    if workload.counted.is_empty() {
        return Ok(Samples::default());
    }
    context.progress().note("starting guests whose clock counts instructions");
    let mut groups: Vec<Group<'_>> = match Guests::start(image, Clock::Instructions) {
        Ok(guests) => {
            let bed = Bed::new(GuestKind::Machines, guests);
            let test = |&size| workload.test(Operation::Bandwidth, size);
            workload.counted.iter().map(test).map(|test| bed.instructions(test)).collect()
        }
        Err(error) => vec![none(case(GuestKind::Machines, "counted"), &format!("{error:#}"))],
    };
    // Instruction counts hardly differ from one round to the next.
    alternate(&mut groups, context.rounds(1, 3).min(3), context.progress())
}

/// Between two domains of Xen, and how they ran if they did.
fn xen(
    context: &Context<'_>,
    workload: &Workload,
    rounds: usize,
    contents: &Contents<'_>,
) -> Result<(Samples, Option<GuestSettings>)> {
    let started = || -> Result<(GuestImage, Bed)> {
        ensure!(!workload.xen.is_empty(), "a quick run leaves Xen out, which takes minutes");
        start(context, GuestKind::Xen, contents)
    };
    let (mut groups, setting) = match started() {
        Ok((_, bed)) => {
            let tests =
                sweep(&[Operation::Pingpong, Operation::Bandwidth], &workload.xen, workload.time);
            let back = [workload.test(Operation::Bandwidth, BULK)];
            let groups = vec![
                bed.messages(&tests, Guest::One, text::size),
                bed.messages(&back, Guest::Two, reverse),
                bed.iperf3(false, workload.iperf3_seconds),
            ];
            (groups, Some(bed.guests.setting.clone()))
        }
        Err(error) => {
            interrupt::check()?;
            (vec![none("Xen".to_owned(), &format!("{error:#}"))], None)
        }
    };
    Ok((alternate(&mut groups, rounds, context.progress())?, setting))
}

/// A group for a case that cannot be measured here.
fn none(case: String, why: &str) -> Group<'static> {
    Group::new(case, VARIANTS.map(|variant| Variant::unavailable(variant, why)).into())
}

/// How guests ran, for results.
fn settings(setting: &GuestSettings) -> [(&'static str, String); 3] {
    let GuestSettings { processors, network, kernel, .. } = setting.clone();
    [("processors", processors), ("network", network), ("kernel", kernel)]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_plan_has_what_the_claims_and_keys_are_about() {
        for (quick, is_emulated) in [(true, true), (true, false), (false, true), (false, false)] {
            let workload = Workload::of(quick, is_emulated);
            assert!(
                workload.sizes.contains(&SMALL) && workload.sizes.contains(&BULK),
                "{workload:?}"
            );
            assert!(workload.rings.iter().all(|ring| *ring <= 2 << 20), "{workload:?}");
            assert!(workload.pairs.iter().all(|count| (1..=4).contains(count)), "{workload:?}");
            assert!(!workload.redis.is_empty() && workload.iperf3_seconds > 0, "{workload:?}");
        }
        let workload = Workload::of(false, true);
        for sizes in [&workload.sizes, &workload.xen] {
            assert!([SMALL, BULK].iter().all(|size| sizes.contains(size)), "{workload:?}");
        }
        assert!(
            [512 << 10, 2 << 20].iter().all(|ring| workload.rings.contains(ring)),
            "{workload:?}"
        );
        assert_eq!(workload.pairs, [1, 2, 4]);
        // An emulated machine of this kind is slow, and so is Xen in one.
        let quick = Workload::of(true, true);
        assert!(quick.xen.is_empty() && quick.counted.is_empty(), "{quick:?}");
    }

    #[test]
    fn every_ring_of_a_plan_is_one_that_the_library_takes() {
        let default = Geometry::default();
        for ring in
            Workload::of(false, true).rings.into_iter().chain(Workload::of(true, true).rings)
        {
            let (cells, segment) = (default.cells() as u32, default.segment_size() as u32);
            let segments = u32::try_from(ring).unwrap() / segment;
            assert!(Geometry::new(cells, segment, segments).is_ok(), "{ring}");
        }
    }

    #[test]
    fn cases_tell_apart_what_is_measured() {
        let workload = Workload::of(false, true);
        let mut names = Vec::new();
        for kind in KINDS {
            names.extend(workload.sizes.iter().map(|&size| case(kind, &text::size(size))));
            names.extend(workload.sizes.iter().map(|&size| case(kind, &reverse(size))));
            names.extend(workload.counted.iter().map(|&size| case(kind, &counted(size))));
            names.extend(workload.rings.iter().map(|&size| case(kind, &ring(size))));
            names.extend(workload.pairs.iter().map(|&count| case(kind, &pairs_case(count))));
        }
        let unique: BTreeSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "{names:?}");
    }

    #[test]
    fn every_unmeasured_variant_says_why() {
        let mut groups = [none("Xen".to_owned(), "no Xen here")];
        let samples = alternate(&mut groups, 1, &crate::progress::Progress::silent()).unwrap();
        let variants: BTreeSet<&str> =
            samples.0.iter().map(|sample| sample.variant.as_str()).collect();
        assert_eq!(variants, BTreeSet::from(VARIANTS));
        assert!(samples.0.iter().all(|sample| sample.outcome == Err("no Xen here".to_owned())));
        assert_eq!(Vm.file().summary(&samples, &[]), []);
    }
}
