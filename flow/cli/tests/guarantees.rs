//! Block sizes that streams choose, and guarantees of pipelines, as users see them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{chain, flow, text, write_pipeline};

const BYTES: usize = 4 << 20;

/// A source, a filter that takes 20 ns for each byte, and a sum; with that guarantee.
fn pipeline(guarantee: &str) -> tempfile::TempDir {
    let filters = [
        ("read", "run = \"read\""),
        ("burn", "run = \"burn\"\nnanoseconds-per-byte = 20\ncopies = 2"),
        ("sum", "run = \"sha256\""),
        ("print", "run = \"write\""),
    ];
    let stream = "block = \"auto\"\nblock-most = \"128KiB\"\nordered = true";
    let file = format!("{}[guarantee]\n{guarantee}\n", chain(&filters, stream));
    let directory = write_pipeline("p.toml", &file);
    fs::write(directory.path().join("data"), vec![7; BYTES]).unwrap();
    directory
}

fn trace_events(directory: &Path) -> Vec<Value> {
    let trace = fs::read(directory.join("trace.json")).unwrap();
    let mut trace: Value = serde_json::from_slice(&trace).unwrap();
    let Value::Array(events) = trace["traceEvents"].take() else { panic!("no events") };
    events
}

#[test]
fn a_kept_guarantee_is_reported_and_the_bytes_are_the_same() {
    let directory = pipeline("units-per-second = 0.001");
    let planned = flow(directory.path(), &["plan", "p.toml", "data", "--seconds", "60"]);
    let plan = text(&planned.stdout);
    let plan = plan.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plan.contains("0.001 units are done in a second holds here: there were"), "{plan}");
    let arguments = ["run", "p.toml", "data", "data", "--trace", "trace.json"];
    let output = flow(directory.path(), &arguments);
    let errors = text(&output.stderr);
    assert!(errors.contains("second holds: it was kept with 2 of 2; lately"), "{errors}");
    let sums = text(&output.stdout);
    let sums: Vec<&str> = sums.lines().collect();
    assert!(sums.len() == 2 && sums[0] == sums[1], "{sums:?}");
    // Each deal states the figures that led to it.
    let arguments = |event: &Value| event["args"].clone();
    let events = trace_events(directory.path());
    let deals: Vec<_> = events.iter().filter(|event| event["name"] == "deal").collect();
    assert!(!deals.is_empty());
    for deal in deals.into_iter().map(arguments) {
        let copies = deal["outstanding, service and way in ns"].as_array().unwrap();
        assert!((1..=2).contains(&copies.len()), "{deal}");
        assert!(deal["copy"].as_u64().unwrap() < copies.len() as u64, "{deal}");
        assert!(deal["blocks"].as_u64() <= deal["backlog"].as_u64(), "{deal}");
    }
    // Each chosen size states the measurements that led to it.
    let decisions: Vec<_> =
        events.iter().filter(|event| event["name"] == "size of blocks").collect();
    assert!(!decisions.is_empty());
    for event in decisions {
        let decision = &event["args"]["decision"];
        assert_ne!(decision["from"], decision["to"], "{event}");
        assert!((1024..=128 << 10).contains(&decision["to"].as_u64().unwrap()), "{event}");
        assert!(event["args"]["stream"].as_str().unwrap().contains(" -> "), "{event}");
    }
}

#[test]
fn a_broken_guarantee_is_reported_even_with_quiet() {
    let directory = pipeline("latency = \"1us\"");
    let planned = flow(directory.path(), &["plan", "p.toml", "data", "--seconds", "60"]);
    let plan = text(&planned.stdout);
    let plan = plan.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plan.contains("within 1.00 us does not hold here: the slowest unit took"), "{plan}");
    let output = flow(directory.path(), &["run", "--quiet", "p.toml", "data"]);
    assert!(output.status.success());
    let errors = text(&output.stderr);
    assert!(errors.contains("does NOT hold: it was kept with 0 of 1; the last took"), "{errors}");
}
