//! Standard input and output that are closed, or open the wrong way.

mod harness;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{chain, flow, place, text};

/// The exit status of a shell's command, and what it wrote to standard error.
fn shell(directory: &Path, script: &str) -> (Option<i32>, String) {
    let script = script.replace("flow", concat!(env!("CARGO_BIN_EXE_seekwire-flow"), " flow"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(directory).stdin(Stdio::null());
    let output = command.output().unwrap();
    (output.status.code(), text(&output.stderr))
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let cat = chain(&[("read", "run = \"read\""), ("write", "run = \"write\"")], "");
    let directory = place("cat.toml", &cat);
    fs::write(directory.path().join("data"), "line\n").unwrap();
    let output = flow(directory.path(), &["run", "-q", "cat.toml", "data"]);
    assert_eq!(text(&output.stdout), "line\n");
    for command in ["run -q cat.toml data", "check cat.toml", "plan cat.toml data", "filters"] {
        // 0 is closed as well, in case its number would be the first free one.
        for closed in [">&-", ">&- <&-", "1</dev/null"] {
            let (status, said) = shell(directory.path(), &format!("flow {command} {closed}"));
            assert_eq!(status, Some(1), "{command} {closed}: {said}");
            let expected = "standard output is closed, or not open for writing";
            assert!(said.contains(expected), "{command} {closed}: {said}");
        }
        for open in [">/dev/null", "1<>/dev/null", "<&- >/dev/null", "2>&-"] {
            let (status, said) = shell(directory.path(), &format!("flow {command} {open}"));
            assert_eq!(status, Some(0), "{command} {open}: {said}");
        }
    }
}

#[test]
fn output_that_nobody_needs_may_be_closed() {
    let copy =
        chain(&[("read", "run = \"read\""), ("write", "run = \"write\"\npath = \"to\"")], "");
    let directory = place("copy.toml", &copy);
    fs::write(directory.path().join("data"), "line\n").unwrap();
    let (status, said) = shell(directory.path(), "flow run -q copy.toml data >&- 2>&-");
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(fs::read_to_string(directory.path().join("to")).unwrap(), "line\n");
}

#[test]
fn input_that_cannot_be_read_is_an_error() {
    let cat = chain(&[("read", "run = \"read\""), ("write", "run = \"write\"")], "");
    let directory = place("cat.toml", &cat);
    for closed in ["<&-", "<&- >/dev/null", "0>/dev/null"] {
        let (status, said) = shell(directory.path(), &format!("flow run -q cat.toml - {closed}"));
        assert_eq!(status, Some(1), "{closed}: {said}");
        assert!(said.contains("standard input is closed, or not open for reading"), "{said}");
    }
    let (status, said) = shell(directory.path(), "flow run -q cat.toml - </dev/null");
    assert_eq!(status, Some(0), "{said}");
}

/// Programs that a filter starts have descriptors of their own.
#[test]
fn programs_of_filters_do_not_need_it() {
    let filters = [
        ("read", "run = \"read\""),
        ("step", "run = \"exec\"\ncommand = [\"sh\", \"-c\", \"cat\"]"),
        ("write", "run = \"write\"\npath = \"to\""),
    ];
    let directory = place("exec.toml", &chain(&filters, ""));
    fs::write(directory.path().join("data"), "line\n").unwrap();
    let (status, said) = shell(directory.path(), "flow run -q exec.toml data <&- >&-");
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(fs::read_to_string(directory.path().join("to")).unwrap(), "line\n");
}
