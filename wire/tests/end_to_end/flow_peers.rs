//! `seekwire lab run flow-peers`: one pipeline over all that is installed here.

use std::fs;

use serde_json::Value;

use crate::harness::{Mode, Stage, seekwire};

#[test]
fn one_pipeline_runs_over_all_that_is_installed() {
    let stage = Stage::new(Mode::Plain);
    let out = stage.path("out");
    let mut command = stage.plain_command(seekwire());
    command.args(["lab", "run", "flow-peers", "--quick", "--rounds", "1", "--out"]).arg(&out);
    let printed = stage.run(&mut command).success();
    let text = fs::read_to_string(out.join("flow-peers/result.json")).expect("a result");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    for key in [
        "local_2k_vs_crossbeam",
        "slow_consumer_peak_over_declared",
        "auto_block_vs_best_worst_ratio",
    ] {
        let value = result["summary"][key].as_f64();
        assert!(value.is_some_and(|value| value > 0.0) && printed.contains(key), "{printed}");
    }
    let rows = result["rows"].as_array().expect("rows");
    // Corrupt blocks would have ended the run.
    let wrong = rows.iter().filter(|row| {
        let error = row["error"].as_str();
        error.is_some_and(|error| !error.contains("not installed") && !error.contains("full share"))
    });
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&Value>::new());
    let variants = ["flow, one process", "flow, ring", "flow, TCP", "crossbeam-channel", "timely"];
    for variant in variants {
        for case in ["64 B", "2 KiB", "16 KiB", "64 KiB", "slow consumer"] {
            let is_there = |row: &&Value| row["variant"] == variant && row["case"] == case;
            assert!(rows.iter().any(|row| is_there(&row)), "{variant}, {case}");
        }
    }
}
