//! Programs that speak the filter protocol, and programs that do not.

mod c;
mod rules;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::harness::{chain, flow, text, write_pipeline};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn strings(words: &[&str]) -> String {
    format!("{words:?}")
}

/// Pipes read through that program to write; the program in Python is in `filter.py`.
fn through(command: &[&str], options: &str, stream: &str, python: &str) -> TempDir {
    let framed = format!("run = \"framed\"\ncommand = {}\n{options}", strings(command));
    let filters = [
        ("read", "run = \"read\"\nblock = \"256KiB\""),
        ("own", &framed),
        ("write", "run = \"write\""),
    ];
    let directory = write_pipeline("own.toml", &chain(&filters, stream));
    fs::write(directory.path().join("data"), "0123456789abcde\n".repeat(100_000)).unwrap();
    let examples = root().join("flow/examples");
    let python = format!("import sys\nsys.path.insert(0, {:?})\n{python}", examples.display());
    fs::write(directory.path().join("filter.py"), python).unwrap();
    directory
}

fn run(directory: &TempDir, units: &[&str]) -> Output {
    flow(directory.path(), &[&["run", "-q", "own.toml"], units].concat())
}

const PYTHON: [&str; 2] = ["python3", "filter.py"];

/// Says hello, and has the means to break rules. `ask()` receives a request, `tell()` sends an
/// answer.
const RAW: &str = "
import os, select, time
def asked():
    select.select([0], [], [])
def read(length):
    data = b''
    while len(data) < length:
        more = os.read(0, length - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data
def write(data):
    while data:
        data = data[os.write(1, data):]
def head():
    return struct.unpack('<IIQQ', read(24))
def ask():
    kind, port, number, length = head()
    return kind, port, number, read(length)
def tell(kind, number, data=b'', port=0, length=None):
    write(struct.pack('<IIQQ', kind, port, number, len(data) if length is None else length) + data)
def serve_first():
    tell(5, ask()[2])
import struct
hello = read(16)
";
const HELLO: &str = "write(b'seekflt<' + struct.pack('<II', 1, 0))\n";

#[test]
fn the_example_in_python_keeps_everything_in_its_place() {
    let redact = root().join("flow/examples/redact.py");
    let stream = "ordered = true\nblock = 10000";
    let command = ["python3", redact.to_str().unwrap()];
    let directory = through(&command, "copies = 4", stream, "");
    let lines: String = (0..50_000).map(|line| format!("line {line} of many\n")).collect();
    fs::write(directory.path().join("lines"), &lines).unwrap();
    let output = run(&directory, &["lines", "data", "lines"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let data = fs::read_to_string(directory.path().join("data")).unwrap();
    let all = [&lines, &data, &lines].map(|part| part.replace(|c: char| c.is_ascii_digit(), "x"));
    assert!(text(&output.stdout) == all.concat(), "{} bytes", output.stdout.len());
    let hidden = |unit: usize| -> usize {
        let of_unit = said.lines().filter_map(|line| line.strip_prefix(&format!("unit {unit}: ")));
        of_unit
            .map(|line| line.strip_suffix(" digits hidden").unwrap().parse::<usize>().unwrap())
            .sum()
    };
    assert_eq!(hidden(0), lines.matches(|c: char| c.is_ascii_digit()).count(), "{said}");
    assert_eq!(hidden(1), 1_000_000, "{said}");
}

#[test]
fn the_example_in_python_takes_arguments_that_are_no_text() {
    let redact = root().join("flow/examples/redact.py");
    let directory = through(&["python3", redact.to_str().unwrap()], "", "", "");
    let name = OsStr::from_bytes(b"d\xffta");
    fs::write(directory.path().join(name), "7 of 9").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_seekwire-flow"));
    command.args(["flow", "run", "-q", "own.toml"]).arg(name).current_dir(directory.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "x of x");
}

#[test]
fn a_process_serves_a_copy_for_all_units() {
    let python = "
import os
from redact import serve
class Pid:
    def init(self, argument, unit, send):
        send(f'{argument} {unit} {os.getpid()}\\n'.encode())
    def process(self, block, port, sequence, send):
        print('this goes to standard error')
    def finalize(self, send):
        pass
serve(Pid())";
    let directory = through(&PYTHON, "copies = 3", "", python);
    let output = run(&directory, &["data"; 5]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    let mut pids = BTreeSet::new();
    for (at, line) in out.lines().enumerate() {
        let (unit, pid) = line.strip_prefix("data ").unwrap().split_once(' ').unwrap();
        assert_eq!(unit, (at / 3).to_string(), "{out}");
        pids.insert(pid);
    }
    assert_eq!((out.lines().count(), pids.len()), (15, 3), "{out}");
    for pid in pids {
        assert!(!Path::new("/proc").join(pid).exists(), "process {pid} is still there");
    }
}

#[test]
fn a_source_and_several_ports_are_programs_too() {
    let python = "
from redact import serve
class Halves:
    def init(self, argument, unit, send):
        self.left = int(argument)
    def generate(self, send):
        self.left -= 1
        send(f'{self.left}\\n'.encode(), self.left % 2)
        return self.left > 0
    def process(self, block, port, sequence, send):
        send(f'{port}: '.encode() + block)
    def finalize(self, send):
        send(b'the end\\n')
serve(Halves())";
    let directory = through(&PYTHON, "", "", python);
    let file = "
[filter.numbers]
run = \"framed\"
command = [\"python3\", \"filter.py\"]
inputs = []
outputs = [\"even\", \"odd\"]
[filter.join]
run = \"framed\"
command = [\"python3\", \"filter.py\"]
inputs = [\"first\", \"second\"]
[filter.write]
run = \"write\"
[[stream]]
from = \"numbers.even\"
to = \"join.second\"
[[stream]]
from = \"numbers.odd\"
to = \"join.first\"
[[stream]]
from = \"join\"
to = \"write\"
";
    fs::write(directory.path().join("own.toml"), file).unwrap();
    let output = run(&directory, &["5"]);
    let out = text(&output.stdout);
    let mut lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.pop(), Some("the end"), "{out}{}", text(&output.stderr));
    lines.sort_unstable();
    assert_eq!(lines, ["0: 1", "0: 3", "1: 0", "1: 2", "1: 4", "1: the end"]);

    fs::write(directory.path().join("own.toml"), file.replacen("[]", "[]\ncopies = 2", 1)).unwrap();
    let said = text(&run(&directory, &["5"]).stderr);
    assert!(said.contains("framed cannot have several copies"), "{said}");
}

#[test]
fn options_that_mean_nothing_are_refused() {
    for (options, expected) in [
        ("outputs = [\"out\", \"out\"]", "outputs must be names of ports"),
        ("inputs = [\"a b\"]", "inputs must be names of ports"),
        ("largest = \"2GiB\"", "largest can be at most 1073741824 bytes"),
        ("start = 0", "must be a time such as"),
        ("timeout = 0", "must be a time such as"),
        ("success = [0]", "has no option `success`; it has run, copies, ranks"),
    ] {
        let directory = through(&PYTHON, options, "", "");
        let said = text(&flow(directory.path(), &["check", "own.toml"]).stderr);
        assert!(said.contains(expected), "{said}");
    }
    let said = text(&run(&through(&[], "", "", ""), &["data"]).stderr);
    assert!(said.contains("framed needs command: a list"), "{said}");
    let said = text(&run(&through(&["./none"], "", "", ""), &["data"]).stderr);
    assert!(said.contains("filter own, copy 0: ./none: No such file"), "{said}");
}

/// Pipes are smaller than blocks, so two peers that both write before they read would wait forever.
#[test]
fn who_writes_before_it_reads_is_read() {
    let python = format!(
        "{RAW}{HELLO}
while True:
    kind, port, number, length = head()
    if kind == 2:
        for part in range(20):
            tell(2, number, b'x' * 50000)
        tell(5, number)
        read(length)
    else:
        read(length)
        tell(5, number)"
    );
    let output = run(&through(&PYTHON, "", "", &python), &["data", "data"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(output.stdout.len(), 2 * 7 * 20 * 50000);
}

/// The next filter has failed, so nobody waits for the answer of the program.
#[test]
fn a_program_that_does_not_answer_ends_with_its_unit() {
    let python = format!(
        "{RAW}{HELLO}
while True:
    kind, port, number, data = ask()
    if kind == 1:
        argument = data
    if kind == 2:
        tell(2, number, data)
    if kind == 4 and argument == b'data':
        time.sleep(1000)
    tell(5, number)"
    );
    let directory = through(&PYTHON, "", "", &python);
    let file = fs::read_to_string(directory.path().join("own.toml")).unwrap();
    let file = file.replace("to = \"write\"", "to = \"unzip\"")
        + "[filter.unzip]\nrun = \"gunzip\"\n[[stream]]\nfrom = \"unzip\"\nto = \"write\"\n";
    fs::write(directory.path().join("own.toml"), file).unwrap();
    let gzip = Command::new("sh")
        .args(["-c", "echo fine | gzip >good"])
        .current_dir(directory.path())
        .status();
    assert!(gzip.unwrap().success());
    let output = run(&directory, &["data", "good", "good"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.starts_with("seekwire: data: unit 0: filter unzip"), "{said}");
    assert!(said.ends_with("seekwire: 1 of 3 units of work failed\n"), "{said}");
    assert_eq!(text(&output.stdout), "fine\nfine\n");
}

/// Whatever a unit does to its process, the next unit gets another one.
#[test]
fn an_error_of_one_unit_is_none_of_the_next() {
    let python = "
from redact import serve
class Picky:
    def init(self, argument, unit, send):
        if argument == 'bad':
            raise ValueError('I do not like it')
    def process(self, block, port, sequence, send):
        send(b'done\\n')
    def finalize(self, send):
        pass
serve(Picky())";
    let directory = through(&PYTHON, "", "", python);
    fs::write(directory.path().join("bad"), "x").unwrap();
    fs::write(directory.path().join("good"), "x").unwrap();
    let output = run(&directory, &["good", "bad", "good"]);
    assert_eq!(text(&output.stdout), "done\ndone\n");
    let said = text(&output.stderr);
    assert!(
        said.contains("bad: unit 1: filter own, copy 0: python3: ValueError: I do not"),
        "{said}"
    );
}

/// Another process takes the place of the one that has reported the error.
#[test]
fn a_unit_goes_on_without_a_block_that_is_an_error() {
    let python = "
from redact import serve
class Picky:
    def init(self, argument, unit, send):
        print('begins', argument, file=sys.stderr)
    def process(self, block, port, sequence, send):
        send(f'{sequence}\\n'.encode())
        if sequence == 2:
            raise ValueError('I do not like it')
    def finalize(self, send):
        send(b'end\\n')
serve(Picky())";
    for (on_error, status, expected) in
        [("\"skip\"", 3, "0\n1\n3\nend\n"), ("\"fail\"", 1, "0\n1\n2\n")]
    {
        let options = format!("on_error = {on_error}");
        let directory = through(&PYTHON, &options, "ordered = true", python);
        let pipeline = directory.path().join("own.toml");
        let blocks = fs::read_to_string(&pipeline).unwrap().replace("256KiB", "400000");
        fs::write(pipeline, blocks).unwrap();
        let output = run(&directory, &["data"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        // If the unit fails, any part of the output may have been written.
        let out = text(&output.stdout);
        assert!(out == expected || status == 1 && expected.starts_with(&out), "{out}: {said}");
        let location = "filter own, copy 0, block 2 (data from byte 800000): ";
        assert!(said.contains(location), "{said}");
        assert_eq!(said.matches("begins data").count(), if status == 3 { 2 } else { 1 }, "{said}");
    }
}

/// A program that sends without end is stopped by the stream after it, and when its reader ends.
#[test]
fn a_flood_is_held_back() {
    let python =
        format!("{RAW}{HELLO}serve_first(); ask()\nwhile True:\n    tell(2, 0, b'line\\n' * 1000)");
    let directory = through(&PYTHON, "", "limit = \"512KiB\"", &python);
    let program = env!("CARGO_BIN_EXE_seekwire-flow");
    let script = format!("{program} flow run -q own.toml data | head -n 1");
    let output =
        Command::new("sh").args(["-c", &script]).current_dir(directory.path()).output().unwrap();
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("line\n".to_owned(), String::new()));
}
