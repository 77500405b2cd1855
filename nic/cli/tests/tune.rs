//! `seekwire nic serve` and `seekwire nic tune` between two network namespaces.

#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use seekwire_testbed::{Side, TestHost, Testbed};
use serde_json::Value;

const SEEKWIRE: &str = env!("CARGO_BIN_EXE_seekwire-nic");

/// `seekwire nic serve` at the far end, until dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(end: &TestHost, listen: &str) -> Self {
        let mut command = Command::new(SEEKWIRE);
        command.args(["nic", "serve", "--listen", listen, "--quiet"]).stdout(Stdio::piped());
        let mut child = end.spawn(&mut command).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `test` with a testbed, a server at its far end, and a directory for states.
fn with_server(test: impl FnOnce(&Testbed, &Server, &Path)) {
    let testbed = match Testbed::new() {
        Ok(testbed) => testbed,
        // Bypasses the test harness, which discards the output of tests that pass.
        Err(error) => return drop(writeln!(std::io::stderr(), "not run: {error}")),
    };
    let far = testbed.end(Side::Far);
    let server = Server::start(far, &format!("{}:0", far.address()));
    let state = tempfile::tempdir().unwrap();
    test(&testbed, &server, state.path());
}

fn nic(state: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(SEEKWIRE);
    command.arg("nic").args(words).arg("--state").arg(state);
    command
}

fn run(testbed: &Testbed, mut command: Command) -> (Option<i32>, String, String) {
    let near = testbed.end(Side::Near);
    let Output { status, stdout, stderr } = near.run(|| command.output()).unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// The JSON of `near`, with a null state if nothing is to be restored.
fn near(testbed: &Testbed, state: &Path) -> Value {
    let (code, json, errors) = run(testbed, nic(state, &["show", "near", "--json"]));
    assert_eq!(code, Some(0), "{errors}");
    let mut shown: Value = serde_json::from_str(&json).unwrap();
    shown[0].take()
}

fn value<'a>(interface: &'a Value, key: &str) -> &'a Value {
    let features = interface["features"].as_array().unwrap();
    &features.iter().find(|feature| feature["name"] == key).unwrap()["active"]
}

#[test]
fn it_measures_says_what_it_found_and_changes_nothing() {
    with_server(|testbed, server, state| {
        let before = near(testbed, state);
        for goal in ["latency", "mixed"] {
            let words = [
                "tune",
                "near",
                "--peer",
                &server.address,
                "--goal",
                goal,
                "--time",
                "2",
                "--json",
            ];
            let (code, json, errors) = run(testbed, nic(state, &words));
            assert_eq!(code, Some(0), "{errors}");
            assert!(
                errors.contains("trying: as found") && errors.contains("round 1: "),
                "{errors}"
            );
            let report: Value = serde_json::from_str(&json).unwrap();
            assert_eq!(
                (&report["goal"], &report["peer"]),
                (&goal.into(), &server.address.as_str().into())
            );
            assert_eq!(report["confidence"], 0.99);
            assert!(
                report["applied"].is_null() && report["candidates"].as_array().unwrap().len() > 3,
                "{json}"
            );
            assert!(
                report["candidates"][0]["figures"]["latency_seconds"].as_f64().unwrap() > 0.0,
                "{json}"
            );
            assert_eq!(near(testbed, state), before);
        }
        let words =
            ["tune", "near", "--peer", &server.address, "--goal", "throughput", "--time", "1"];
        let (code, text, errors) = run(testbed, nic(state, &words));
        assert_eq!(code, Some(0), "{errors}");
        assert!(
            text.contains("AGAINST FOUND") && text.contains("at most 1 % of the cases"),
            "{text}"
        );
        assert!(text.contains("near, throughput, "), "{text}");
        assert_eq!(near(testbed, state), before);
    });
}

#[test]
fn what_is_recommended_is_applied_and_what_makes_it_last_is_written() {
    with_server(|testbed, server, state| {
        // Small packets, each made by the CPU: a large difference to what can be had.
        for (side, name) in [(Side::Near, "near"), (Side::Far, "far")] {
            let mut ip = Command::new("ip");
            ip.args(["link", "set", name, "mtu", "600"]);
            assert!(testbed.end(side).run(|| ip.status()).unwrap().unwrap().success());
        }
        let before = near(testbed, state);
        assert_eq!(
            run(testbed, nic(state, &["apply", "near", "--profile", "baseline"])).0,
            Some(0)
        );
        let file = state.join("50-near.link");
        let file_name = file.to_str().unwrap();
        let words =
            ["tune", "near", "--peer", &server.address, "--goal", "throughput", "--time", "12"];
        let apply = ["--apply", "--lasting", file_name, "--json"];
        let (code, json, errors) = run(testbed, nic(state, &[&words[..], &apply].concat()));
        assert_eq!(code, Some(0), "{errors}");
        let report: Value = serde_json::from_str(&json).unwrap();
        let recommended = report["recommended"].as_u64().unwrap() as usize;
        let now = near(testbed, state);
        if recommended == 0 {
            // Too much other load for any significant difference.
            assert_eq!(report["confidence"], 0.99);
            assert!(
                report["applied"].is_null() && report["lasting"].is_null() && !file.exists(),
                "{json}"
            );
            assert_eq!(value(&now, "tx-generic-segmentation"), false);
        } else {
            let candidate = &report["candidates"][recommended];
            assert!(candidate["against_found"]["low"].as_f64().unwrap() > 1.0, "{json}");
            assert!(
                report["applied"]["outcomes"]
                    .as_array()
                    .is_some_and(|outcomes| !outcomes.is_empty()),
                "{json}"
            );
            for change in candidate["changes"].as_array().unwrap() {
                let (key, wanted) = change.as_str().unwrap().split_once('=').unwrap();
                assert_eq!(value(&now, key), wanted == "on", "{change}");
            }
            let link = std::fs::read_to_string(&file).unwrap();
            assert_eq!(link, report["lasting"]["link"]);
            assert!(link.contains("\nOriginalName=near\nKind=veth\n\n[Link]\n"), "{link}");
            // And it is not written over.
            let (code, _, errors) = run(testbed, nic(state, &[&words[..], &apply].concat()));
            assert!(code == Some(1) && errors.contains("exists already"), "{errors}");
        }
        assert_eq!(run(testbed, nic(state, &["restore", "near"])).0, Some(0));
        assert_eq!(near(testbed, state), before);
    });
}

/// Starts a long search and waits until some candidate has been measured that is not what was
/// found.
fn searching(testbed: &Testbed, server: &Server, state: &Path) -> Child {
    let words = ["tune", "near", "--peer", &server.address, "--goal", "latency", "--time", "600"];
    searching_with(testbed, nic(state, &words))
}

fn searching_with(testbed: &Testbed, mut command: Command) -> Child {
    let mut child = testbed.end(Side::Near).spawn(command.stderr(Stdio::piped())).unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("round 1: ") {
        line.clear();
        assert_ne!(errors.read_line(&mut line).unwrap(), 0, "it ended early");
    }
    child.stderr = Some(errors.into_inner());
    child
}

#[test]
fn signals_end_a_search_and_everything_comes_back() {
    with_server(|testbed, server, state| {
        let before = near(testbed, state);
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let mut child = searching(testbed, server, state);
            kill_process(Pid::from_child(&child), signal).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(code));
            assert_eq!(near(testbed, state), before);
        }
        // Further signals do not prevent the restoration.
        let mut child = searching(testbed, server, state);
        for _ in 0..100 {
            // It may have ended already.
            let _ = kill_process(Pid::from_child(&child), Signal::INT);
        }
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(near(testbed, state), before);
    });
}

/// Commands of ip(8) at the near end.
fn ip(testbed: &Testbed, commands: &[&str]) {
    for words in commands {
        let mut ip = Command::new("ip");
        ip.args(words.split(' '));
        assert!(
            testbed.end(Side::Near).run(|| ip.status()).unwrap().unwrap().success(),
            "ip {words}"
        );
    }
}

#[test]
fn nothing_follows_when_not_all_came_back() {
    with_server(|testbed, server, state| {
        let address = format!("{}/30", testbed.end(Side::Near).address());
        let onto_bridge = [
            "link add br0 type bridge",
            "link set br0 up",
            &format!("addr del {address} dev near"),
            "link set near master br0",
            &format!("addr add {address} dev br0"),
        ];
        ip(testbed, &onto_bridge);
        let file = state.join("50-br0.link");
        for (time, signal) in [("600", Some(Signal::INT)), ("6", None)] {
            let mut words =
                vec!["tune", "br0", "--peer", &server.address, "--goal", "latency", "--time", time];
            words.extend(["--apply", "--lasting", file.to_str().unwrap()]);
            let mut command = nic(state, &words);
            let child = searching_with(testbed, {
                command.stdout(Stdio::piped());
                command
            });
            // A bridge can do what its ports can.
            assert_eq!(run(testbed, nic(state, &["apply", "near", "sg=off"])).0, Some(0));
            if let Some(signal) = signal {
                kill_process(Pid::from_child(&child), signal).unwrap();
            }
            let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
            let (text, errors) =
                (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
            assert_eq!(status.code(), Some(1), "{errors}");
            assert!(
                errors.lines().last().unwrap().contains("`seekwire nic restore br0`"),
                "{errors}"
            );
            assert_eq!(text.contains("AGAINST FOUND"), signal.is_none(), "{text}");
            assert!(
                !text.contains("restores the state before the first change") && !file.exists(),
                "{text}"
            );
            for name in ["near", "br0"] {
                assert_eq!(run(testbed, nic(state, &["restore", name])).0, Some(0), "{name}");
            }
        }
    });
}

#[test]
fn where_nothing_can_be_written_is_said_before_anything_is_measured() {
    with_server(|testbed, server, state| {
        let link = state.join("nowhere");
        std::os::unix::fs::symlink("no-such-file", &link).unwrap();
        for file in [state.join("no-such-directory/50-near.link"), state.join(".."), link] {
            let words =
                ["tune", "near", "--peer", &server.address, "--goal", "latency", "--time", "1"];
            let words = [&words[..], &["--lasting", file.to_str().unwrap()]].concat();
            let (code, text, errors) = run(testbed, nic(state, &words));
            assert!(code == Some(1) && !errors.contains("trying: "), "{text}{errors}");
            assert!(errors.contains(file.to_str().unwrap()), "{errors}");
        }
    });
}

#[test]
fn measurements_are_printed_though_they_cannot_be_written() {
    with_server(|testbed, server, state| {
        assert_eq!(
            run(testbed, nic(state, &["apply", "near", "--profile", "baseline"])).0,
            Some(0)
        );
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("50-near.link");
        let words =
            ["tune", "near", "--peer", &server.address, "--goal", "throughput", "--time", "8"];
        let words = [&words[..], &["--lasting", file.to_str().unwrap()]].concat();
        let mut command = nic(state, &words);
        let child = searching_with(testbed, {
            command.stdout(Stdio::piped());
            command
        });
        directory.close().unwrap();
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let (text, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(text.contains("AGAINST FOUND"), "{text}{errors}");
        if text.contains("To set it until") {
            assert!(status.code() == Some(1) && errors.contains("cannot write"), "{errors}");
            assert!(text.contains("[Match]") && text.contains("ethtool -K near"), "{text}");
        } else {
            // Too much other load for any significant difference.
            assert_eq!(status.code(), Some(0), "{errors}");
        }
    });
}

#[test]
fn after_a_kill_the_state_before_can_be_restored() {
    with_server(|testbed, server, state| {
        let before = near(testbed, state);
        let mut child = searching(testbed, server, state);
        child.kill().unwrap();
        child.wait().unwrap();
        let (_, _, errors) = run(testbed, nic(state, &["show", "near"]));
        assert!(errors.contains("ended without restoring it"), "{errors}");
        assert_eq!(run(testbed, nic(state, &["restore", "near"])).0, Some(0));
        assert_eq!(near(testbed, state), before);
    });
}

#[test]
fn a_peer_that_dies_ends_the_search_which_says_so_and_everything_comes_back() {
    with_server(|testbed, server, state| {
        let before = near(testbed, state);
        let child = searching(testbed, server, state);
        kill_process(Pid::from_child(&server.child), Signal::KILL).unwrap();
        let Output { status, stderr, .. } = child.wait_with_output().unwrap();
        let errors = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(1), "{errors}");
        let last = errors.lines().last().unwrap();
        assert!(
            last.contains("seekwire nic serve")
                && last.ends_with("near has its original settings again"),
            "{errors}"
        );
        assert_eq!(near(testbed, state), before);
    });
}

#[test]
fn what_cannot_be_tuned_is_refused() {
    with_server(|testbed, server, state| {
        let before = near(testbed, state);
        let refused = |words: &[&str], reason: &str| {
            let (code, _, errors) = run(testbed, nic(state, &[&["tune", "near"], words].concat()));
            assert!(code == Some(1) && errors.contains(reason), "{errors}");
        };
        let latency = ["--goal", "latency", "--time", "1"];
        refused(&[&["--peer", "127.0.0.1"], &latency[..]].concat(), "reached by lo, not by near");
        refused(&[&["--peer", "198.18.0.2:9"], &latency[..]].concat(), "seekwire nic serve");
        testbed.end(Side::Near).add_default_route().unwrap();
        refused(&[&["--peer", &server.address], &latency[..]].concat(), "--default-route");
        let allowed = ["tune", "near", "--peer", &server.address, "--default-route"];
        let (code, _, errors) = run(testbed, nic(state, &[&allowed[..], &latency].concat()));
        assert_eq!(code, Some(0), "{errors}");
        assert_eq!(near(testbed, state)["features"], before["features"]);
    });
}

#[test]
fn a_dry_run_needs_no_peer_and_changes_nothing() {
    with_server(|testbed, _, state| {
        let before = near(testbed, state);
        let words = ["tune", "near", "--peer", "nobody.invalid", "--goal", "cpu", "--dry-run"];
        let (code, text, errors) = run(testbed, nic(state, &words));
        assert!(
            code == Some(0) && text.contains("as found") && text.contains("baseline"),
            "{text}{errors}"
        );
        let (_, json, _) = run(testbed, nic(state, &[&words[..], &["--json"]].concat()));
        let foreseen: Value = serde_json::from_str(&json).unwrap();
        assert!(foreseen["candidates"][1]["changes"][0].as_str().unwrap().contains('='), "{json}");
        assert_eq!(near(testbed, state), before);
    });
}

#[test]
fn a_server_ends_by_a_signal_and_says_where_it_cannot_listen() {
    with_server(|testbed, server, _| {
        let far = testbed.end(Side::Far);
        let mut second = Command::new(SEEKWIRE);
        second.args(["nic", "serve", "--listen", &server.address]);
        let output = far.run(|| second.output()).unwrap().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && errors.contains("cannot listen on"), "{errors}");
        for (signal, listen) in [(Signal::INT, "0"), (Signal::TERM, "127.0.0.1:0")] {
            let mut server = Server::start(far, listen);
            kill_process(Pid::from_child(&server.child), signal).unwrap();
            assert_eq!(server.child.wait().unwrap().code(), Some(0));
        }
    });
}
