//! What the readings say, each with its interval and the thesis' number beside it.

use serde_json::Value;

use super::thesis::{self, Column, Columns};
use super::{LARGE, Setting};
use crate::experiments::by_size::SIZES;
use crate::network::others::Tool;
use crate::network::step::Step;
use crate::network::{CPU, EFFORT, LATENCY, THROUGHPUT};
use crate::outcome::{Key, Table};
use crate::record::{Better, Metric, Samples, Selector};
use crate::stats::Ratio;
use crate::text;

/// Our own program among others.
pub(super) const OWN: &str = "seekwire";

/// How far two programs that measure the same may be apart.
const AGREEMENT: f64 = 0.1;

/// The last step, with all offloads.
const ALL_ON: Step = Step::Joining;

/// The case of a comparison with other programs.
pub(super) fn against_others(size: u64, metric: Metric) -> String {
    format!("{} of other programs, {}", metric.name, text::size(size))
}

/// A sentence with a number.
pub(super) struct Finding {
    what: String,
    here: Option<Ratio>,
    /// Message size in bytes, where the finding is one.
    from: Option<Option<u64>>,
    thesis: Option<f64>,
    verdict: String,
    key: Option<(&'static str, &'static str)>,
}

/// All findings, in the order of the page.
pub(super) fn find(samples: &Samples, sizes: &[u64]) -> Vec<Finding> {
    let last = *sizes.last().expect("there are sizes");
    let ratio = |setting: Setting, metric: Metric, step: Step, size: u64| {
        let case = setting.case(size);
        let of = |step: Step| Selector { case: &case, variant: step.name(), metric };
        samples.ratio(of(step), of(Step::Off))
    };
    let mut findings = Vec::new();
    let mut at_last =
        |what: &str, setting, metric, thesis: Option<f64>, key, judge: &dyn Fn(Ratio) -> String| {
            let Some(here) = ratio(setting, metric, ALL_ON, last) else { return };
            let what = format!("{what}, messages of {}: everything on over everything off", text::size(last));
            findings.push(Finding {
                what,
                here: Some(here),
                from: None,
                thesis,
                verdict: judged(here, judge),
                key,
            });
        };
    at_last(
        "Throughput to a weak receiver",
        Setting::Weak,
        THROUGHPUT,
        Some(last_of(&thesis::WEAK_THROUGHPUT)),
        Some((
            "offload_throughput_ratio_weak_cpu_64k",
            "throughput to a receiver with little processor time, messages of 64 KiB, all offloads over none; higher \
             is better",
        )),
        &|here| at_least(here, 1.6),
    );
    at_last(
        "CPU load of both ends over 1 Gb/s",
        Setting::Link,
        CPU,
        Some(last_of(&thesis::FAST_CPU)),
        Some((
            "offload_cpu_ratio_64k",
            "CPU load of both ends, a stream of 64 KiB messages over 1 Gb/s, all offloads over none; lower is better",
        )),
        &|here| direction(here, Better::Lower),
    );
    at_last(
        "Throughput over 1 Gb/s",
        Setting::Link,
        THROUGHPUT,
        Some(last_of(&thesis::FAST_THROUGHPUT)),
        None,
        &|here| equal(here, 0.05),
    );
    at_last(
        "CPU time of a gigabyte to a weak receiver",
        Setting::Weak,
        EFFORT,
        Some(last_of(&thesis::WEAK_CPU) / last_of(&thesis::WEAK_THROUGHPUT)),
        None,
        &|here| direction(here, Better::Lower),
    );
    at_last(
        "One-way latency",
        Setting::Latency,
        LATENCY,
        Some(last_of(&thesis::LATENCY)),
        Some((
            "latency_64k_ratio",
            "one-way latency of 64 KiB requests and responses, all offloads over none; lower is better",
        )),
        &|here| direction(here, Better::Lower),
    );
    if let Some(here) = ratio(Setting::Latency, LATENCY, ALL_ON, sizes[0]) {
        let what = format!(
            "One-way latency, messages of {}: everything on over everything off",
            text::size(sizes[0])
        );
        let thesis = Some(thesis::LATENCY[2][0] / thesis::LATENCY[0][0]);
        let verdict = judged(here, |here| equal(here, 0.1));
        findings.push(Finding { what, here: Some(here), from: None, thesis, verdict, key: None });
    }

    let starts = [
        ("One-way latency", Setting::Latency, LATENCY, thesis::LATENCY),
        ("Throughput to a weak receiver", Setting::Weak, THROUGHPUT, thesis::WEAK_THROUGHPUT),
        ("CPU load over 1 Gb/s", Setting::Link, CPU, thesis::FAST_CPU),
    ];
    for (what, setting, metric, theirs) in starts {
        let ratios: Vec<(u64, Option<Ratio>)> =
            sizes.iter().map(|&size| (size, ratio(setting, metric, ALL_ON, size))).collect();
        if ratios.iter().all(|(_, ratio)| ratio.is_none()) {
            continue;
        }
        let from = matters_from(&ratios, metric.better);
        let thesis = theirs_from(&theirs, metric.better);
        findings.push(Finding {
            what: format!("{what}: smallest message from which on offloads help at every size (bytes)"),
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

/// Our own program over others.
fn comparisons(samples: &Samples) -> Vec<Finding> {
    let compare = |size: u64, metric: Metric, tool: Tool, key| {
        let case = against_others(size, metric);
        let of = |variant| Selector { case: &case, variant, metric };
        let here = samples.ratio(of(OWN), of(tool.name()))?;
        let what =
            format!("{}, messages of {}: seekwire over {}", metric.name, text::size(size), tool.name());
        let verdict = judged(here, |here| equal(here, AGREEMENT));
        Some(Finding { what, here: Some(here), from: None, thesis: None, verdict, key })
    };
    let key = Some((
        "iperf3_agreement",
        "throughput of a stream of 64 KiB messages as measured here over what iperf3 measures; 1 is agreement",
    ));
    let large = [(Tool::Iperf3, key), (Tool::Qperf, None)];
    let small = super::SMALL.into_iter().filter_map(|(size, tool)| compare(size as u64, LATENCY, tool, None));
    let large = large.into_iter().filter_map(|(tool, key)| compare(LARGE as u64, THROUGHPUT, tool, key));
    large.chain(small).collect()
}

/// The step with everything that the thesis had, over everything off, at the largest size.
fn last_of(columns: &Columns) -> f64 {
    let last = |column: &Column| column[column.len() - 1];
    last(&columns[2]) / last(&columns[0])
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

/// The smallest size from which on each ratio is on the better side of 1, and has its whole interval there.
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
fn theirs_from(columns: &Columns, better: Better) -> Option<u64> {
    let helps = |index: &usize| is_better(columns[2][*index] / columns[0][*index], better, LEAST);
    (0..SIZES.len()).rev().take_while(helps).last().map(|index| SIZES[index])
}

/// What `judge` says, if there is something to judge by.
fn judged(here: Ratio, judge: impl Fn(Ratio) -> String) -> String {
    match here.has_interval() {
        true => judge(here),
        false => "cannot be told: one complete round has no interval".to_owned(),
    }
}

fn at_least(here: Ratio, wanted: f64) -> String {
    let judgement = match here {
        Ratio { low, .. } if low >= wanted => "yes, with the whole interval",
        Ratio { value, .. } if value >= wanted => "yes, but the interval reaches below",
        _ => "no",
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
        _ => "no difference that could be told",
    };
    format!("{judgement}: {:+.1} %", 100.0 * (here.value - 1.0))
}

/// The interval decides where it lies on one side.
fn equal(here: Ratio, within: f64) -> String {
    let judgement = match here {
        Ratio { low, high, .. } if low >= 1.0 - within && high <= 1.0 + within => {
            "yes, with the whole interval"
        }
        Ratio { value, .. } if (value - 1.0).abs() <= within => "yes, but the interval reaches beyond",
        Ratio { low, high, .. } if low > 1.0 + within || high < 1.0 - within => "no",
        _ => "no, but the interval reaches there",
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
        note: "Ratios of medians, with 95 % intervals (bootstrap over rounds). The thesis' ratios are those of its \
               averages, which have no intervals: with checksums, scatter-gather, TSO and GSO on, over everything \
               off; it had no GRO. Its CPU time of a gigabyte is CPU load over throughput. Offloads help where a \
               ratio differs from 1 by 2 % and its interval lies on one side of it."
            .to_owned(),
        columns: ["finding", "here", "low", "high", "thesis", "verdict"].map(str::to_owned).to_vec(),
        rows: findings.iter().map(row).collect(),
    }
}

/// The numbers that have a key.
pub(super) fn summary(findings: &[Finding]) -> Vec<Key> {
    let key = |finding: &Finding| {
        let (name, meaning) = finding.key?;
        Key::measured(name, meaning, finding.here.map(|ratio| ratio.value))
    };
    findings.iter().filter_map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Sample;

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
        // "From 1500 B on" for the latency is 16 KiB in its table, where the difference is more than 2 %.
        assert_eq!(theirs_from(&thesis::LATENCY, Better::Lower), Some(16 << 10));
        assert_eq!(theirs_from(&thesis::WEAK_THROUGHPUT, Better::Higher), Some(2 << 10));
        assert!((last_of(&thesis::WEAK_THROUGHPUT) - 1.6565).abs() < 1e-3);
    }

    #[test]
    fn judgements_go_by_intervals() {
        assert!(at_least(ratio(2.0, 1.7, 2.2), 1.6).ends_with("whole interval"));
        assert!(at_least(ratio(1.7, 1.5, 1.9), 1.6).ends_with("below"));
        assert!(at_least(ratio(1.5, 1.4, 1.9), 1.6).ends_with("no"));
        assert_eq!(direction(ratio(0.5, 0.4, 0.6), Better::Lower), "better: -50.0 %");
        assert_eq!(direction(ratio(0.5, 0.4, 0.6), Better::Higher), "worse: -50.0 %");
        assert!(direction(ratio(1.0, 0.9, 1.1), Better::Lower).starts_with("no difference"));
        assert!(equal(ratio(1.0, 0.95, 1.05), 0.1).ends_with("whole interval"));
        assert!(equal(ratio(1.05, 0.8, 1.3), 0.1).ends_with("beyond"));
        assert!(equal(ratio(2.0, 1.9, 2.1), 0.1).ends_with("no"));
        let single = Ratio { pairs: Some(1), ..ratio(2.0, 2.0, 2.0) };
        assert!(judged(single, |here| at_least(here, 1.6)).starts_with("cannot be told"));
        assert_eq!(matters_from(&[(1, Some(single))], Better::Higher), None);
    }

    #[test]
    fn keys_come_from_samples_of_the_same_round() {
        let sample = |case: String, variant: &str, metric, round, value| Sample {
            case,
            x: None,
            variant: variant.to_owned(),
            metric: Some(metric),
            round,
            position: 0,
            outcome: Ok(value),
            traffic: None,
        };
        let mut samples = Samples::default();
        for round in 1..=3 {
            let (weak, others) = (Setting::Weak.case(65536), against_others(65536, THROUGHPUT));
            samples.0.push(sample(weak.clone(), Step::Off.name(), THROUGHPUT, round, 500.0));
            samples.0.push(sample(weak, ALL_ON.name(), THROUGHPUT, round, 1000.0));
            samples.0.push(sample(others.clone(), OWN, THROUGHPUT, round, 99.0));
            samples.0.push(sample(others, Tool::Iperf3.name(), THROUGHPUT, round, 100.0));
        }
        let found = find(&samples, &[1, 65536]);
        let keys: Vec<_> = summary(&found).iter().map(|key| (key.name, key.value)).collect();
        assert_eq!(
            keys,
            [("offload_throughput_ratio_weak_cpu_64k", 2.0), ("iperf3_agreement", 0.99)],
            "what was not measured is left out"
        );
        assert_eq!(table(&found).rows.len(), found.len());
    }
}
