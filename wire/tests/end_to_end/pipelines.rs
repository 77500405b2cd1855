//! `seekwire lab run flow-demand` and `flow-latency`: pipelines in several processes, over TCP, on
//! the ring, and between network namespaces.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::harness::seekwire;

/// The rows of one round, and what was printed.
fn run(name: &str) -> (Vec<Value>, String) {
    let out = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(seekwire());
    command.args(["lab", "run", name, "--quick", "--rounds", "1", "--out"]).arg(out.path());
    let output = command.output().expect("a run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(out.path().join(name).join("result.json")).expect("a file");
    let mut result: Value = serde_json::from_str(&text).expect("JSON");
    let Value::Array(rows) = result["rows"].take() else { panic!("no rows: {text}") };
    // Links are where namespaces can be made.
    let is_link = |row: &Value| row["case"].as_str().is_some_and(|case| case.contains("b/s"));
    let testbed = seekwire_testbed::Testbed::new();
    for row in rows.iter().filter(|row| testbed.is_ok() || !is_link(row)) {
        assert!(row["error"].is_null(), "{row}");
    }
    (rows, String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn nobody_deals_better_than_the_oracle() {
    let (rows, printed) = run("flow-demand");
    let of_oracle = |row: &&Value| row["metric"] == "time over the oracle's";
    for row in rows.iter().filter(of_oracle) {
        assert!(row["spread"]["min"].as_f64().is_some_and(|ratio| ratio > 0.98), "{row}");
    }
    for setting in ["TCP, 16 KiB, ", "ring, 16 KiB, ", "ring, 2 KiB, "] {
        let is_there = rows.iter().any(|row| {
            row["case"].as_str().is_some_and(|case| case.starts_with(setting))
                && row["variant"] == "adaptive"
        });
        assert!(is_there, "{setting} is missing");
    }
    for key in [
        "adaptive_vs_demand_worst_ratio",
        "adaptive_vs_oracle_worst_ratio",
        "static_vs_oracle_ratio",
    ] {
        assert!(printed.contains(key), "{key}: {printed}");
    }
}

#[test]
fn partial_updates_have_a_latency_while_complete_ones_are_due() {
    let (rows, _) = run("flow-latency");
    for way in ["TCP", "ring", "ring, redistributed"] {
        let is_there = |row: &Value| {
            row["variant"] == way
                && row["metric"] == "complete updates done"
                && row["case"].as_str().is_some_and(|case| case.starts_with("no computation, "))
        };
        assert!(rows.iter().any(is_there), "{way} is missing");
    }
}
