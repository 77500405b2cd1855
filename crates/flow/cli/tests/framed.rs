//! Programs that speak the filter protocol, and programs that do not.

mod harness;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::harness::{chain, flow, place, text};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn strings(words: &[&str]) -> String {
    format!("{words:?}")
}

/// read, that program, write; the program in Python stands in `filter.py`.
fn through(command: &[&str], options: &str, stream: &str, python: &str) -> TempDir {
    let framed = format!("run = \"framed\"\ncommand = {}\n{options}", strings(command));
    let filters = [
        ("read", "run = \"read\"\nblock = \"256KiB\""),
        ("own", &framed),
        ("write", "run = \"write\""),
    ];
    let directory = place("own.toml", &chain(&filters, stream));
    fs::write(directory.path().join("data"), "0123456789abcde\n".repeat(100_000)).unwrap();
    let examples = root().join("examples/python");
    let python = format!("import sys\nsys.path.insert(0, {:?})\n{python}", examples.display());
    fs::write(directory.path().join("filter.py"), python).unwrap();
    directory
}

fn run(directory: &TempDir, units: &[&str]) -> Output {
    flow(directory.path(), &[&["run", "-q", "own.toml"], units].concat())
}

const PYTHON: [&str; 2] = ["python3", "filter.py"];

#[test]
fn the_example_in_python_keeps_everything_in_its_place() {
    let redact = root().join("examples/python/redact.py");
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
        ("start = 0", "start must be at least 1 second"),
        ("timeout = 0", "timeout must be at least 1 second"),
        ("success = [0]", "has no option `success`; it has run, copies, command, inputs"),
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

#[test]
fn programs_without_the_protocol_are_told() {
    for (command, options, expected) in [
        (&["cat"][..], "", "cat: does not speak the filter protocol: it begins with \"seekflt>"),
        (&["echo", "Usage: x"], "", "begins with \"Usage: x\\n\""),
        (&["true"], "", "true: ended with exit status 0 instead of an answer"),
        (&["sh", "-c", "exit 3"], "", "sh: ended with exit status 3 instead of an answer"),
        (&["sh", "-c", "kill -9 $$"], "", "sh: was ended by signal 9 instead of an answer"),
        // Somebody else has its pipes, and keeps them until they are closed at this end.
        (
            &["sh", "-c", "{ cat >/dev/null <&3; } 3<&0 2>/dev/null & exit 3"],
            "",
            "sh: ended with exit status 3 instead of an answer",
        ),
        (&["printf", "seekf"], "", "printf: ended with exit status 0 within a frame"),
        (&["sh", "-c", "exec >&-; exec sleep 1000"], "", "sh: closed its standard output instead"),
        (
            &["sleep", "1000"],
            "start = 1",
            "sleep: did not say hello as the filter protocol has it within 1 s",
        ),
        // It reads, as most do, and says nothing before the end.
        (&["wc"], "start = 1", "wc: did not say hello"),
    ] {
        let output = run(&through(command, options, "", ""), &["data"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(said.contains(expected), "{command:?}: {said}");
    }
}

/// Says hello, and has what it takes to break rules. `ask()` is one request, `tell()` an answer.
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
fn programs_that_break_the_rules_are_told() {
    for (python, options, expected) in [
        ("write(b'seekflt<' + struct.pack('<II', 2, 0))", "", "speaks version 2 of the filter"),
        (
            "write(b'seekflt<' + struct.pack('<II', 1, 1))",
            "",
            "says hello with bytes that must be 0",
        ),
        (
            "write(b'seekflt<' + struct.pack('<IIIIQQ', 1, 0, 7, 0, 9, 8) + b'no model'); ask(); ask()",
            "",
            "filter own, copy 0: python3: no model",
        ),
        ("HELLO; serve_first(); sys.exit(4)", "", "ended with exit status 4 instead of an answer"),
        (
            "HELLO; serve_first(); ask(); tell(2, 0, b'x', length=9); sys.exit(0)",
            "",
            "within a frame",
        ),
        ("HELLO; serve_first(); ask(); write(b'\\x02\\0'); sys.exit(0)", "", "0 within a frame"),
        (
            "HELLO; serve_first(); ask(); tell(2, 0, b'x', length=4 << 30); time.sleep(1000)",
            "",
            "sent a block of 4294967296 bytes; `largest` allows 67108864 bytes",
        ),
        (
            "HELLO; serve_first(); ask(); tell(2, 0, b'x' * 11); time.sleep(1000)",
            "largest = 10",
            "sent a block of 11 bytes; `largest` allows 10 bytes",
        ),
        ("HELLO; serve_first(); ask(); tell(9, 0); time.sleep(1000)", "", "sent a frame of kind 9"),
        (
            "HELLO; serve_first(); ask(); tell(5, 0, b'x'); time.sleep(1000)",
            "",
            "kind 5 with 1 byte",
        ),
        (
            "HELLO; serve_first(); ask(); tell(2, 0, b'x', port=1); time.sleep(1000)",
            "",
            "sent a block to output port 1; it has 1, counted from 0",
        ),
        (
            "HELLO; serve_first(); ask(); tell(2, 77, b'x'); time.sleep(1000)",
            "",
            "answered number 77, and was asked number 0",
        ),
        ("HELLO; serve_first(); ask(); tell(6, 0); time.sleep(1000)", "", "not asked to generate"),
        (
            "HELLO; serve_first(); ask(); write(struct.pack('<IIQQ', 5, 0, 0, 0) * 2); ask()",
            "",
            "sent a frame behind the end of its answer",
        ),
        (
            "HELLO; serve_first(); ask(); write(struct.pack('<IIQQ', 5, 0, 0, 0) + b'x'); ask()",
            "",
            "sent bytes behind the end of its answer",
        ),
        ("HELLO; serve_first(); tell(7, 0, b'I will not'); sys.exit(0)", "", "python3: I will not"),
        (
            "HELLO; serve_first(); asked(); os.close(0); tell(5, 0); time.sleep(1000)",
            "",
            "closed its standard input before it had read all of a request",
        ),
        (
            "HELLO; serve_first(); head(); tell(5, 0); sys.exit(0)",
            "",
            "ended with exit status 0 before it had read all of a request",
        ),
        ("HELLO; serve_first(); os.close(1); time.sleep(1000)", "", "closed its standard output"),
        ("HELLO; serve_first(); time.sleep(1000)", "timeout = 1", "did not answer within 1 s"),
        (
            "HELLO; serve_first()\nwhile (request := ask())[0] != 4:\n    tell(5, request[2])\ntime.sleep(1000)",
            "timeout = 1",
            "filter own, copy 0: python3: did not answer within 1 s",
        ),
        ("HELLO; ask(); tell(7, 0, b'\\xff\\x1b[31m no'); ask()", "", "python3: \u{fffd}"),
        ("HELLO; ask(); tell(7, 0, length=65537); ask()", "", "sent an error of 65537 bytes"),
    ] {
        let python = python.replace("HELLO; ", HELLO);
        let output = run(&through(&PYTHON, options, "", &format!("{RAW}{python}")), &["data"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{python}: {said}");
        assert!(said.contains(expected), "{python}: {said}");
        assert!(!said.contains('\u{1b}'), "{said}");
    }
}

/// Pipes are smaller than blocks, so who only writes before it only reads waits for ever.
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

/// The filter behind has failed, so nobody waits for what the program does not say.
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

/// Whatever one unit does to its process, the next one has another.
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

/// Whoever sends without end is stopped by the stream behind it, and by the end of its reader.
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

/// With every compiler that is there, with all warnings, and with sanitizers.
fn compiled(directory: &TempDir, source: &Path, name: &str) -> Vec<String> {
    let mut programs = Vec::new();
    for compiler in ["gcc", "clang"] {
        let program = format!("./{name}-{compiler}");
        let flags = "-std=c99 -O1 -Wall -Wextra -Wpedantic -Werror -fsanitize=address,undefined \
                     -fno-sanitize-recover=all";
        let mut command = Command::new(compiler);
        command.args(flags.split_whitespace()).arg("-I").arg(root().join("include"));
        command.arg(source).args(["-o", &program]).current_dir(directory.path());
        match command.output() {
            Ok(output) => assert!(output.status.success(), "{}", text(&output.stderr)),
            Err(_) => continue,
        }
        programs.push(program);
    }
    assert!(!programs.is_empty(), "a compiler of C is needed, of GNU or LLVM");
    programs
}

#[test]
fn the_example_in_c_computes_checksums() {
    let directory = through(&["true"], "", "ordered = true\nblock = 50000", "");
    let file = fs::read_to_string(directory.path().join("own.toml")).unwrap();
    let example = root().join("examples/c/checksum.c");
    for program in compiled(&directory, &example, "checksum") {
        let command = format!("[\"{program}\"]\ncopies = 3");
        fs::write(directory.path().join("own.toml"), file.replace("[\"true\"]", &command)).unwrap();
        let output = run(&directory, &["data", "data"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let data = fs::read(directory.path().join("data")).unwrap();
        let mut expected = String::new();
        for (number, block) in data.chunks(50000).enumerate() {
            let mut crc = flate2::Crc::new();
            crc.update(block);
            expected += &format!("{number} {:08x}\n", crc.sum());
        }
        let out = text(&output.stdout);
        // One line of each copy at the end: together they have seen everything.
        let lines = out.lines().filter_map(|line| line.strip_suffix(" bytes"));
        let bytes: usize = lines.map(|bytes| bytes.parse::<usize>().unwrap()).sum();
        assert_eq!(bytes, 2 * data.len(), "{out}");
        let sums: String = out
            .lines()
            .filter(|line| !line.ends_with("bytes"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(sums, expected.repeat(2));
    }
}

#[test]
fn filters_in_c_say_what_went_wrong() {
    const SOURCE: &str = "
#include <seekwire_filter.h>
static unsigned char buffer[1001];
static const char *init(void *state, const char *argument, uint64_t unit,
                        struct seekwire_filter_output *out)
{
    (void)state, (void)unit, (void)out;
    printf(\"told %s\\n\", argument);
    return fflush(stdout) == 0 ? NULL : \"no standard error\";
}
static const char *process(void *state, const struct seekwire_filter_block *block,
                           struct seekwire_filter_output *out)
{
    const char *limit = (const char *)state;
    if (block->length > strtoul(limit, NULL, 10))
        return \"that is too much\";
    return seekwire_filter_send(out, 0, block->bytes, block->length) == 0 ? NULL : \"nobody reads\";
}
static const char *finalize(void *state, struct seekwire_filter_output *out)
{
    (void)state;
    return seekwire_filter_send(out, 0, NULL, 0) == 0 ? NULL : \"nobody reads\";
}
int main(int count, char **arguments)
{
    struct seekwire_filter filter = { init, process, NULL, finalize, NULL, 0 };
    if (count > 2) {
        filter.buffer = buffer;
        filter.buffer_size = sizeof buffer;
    }
    return seekwire_filter_run(&filter, arguments[1]);
}
";
    let directory = through(&["PROGRAM"], "", "block = 1000", "");
    let file = fs::read_to_string(directory.path().join("own.toml")).unwrap();
    fs::write(directory.path().join("own.c"), SOURCE).unwrap();
    for program in compiled(&directory, Path::new("own.c"), "own") {
        let try_it = |arguments: &str, block: usize| {
            let file = file.replace("\"PROGRAM\"", &format!("\"{program}\", {arguments}"));
            let file = file.replace("block = 1000", &format!("block = {block}"));
            fs::write(directory.path().join("own.toml"), file).unwrap();
            let output = run(&directory, &["data"]);
            (output.stdout.len(), text(&output.stderr))
        };
        let (len, said) = try_it("\"1000\"", 1000);
        assert_eq!((len, &*said), (1_600_000, "told data\n"));
        assert_eq!(try_it("\"1000\", \"fixed\"", 1000).0, 1_600_000);
        let (_, said) = try_it("\"5\"", 1000);
        assert!(said.contains(&format!("block 0: {program}: that is too much")), "{said}");
        let (_, said) = try_it("\"5000\", \"fixed\"", 1001);
        assert!(said.contains("a block is larger than the buffer"), "{said}");
        let alone = Command::new(&program).arg("1").current_dir(directory.path()).output().unwrap();
        assert_eq!(alone.status.code(), Some(1));
        assert!(text(&alone.stderr).starts_with("filter: this program is for pipelines"));
    }
    // As C++, too.
    fs::write(directory.path().join("own.cc"), SOURCE).unwrap();
    let mut command = Command::new("c++");
    command.args([
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-fsyntax-only",
        "-I",
    ]);
    command.arg(root().join("include")).arg("own.cc").current_dir(directory.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}
