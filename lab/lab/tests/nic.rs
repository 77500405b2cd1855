//! `seekwire lab run nic` between namespaces that it makes itself, and between two hosts, which are
//! also namespaces.

#![forbid(unsafe_code)]

#[path = "../../../nic/nic/tests/namespace/mod.rs"]
mod namespace;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use namespace::with_pair;
use rustix::process::{Pid, Signal, kill_process};
use seekwire_gauge::{Client, Test, TestKind};
use seekwire_nic::{Interface, Kernel, Store};
use seekwire_testbed::{CpuQuota, Side, Testbed};
use serde_json::Value;

const SEEKWIRE: &str = env!("CARGO_BIN_EXE_seekwire-lab");
const STEPS: [&str; 4] = ["everything off", "checksums", "+ TSO, GSO, SG", "+ GRO"];

fn command(out: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(SEEKWIRE);
    command.args(["lab", "run", "nic", "--quick", "--out"]).arg(out).args(words);
    // Not with the states of the host's own interfaces.
    command.env(Store::VARIABLE, out.join("states"));
    command
}

fn result(out: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(out.join("nic/result.json")).unwrap()).unwrap()
}

/// The readings of a step, if it was measured.
fn spread<'a>(result: &'a Value, case: &str, step: &str, metric: &str) -> Option<&'a Value> {
    let rows = result["rows"].as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| row["case"] == case && row["variant"] == step && row["metric"] == metric)?;
    Some(&row["spread"])
}

fn titles(result: &Value) -> Vec<&str> {
    let tables = result["tables"].as_array().unwrap();
    tables.iter().map(|table| table["title"].as_str().unwrap()).collect()
}

#[test]
fn namespaces_are_measured_in_all_steps_and_compared_with_the_thesis() {
    // It makes its own; this is to see whether it may.
    with_pair(|_| {
        let out = tempfile::tempdir().unwrap();
        let output = command(out.path(), &["--netns"]).output().unwrap();
        let (errors, printed) =
            (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{errors}");
        let result = result(out.path());
        // Other programs may be missing.
        let ours = |row: &&Value| STEPS.iter().any(|step| row["variant"] == *step);
        for row in result["rows"].as_array().unwrap().iter().filter(ours) {
            assert!(row["error"].is_null(), "{row}");
        }
        for step in STEPS {
            for size in ["1 B", "64 B", "1 KiB", "4 KiB", "16 KiB", "64 KiB"] {
                let cases = [
                    (
                        "request/response",
                        &[
                            "one-way latency",
                            "one-way latency, p50",
                            "round trip p50",
                            "round trip p99",
                            "round trip p99.9",
                        ][..],
                    ),
                    (
                        "stream",
                        &[
                            "throughput",
                            "CPU load",
                            "CPU load, softirq",
                            "CPU load, in no tick",
                            "CPU load of the busier host",
                            "CPU of the client",
                            "CPU of the client, user",
                            "CPU of the server, system",
                            "CPU time",
                        ],
                    ),
                    ("stream, weak receiver", &["throughput", "CPU of the receiver, of its share"]),
                    (
                        "stream, weak receiver, slow link",
                        &[
                            "throughput",
                            "throughput, of the link",
                            "CPU of the receiver, of its share",
                        ],
                    ),
                ];
                for (setting, metrics) in cases {
                    for metric in metrics {
                        let spread =
                            spread(&result, &format!("{setting}, {size}"), step, metric).unwrap();
                        assert_eq!(
                            spread["n"], result["parameters"]["rounds"],
                            "{setting}, {size}, {step}, {metric}"
                        );
                    }
                }
            }
        }
        let titles = titles(&result);
        assert_eq!(titles[0], "Findings");
        for table in [
            "4.1.1",
            "over a link of 1 Gb/s (tables 4.2.1 to 4.2.3, graph 4.2.1",
            "graph 4.2.2",
            "4.2.4 to 4.2.6, graph 4.2.3",
            "Round trip, p50",
            "Round trip, p99",
            "Round trip, p99.9",
            "One-way latency by formula and by histogram",
            "Where the CPU time goes",
        ] {
            assert!(titles.iter().any(|title| title.contains(table)), "{table}: {titles:?}");
        }
        // Ours of four steps, and the thesis' of three.
        let latency = &result["tables"][1];
        let last = latency["rows"].as_array().unwrap().last().unwrap().as_array().unwrap();
        assert_eq!(
            (last.len(), &last[5], &last[7]),
            (8, &859.55.into(), &727.87.into()),
            "{last:?}"
        );
        for key in
            ["offload_throughput_ratio_weak_cpu_64k", "offload_cpu_ratio_64k", "latency_64k_ratio"]
        {
            assert!(
                result["summary"][key].is_number() && printed.contains(key),
                "{key}: {printed}"
            );
        }
        let has_iperf3 =
            spread(&result, "throughput beside iperf3, 64 KiB", "iperf3", "throughput");
        assert_eq!(result["summary"]["iperf3_agreement"].is_number(), has_iperf3.is_some());
        // The rate of the thesis' link over the throughput of its weak hosts with everything off,
        // headers added.
        assert!(result["parameters"]["slow link of the weak receiver (b/s)"].as_u64().unwrap() > 0);
        for plot in [
            "latency",
            "round-trip-p50",
            "round-trip-p999",
            "throughput",
            "cpu",
            "weak-throughput",
            "slow-throughput",
            "weak-cpu",
            "weak-cpu-time",
        ] {
            let svg = fs::read_to_string(out.path().join(format!("nic/{plot}.svg"))).unwrap();
            assert!(svg.contains("+ GRO") && !svg.contains("NaN"), "{plot}");
        }
        assert!(
            fs::read_to_string(out.path().join("nic/report.html")).unwrap().contains("Findings")
        );
    });
}

/// The cells of a step in a table.
fn cells<'a>(result: &'a Value, title: &str, step: &str, host: &str) -> &'a [Value] {
    let tables = result["tables"].as_array().unwrap();
    let table =
        tables.iter().find(|table| table["title"].as_str().unwrap().starts_with(title)).unwrap();
    let rows = table["rows"].as_array().unwrap();
    rows.iter().find(|row| row[0] == step && row[1] == host).unwrap().as_array().unwrap()
}

/// A server like `seekwire nic serve` at the far end, and its address.
fn serve(testbed: &Testbed) -> (Child, String) {
    let far = testbed.end(Side::Far);
    let mut command = Command::new(SEEKWIRE);
    command.args(["lab-peer", "gauge-serve"]).arg(format!("{}:0", far.address()));
    // It serves until its standard input ends.
    let mut server = far.spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    let line = BufReader::new(server.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    (server, format!("{}:{}", far.address(), line.strip_prefix("ready ").unwrap()))
}

fn near() -> Interface {
    Kernel::open().unwrap().interface("near").unwrap()
}

#[test]
fn with_a_peer_only_the_interface_here_is_set_and_it_is_put_back() {
    with_pair(|testbed| {
        let out = tempfile::tempdir().unwrap();
        let before = near();
        let (mut server, address) = serve(testbed);
        let output = command(out.path(), &["--rounds", "1", "--peer", &address]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(near(), before);
        let result = result(out.path());
        for step in STEPS {
            assert!(
                spread(&result, "request/response, 1 KiB", step, "one-way latency").is_some(),
                "{step}"
            );
            for end in
                ["CPU load, this host", "CPU load, other host", "CPU load, other host, softirq"]
            {
                assert!(spread(&result, "stream, 64 KiB", step, end).is_some(), "{step}, {end}");
            }
            for host in ["this one", "the other"] {
                let cells = cells(&result, "Where the CPU time goes", step, host);
                assert!(cells[2..].iter().all(Value::is_number), "{cells:?}");
            }
        }
        // The speed that a veth reports; nothing here goes through 1 Gb/s.
        assert_eq!(
            result["parameters"]["speed of the link of the streams (Mb/s)"],
            near().speed_mbps.unwrap()
        );
        let titles = titles(&result);
        assert!(
            titles.iter().any(|title| title.contains("CPU load over a link of 10 Gb/s")),
            "{titles:?}"
        );
        let text = fs::read_to_string(out.path().join("nic/result.json")).unwrap();
        assert!(!text.contains("over a link of 1 Gb/s") && !text.contains("no link limits"));
        assert_eq!(spread(&result, "stream, weak receiver, 64 KiB", STEPS[0], "throughput"), None);
        let why = result["parameters"]["weak receiver"].as_str().unwrap();
        assert!(why.contains("not measured") && why.contains("--weak-peer"), "{why}");

        // ^C and ^\ in the middle.
        for signal in [Signal::INT, Signal::QUIT] {
            let mut running =
                command(out.path(), &["--peer", &address]).stderr(Stdio::piped()).spawn().unwrap();
            let mut lines =
                BufReader::new(running.stderr.take().unwrap()).lines().map(Result::unwrap);
            assert!(lines.any(|line| line.contains("round 1/")), "it ended early");
            kill_process(Pid::from_child(&running), signal).unwrap();
            let rest: Vec<String> = lines.collect();
            assert_eq!(running.wait().unwrap().code(), Some(1), "{rest:?}");
            assert!(rest.last().unwrap().contains("interrupted"), "{rest:?}");
            assert_eq!(near(), before, "{signal:?}");
        }
        // The server is free again, not just when the test would have been over.
        let test = Test::new(TestKind::Stream, 1000, Duration::from_millis(10));
        let mut client = Client::of(address.parse().unwrap());
        client.persist(&test, Duration::from_secs(9), &|| false).unwrap();

        // A second server under a quota is the weak receiver.
        let (mut weak, weak_address) = serve(testbed);
        match CpuQuota::new(20.0) {
            Ok(quota) => {
                quota.add(weak.id()).unwrap();
                let words = ["--rounds", "1", "--peer", &address, "--weak-peer", &weak_address];
                let output = command(out.path(), &words).output().unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                let result = self::result(out.path());
                let case = "stream, weak receiver, 64 KiB";
                for step in STEPS {
                    assert!(spread(&result, case, step, "throughput").is_some(), "{step}");
                    assert!(
                        spread(&result, case, step, "CPU of the receiver, of its share").is_some()
                    );
                }
                assert!(result["summary"]["offload_throughput_ratio_weak_cpu_64k"].is_number());
                assert_eq!(result["parameters"]["weak peer"], weak_address);
                assert_eq!(near(), before);
            }
            Err(why) => namespace::not_run(&why.to_string()),
        }
        weak.kill().unwrap();
        weak.wait().unwrap();
        let output = command(out.path(), &["--peer", &address, "--weak-peer", &weak_address])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("--weak-peer"), "{errors}");

        // The measurement would have nothing to do with that interface.
        let output = command(out.path(), &["--peer", &address, "--iface", "lo"]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains("reached by near, not by lo"),
            "{errors}"
        );

        testbed.end(Side::Near).add_default_route().unwrap();
        let output = command(out.path(), &["--peer", &address]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("--default-route"), "{errors}");
        server.kill().unwrap();
        server.wait().unwrap();
        let output =
            command(out.path(), &["--peer", &address, "--default-route"]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("seekwire nic serve"), "{errors}");
    });
}
