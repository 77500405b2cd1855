//! `seekwire lab run zeromq` and `models`: real libzmq programs and mailboxes, plain and on the
//! ring.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Mode, Stage, library_directory, seekwire};

/// Runs an experiment and returns what it found, and what it printed.
fn run(name: &str) -> (Value, String) {
    assert!(library_directory().join("seekwire-zeromq").is_file(), "run scripts/build tests");
    let out = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(seekwire());
    let output = command
        .args(["lab", "run", name, "--quick", "--out"])
        .arg(out.path())
        .output()
        .expect("a run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |file: &str| fs::read_to_string(out.path().join(name).join(file)).expect("a file");
    assert!(read("report.html").contains("<svg"));
    let result = serde_json::from_str(&read("result.json")).expect("JSON");
    (result, String::from_utf8_lossy(&output.stdout).into_owned())
}

fn rows(result: &Value) -> impl Iterator<Item = &Value> {
    result["rows"].as_array().expect("rows").iter()
}

/// The errors of all rows come before anything else: a row that lacks samples does not say why.
fn nothing_failed<'a>(rows: impl Iterator<Item = &'a Value>) {
    let errors: Vec<String> = rows
        .filter(|row| !row["error"].is_null())
        .map(|row| format!("{}, {}: {}", row["case"], row["variant"], row["error"]))
        .collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

fn has_keys(result: &Value, printed: &str, keys: &[&str]) {
    for key in keys {
        let value = result["summary"][key].as_f64();
        assert!(
            value.is_some_and(|value| value > 0.0) && printed.contains(key),
            "{key}: {printed}"
        );
    }
}

/// On the ring, bytes did not go by TCP, but for those for which it had no room, which may be most
/// of very small messages; elsewhere there is no ring.
fn ring_was_used(row: &Value) {
    let bytes = |carrier: &str| row[carrier].as_u64();
    if row["variant"].as_str().is_some_and(|variant| variant.contains("ring")) {
        let (ring, tcp) =
            (bytes("ring_bytes").expect("a count"), bytes("tcp_bytes").expect("a count"));
        assert!(ring > tcp / if row["x"] == 1.0 { 100 } else { 1 }, "{row}");
    } else {
        assert_eq!(bytes("ring_bytes"), None, "{row}");
    }
}

mod with_libzmq {
    use super::*;

    #[test]
    fn libzmq_is_measured_over_everything_that_it_has_and_on_the_ring() {
        let (result, printed) = run("zeromq");
        let testbed = seekwire_testbed::Testbed::new();
        let may_be_missing = |row: &Value| {
            testbed.is_err() && row["variant"].as_str().unwrap_or("").contains("veth")
        };
        let name = |row: &Value| row["metric"].as_str().expect("a metric").to_owned();
        nothing_failed(rows(&result).filter(|row| !may_be_missing(row)));
        for row in rows(&result).filter(|row| !may_be_missing(row)) {
            // A short test may be over before /proc/stat has counted a tick of any processor.
            let rounds = result["parameters"]["rounds"].as_u64().expect("a number");
            let least = if name(row).starts_with("CPU load") { 1 } else { rounds };
            let counted = row["spread"]["n"].as_u64().expect("a number");
            assert!((least..=rounds).contains(&counted), "{row}");
            ring_was_used(row);
        }
        let ways = [
            "tcp://",
            "tcp:// on the ring",
            "ipc://",
            "inproc://",
            "Mailbox, TCP",
            "Mailbox, ring",
        ];
        let cable =
            ["veth, everything off", "veth, checksums", "veth, + TSO, GSO, SG", "veth, + GRO"];
        for way in ways.into_iter().chain(cable.into_iter().filter(|_| testbed.is_ok())) {
            for (kind, metric) in
                [("request/reply", "one-way latency"), ("push/pull", "message rate")]
            {
                for size in ["1 B", "1 KiB", "64 KiB"] {
                    let case = format!("{kind}, {size}");
                    let is_there = |metric: &str| {
                        rows(&result).any(|row| {
                            row["case"] == *case && row["variant"] == way && name(row) == metric
                        })
                    };
                    assert!(is_there(metric), "{way}: {metric} of {case} is missing");
                    // CPU time of the processes, per end if there are two, and of the machine.
                    for part in ["user", "system"] {
                        for ends in ["both ends", "the sender", "the receiver"] {
                            let one_process = way == "inproc://" && ends != "both ends";
                            let metric = format!("CPU of {ends}, {part}");
                            assert_eq!(
                                is_there(&metric),
                                !one_process,
                                "{way}: {metric} of {case}"
                            );
                        }
                    }
                    for part in ["user", "system", "softirq"] {
                        assert!(
                            is_there(&format!("CPU load, {part}")),
                            "{way}: {part} of {case} is missing"
                        );
                    }
                }
            }
        }
        has_keys(
            &result,
            &printed,
            &["ring_vs_tcp_latency", "ring_vs_tcp_rate_1k", "ring_vs_ipc_rate_1k"],
        );
        if testbed.is_ok() {
            has_keys(
                &result,
                &printed,
                &["offload_latency_ratio_64k", "offload_throughput_ratio_64k"],
            );
            let tables = result["tables"].as_array().expect("tables");
            let titled = |title: &str| {
                tables.iter().find(|table| table["title"].as_str().unwrap_or("").contains(title))
            };
            let latency = titled("graph 4.1.2").expect("a table");
            let last = latency["rows"].as_array().and_then(|rows| rows.last()).expect("rows");
            assert_eq!((&last[5], &last[6]), (&1012.7.into(), &715.33.into()), "{last:?}");
            let parts =
                titled("Two hosts: CPU load of both ends by part, PUSH/PULL").expect("a table");
            let mut cells = parts["rows"]
                .as_array()
                .expect("rows")
                .iter()
                .flat_map(|row| row.as_array().expect("cells"));
            assert!(
                cells.any(|cell| cell.as_str().is_some_and(|sum| sum.contains(" + "))),
                "{parts}"
            );
        }
    }

    #[test]
    fn models_of_messaging_keep_their_promises_over_both_libraries() {
        let (result, printed) = run("models");
        let mut cases = std::collections::BTreeSet::new();
        nothing_failed(rows(&result));
        for row in rows(&result) {
            assert_eq!(row["spread"]["n"], result["parameters"]["rounds"], "{row}");
            ring_was_used(row);
            cases.insert((
                row["case"].as_str().expect("a case"),
                row["variant"].as_str().expect("a variant"),
            ));
        }
        assert_eq!(cases.len(), 7 * 4, "{cases:?}");
        let models = ["broker", "publish", "file", "scatter"];
        for library in ["zeromq", "mailbox"] {
            let keys = models.map(|model| format!("{library}_ring_vs_tcp_{model}"));
            has_keys(&result, &printed, &keys.each_ref().map(String::as_str));
        }
    }
}

/// A command that was built where libzmq is not installed, by itself.
#[test]
fn without_libzmq_it_says_what_to_install_and_the_rest_goes_on() {
    let stage = Stage::new(Mode::Plain);
    let alone = stage.path("bin");
    fs::create_dir(&alone).expect("a directory");
    for file in ["seekwire", "seekwire-lab", "libseekwire.so"] {
        fs::copy(library_directory().join(file), alone.join(file)).expect("a copy");
    }
    let out = stage.path("out");
    let run = |name: &str| {
        let mut command = stage.plain_command(alone.join("seekwire"));
        command.args(["lab", "run", name, "--quick", "--rounds", "1", "--out"]).arg(&out);
        stage.run(&mut command)
    };
    let finished = run("zeromq");
    assert_eq!(finished.status.code(), Some(1));
    let sentence = finished.stderr.trim_end();
    assert!(sentence.lines().count() == 1 && sentence.contains("install libzmq"), "{sentence}");
    assert!(!out.exists(), "nothing may have run");

    let finished = run("models");
    let stderr = finished.stderr.clone();
    let printed = finished.success();
    assert!(printed.contains("mailbox_ring_vs_tcp_broker"), "{printed}");
    let said: Vec<&str> = stderr.lines().filter(|line| line.contains("not measured")).collect();
    let [said] = said[..] else { panic!("{stderr}") };
    assert!(
        said.starts_with("models: not measured: ZeroMQ, TCP; ZeroMQ, ring: not installed: "),
        "{said}"
    );
}
