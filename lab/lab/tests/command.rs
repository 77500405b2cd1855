#![forbid(unsafe_code)]
//! Experiments whose processes are this very command: tiny runs, from the command line to the
//! files.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn seekwire(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seekwire-lab")).args(arguments).output().unwrap()
}

/// An experiment that has been run.
struct Ran {
    result: Value,
    directory: PathBuf,
    printed: String,
    _out: tempfile::TempDir,
}

fn run(name: &str) -> Ran {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().to_str().unwrap();
    let output = seekwire(&[
        "lab",
        "run",
        name,
        "--quick",
        "--rounds",
        "2",
        "--repetitions",
        "1",
        "--out",
        path,
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let directory = out.path().join(name);
    let result = fs::read_to_string(directory.join("result.json")).unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    Ran { result: serde_json::from_str(&result).unwrap(), directory, printed, _out: out }
}

impl Ran {
    /// Checks that everything was measured, except for what this machine may lack.
    fn is_complete(&self, keys: &[&str], plots: &[&str]) {
        let rows = self.result["rows"].as_array().unwrap();
        for row in rows.iter().filter(|row| row["variant"] != "libfabric") {
            assert!(row["error"].is_null(), "{row}");
            assert_eq!(row["spread"]["n"], 2, "{row}");
        }
        let summary = self.result["summary"].as_object().unwrap();
        for key in keys {
            assert!(summary.contains_key(*key), "{key} is missing: {summary:?}");
            assert!(self.printed.contains(key), "{key} was not printed: {}", self.printed);
        }
        let report = fs::read_to_string(self.directory.join("report.html")).unwrap();
        for plot in plots {
            let svg = fs::read_to_string(self.directory.join(plot)).unwrap();
            assert!(svg.contains("<svg") && !svg.contains("NaN"), "{plot}");
        }
        assert!(report.contains("Processor time saved"), "no table");
        assert!(!raw(&self.directory).is_empty());
    }

    fn variants(&self) -> BTreeSet<String> {
        let rows = self.result["rows"].as_array().unwrap();
        rows.iter().map(|row| row["variant"].as_str().unwrap().to_owned()).collect()
    }
}

fn raw(directory: &Path) -> Vec<String> {
    let raw = fs::read_to_string(directory.join("raw.csv")).unwrap();
    raw.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn two_interrupts_leave_no_file_behind() {
    let [out, temporary] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_seekwire-lab"));
    command.args(["lab", "run", "seek", "--quick", "--out"]).arg(out.path());
    let mut running =
        command.env("TMPDIR", temporary.path()).stderr(Stdio::piped()).spawn().unwrap();
    // The first line, or as much of it as a terminal would have.
    let mut errors = running.stderr.take().unwrap();
    errors.read_exact(&mut [0]).unwrap();
    let process = rustix::process::Pid::from_child(&running);
    for _ in 0..2 {
        rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    }
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    assert!(!running.wait().unwrap().success(), "{rest}");
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "{rest}");
}

#[test]
fn list_names_the_experiments_with_message_search() {
    let list = String::from_utf8(seekwire(&["lab", "list"]).stdout).unwrap();
    for name in ["seek", "seek-fragments", "seek-module", "mailbox"] {
        let is_of = |line: &str| line.split_whitespace().next() == Some(name);
        assert!(list.lines().any(is_of), "{name} is not in:\n{list}");
    }
}

#[test]
fn an_option_belongs_to_the_experiments_that_show_it() {
    let refused = seekwire(&["lab", "run", "sockets", "--netns"]);
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(errors.contains("--netns is not an option of sockets, but of nic"), "{errors}");
    assert!(errors.contains("Usage: seekwire lab run"), "{errors}");
    // Regardless of its other requirements.
    let refused = seekwire(&["lab", "run", "sockets", "--weak-peer", "192.0.2.1"]);
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(errors.contains("--weak-peer is not an option of sockets"), "{errors}");
    for words in [&["lab", "show", "nic"][..], &["lab", "run", "nic", "--help"]] {
        let shown = String::from_utf8(seekwire(words).stdout).unwrap();
        assert!(shown.contains("--netns") && !shown.contains("--repetitions"), "{shown}");
    }
    for words in [&["lab", "show", "sockets"][..], &["lab", "run", "--help"]] {
        let shown = String::from_utf8(seekwire(words).stdout).unwrap();
        assert!(shown.len() > 300 && !shown.contains("--netns"), "{shown}");
    }
    assert_eq!(seekwire(&["lab", "show", "nonsense"]).status.code(), Some(2));
}

#[test]
fn a_wrong_name_is_reported_with_the_right_ones() {
    let refused = seekwire(&["lab", "run", "sokcets", "--quick"]);
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(errors.contains("seek-fragments") && errors.contains(" all]"), "{errors}");
}

/// Runs with both streams at a file that refuses everything, as a full disk does.
fn full(arguments: &[&str]) -> Option<i32> {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_seekwire-lab"));
    command.args(arguments).stdout(full()).stderr(full()).status().unwrap().code()
}

#[test]
fn measurements_are_kept_if_they_cannot_be_printed() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().to_str().unwrap();
    let run = ["lab", "run", "connections", "--quick", "--rounds", "1", "--out", path];
    // The results could not be printed, but they are there.
    assert_eq!(full(&run), Some(1));
    assert!(out.path().join("connections/report.html").exists());
    assert_eq!(full(&["lab", "report", path]), Some(1));
    assert!(out.path().join("report/index.html").exists());
    assert_eq!(full(&["lab", "list"]), Some(1));
}

#[test]
fn nothing_is_measured_where_the_result_has_no_room() {
    let out = tempfile::tempdir().unwrap();
    // No file may be larger than 100 blocks.
    let script = r#"trap "" XFSZ; ulimit -f 100; exec "$0" lab run connections --quick --out "$1""#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_seekwire-lab")]).arg(out.path());
    let refused = shell.output().unwrap();
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{errors}");
    assert!(errors.starts_with("seekwire: cannot write into "), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn a_role_ends_with_the_laboratory_that_was_killed() {
    let script = r#""$0" lab-peer --of=$$ serve --tcp 127.0.0.1:0 & wait"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_seekwire-lab")]).stdout(Stdio::piped());
    let mut laboratory = shell.spawn().unwrap();
    let mut printed = BufReader::new(laboratory.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    assert!(line.starts_with("ready "), "{line}");
    laboratory.kill().unwrap();
    // If the role survived, this would wait forever.
    assert_eq!(printed.read_to_end(&mut Vec::new()).unwrap(), 0);
    laboratory.wait().unwrap();

    let orphan = seekwire(&["lab-peer", "--of=1", "serve", "--tcp", "127.0.0.1:0"]);
    let errors = String::from_utf8(orphan.stderr).unwrap();
    assert!(!orphan.status.success() && errors.contains("has ended"), "{errors}");
}

#[test]
fn seek_compares_each_method_with_both_baselines() {
    let ran = run("seek");
    ran.is_complete(
        &[
            "best_reduction_percent_tcp",
            "best_reduction_percent_tcp_standard_error",
            "worst_reduction_percent_tcp",
            "worst_reduction_percent_tcp_standard_error",
            "worst_reduction_percent_tcp_bytes",
            "worst_reduction_percent_tcp_N",
            "reduction_percent_tcp_1000B_N16",
            "reduction_percent_tcp_1000B_N16_standard_error",
            "worst_vs_bulk_percent_tcp",
            "worst_vs_bulk_percent_tcp_standard_error",
            "best_reduction_percent_ring",
            "worst_reduction_percent_ring_standard_error",
        ],
        &[
            "tcp-seek-pool.svg",
            "tcp-seek-bulk.svg",
            "ring-seek-pool.svg",
            "ring-seek-borrowed-pool.svg",
        ],
    );
    let variants = ran.variants();
    assert!(["pool", "bulk", "seek"].iter().all(|name| variants.contains(*name)), "{variants:?}");
    let connections =
        ran.result["parameters"]["connections per value, by size"].as_object().unwrap();
    assert!(
        connections.values().all(|count| count == 1),
        "--repetitions was not heeded: {connections:?}"
    );
}

#[test]
fn seek_fragments_varies_the_senders_writes() {
    run("seek-fragments").is_complete(
        &[
            "worst_reduction_percent",
            "worst_vs_bulk_percent",
            "reduction_percent_64KiB_smallest_pieces",
        ],
        &["seek-pool.svg", "seek-bulk.svg", "cpu-65536.svg"],
    );
}

#[test]
fn mailbox_varies_the_share_of_unexpected_messages() {
    run("mailbox").is_complete(
        &[
            "rate_64B_expected",
            "rate_64B_unexpected",
            "best_reduction_percent_tcp",
            "worst_reduction_percent_tcp_standard_error",
        ],
        &["tcp-rate-64.svg", "tcp-cpu-65536.svg", "ring-saved-4096.svg"],
    );
}
