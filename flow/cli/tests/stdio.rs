//! Standard input and output that are closed, or open the wrong way.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{chain, flow, text, write_pipeline};

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
    let directory = write_pipeline("cat.toml", &cat);
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
    let directory = write_pipeline("copy.toml", &copy);
    fs::write(directory.path().join("data"), "line\n").unwrap();
    let (status, said) = shell(directory.path(), "flow run -q copy.toml data >&- 2>&-");
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(fs::read_to_string(directory.path().join("to")).unwrap(), "line\n");
}

#[test]
fn input_that_cannot_be_read_is_an_error() {
    let cat = chain(&[("read", "run = \"read\""), ("write", "run = \"write\"")], "");
    let directory = write_pipeline("cat.toml", &cat);
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
    let directory = write_pipeline("exec.toml", &chain(&filters, ""));
    fs::write(directory.path().join("data"), "line\n").unwrap();
    let (status, said) = shell(directory.path(), "flow run -q exec.toml data <&- >&-");
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(fs::read_to_string(directory.path().join("to")).unwrap(), "line\n");
}

/// Writes the status of `flow` to a file and returns it, with what was written to standard error,
/// when nobody reads more than the first line of the output.
fn head(directory: &Path, arguments: &str) -> (String, String) {
    let script = format!("(flow run {arguments}; echo $? > status) | head -n 1 > first");
    let (_, said) = shell(directory, &script);
    (fs::read_to_string(directory.join("status")).unwrap().trim().to_owned(), said)
}

#[test]
fn output_that_nobody_reads_is_an_error_if_other_output_is_incomplete() {
    let cat = chain(&[("read", "run = \"read\"\nblock = 1000"), ("write", "run = \"write\"")], "");
    let both = format!(
        "{cat}[filter.all]\nrun = \"write\"\npath = \"all\"\n\
         [[stream]]\nfrom = \"read\"\nto = \"all\"\n"
    );
    let directory = write_pipeline("cat.toml", &cat);
    fs::write(directory.path().join("both.toml"), both).unwrap();
    // More than a pipe holds.
    fs::write(directory.path().join("data"), "line\n".repeat(100_000)).unwrap();
    let (status, said) = head(directory.path(), "cat.toml data data");
    assert_eq!((&*status, &*said), ("0", ""));
    let (status, said) = head(directory.path(), "both.toml data data");
    assert_eq!(status, "1", "{said}");
    let expected = "nobody reads standard output any more; other output is incomplete\n\
                    seekwire: 1 of 2 units of work failed\n";
    assert!(said.starts_with("seekwire: data: unit 0: ") && said.ends_with(expected), "{said}");
}

#[test]
fn rejections_are_reported_although_nobody_reads_the_output() {
    let decode = "run = \"decode-image\"\non_error = \"skip\"";
    let read = "run = \"read\"\nfiles = [\"*\"]\nwhole = true";
    let filters = [("read", read), ("decode", decode), ("write", "run = \"write\"")];
    let directory = write_pipeline("decode.toml", &chain(&filters, ""));
    let images = directory.path().join("images");
    fs::create_dir(&images).unwrap();
    fs::write(images.join("0"), "no image").unwrap();
    for name in ["1", "2"] {
        let image = [b"P5 1000 1000 255\n", &[b'x'; 1_000_000][..]].concat();
        fs::write(images.join(name), image).unwrap();
    }
    let (status, said) = head(directory.path(), "decode.toml images");
    assert_eq!(status, "3", "{said}");
    assert!(said.ends_with("seekwire: filter decode has rejected 1\n"), "{said}");
}
