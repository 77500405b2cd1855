//! `seekwire flow plan`: its output, and what it must not do.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A pipeline in which an option states the cost.
const PIPELINE: &str = "\
[filter.read]
run = \"read\"
[filter.work]
run = \"burn\"
nanoseconds-per-byte = 1000
copies = 2
[filter.keep]
run = \"write\"
path = \"kept\"
[[stream]]
from = \"read\"
to = \"work\"
block = 1000
[[stream]]
from = \"work\"
to = \"keep\"
";

fn write_pipeline(pipeline: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("work.toml"), pipeline).unwrap();
    fs::write(directory.path().join("data"), vec![b'x'; 50_000]).unwrap();
    directory
}

fn plan(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seekwire-flow"));
    command.args(["flow", "plan", "work.toml"]).args(arguments).current_dir(directory);
    command.output().unwrap()
}

/// The output, with single spaces between words.
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_bound_is_that_of_the_slowest_filter() {
    let directory = write_pipeline(PIPELINE);
    // It ends long before that.
    let said = said(&plan(directory.path(), &["--time", "10min", "--throughput", "4MiB", "data"]));
    assert!(said.contains("the sources sent 49 KiB and 49 KiB came through"), "{said}");
    assert!(said.contains("all of the input. Nothing was written"), "{said}");
    // Two copies do a byte in 500 ns; 4 MiB are 4.2 seconds of work.
    assert!(said.contains(" work 2 1000 ns its option 1.00 1.9 MiB 5 keep 1 - "), "{said}");
    assert!(said.contains("at most 1.9 MiB per second from its sources, what all copies of work"));
    assert!(said.ends_with("Copies needed are for 4.0 MiB per second."), "{said}");
    assert!(!directory.path().join("kept").exists());
}

#[test]
fn what_has_no_end_is_stopped_with_its_programs() {
    let program = "run = \"exec\"\ncommand = [\"sh\", \"-c\", \"echo $$ >pid; exec cat\"]";
    let exec = PIPELINE
        .replace("run = \"burn\"\nnanoseconds-per-byte = 1000\ncopies = 2", program)
        .replace("run = \"read\"", "run = \"read\"\npath = \"/dev/zero\"");
    let directory = write_pipeline(&exec);
    let said = said(&plan(directory.path(), &["--time", "1"]));
    assert!(said.contains("then it was stopped"), "{said}");
    assert!(said.contains("work 1 ") && said.contains("measured 1.00"), "{said}");
    let pid = fs::read_to_string(directory.path().join("pid")).unwrap();
    let process = format!("/proc/{}/cmdline", pid.trim());
    // A zombie has an empty command line.
    while fs::read(&process).is_ok_and(|line| !line.is_empty()) {
        std::thread::yield_now();
    }
    assert!(!directory.path().join("kept").exists());
}

#[test]
fn what_cannot_be_measured_is_an_error() {
    let directory = write_pipeline(PIPELINE);
    let fails = |arguments: &[&str], expected: &str| {
        let output = plan(directory.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{said}");
        output.status.code()
    };
    assert_eq!(fails(&["none"], "filter read, copy 0: none: No such file"), Some(1));
    assert_eq!(fails(&["/dev/null"], "the sources have sent nothing"), Some(1));
    assert_eq!(fails(&["data", "--throughput", "fast"], "not a size from 1 on, such as"), Some(2));
    assert_eq!(fails(&["data", "--time", "0"], "not a time from 1s to 1h"), Some(2));
}
