//! Many files at once: read below directories, and written by name and number.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::harness::{chain, flow, text, write_pipeline};

/// A pipeline with these options for reading and writing.
fn copying(read: &str, write: &str, stream: &str) -> TempDir {
    let filters = [
        ("read", &*format!("run = \"read\"\n{read}")),
        ("write", &*format!("run = \"write\"\n{write}")),
    ];
    write_pipeline("copy.toml", &chain(&filters, stream))
}

fn run(directory: &TempDir, units: &[&str]) -> Output {
    flow(directory.path(), &[&["run", "-q", "copy.toml"], units].concat())
}

/// Directories, links to files and directories, one of which leads back, and a special file.
fn logs(directory: &TempDir) {
    let path = |name: &str| directory.path().join("logs").join(name);
    fs::create_dir_all(path("b/inner")).unwrap();
    fs::create_dir_all(path("empty.log")).unwrap();
    for (name, content) in [
        ("a.log", "one\ntwo"),
        ("b/x.log", "three\n"),
        ("b/inner/y.log", "four"),
        ("c.txt", "five\n"),
    ] {
        fs::write(path(name), content).unwrap();
    }
    fs::write(path("d.log"), "").unwrap();
    symlink("../c.txt", path("b/linked.log")).unwrap();
    symlink("..", path("b/loop.log")).unwrap();
    symlink("nowhere", path("dangling.txt")).unwrap();
    assert!(Command::new("mkfifo").arg(path("pipe.log")).status().unwrap().success());
}

#[test]
fn files_below_a_directory_come_in_the_order_of_their_names() {
    for (read, expected) in [
        ("files = [\"*.log\"]", "one\ntwofourfive\nthree\n"),
        ("files = [\"*.log\"]\nblock = 1", "one\ntwofourfive\nthree\n"),
        ("files = [\"*.log\"]\nend-lines = true", "one\ntwo\nfour\nfive\nthree\n"),
        ("files = [\"*.log\"]\nend-lines = true\nblock = 3", "one\ntwo\nfour\nfive\nthree\n"),
        ("files = [\"*.log\"]\nend-lines = true\nwhole = true", "one\ntwo\nfour\nfive\nthree\n"),
        ("files = [\"?.txt\", \"x*\"]", "three\nfive\n"),
        (
            "files = [\"*.log\"]\nnames = true",
            "logs/a.log\nlogs/b/inner/y.log\nlogs/b/linked.log\nlogs/b/x.log\nlogs/d.log\n",
        ),
    ] {
        let directory = copying(read, "", "");
        logs(&directory);
        let output = run(&directory, &["logs"]);
        assert_eq!(text(&output.stdout), expected, "{read}: {}", text(&output.stderr));
        assert!(output.status.success());
    }
}

#[test]
fn a_pipe_that_nobody_writes_holds_up_only_its_own_unit() {
    let read = [("read", "run = \"read\""), ("write", "run = \"write\"\npath = \"{}.copy\"")];
    // Each unit fails here.
    let fail = [
        ("missing", "run = \"read\"\npath = \"missing\""),
        ("other", "run = \"write\"\npath = \"{}.other\""),
    ];
    let directory = write_pipeline("copy.toml", &(chain(&read, "") + &chain(&fail, "")));
    logs(&directory);
    fs::write(directory.path().join("plain"), "text").unwrap();
    let output = run(&directory, &["logs/pipe.log", "plain"]);
    let said = text(&output.stderr);
    assert!(said.ends_with("2 of 2 units of work failed\n"), "{said}");
}

#[test]
fn what_cannot_be_read_is_named() {
    for (read, unit, expected) in [
        ("files = [\"*\"]", "logs", "filter read, copy 0: logs/dangling.txt: No such file"),
        ("files = [\"*.gz\", \"*.bz2\"]", "logs", "no file called *.gz or *.bz2 below logs"),
        ("files = [\"*\"]", "none", "filter read, copy 0: none: No such file"),
        ("files = [\"*\"]", "logs/a.log", "logs/a.log: Not a directory"),
        ("", "logs", "logs: Is a directory (os error 21): set files, such as [\"*\"], to read"),
        ("whole = true", "logs", "logs: Is a directory (os error 21): set files"),
        (
            "files = [\"*\"]\nnames = true",
            "strange",
            "a name with a newline cannot be sent as a line",
        ),
        ("whole = true", "large", "large: it is larger than the 1073741824 bytes"),
    ] {
        let directory = copying(read, "", "");
        logs(&directory);
        fs::create_dir(directory.path().join("strange")).unwrap();
        fs::write(directory.path().join("strange/a\nb"), "").unwrap();
        let large = fs::File::create(directory.path().join("large")).unwrap();
        large.set_len((1 << 30) + 1).unwrap();
        let output = run(&directory, &[unit]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{read}: {said}");
        assert!(said.contains(expected), "{read}: {said}");
    }
}

#[test]
fn options_that_mean_nothing_are_refused() {
    for (read, write, expected) in [
        ("files = []", "", "files must be patterns of names"),
        ("files = [\"a/*\"]", "", "files must be patterns of names"),
        ("files = \"*\"", "", "`files` of filter read must be a list of strings"),
        ("whole = true\nblock = 5", "", "a file is read as a whole or by block, not both"),
        ("names = true", "", "names requires files"),
        ("block = \"2GiB\"", "", "read has blocks of at most 1073741824 bytes"),
        ("", "path = \"{nmae}\"", "path has {nmae}; it can have {}, {name} and {block}"),
    ] {
        let directory = copying(read, write, "");
        let said = text(&flow(directory.path(), &["check", "copy.toml"]).stderr);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_file_that_is_one_block_has_to_fit() {
    let directory = copying("whole = true", "", "limit = \"64KiB\"");
    fs::write(directory.path().join("large"), vec![b'x'; 100_000]).unwrap();
    let said = text(&run(&directory, &["large"]).stderr);
    assert!(said.contains("a block of 100000 bytes is too large for stream"), "{said}");
}

#[test]
fn what_is_written_is_named_after_what_was_read() {
    let directory = copying("", "path = \"out/{name}.copy\"", "");
    fs::create_dir_all(directory.path().join("in")).unwrap();
    fs::create_dir_all(directory.path().join("out")).unwrap();
    for name in ["in/a.log", "in/b.tar.gz", "a.log"] {
        fs::write(directory.path().join(name), name).unwrap();
    }
    let output = run(&directory, &["in/a.log", "in/b.tar.gz", "a.log"]);
    let said = text(&output.stderr);
    assert!(said.starts_with("seekwire: a.log: unit 2: filter write, copy 0"), "{said}");
    assert!(said.contains(": out/a.copy: unit 0 has already written it; let path"), "{said}");
    let out = |name: &str| fs::read_to_string(directory.path().join("out").join(name)).unwrap();
    assert_eq!((&*out("a.copy"), &*out("b.tar.copy")), ("in/a.log", "in/b.tar.gz"));

    let directory = copying("path = \"copy.toml\"", "path = \"out/{name}.copy\"", "");
    let said = text(&run(&directory, &[]).stderr);
    assert!(said.contains("{name} in path stands for the file of the unit"), "{said}");
}

#[test]
fn each_block_can_be_a_file() {
    let files = "files = [\"*.log\"]\nwhole = true";
    let directory = copying(files, "path = \"{name}-{}-{block}\"", "ordered = true");
    logs(&directory);
    let output = run(&directory, &["logs", "logs"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for unit in 0..2 {
        for (block, expected) in ["one\ntwo", "four", "five\n", "three\n", ""].iter().enumerate() {
            let name = format!("logs-{unit}-{block}");
            assert_eq!(fs::read_to_string(directory.path().join(name)).unwrap(), *expected);
        }
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2 + 2 * 5);

    let directory = copying(files, "path = \"none/{block}\"", "");
    logs(&directory);
    let said = text(&run(&directory, &["logs"]).stderr);
    assert!(said.contains("copy 0, block 0 (logs/a.log): none/0: No such file"), "{said}");
}

/// Names are shared among the copies of a program that opens the files itself.
#[test]
fn names_can_be_shared_among_programs() {
    let filters = [
        ("read", "run = \"read\"\nfiles = [\"*.log\"]\nnames = true"),
        (
            "sums",
            "run = \"exec\"\ncommand = [\"xargs\", \"-r\", \"-d\", \"\\n\", \"wc\", \"-c\", \"/dev/null\"]\ncopies = 3",
        ),
        ("print", "run = \"write\""),
    ];
    let directory = write_pipeline("copy.toml", &chain(&filters, "lines = 1"));
    logs(&directory);
    let output = run(&directory, &["logs"]);
    let out = text(&output.stdout);
    let mut lines: Vec<&str> =
        out.lines().map(str::trim).filter(|line| line.contains("logs/")).collect();
    lines.sort_unstable();
    let expected = [
        "0 logs/d.log",
        "4 logs/b/inner/y.log",
        "5 logs/b/linked.log",
        "6 logs/b/x.log",
        "7 logs/a.log",
    ];
    assert_eq!(lines, expected, "{}", text(&output.stderr));
}

/// The pipelines in the documents are complete, and this one does what the text promises.
#[test]
fn the_pipelines_in_the_documents_can_run() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/pipelines.md");
    let page = fs::read_to_string(page).unwrap();
    let examples = page.split("```toml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let examples: Vec<&str> = examples.collect();
    assert_eq!(examples.len(), 5);
    for example in &examples {
        let directory = write_pipeline("copy.toml", example);
        let output = flow(directory.path(), &["check", "copy.toml"]);
        assert!(output.status.success(), "{}\n{example}", text(&output.stderr));
    }
    let directory = write_pipeline("copy.toml", examples[0]);
    logs(&directory);
    let many: String = (0..20_000).map(|line| format!("line {line} of 3\n")).collect();
    fs::write(directory.path().join("logs/b/many.log"), &many).unwrap();
    let output = run(&directory, &["logs"]);
    let out = text(&output.stdout);
    let listed: BTreeSet<&str> = out.lines().collect();
    let expected: BTreeSet<&str> = many.lines().filter(|line| line.contains("99")).collect();
    assert!(listed == expected, "{} lines: {}", listed.len(), text(&output.stderr));
    assert_eq!(out.lines().count(), expected.len());
}

#[test]
fn what_a_unit_reads_it_does_not_write() {
    let content: Vec<u8> = (0..200_000u32).flat_map(u32::to_ne_bytes).collect();
    // By its name, by a link, small enough to be read before anything is written, and as one of
    // many.
    for (read, write, unit, bytes) in [
        ("", "path = \"{name}.log\"", "own.log", content.len()),
        ("", "path = \"link\"", "own.log", content.len()),
        ("path = \"own.log\"", "path = \"own.log\"", "", content.len()),
        ("whole = true", "path = \"{name}.log\"", "own.log", content.len()),
        ("", "path = \"{name}.log\"", "own.log", 10),
        ("files = [\"*.log\"]", "path = \"own.log\"", ".", content.len()),
        ("files = [\"*.log\"]\nwhole = true", "path = \"{block}.log\"", ".", 10),
    ] {
        let directory = copying(read, write, "");
        let own = directory.path().join("own.log");
        fs::write(&own, &content[..bytes]).unwrap();
        fs::write(directory.path().join("0.log"), "zero").unwrap();
        symlink("own.log", directory.path().join("link")).unwrap();
        let units: Vec<&str> = Some(unit).filter(|unit| !unit.is_empty()).into_iter().collect();
        let output = run(&directory, &units);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{read} {write}: {said}");
        assert!(said.contains("the unit cannot"), "{read} {write}: {said}");
        assert!(fs::read(&own).unwrap() == content[..bytes], "{read} {write}");
        assert_eq!(fs::read(directory.path().join("0.log")).unwrap(), b"zero");
    }
    // The next unit may read the output of this one, and a pipe and a device belong to no unit.
    let directory = copying("", "path = \"{name}.copy\"", "");
    fs::write(directory.path().join("a.log"), "some").unwrap();
    fs::write(directory.path().join("b.copy"), "old and longer").unwrap();
    symlink("a.copy", directory.path().join("b.log")).unwrap();
    let output = run(&directory, &["a.log", "b.log"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read(directory.path().join("b.copy")).unwrap(), b"some");
    let nowhere = copying("path = \"/dev/null\"", "path = \"/dev/null\"", "");
    assert!(run(&nowhere, &[]).status.success());
}

/// A second writer would destroy what the first one has written.
#[test]
fn no_file_is_written_twice() {
    let content = "line\n".repeat(100_000);
    let with = |sinks: &[&str]| {
        let mut file = "[filter.read]\nrun = \"read\"\n".to_owned();
        for (at, path) in sinks.iter().enumerate() {
            file += &format!(
                "[filter.to{at}]\nrun = \"write\"\n{path}\n\
                 [[stream]]\nfrom = \"read\"\nto = \"to{at}\"\n"
            );
        }
        let directory = write_pipeline("copy.toml", &file);
        for name in ["a.log", "b.log", "a0.log", "a{}.log", "a1", "a"] {
            fs::write(directory.path().join(name), format!("{name}\n{content}")).unwrap();
        }
        fs::create_dir(directory.path().join("out")).unwrap();
        symlink("a", directory.path().join("out/b")).unwrap();
        directory
    };
    let shell = |directory: &TempDir, script: &str| {
        let script =
            script.replace("flow", concat!(env!("CARGO_BIN_EXE_seekwire-flow"), " flow run -q"));
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(directory.path())
            .output()
            .unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let to = "path = \"to\"";
    for (sinks, script, expected, written) in [
        (&[to, to][..], "flow copy.toml a.log", " already writes it", None),
        (&[to, "path = \"out/../to\""], "flow copy.toml a.log", " already writes it", None),
        (&["", to], "flow copy.toml a.log > to", "it is standard output or the trace", None),
        (&[to], "flow copy.toml a.log --trace to", "it is standard output or the trace", None),
        (
            &["path = \"out/{name}\""],
            "flow copy.toml a.log b.log",
            "out/b: unit 0 has already written it",
            Some(("out/a", "a.log")),
        ),
        (
            &["path = \"out/{block}\""],
            "flow copy.toml a.log b.log",
            "out/0: unit 0 has already written it",
            None,
        ),
    ] {
        let directory = with(sinks);
        let (status, said) = shell(&directory, script);
        assert_eq!(status, Some(1), "{script}: {said}");
        assert!(said.contains(expected), "{script}: {said}");
        if let Some((name, unit)) = written {
            let written = fs::read_to_string(directory.path().join(name)).unwrap();
            assert!(written == format!("{unit}\n{content}"), "{script}: {said}");
        }
    }
    // Unit 1 is `a1`, and unit 11 is `a`.
    let directory = with(&["path = \"out/{name}{}\""]);
    let others = "b.log ".repeat(9);
    let (status, said) = shell(&directory, &format!("flow copy.toml b.log a1 {others} a"));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("out/a11: unit 1 has already written it"), "{said}");
    let written = fs::read_to_string(directory.path().join("out/a11")).unwrap();
    assert!(written.starts_with("a1\n"), "{}", &written[..10]);
    // A name is no pattern.
    let directory = with(&["path = \"out/{name}.copy\""]);
    let (status, said) = shell(&directory, "flow copy.toml 'a{}.log' a0.log");
    assert_eq!(status, Some(0), "{said}");
    for name in ["a{}", "a0"] {
        let copy = fs::read_to_string(directory.path().join(format!("out/{name}.copy"))).unwrap();
        assert!(copy == format!("{name}.log\n{content}"), "{name}");
    }
    // Devices keep nothing.
    let directory = with(&["path = \"/dev/null\"", "path = \"/dev/null\""]);
    assert_eq!(shell(&directory, "flow copy.toml a.log b.log"), (Some(0), String::new()));
}

/// As cat(1) refuses it: reading would never end.
#[test]
fn what_the_shell_redirects_to_is_not_read() {
    let cat = chain(&[("read", "run = \"read\""), ("write", "run = \"write\"")], "");
    let tree =
        chain(&[("read", "run = \"read\"\nfiles = [\"*\"]"), ("write", "run = \"write\"")], "");
    let directory = write_pipeline("cat.toml", &cat);
    let path = |name: &str| directory.path().join(name);
    fs::write(path("tree.toml"), tree).unwrap();
    fs::create_dir(path("below")).unwrap();
    let content = "line\n".repeat(100_000);
    let reset = || {
        fs::write(path("own"), &content).unwrap();
        fs::write(path("below/b"), &content).unwrap();
        fs::write(path("below/a"), "a\n").unwrap();
    };
    reset();
    symlink("own", path("link")).unwrap();
    fs::hard_link(path("own"), path("hard")).unwrap();
    let run = |script: &str| {
        let script =
            script.replace("flow", concat!(env!("CARGO_BIN_EXE_seekwire-flow"), " flow run -q"));
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(directory.path())
            .output()
            .unwrap();
        (output.status.code(), text(&output.stderr))
    };
    for script in [
        "flow cat.toml own >> own",
        "flow cat.toml link >> hard",
        "flow cat.toml - < own >> own",
        "flow cat.toml own 1<> own",
        "flow tree.toml below >> below/b",
    ] {
        let (status, said) = run(script);
        assert_eq!(status, Some(1), "{script}: {said}");
        assert!(
            said.contains("the unit cannot read a file that it writes; write to another"),
            "{said}"
        );
        // The first file was written.
        let grown = fs::metadata(path("below/b")).unwrap().len() as usize - content.len();
        assert!(grown <= 2, "{script}: {grown}");
        assert_eq!(fs::metadata(path("own")).unwrap().len() as usize, content.len());
        reset();
    }
    for read in ["own", "cat.toml"] {
        let (status, said) = run(&format!("flow cat.toml own --trace {read}"));
        assert_eq!(status, Some(1), "{said}");
        assert!(
            said.contains(&format!("the trace would overwrite {read}, which is read")),
            "{said}"
        );
        assert_eq!(fs::metadata(path("own")).unwrap().len() as usize, content.len());
    }
    let own =
        chain(&[("read", "run = \"read\"\npath = \"own\""), ("write", "run = \"write\"")], "");
    fs::write(path("own.toml"), own).unwrap();
    for (pipeline, trace) in [("tree.toml below", "below/b"), ("own.toml", "own")] {
        let (status, said) = run(&format!("flow {pipeline} --trace {trace}"));
        assert_eq!(status, Some(1), "{said}");
        let expected =
            format!("cannot write the trace {trace}: the file has something other than a trace");
        assert!(said.contains(&expected), "{said}");
        assert!(fs::read_to_string(path(trace)).unwrap() == content, "{trace}");
    }
    let (status, said) = run("flow cat.toml own --trace trace > trace");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("cannot write the trace trace: it is standard output"), "{said}");
    // An earlier trace is replaced, and not read while it grows.
    for unit in ["below/a", "below/a"] {
        let (status, said) = run(&format!("flow cat.toml {unit} --trace below/trace"));
        assert_eq!(status, Some(0), "{said}");
    }
    let (status, said) = run("flow tree.toml below --trace below/trace");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("the unit cannot read a file that it writes"), "{said}");
    reset();
    let (status, said) = run("flow cat.toml below/a >> own");
    assert_eq!(status, Some(0), "{said}");
    assert!(fs::read_to_string(path("own")).unwrap().ends_with("line\na\n"));
}

/// A path is bytes.
#[test]
fn names_that_are_no_text_are_read_and_written() {
    let name = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    for read in ["", "files = [\"*\"]"] {
        let directory = copying(read, "path = \"{name}.copy\"", "");
        let argument = directory.path().join(name(b"a\xff\xf4\x8f\xbf\x80.log"));
        match read {
            "" => fs::write(&argument, "content").unwrap(),
            _ => {
                fs::create_dir(&argument).unwrap();
                fs::write(argument.join(name(b"\xfe")), "content").unwrap();
            }
        }
        let output = Command::new(env!("CARGO_BIN_EXE_seekwire-flow"))
            .args(["flow", "run", "-q", "copy.toml"])
            .arg(argument.file_name().unwrap())
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let copy = directory.path().join(name(b"a\xff\xf4\x8f\xbf\x80.copy"));
        assert_eq!(fs::read_to_string(copy).unwrap(), "content");
    }
    let directory = copying("", "", "");
    let output = Command::new(env!("CARGO_BIN_EXE_seekwire-flow"))
        .args(["flow", "run", "-q", "copy.toml"])
        .arg(name(b"none\xff"))
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(
        said.starts_with("seekwire: none\u{fffd}: unit 0: filter read, copy 0: none\u{fffd}: No"),
        "{said}"
    );
}
