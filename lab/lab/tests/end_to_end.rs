//! A tiny experiment, from its name to its files.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::Result;

use seekwire_lab::experiment::{Context, Experiment};
use seekwire_lab::experiment_file::ExperimentFile;
use seekwire_lab::launch::{Mode, Program, Traffic};
use seekwire_lab::outcome::{Findings, Outcome, Recorded, ResultFile, SummaryValue};
use seekwire_lab::plot::{Axis, Chart, Figure, Point, Scale, Series};
use seekwire_lab::progress::Progress;
use seekwire_lab::record::{Metric, Selector};
use seekwire_lab::schedule::{Group, Trial, Variant, alternate};
use seekwire_lab::{Options, experiments};

#[test]
fn every_experiment_is_described() {
    let names: Vec<&str> = experiments().iter().map(|experiment| experiment.name()).collect();
    assert_eq!(
        names,
        [
            "sockets",
            "ring-size",
            "pairs",
            "links",
            "vm",
            "connections",
            "programs",
            "seek",
            "seek-fragments",
            "seek-module",
            "mailbox",
            "nic",
            "zeromq",
            "models",
            "flow-demand",
            "flow-reaction",
            "flow-latency",
            "flow-updates",
            "flow-peers",
            "slides"
        ]
    );
    assert!(experiments().iter().all(|experiment| experiment.file().about.len() > 40));
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    let out = tempfile::tempdir().unwrap();
    let options = Options { out: out.path().to_owned(), ..Options::default() };
    let error = seekwire_lab::run(&["connections", "sokcets"], &options).unwrap_err().to_string();
    assert!(error.contains("sokcets") && error.contains("sockets"), "{error}");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "nothing may have run");
}

#[test]
fn zeromq_cannot_run_where_its_programs_were_not_built() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    // A command that has no other program beside it.
    let peer = Some(directory.path().join("bin/seekwire"));
    let options = Options { quick: true, out: out.clone(), peer, ..Options::default() };
    let error = seekwire_lab::run(&["connections", "zeromq"], &options).unwrap_err().to_string();
    assert!(error.starts_with("experiment zeromq cannot run here: not installed: "), "{error}");
    assert!(error.contains("libzmq3-dev") && error.lines().count() == 1, "{error}");
    assert!(!out.exists(), "nothing may have run");

    let zeromq = *seekwire_lab::experiments()
        .iter()
        .find(|experiment| experiment.name() == "zeromq")
        .unwrap();
    let all = seekwire_lab::run_all::run_these(&[zeromq], &options).unwrap();
    let [(name, why)] = &all.skipped[..] else { panic!("{all:?}") };
    assert!(name == "zeromq" && error.ends_with(why.as_str()), "{name}: {why}");
    assert!(all.completed.is_empty() && all.failed.is_empty(), "{all:?}");
}

#[test]
fn slides_cannot_be_compared_where_their_server_was_not_built() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let peer = Some(directory.path().join("bin/seekwire-lab"));
    let options = Options { quick: true, out: out.clone(), peer, ..Options::default() };
    let error = || seekwire_lab::run(&["slides"], &options).unwrap_err().to_string();
    assert!(error().contains("seekwire-slides") && error().contains("make build"), "{}", error());
    // With a server, there is still no slide to serve.
    fs::create_dir_all(directory.path().join("bin")).unwrap();
    fs::write(directory.path().join("bin/seekwire-slides"), "").unwrap();
    assert!(error().contains("scripts/slide"), "{}", error());
    assert!(!out.exists(), "nothing may have run");
}

#[test]
fn connections_are_measured_plain_and_the_missing_library_is_reported() {
    let out = tempfile::tempdir().unwrap();
    let options = Options {
        quick: true,
        out: out.path().to_owned(),
        rounds: Some(2),
        library: Some("/nowhere/libseekwire.so".into()),
        ..Options::default()
    };
    let completed = seekwire_lab::run(&["connections"], &options).unwrap();
    let directory = out.path().join("connections");
    assert_eq!(completed[0].directory, directory);

    let result: ResultFile = serde_json::from_str(&read(&directory, "result.json")).unwrap();
    assert_eq!(
        (result.experiment.as_str(), result.commit.as_str()),
        ("connections", seekwire_lab::machine::COMMIT)
    );
    assert_eq!(result.rows.len(), completed[0].result.rows.len());
    let plain = result.rows.iter().find(|row| row.variant == "TCP").unwrap();
    let spread = plain.spread.unwrap();
    assert_eq!((plain.metric.as_str(), spread.n, plain.failures), ("connections", 2, 0));
    assert!(spread.min > 0.0);
    let accelerated = result.rows.iter().find(|row| row.variant == "accelerated").unwrap();
    assert!(accelerated.spread.is_none());
    assert!(accelerated.error.as_deref().unwrap().contains("/nowhere/libseekwire.so"));
    assert!(result.summary.is_empty(), "a ratio to nothing must be left out: {:?}", result.summary);

    let raw = read(&directory, "raw.csv");
    assert_eq!(raw.lines().count(), 1 + 2 + 1, "header, two readings, one failure: {raw}");
    let report = read(&directory, "report.html");
    assert!(report.contains("Not measured") && !report.contains("<script"));
    seekwire_lab::run(&["connections"], &options).expect("an earlier result may be replaced");
}

#[test]
fn accelerated_runs_preload_the_library_and_read_its_counters() {
    // A library that does nothing but leave the counters that the real one would.
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        __attribute__((destructor)) static void leave(void) {
            char path[4096];
            snprintf(path, sizeof path, "%s/program.1.json", getenv("SEEKWIRE_STATS"));
            FILE *file = fopen(path, "w");
            fputs("{\"bytes\":{\"tx_tcp\":1,\"tx_ring\":20,\"rx_tcp\":3,\"rx_ring\":40}}", file);
            fclose(file);
        }"#;
    let work = tempfile::tempdir().unwrap();
    let (code, library) = (work.path().join("fake.c"), work.path().join("libseekwire.so"));
    fs::write(&code, source).unwrap();
    Program::new("cc", &Mode::Plain)
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&code)
        .run()
        .unwrap();

    let options = Options { library: Some(library), ..Options::default() };
    let context = Context::new(&options, Progress::silent()).unwrap();
    let run = |mode: &Mode| Program::new("true", mode).run().unwrap().traffic;
    assert_eq!(
        run(&context.accelerated().unwrap()),
        Some(Traffic { ring: 60, tcp: 4, ..Traffic::default() })
    );
    assert_eq!(run(&context.linked()), None);
    assert_eq!(run(&Mode::Plain), None);
}

/// Compares the lengths of the output of two children, to have a known outcome.
struct Lengths;

const LENGTH: Metric = Metric::higher("length", "B");

impl Experiment for Lengths {
    fn name(&self) -> &'static str {
        "lengths"
    }

    fn file(&self) -> &'static ExperimentFile {
        static FILE: LazyLock<ExperimentFile> = LazyLock::new(|| {
            let text = "question = ''\nabout = 'Lines'\nseconds = { quick = 1, thorough = 1 }";
            ExperimentFile::parse("lengths", text)
        });
        &FILE
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let variant = |name: &'static str, line: &'static str| {
            Variant::new(name, move |trial: &mut Trial| {
                let printed = Program::new("echo", &Mode::Plain).arg(line).run()?.stdout;
                trial.record("line", Some(1.0), LENGTH, printed.len() as f64);
                Ok(())
            })
        };
        let hung = Variant::new("hung", |_: &mut Trial| {
            let child = Program::new("cat", &Mode::Plain).timeout(Duration::ZERO).start()?;
            child.wait_for_line(|_| true)?;
            Ok(())
        });
        let mut groups =
            [Group::new("line", vec![variant("short", "abc"), variant("long", "abcdefg"), hung])];
        let samples = alternate(&mut groups, context.rounds(2, 3), context.progress())?;
        let parameters = Default::default();
        Ok(Outcome { parameters, samples, baseline: "short", violation: None })
    }

    fn findings(&self, Recorded { samples, .. }: Recorded<'_>) -> Findings {
        let select = |variant| Selector { case: "line", variant, metric: LENGTH };
        let ratio = samples.ratio(select("long"), select("short")).map(|ratio| ratio.value);
        let axis = |label: &str| Axis { label: label.to_owned(), scale: Scale::Linear };
        let points = vec![Point { x: 1.0, y: 4.0, low: 4.0, high: 8.0 }];
        let series = vec![Series { name: "lengths".to_owned(), colour: 0, points }];
        let chart = Chart::Curves { x: axis("line"), y: axis("length (B)"), series };
        let (file, title) = ("lengths.svg".to_owned(), "Lengths".to_owned());
        Findings {
            summary: Vec::from_iter(SummaryValue::measured("long_vs_short", "twice", ratio)),
            figures: vec![Figure { file, title, chart }],
            tables: Vec::new(),
        }
    }
}

#[test]
fn outcome_reaches_every_file() {
    let out = tempfile::tempdir().unwrap();
    let options = Options { quick: true, out: out.path().to_owned(), ..Options::default() };
    let completed = seekwire_lab::run::run_one(&Lengths, &options).unwrap();
    let directory = out.path().join("lengths");
    assert_eq!(completed.result.summary["long_vs_short"], 2.0);
    let hung = completed.result.rows.iter().find(|row| row.variant == "hung").unwrap();
    assert!(hung.error.as_deref().unwrap().contains("not ready"), "{hung:?}");
    assert!(read(&directory, "lengths.svg").contains("length (B)"));
    let report = read(&directory, "report.html");
    assert!(report.contains("<figure><svg") && report.contains("long_vs_short"));
}

fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap()
}
