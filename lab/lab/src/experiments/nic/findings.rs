//! Findings from the readings, each with its interval and the thesis' number beside it.

use serde_json::Value;

use super::cases::{LARGE, SHARE, Setting};
use super::link::Link;
use super::other_programs::{self, RATIO, SMALL};
use super::published::{last_ratio, ratio};
use crate::claim::Estimate;
use crate::experiment_file::ExperimentFile;
use crate::experiments::by_size::SIZES;
use crate::network::other_programs::Tool;
use crate::network::step::OffloadStep;
use crate::network::{CPU, EFFORT, LATENCY, THROUGHPUT};
use crate::outcome::{SummaryValue, Table};
use crate::record::{Better, Metric, Samples, Selector};
use crate::stats::{Ratio, Spread};
use crate::text;
use crate::view::Column;

/// Maximum difference between two programs that measure the same.
const AGREEMENT: f64 = 0.1;

/// The last step, with all offloads.
const ALL_ON: OffloadStep = OffloadStep::Joining;

/// The last step of the thesis, which is before GRO.
const OF_THE_THESIS: OffloadStep = OffloadStep::Segmentation;

/// A sentence with a number.
pub(super) struct Finding {
    what: String,
    /// With an interval that is wider for few rounds.
    here: Option<Ratio>,
    /// Message size in bytes, where the finding is one.
    from: Option<Option<u64>>,
    thesis: Option<f64>,
    verdict: String,
    key: Option<(&'static str, String)>,
}

/// A comparison of everything on with everything off.
struct Question {
    what: String,
    setting: Setting,
    metric: Metric,
    /// The number of the thesis, and of which size.
    thesis: f64,
    size: u64,
    key: Option<(&'static str, String)>,
    judge: fn(Ratio) -> String,
}

/// All findings, in the order of the page.
pub(super) fn find(
    file: &ExperimentFile,
    samples: &Samples,
    sizes: &[u64],
    link: &Link,
) -> Vec<Finding> {
    let ratio = |setting: Setting, metric: Metric, step: OffloadStep, size: u64| {
        let case = setting.case(size);
        let of = |step: OffloadStep| Selector { case: &case, variant: step.name(), metric };
        samples.ratio(of(step), of(OffloadStep::Off)).map(widened)
    };
    let mut findings = Vec::new();
    for Question { what, setting, metric, thesis, size, mut key, judge } in
        questions(file, sizes, link)
    {
        let steps =
            [(ALL_ON, "everything on"), (OF_THE_THESIS, "everything but GRO, as in the thesis,")];
        for (step, name) in steps {
            let Some(here) = ratio(setting, metric, step, size) else { continue };
            let what =
                format!("{what}, messages of {}: {name} over everything off", text::size(size));
            let key = if step == ALL_ON { key.take() } else { None };
            let (thesis, verdict) = (Some(thesis), judged(here, judge));
            findings.push(Finding { what, here: Some(here), from: None, thesis, verdict, key });
        }
    }

    let starts = [
        ("One-way latency".to_owned(), Setting::Latency, LATENCY, "latency"),
        ("Throughput to a weak receiver".to_owned(), Setting::Weak, THROUGHPUT, "weak_throughput"),
        (
            "CPU load of a weak receiver over a slow link".to_owned(),
            Setting::Slow,
            SHARE,
            "weak_cpu",
        ),
        (format!("CPU load over {}", link.name()), Setting::Link, CPU, "fast_cpu"),
    ];
    for (what, setting, metric, theirs) in starts {
        let ratios: Vec<(u64, Option<Ratio>)> =
            sizes.iter().map(|&size| (size, ratio(setting, metric, ALL_ON, size))).collect();
        if ratios.iter().all(|(_, ratio)| ratio.is_none()) {
            continue;
        }
        let from = matters_from(&ratios, metric.better);
        let thesis = theirs_from(&file.published[theirs], metric.better);
        findings.push(Finding {
            what: format!(
                "{what}: smallest message from which on offloads help at every size (bytes)"
            ),
            here: None,
            from: Some(from),
            thesis: thesis.map(|size| size as f64),
            verdict: String::new(),
            key: None,
        });
    }
    findings.extend(comparisons(samples));
    findings
}

fn questions(file: &ExperimentFile, sizes: &[u64], link: &Link) -> Vec<Question> {
    let (first, last) = (sizes[0], *sizes.last().expect("there are sizes"));
    let over = link.name();
    let question =
        |what: &str, setting, metric, thesis: f64, key: Option<(&'static str, String)>, judge| {
            Question { what: what.to_owned(), setting, metric, thesis, size: last, key, judge }
        };
    let lower = |here| direction(here, Better::Lower);
    vec![
        question(
            "Throughput to a weak receiver",
            Setting::Weak,
            THROUGHPUT,
            last_ratio(file, "weak_throughput"),
            Some((
                "offload_throughput_ratio_weak_cpu_64k",
                "throughput to a receiver with little processor time, messages of 64 KiB, all offloads over none; \
                 higher is better"
                    .to_owned(),
            )),
            |here| at_least(here, 1.6),
        ),
        question(
            "CPU load of a weak receiver over a link that it cannot quite fill",
            Setting::Slow,
            SHARE,
            last_ratio(file, "weak_cpu"),
            Some((
                "offload_cpu_ratio_weak_cpu_64k",
                "CPU load of a receiver with little processor time, messages of 64 KiB over a link that it cannot \
                 quite fill with everything off, all offloads over none; lower is better"
                    .to_owned(),
            )),
            lower,
        ),
        question(
            "Throughput to a weak receiver over a link that it cannot quite fill",
            Setting::Slow,
            THROUGHPUT,
            last_ratio(file, "weak_throughput"),
            None,
            |here| direction(here, Better::Higher),
        ),
        question(
            &format!("CPU load of both ends over {over}"),
            Setting::Link,
            CPU,
            last_ratio(file, "fast_cpu"),
            Some((
                "offload_cpu_ratio_64k",
                format!(
                    "CPU load of both ends, a stream of 64 KiB messages over {over}, all offloads over none; lower is \
                     better"
                ),
            )),
            lower,
        ),
        question(
            &format!("Throughput over {over}"),
            Setting::Link,
            THROUGHPUT,
            last_ratio(file, "fast_throughput"),
            None,
            |here| equal(here, 0.05),
        ),
        question(
            "CPU time of a gigabyte to a weak receiver",
            Setting::Weak,
            EFFORT,
            last_ratio(file, "weak_cpu") / last_ratio(file, "weak_throughput"),
            None,
            lower,
        ),
        question(
            "One-way latency",
            Setting::Latency,
            LATENCY,
            last_ratio(file, "latency"),
            Some((
                "latency_64k_ratio",
                "one-way latency of 64 KiB requests and responses, all offloads over none; lower is better"
                    .to_owned(),
            )),
            lower,
        ),
        Question {
            size: first,
            ..question(
                "One-way latency",
                Setting::Latency,
                LATENCY,
                ratio(&file.published["latency"], 0),
                None,
                |here| equal(here, 0.1),
            )
        },
    ]
}

/// Widens an interval as for verdicts.
fn widened(ratio: Ratio) -> Ratio {
    ratio.widened(ratio.pairs.unwrap_or(0))
}

/// Our own program over others.
fn comparisons(samples: &Samples) -> Vec<Finding> {
    let compare = |size: u64, metric: Metric, tool: Tool, key| {
        let here = agreement(samples, &other_programs::case(tool, metric, size), tool)?;
        let what = format!(
            "{}, messages of {}: seekwire over {}",
            metric.name,
            text::size(size),
            tool.name()
        );
        let verdict = judged(here, |here| equal(here, AGREEMENT));
        Some(Finding { what, here: Some(here), from: None, thesis: None, verdict, key })
    };
    let meaning = "throughput of a stream of 64 KiB messages as measured here over what iperf3 measures; 1 is \
                   agreement";
    let key = Some(("iperf3_agreement", meaning.to_owned()));
    let large = [(Tool::Iperf3, key), (Tool::Qperf, None)];
    let small =
        SMALL.into_iter().filter_map(|(size, tool)| compare(size as u64, LATENCY, tool, None));
    let large =
        large.into_iter().filter_map(|(tool, key)| compare(LARGE as u64, THROUGHPUT, tool, key));
    large.chain(small).collect()
}

/// The median of the ratios of pairs, with the interval of verdicts.
fn agreement(samples: &Samples, case: &str, tool: Tool) -> Option<Ratio> {
    let selector = Selector { case, variant: tool.name(), metric: RATIO };
    let spread = Spread::of(&samples.values(selector))?;
    let Estimate { value, low, high, rounds } = Estimate::of(&spread).ok()?;
    Some(Ratio { value, low, high, pairs: Some(rounds) })
}

/// A ratio that is closer to 1 is no difference.
const LEAST: f64 = 0.02;

/// Whether `ratio` is on the better side of 1.
fn is_better(ratio: f64, better: Better, least: f64) -> bool {
    match better {
        Better::Higher => ratio > 1.0 + least,
        Better::Lower => ratio < 1.0 - least,
    }
}

/// The smallest size from which on each ratio is on the better side of 1, and has its whole
/// interval there.
fn matters_from(ratios: &[(u64, Option<Ratio>)], better: Better) -> Option<u64> {
    let helps = |ratio: &Option<Ratio>| {
        ratio.is_some_and(|ratio| {
            ratio.has_interval()
                && is_better(ratio.value, better, LEAST)
                && [ratio.low, ratio.high].iter().all(|end| is_better(*end, better, 0.0))
        })
    };
    ratios.iter().rev().take_while(|(_, ratio)| helps(ratio)).last().map(|(size, _)| *size)
}

/// The same of the thesis, which has no intervals.
fn theirs_from(columns: &[Column], better: Better) -> Option<u64> {
    let helps = |index: &usize| is_better(ratio(columns, *index), better, LEAST);
    (0..SIZES.len()).rev().take_while(helps).last().map(|index| SIZES[index])
}

/// The answer of `judge`, if there is an interval to judge.
fn judged(here: Ratio, judge: impl Fn(Ratio) -> String) -> String {
    match here.has_interval() {
        true => judge(here),
        false => "inconclusive: one complete round has no interval".to_owned(),
    }
}

fn at_least(here: Ratio, wanted: f64) -> String {
    let judgement = match here {
        Ratio { low, .. } if low >= wanted => "yes, with the whole interval",
        Ratio { high, .. } if high < wanted => "no",
        _ => "inconclusive",
    };
    format!("at least {wanted}: {judgement}")
}

fn direction(here: Ratio, better: Better) -> String {
    let (less, more) = match better {
        Better::Lower => ("better", "worse"),
        Better::Higher => ("worse", "better"),
    };
    let judgement = match here {
        Ratio { high, .. } if high < 1.0 => less,
        Ratio { low, .. } if low > 1.0 => more,
        _ => "no significant difference",
    };
    format!("{judgement}: {:+.1} %", 100.0 * (here.value - 1.0))
}

/// The interval decides where it lies on one side.
fn equal(here: Ratio, within: f64) -> String {
    let judgement = match here {
        Ratio { low, high, .. } if low >= 1.0 - within && high <= 1.0 + within => {
            "yes, with the whole interval"
        }
        Ratio { low, high, .. } if low > 1.0 + within || high < 1.0 - within => "no",
        _ => "inconclusive",
    };
    format!("equal within {:.0} %: {judgement}", 100.0 * within)
}

/// The page of findings.
pub(super) fn table(findings: &[Finding]) -> Table {
    let row = |finding: &Finding| -> Vec<Value> {
        let here: [Value; 3] = match (finding.here, finding.from) {
            (Some(ratio), _) => [ratio.value.into(), ratio.low.into(), ratio.high.into()],
            (None, Some(Some(size))) => [size.into(), Value::Null, Value::Null],
            (None, Some(None)) => ["at none".into(), Value::Null, Value::Null],
            (None, None) => [Value::Null, Value::Null, Value::Null],
        };
        let [value, low, high] = here;
        let verdict = finding.verdict.as_str().into();
        vec![finding.what.as_str().into(), value, low, high, finding.thesis.into(), verdict]
    };
    Table {
        title: "Findings".to_owned(),
        note: "Ratios of medians, with 95 % intervals: a bootstrap over rounds, wider where these are few, as for the \
               verdicts. Ours over other programs: the median of the ratios of pairs. Everything on is checksums, \
               scatter-gather, TSO, GSO and GRO. The thesis' ratios are those of its averages, which have no \
               intervals, and all but GRO, which it did not have, over everything off. Its CPU time of a gigabyte is \
               CPU load over throughput. Offloads help where a ratio differs from 1 by 2 % and its interval lies on \
               one side of it."
            .to_owned(),
        columns: ["finding", "here", "low", "high", "thesis", "verdict"].map(str::to_owned).to_vec(),
        rows: findings.iter().map(row).collect(),
    }
}

/// The numbers that have a key.
pub(super) fn summary(findings: &[Finding]) -> Vec<SummaryValue> {
    let key = |finding: &Finding| {
        let (name, meaning) = finding.key.clone()?;
        SummaryValue::measured(name, meaning, finding.here.map(|ratio| ratio.value))
    };
    findings.iter().filter_map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Nic;
    use super::*;
    use crate::experiment::Experiment;
    use crate::network::hosts::RemoteHost;
    use crate::record::Sample;

    fn published(name: &str) -> &'static [Column] {
        &Nic.file().published[name]
    }

    const fn ratio(value: f64, low: f64, high: f64) -> Ratio {
        Ratio { value, low, high, pairs: Some(5) }
    }

    #[test]
    fn where_offloads_begin_to_matter_is_found_from_the_large_end() {
        let (better, same) = (Some(ratio(2.0, 1.5, 2.5)), Some(ratio(1.1, 0.9, 1.2)));
        let ratios = [(1, better), (64, same), (1024, better), (4096, better)];
        assert_eq!(matters_from(&ratios, Better::Higher), Some(1024));
        assert_eq!(matters_from(&ratios, Better::Lower), None);
        assert_eq!(matters_from(&[(1, None)], Better::Higher), None);
    }

    #[test]
    fn the_thesis_is_read_as_it_reads_itself() {
        // "From 1500 B on" for the latency is 16 KiB in its table, where the difference is more
        // than 2 %.
        assert_eq!(theirs_from(published("latency"), Better::Lower), Some(16 << 10));
        assert_eq!(theirs_from(published("weak_throughput"), Better::Higher), Some(2 << 10));
        assert!((last_ratio(Nic.file(), "weak_throughput") - 1.6565).abs() < 1e-3);
    }

    #[test]
    fn judgements_go_by_intervals() {
        assert!(at_least(ratio(2.0, 1.7, 2.2), 1.6).ends_with("whole interval"));
        assert!(at_least(ratio(1.7, 1.5, 1.9), 1.6).ends_with("inconclusive"));
        assert!(at_least(ratio(1.5, 1.4, 1.9), 1.6).ends_with("inconclusive"));
        assert!(at_least(ratio(1.4, 1.3, 1.5), 1.6).ends_with("no"));
        assert_eq!(direction(ratio(0.5, 0.4, 0.6), Better::Lower), "better: -50.0 %");
        assert_eq!(direction(ratio(0.5, 0.4, 0.6), Better::Higher), "worse: -50.0 %");
        assert!(
            direction(ratio(1.0, 0.9, 1.1), Better::Lower).starts_with("no significant difference")
        );
        assert!(equal(ratio(1.0, 0.95, 1.05), 0.1).ends_with("whole interval"));
        assert!(equal(ratio(1.05, 0.8, 1.3), 0.1).ends_with("inconclusive"));
        assert!(equal(ratio(1.2, 1.05, 1.3), 0.1).ends_with("inconclusive"));
        assert!(equal(ratio(2.0, 1.9, 2.1), 0.1).ends_with("no"));
        let single = Ratio { pairs: Some(1), ..ratio(2.0, 2.0, 2.0) };
        assert!(judged(single, |here| at_least(here, 1.6)).starts_with("inconclusive"));
        assert_eq!(matters_from(&[(1, Some(single))], Better::Higher), None);
    }

    fn sample(case: String, step: &str, metric: Metric, round: usize, value: f64) -> Sample {
        Sample::new(case, step, metric, round, value)
    }

    #[test]
    fn keys_come_from_samples_of_the_same_round() {
        let mut samples = Samples::default();
        for round in 1..=3 {
            let (weak, others) =
                (Setting::Weak.case(65536), other_programs::case(Tool::Iperf3, THROUGHPUT, 65536));
            samples.0.push(sample(weak.clone(), OffloadStep::Off.name(), THROUGHPUT, round, 500.0));
            samples.0.push(sample(weak.clone(), OF_THE_THESIS.name(), THROUGHPUT, round, 900.0));
            samples.0.push(sample(weak, ALL_ON.name(), THROUGHPUT, round, 1000.0));
            samples.0.push(sample(others, Tool::Iperf3.name(), RATIO, round, 0.99));
        }
        let findings = find(Nic.file(), &samples, &[1, 65536], &Link::made());
        let summary = summary(&findings);
        let keys: Vec<_> = summary.iter().map(|key| (&*key.name, key.value)).collect();
        assert_eq!(
            keys,
            [("offload_throughput_ratio_weak_cpu_64k", 2.0), ("iperf3_agreement", 0.99)],
            "unmeasured numbers are left out"
        );
        let rows = table(&findings).rows;
        assert_eq!(rows.len(), findings.len());
        // Like for like: the thesis had no GRO.
        let like = rows
            .iter()
            .find(|row| row[0].as_str().unwrap().contains("everything but GRO"))
            .unwrap();
        assert_eq!(like[1], 1.8);
        assert!((like[4].as_f64().unwrap() - 1.6565).abs() < 1e-3, "{like:?}");
    }

    #[test]
    fn intervals_are_those_of_verdicts() {
        let case = Setting::Weak.case(65536);
        let mut samples = Samples::default();
        for (round, value) in [(1, 900.0), (2, 1000.0), (3, 1100.0)] {
            samples.0.push(sample(case.clone(), OffloadStep::Off.name(), THROUGHPUT, round, 500.0));
            samples.0.push(sample(case.clone(), ALL_ON.name(), THROUGHPUT, round, value));
        }
        let here = find(Nic.file(), &samples, &[65536], &Link::made())[0].here.unwrap();
        let row =
            samples.rows(OffloadStep::Off.name()).into_iter().find_map(|row| row.ratio).unwrap();
        // Three rounds: Student's t has 4.303 where the normal distribution has 1.96.
        assert!(
            here.high > 2.0 * (row.high / row.value).powf(2.0) && here.low < 1.7,
            "{here:?}, {row:?}"
        );
    }

    #[test]
    fn what_is_said_of_the_link_is_what_it_was() {
        let peer = |speed_mbps| {
            let (name, address) = ("192.0.2.1".to_owned(), "192.0.2.1:7117".parse().unwrap());
            Link::to(&RemoteHost {
                name,
                address,
                weak: None,
                interface: "eth1".to_owned(),
                speed_mbps,
            })
        };
        let mut samples = Samples::default();
        for step in [OffloadStep::Off, ALL_ON] {
            samples.0.push(sample(Setting::Link.case(65536), step.name(), CPU, 1, 50.0));
        }
        for (link, name) in [
            (Link::made(), "over a link of 1 Gb/s"),
            (peer(Some(25_000)), "over a link of 25 Gb/s"),
            (peer(None), "over the link to 192.0.2.1"),
        ] {
            let findings = find(Nic.file(), &samples, &[65536], &link);
            assert!(findings[0].what.contains(name), "{}", findings[0].what);
            assert!(findings.iter().all(|finding| finding.what.contains(name)));
            assert!(summary(&findings)[0].meaning.contains(name));
        }
    }
}
