//! Pipelines in one line, run by the program.

use std::fs;
use std::io::Write;

use flate2::write::GzEncoder;

use crate::harness::{flow, text, write_pipeline};

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_line_runs_for_each_argument() {
    let directory = write_pipeline("none", "");
    fs::write(directory.path().join("a.gz"), gzipped(b"1\n2\n")).unwrap();
    fs::write(directory.path().join("b.gz"), gzipped(b"3\n")).unwrap();
    let line = "read | gunzip | count lines";
    let output = flow(directory.path(), &["run", "-e", line, "a.gz", "b.gz"]);
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "2\n1\n", "{said}");
    assert!(output.status.success(), "{said}");
    assert!(said.lines().next().unwrap().ends_with("MiB/s"), "{said}");
    assert!(said.contains("\nTook ") && said.contains(", in which the sources sent "), "{said}");
}

#[test]
fn options_of_filters_and_streams_and_quoted_words_are_obeyed() {
    let directory = write_pipeline("none", "");
    let log: String = (0..2000).map(|line| format!("{line} some | text\n")).collect();
    fs::write(directory.path().join("a log"), &log).unwrap();
    let line =
        "read 'a log' block=1000 | lines=4KiB exec copies=3 success=[0,1] grep -a '7 some | text' |
        lines=4KiB ordered=false write out-{}";
    let output = flow(directory.path(), &["run", "--quiet", "--expression", line]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let out = fs::read_to_string(directory.path().join("out-0")).unwrap();
    assert_eq!(out.lines().count(), 200);
    assert!(out.lines().all(|line| line.ends_with("7 some | text")), "{out}");
}

#[test]
fn a_line_can_be_checked_and_planned_like_a_file() {
    let directory = write_pipeline("none", "");
    fs::write(directory.path().join("data"), vec![b'x'; 50_000]).unwrap();
    let checked = flow(directory.path(), &["check", "-e", "read | block=1000 burn copies=2 9"]);
    let summary = text(&checked.stdout);
    assert!(summary.contains("  burn: burn, 2 copies\n  write: write\n"), "{summary}");
    assert!(summary.contains("  read -> burn: blocks of 1000 B"), "{summary}");
    let planned = flow(directory.path(), &["plan", "-e", "read | block=1000 burn 1000", "data"]);
    assert!(text(&planned.stdout).contains("Derived: "), "{}", text(&planned.stderr));
}

#[test]
fn mistakes_are_shown_in_the_line() {
    let directory = write_pipeline("none", "");
    let refused = |line: &str| {
        let output = flow(directory.path(), &["check", "-e", line]);
        assert_eq!(output.status.code(), Some(1), "{line}");
        text(&output.stderr)
    };
    let said = refused("read | grep x");
    assert!(said.contains("there is no filter grep"), "{said}");
    assert!(said.ends_with(" --> -e:1:8\n  |\n1 | read | grep x\n  |        ^\n"), "{said}");
    let said = refused("read |\n count what=letters");
    assert!(said.contains("`what` of filter count must be one of"), "{said}");
    assert!(said.contains(" --> -e:2:13\n"), "{said}");
    let said = refused("read | limit=0 count");
    assert!(said.contains("`limit` of the stream must be a size"), "{said}");
    let said = refused("count");
    assert!(said.contains("-e:1:1"), "{said}");
    let both = flow(directory.path(), &["check", "-e", "read", "count.toml"]);
    assert_eq!(both.status.code(), Some(2));
}
