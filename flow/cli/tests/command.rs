//! Pipeline files, run by the program.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flate2::write::GzEncoder;

use crate::harness::{chain, flow, text, write_pipeline};

/// A log, and how many of its lines have an error.
fn log(lines: usize) -> (String, usize) {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut log, mut errors) = (String::new(), 0);
    for line in 0..lines {
        let is_error = random.u8(..) < 20;
        errors += usize::from(is_error);
        let level = if is_error { "ERROR" } else { "INFO" };
        log += &format!("{line} {level} request {:x} took {} us\n", random.u64(..), random.u16(..));
    }
    (log, errors)
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn errors_in_a_compressed_log_are_counted() {
    let grep =
        "run = \"exec\"\ncommand = [\"grep\", \"-a\", \"ERROR\"]\nsuccess = [0, 1]\ncopies = 3";
    let filters = [
        ("read", "run = \"read\"\nblock = \"8KiB\""),
        ("unzip", "run = \"gunzip\""),
        ("grep", grep),
        ("count", "run = \"count\"\nwhat = \"lines\""),
        ("print", "run = \"write\""),
    ];
    for policy in ["adaptive", "demand", "round-robin"] {
        // grep works on lines, so it gets whole ones.
        let file =
            chain(&filters, &format!("policy = \"{policy}\"\nlimit = \"1MiB\"\nlines = \"16KiB\""));
        let directory = write_pipeline("count.toml", &file);
        let (log, errors) = log(200_000);
        // Two members, as in a log that was rotated and joined.
        let (first, second) = log.split_at(log.len() / 3);
        let whole = [gzipped(first.as_bytes()), gzipped(second.as_bytes())].concat();
        fs::write(directory.path().join("app.log.gz"), whole).unwrap();
        let output = flow(directory.path(), &["run", "count.toml", "app.log.gz"]);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(text(&output.stdout), format!("{errors}\n"), "{said}");
        assert!(said.contains("The bottleneck is") || said.contains("No filter is busy"), "{said}");
    }
}

#[test]
fn what_is_compressed_comes_back_in_order_through_copies() {
    let (log, _) = log(30_000);
    for (there, back) in [("gzip", "gunzip"), ("zstd", "unzstd")] {
        let filters = [
            ("read", "run = \"read\"\npath = \"log\"\nblock = 1000".to_owned()),
            ("burn", "run = \"burn\"\nnanoseconds-per-byte = 30\ncopies = 4".to_owned()),
            ("there", format!("run = \"{there}\"\nlevel = 1")),
            ("back", format!("run = \"{back}\"")),
            ("write", "run = \"write\"\npath = \"out-{}\"".to_owned()),
        ];
        let filters: Vec<_> = filters.iter().map(|(name, of)| (*name, of.as_str())).collect();
        let directory = write_pipeline(
            "there.toml",
            &chain(&filters, "ordered = true\nblock = 700\nlimit = 65536"),
        );
        fs::write(directory.path().join("log"), &log).unwrap();
        let output = flow(directory.path(), &["run", "there.toml", "--quiet", "a", "b"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "");
        for unit in 0..2 {
            let out = fs::read(directory.path().join(format!("out-{unit}"))).unwrap();
            assert!(out == log.as_bytes(), "{there}, unit {unit}: {} bytes", out.len());
        }
    }
}

#[test]
fn what_expands_very_much_needs_no_large_limit() {
    let directory = tempfile::tempdir().unwrap();
    let run = |pipeline: &str, unit: &str| {
        let output = flow(directory.path(), &["run", "-q", "-e", pipeline, unit]);
        assert!(output.status.success(), "{pipeline}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let size = 32 << 20;
    fs::File::create(directory.path().join("zeros")).unwrap().set_len(size).unwrap();
    for (there, back) in [("gzip", "gunzip"), ("zstd", "unzstd")] {
        run(&format!("read | {there} | write small"), "zeros");
        assert!(fs::metadata(directory.path().join("small")).unwrap().len() < size / 500);
        // A few KiB, which are read at once, are more than the stream holds.
        let counted = run(&format!("read | {back} | limit=1MiB count bytes"), "small");
        assert_eq!(counted, format!("{size}\n"), "{back}");
    }
}

#[test]
fn a_file_has_the_checksum_that_the_system_computes() {
    let filters =
        [("read", "run = \"read\""), ("sum", "run = \"sha256\""), ("print", "run = \"write\"")];
    let directory = write_pipeline("sum.toml", &chain(&filters, ""));
    let bytes: Vec<u8> = (0..1_000_000u32).map(|at| at.wrapping_mul(at) as u8).collect();
    fs::write(directory.path().join("data"), bytes).unwrap();
    let system =
        Command::new("sha256sum").arg("data").current_dir(directory.path()).output().unwrap();
    let ours = flow(directory.path(), &["run", "sum.toml", "data"]);
    assert_eq!(text(&ours.stdout).trim(), text(&system.stdout).split(' ').next().unwrap());
}

#[test]
fn units_that_fail_are_named_and_the_others_done() {
    let filters =
        [("read", "run = \"read\""), ("unzip", "run = \"gunzip\""), ("print", "run = \"write\"")];
    let directory = write_pipeline("cat.toml", &chain(&filters, ""));
    fs::write(directory.path().join("good.gz"), gzipped(b"good\n")).unwrap();
    fs::write(directory.path().join("bad.gz"), b"no gzip at all").unwrap();
    let output = flow(directory.path(), &["run", "cat.toml", "-q", "none", "bad.gz", "good.gz"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "good\n");
    let said = text(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[0].starts_with("seekwire: none: unit 0: filter read, copy 0: none: No such file"),
        "{said}"
    );
    assert!(
        lines[1].starts_with("seekwire: bad.gz: unit 1: filter unzip, copy 0, block 0 (bad.gz): "),
        "{said}"
    );
    assert_eq!(lines[2], "seekwire: 2 of 3 units of work failed");
}

#[test]
fn programs_that_fail_or_stop_reading_end_no_pipeline() {
    let run = |command: &str| {
        let exec = format!("run = \"exec\"\ncommand = [\"sh\", \"-c\", \"{command}\"]");
        let filters = [("read", "run = \"read\""), ("exec", &exec), ("print", "run = \"write\"")];
        let directory = write_pipeline("exec.toml", &chain(&filters, "limit = \"256KiB\""));
        fs::write(directory.path().join("data"), vec![b'x'; 3_000_000]).unwrap();
        let output = flow(directory.path(), &["run", "exec.toml", "-q", "data"]);
        (output.status.code(), output.stdout.len(), text(&output.stderr))
    };
    assert_eq!(run("cat"), (Some(0), 3_000_000, String::new()));
    assert_eq!(run("head -c 10"), (Some(0), 10, String::new()));
    // A program that has closed its output still gets all of its input.
    assert_eq!(run("exec >&-; test $(wc -c) = 3000000"), (Some(0), 0, String::new()));
    assert_eq!(run("exec <&-; sleep 0.1; echo done"), (Some(0), 5, String::new()));
    let (code, _, said) = run("cat >/dev/null; exit 7");
    assert_eq!(code, Some(1));
    assert!(said.contains("filter exec, copy 0: sh: ended with exit status 7"), "{said}");
    let (code, _, said) = run("kill -9 $$");
    assert_eq!(code, Some(1));
    assert!(said.contains("sh: was ended by signal 9"), "{said}");
}

#[test]
fn a_program_that_goes_on_without_its_pipes_ends_with_the_unit() {
    let directory = tempfile::tempdir().unwrap();
    // The first one reports that it has closed its output; then the other one fails.
    let lasting = "cat >/dev/null; exec >&-; echo closed >turn; exec sleep 9999";
    let failing = "cat >/dev/null; read line <turn; exit 1";
    let exec = |command: &str| format!("run = \"exec\"\ncommand = [\"sh\", \"-c\", \"{command}\"]");
    let filter = |name: &str, options: &str| format!("[filter.{name}]\n{options}\n");
    let stream = |from: &str, to: &str| format!("[[stream]]\nfrom = \"{from}\"\nto = \"{to}\"\n");
    let file = [
        filter("read", "run = \"read\"\npath = \"both.toml\""),
        filter("lasting", &exec(lasting)),
        filter("failing", &exec(failing)),
        filter("one", "run = \"write\"\npath = \"one-{}\""),
        filter("other", "run = \"write\"\npath = \"other-{}\""),
        stream("read", "lasting"),
        stream("read", "failing"),
        stream("lasting", "one"),
        stream("failing", "other"),
    ];
    fs::write(directory.path().join("both.toml"), file.concat()).unwrap();
    let turn = directory.path().join("turn");
    assert!(Command::new("mkfifo").arg(turn).status().unwrap().success());
    let output = flow(directory.path(), &["run", "both.toml", "-q", "a", "b"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    for (unit, line) in ["a", "b"].iter().zip(&lines) {
        assert!(line.starts_with(&format!("seekwire: {unit}: unit ")), "{said}");
        assert!(line.ends_with("filter failing, copy 0: sh: ended with exit status 1"), "{said}");
    }
    assert_eq!(lines[2], "seekwire: 2 of 2 units of work failed");
}

/// A close() that fails as on a full file system which reports that only when a file is closed.
const FULL: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int close(int fd) {
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    long length = readlink(name, path, sizeof path);
    if (syscall(SYS_close, fd))
        return -1;
    if (length > 5 && !memcmp(path + length - 5, ".full", 5)) {
        errno = EDQUOT;
        return -1;
    }
    return 0;
}
"#;

#[test]
fn a_disk_that_is_full_only_when_a_file_is_closed_is_noticed() {
    let directory = write_pipeline("full.c", FULL);
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o", "full.so", "full.c"]).current_dir(directory.path());
    assert!(compiler.status().unwrap().success());
    for (path, named) in [
        ("path = \"out.full\"", "out.full"),
        ("path = \"out-{block}.full\"", "out-0.full"),
        ("", "standard output"),
    ] {
        let write = format!("run = \"write\"\n{path}");
        let file = chain(&[("read", "run = \"read\""), ("write", &write)], "");
        fs::write(directory.path().join("copy.toml"), file).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_seekwire-flow"))
            .args(["flow", "run", "-q", "copy.toml", "full.c"])
            .env("LD_PRELOAD", directory.path().join("full.so"))
            .current_dir(directory.path())
            .stdout(fs::File::create(directory.path().join("output.full")).unwrap())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!(": {named}: Disk quota exceeded")), "{said}");
    }
}

#[test]
fn what_is_wrong_is_shown_in_its_line() {
    let directory = write_pipeline("bad.toml", "[filter.read]\nrun = \"reed\"\n");
    let output = flow(directory.path(), &["check", "bad.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("seekwire: there is no filter reed; there are read, write, gzip"),
        "{said}"
    );
    assert!(said.contains("--> bad.toml:2:7"), "{said}");
    let output = flow(directory.path(), &["check", "none.toml"]);
    assert!(text(&output.stderr).contains("cannot read the pipeline none.toml: No such file"));
    let filters = text(&flow(directory.path(), &["filters"]).stdout);
    assert!(filters.contains("\nexec\n    any program, from"), "{filters}");
}

#[test]
fn a_program_that_is_missing_is_named_before_anything_runs() {
    for (run, command, expected) in [
        ("exec", "[\"no-such-program\"]", Some("there is no program no-such-program in the dir")),
        (
            "framed",
            "[\"./no-such\", \"cat\"]",
            Some("there is no program ./no-such that can be run"),
        ),
        ("exec", "[\"./bad.toml\"]", Some("there is no program ./bad.toml that can be run")),
        ("exec", "[\"/\"]", Some("there is no program / that can be run")),
        ("exec", "[\"no-such-program\"]\nranks = [0, 1]", None),
        ("exec", "[\"cat\"]", None),
        ("exec", "[\"/bin/cat\"]", None),
    ] {
        let filter = format!("run = \"{run}\"\ncommand = {command}");
        let filters =
            [("read", "run = \"read\""), ("step", &*filter), ("write", "run = \"write\"")];
        let directory = write_pipeline("bad.toml", &chain(&filters, ""));
        let output = flow(directory.path(), &["check", "bad.toml"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.success(), expected.is_none(), "{command}: {said}");
        if let Some(expected) = expected {
            assert!(said.contains(expected) && said.contains("--> bad.toml:5:11"), "{said}");
            assert!(output.stdout.is_empty(), "{said}");
        }
    }
}

/// The example in the help can run.
#[test]
fn the_example_in_the_help_is_a_pipeline() {
    let help = text(&flow(Path::new("/"), &["run", "--help"]).stdout);
    let example = help.split_once("# count.toml").expect("there is an example").1;
    let example = example.split_once('\n').expect("it has lines").1;
    let directory = write_pipeline("count.toml", example);
    let output = flow(directory.path(), &["check", "count.toml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("grep: exec, 3 copies") && said.ends_with("can run.\n"), "{said}");
}

#[test]
fn the_pipeline_in_the_readme_counts() {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let example = readme.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
    let directory = write_pipeline("count.toml", example);
    let (log, errors) = log(5000);
    fs::write(directory.path().join("app.log.gz"), gzipped(log.as_bytes())).unwrap();
    fs::write(directory.path().join("older.log.gz"), gzipped(b"ERROR\nfine\n")).unwrap();
    let output = flow(directory.path(), &["run", "count.toml", "app.log.gz", "older.log.gz"]);
    assert_eq!(text(&output.stdout), format!("{errors}\n1\n"), "{}", text(&output.stderr));
}

#[test]
fn what_is_not_whole_is_an_error() {
    for (tool, run) in [("gzip", "gunzip"), ("zstd", "unzstd")] {
        let there = [
            ("read", "run = \"read\""),
            ("there", &format!("run = \"{tool}\"")),
            ("write", "run = \"write\""),
        ];
        let back = [
            ("read", "run = \"read\""),
            ("back", &format!("run = \"{run}\"")),
            ("write", "run = \"write\""),
        ];
        let directory = write_pipeline("there.toml", &chain(&there, ""));
        fs::write(directory.path().join("back.toml"), chain(&back, "")).unwrap();
        fs::write(directory.path().join("data"), log(500).0).unwrap();
        let whole = flow(directory.path(), &["run", "-q", "there.toml", "data"]).stdout;
        for len in [12, whole.len() / 2, whole.len() - 1] {
            fs::write(directory.path().join("part"), &whole[..len]).unwrap();
            let output = flow(directory.path(), &["run", "-q", "back.toml", "part"]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{run} of {len} bytes: {said}");
            assert!(said.contains("filter back, copy 0: "), "{said}");
        }
    }
}

#[test]
fn one_file_for_several_units_is_refused() {
    let filters = [("read", "run = \"read\""), ("write", "run = \"write\"\npath = \"out\"")];
    let directory = write_pipeline("copy.toml", &chain(&filters, ""));
    fs::write(directory.path().join("a"), "a").unwrap();
    fs::write(directory.path().join("b"), "b").unwrap();
    let output = flow(directory.path(), &["run", "-q", "copy.toml", "a", "b"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("out: unit 0 has already written it; let path differ"),
        "{output:?}"
    );
    assert_eq!(fs::read_to_string(directory.path().join("out")).unwrap(), "a");
}

#[test]
fn who_reads_only_the_head_hears_of_no_error() {
    let filters = [("read", "run = \"read\"\nblock = 1000"), ("write", "run = \"write\"")];
    let directory = write_pipeline("cat.toml", &chain(&filters, ""));
    fs::write(directory.path().join("data"), "line\n".repeat(100_000)).unwrap();
    let script =
        format!("{} flow run cat.toml data | head -n 1", env!("CARGO_BIN_EXE_seekwire-flow"));
    let output =
        Command::new("sh").args(["-c", &script]).current_dir(directory.path()).output().unwrap();
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("line\n".to_owned(), String::new()));
}

#[test]
fn a_signal_ends_the_programs_too() {
    let filters = [
        ("read", "run = \"read\"\npath = \"/dev/zero\""),
        ("exec", "run = \"exec\"\ncommand = [\"sh\", \"-c\", \"echo $$; exec sleep 1000\"]"),
        ("write", "run = \"write\""),
    ];
    let directory = write_pipeline("sleep.toml", &chain(&filters, "limit = \"256KiB\""));
    let mut flow = Command::new(env!("CARGO_BIN_EXE_seekwire-flow"))
        .args(["flow", "run", "sleep.toml"])
        .current_dir(directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(flow.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let sleeper = format!("/proc/{}/comm", line.trim());
    assert!(Path::new(&sleeper).exists());
    let killed = Command::new("kill").arg(flow.id().to_string()).status().unwrap();
    assert!(killed.success());
    assert_eq!(flow.wait().unwrap().signal(), Some(15));
    let until = Instant::now() + Duration::from_secs(20);
    // A zombie has an empty command line.
    while fs::read_to_string(format!("/proc/{}/cmdline", line.trim()))
        .is_ok_and(|it| !it.is_empty())
    {
        assert!(Instant::now() < until, "process {line} is still there");
        std::thread::yield_now();
    }
}

#[test]
fn a_unit_that_fails_does_not_wait_for_a_source_that_waits() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("data.gz"), gzipped(b"data")).unwrap();
    let mut flow = Command::new(env!("CARGO_BIN_EXE_seekwire-flow"))
        .args(["flow", "run", "-e", "read | gunzip | count bytes", "-", "data.gz"])
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The input stays open, without an end of file.
    let mut input = flow.stdin.take().unwrap();
    input.write_all(b"no gzip at all").unwrap();
    let mut output = String::new();
    flow.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    // The next unit has the same source.
    assert_eq!(output, "4\n");
    assert_eq!(flow.wait().unwrap().code(), Some(1));
    drop(input);
}

#[test]
fn a_signal_that_is_ignored_stays_so() {
    let filters = [("read", "run = \"read\"\npath = \"-\""), ("print", "run = \"write\"")];
    let directory = write_pipeline("cat.toml", &chain(&filters, ""));
    let script = "trap '' HUP; exec \"$0\" flow run -q cat.toml";
    let mut flow = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_seekwire-flow")])
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = flow.stdin.take().unwrap();
    let mut lines = BufReader::new(flow.stdout.take().unwrap()).lines();
    for line in ["before", "after"] {
        writeln!(input, "{line}").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), line);
        let sent = Command::new("kill").args(["-HUP", &flow.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
    drop(input);
    assert!(flow.wait().unwrap().success());
}

#[test]
fn programs_are_waited_for_although_their_ends_are_ignored() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("data"), "a\nb\n").unwrap();
    let output = Command::new("env")
        .args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_seekwire-flow"), "flow", "run", "-q"])
        .args(["-e", "read | exec cat | exec success=[3] sh -c 'cat; exit 3'", "data"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "a\nb\n");
}
