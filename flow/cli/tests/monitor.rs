//! Pipelines that are watched while they run: metrics, `flow top`, traces, the view in a terminal.
//!
//! The source of each pipeline reads a pipe that the test writes to, and the test reads the output
//! before it asks: nothing here waits for a time to pass.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const PIPELINE: &str = "\
[filter.read]
run = \"read\"
path = \"-\"
[filter.pass]
run = \"burn\"
nanoseconds-per-byte = 1
copies = 2
[filter.print]
run = \"write\"
[[stream]]
from = \"read\"
to = \"pass\"
limit = \"1MiB\"
[[stream]]
from = \"pass\"
to = \"print\"
";

/// A directory with the pipeline, which is also where sockets are.
fn write_pipeline() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(directory.path().join("pass.toml"), PIPELINE).unwrap();
    directory
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seekwire-flow"));
    command.arg("flow").args(arguments).current_dir(directory).env("XDG_RUNTIME_DIR", directory);
    command
}

fn flow(directory: &Path, arguments: &[&str]) -> Output {
    command(directory, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running pipeline.
struct Running {
    process: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    /// Address of its metrics.
    address: String,
    errors: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn start(directory: &Path, arguments: &[&str]) -> Self {
        let all = [&["run", "pass.toml", "--metrics", "127.0.0.1:0"], arguments].concat();
        let mut command = command(directory, &all);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut errors = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        let address = line.strip_prefix("seekwire: metrics at http://").expect(&line);
        let address = address.strip_suffix("/metrics\n").unwrap().to_owned();
        let (input, output) = (process.stdin.take(), process.stdout.take().unwrap());
        Self { process, input, output, address, errors }
    }

    /// Passes these bytes through the whole pipeline.
    fn pass(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
        let mut passed = vec![0; bytes.len()];
        self.output.read_exact(&mut passed).unwrap();
        assert!(passed == bytes);
    }

    fn get(&self, path: &str) -> (String, String) {
        ask(&self.address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }

    fn pid(&self) -> String {
        self.process.id().to_string()
    }

    /// Its exit status, and what it has printed.
    fn end(mut self) -> (ExitStatus, String) {
        self.input = None;
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        (self.process.wait().unwrap(), said)
    }

    fn kill(mut self, signal: &str) -> ExitStatus {
        let sent = Command::new("kill").args([signal, &self.pid()]).status().unwrap();
        assert!(sent.success());
        self.process.wait().unwrap()
    }
}

/// Headers and body of the answer.
fn ask(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (headers, body) = answer.split_once("\r\n\r\n").expect(&answer);
    (headers.to_owned(), body.to_owned())
}

/// The samples of an exposition, after checking that everything the format requires is there.
fn samples(exposition: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut types, mut helped) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for line in exposition.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, about) = help.split_once(' ').unwrap();
            assert!(!about.is_empty() && helped.insert(name.to_owned()), "{line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(helped.contains(name), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(name.starts_with("seekwire_flow_"), "{line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            assert!(types.contains_key(name), "{line}");
            let value = value.parse().unwrap();
            assert!(samples.insert(sample.to_owned(), value).is_none(), "{line}");
        }
    }
    assert!(exposition.ends_with('\n') && samples.len() > 10, "{exposition}");
    samples
}

#[test]
fn metrics_are_those_of_what_went_through() {
    let directory = write_pipeline();
    let mut running = Running::start(directory.path(), &[]);
    running.pass(&[b'x'; 300_000]);
    let (headers, body) = running.get("/metrics");
    assert!(headers.starts_with("HTTP/1.1 200 OK\r\n"), "{headers}");
    assert!(headers.contains("content-type: text/plain; version=0.0.4"), "{headers}");
    let samples = samples(&body);
    let get = |name: &str| *samples.get(&format!("seekwire_flow_{name}")).expect(name);
    let of_copy = |metric: &str, copy: u32| {
        get(&format!("copy_{metric}_total{{filter=\"pass\",copy=\"{copy}\"}}"))
    };
    assert_eq!(of_copy("bytes", 0) + of_copy("bytes", 1), 300_000.0);
    let through = "{stream=\"read.out -> pass.in\"}";
    assert_eq!(get(&format!("stream_bytes_total{through}")), 300_000.0);
    let blocks = get(&format!("stream_blocks_total{through}"));
    assert_eq!(of_copy("blocks", 0) + of_copy("blocks", 1), blocks);
    assert_eq!(get(&format!("stream_limit_bytes{through}")), 1048576.0);
    assert!(get(&format!("stream_peak_bytes{through}")) >= 1.0);
    assert_eq!(get("units_total{outcome=\"done\"}"), 0.0);
    let states = samples.keys().filter(|name| name.contains("_copy_seconds_total"));
    assert_eq!(states.count(), 4 * 3);
    let (status, said) = running.end();
    assert!(status.success(), "{said}");
    assert!(said.contains("print") && !said.contains('\u{1b}'), "{said}");
}

#[test]
fn other_requests_are_answered_too() {
    let directory = write_pipeline();
    let running = Running::start(directory.path(), &["-q"]);
    assert_eq!(running.get("/healthz").1, "ok\n");
    assert!(running.get("/").0.starts_with("HTTP/1.1 404 "));
    let post = ask(&running.address, "POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n").0;
    assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("allow: GET, HEAD"), "{post}");
    let head = ask(&running.address, "HEAD /status HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.0.starts_with("HTTP/1.1 200 ") && head.1.is_empty(), "{head:?}");
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    let mut stream = TcpStream::connect(&running.address).unwrap();
    // The server may close the connection before it has everything.
    let _ = stream.write_all(long.as_bytes());
    let _ = stream.read_to_end(&mut Vec::new());
    assert_eq!(running.get("/healthz").1, "ok\n");
    assert_eq!(running.end(), (ExitStatus::default(), String::new()));
}

#[test]
fn clients_that_are_slow_disturb_neither_the_pipeline_nor_the_others() {
    let directory = write_pipeline();
    let mut running = Running::start(directory.path(), &["-q"]);
    let slow = |at: usize| {
        let mut stream = TcpStream::connect(&running.address).unwrap();
        let begun: &[u8] = [b"".as_slice(), b"GET /metrics HTTP/1.1\r\nX: ", b"\xff\n"][at % 3];
        // Bytes that are not HTTP may be refused at once.
        let _ = stream.write_all(begun);
        stream
    };
    let mut slow: Vec<TcpStream> = (0..40).map(slow).collect();
    running.pass(&[b'x'; 500_000]);
    let top = flow(directory.path(), &["top", "--once"]);
    assert!(text(&top.stdout).starts_with("pass.toml, process "), "{top:?}");
    // The first connections are closed when enough others wait after them.
    assert_eq!(running.get("/healthz").1, "ok\n");
    let _ = slow[0].read(&mut [0]);
    running.pass(b"still there");
    assert!(running.end().0.success());
}

#[test]
fn an_address_that_cannot_be_had_is_an_error() {
    let directory = write_pipeline();
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = occupied.local_addr().unwrap().to_string();
    let output = flow(directory.path(), &["run", "pass.toml", "--metrics", &address]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with(&format!("seekwire: cannot serve metrics at {address}: ")), "{said}");
}

#[test]
fn top_finds_the_pipeline_that_runs() {
    let directory = write_pipeline();
    let none = flow(directory.path(), &["top", "--once"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("no pipeline of this user runs on this host"));

    fs::DirBuilder::new().mode(0o700).create(directory.path().join("seekwire")).unwrap();
    let stale = directory.path().join("seekwire/1.sock");
    drop(UnixListener::bind(&stale).unwrap());
    let mut running = Running::start(directory.path(), &["-q"]);
    running.pass(&[b'x'; 200_000]);
    let pid = running.pid();
    let address = running.address.clone();
    for named in [&[][..], &[pid.as_str()], &[address.as_str()]] {
        let output = flow(directory.path(), &[&["top", "--once"][..], named].concat());
        assert!(output.status.success(), "{output:?}");
        let table = text(&output.stdout);
        assert!(table.starts_with(&format!("pass.toml, process {pid}, ")), "{table}");
        for line in table.lines().filter(|line| line.starts_with("pass ")) {
            let shares = line.split(" %").filter_map(|part| part.rsplit(' ').next());
            let shares: Vec<u32> = shares.take(3).map(|share| share.parse().unwrap()).collect();
            assert_eq!(shares.iter().sum::<u32>(), 100, "{line}");
        }
        assert_eq!(table.matches("\npass ").count(), 2, "{table}");
        assert!(table.contains("\nread.out -> pass.in "), "{table}");
    }
    assert!(!stale.exists());
    let json = flow(directory.path(), &["top", "--json"]).stdout;
    let status: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(status["pid"], running.process.id());
    assert_eq!(status["streams"][0]["bytes"], 200_000);

    let other = Running::start(directory.path(), &["-q"]);
    // Once the server answers, the socket can be found.
    other.get("/healthz");
    let several = flow(directory.path(), &["top"]);
    assert_eq!(several.status.code(), Some(1));
    assert!(text(&several.stderr).contains("name one of them"), "{several:?}");
    let list = text(&several.stdout);
    assert_eq!(list.lines().count(), 3, "{list}");
    assert_eq!(text(&flow(directory.path(), &["top", "--json"]).stdout).lines().count(), 2);
    assert_eq!(other.kill("-TERM").signal(), Some(15));
    assert!(running.end().0.success());
    let left: Vec<_> = fs::read_dir(directory.path().join("seekwire")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_directory_that_others_can_reach_is_not_used() {
    let directory = write_pipeline();
    let shared = directory.path().join("seekwire");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
    let mut running = Running::start(directory.path(), &["-q"]);
    running.pass(b"x");
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 0);
    assert_eq!(flow(directory.path(), &["top", "--once"]).status.code(), Some(1));
    assert!(running.end().0.success());
}

#[test]
fn what_answers_with_something_else_is_no_pipeline() {
    let directory = write_pipeline();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let answer = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]").unwrap();
    });
    let output = flow(directory.path(), &["top", "--once", &address]);
    answer.join().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is not the status of a pipeline"), "{output:?}");
    let output = flow(directory.path(), &["top", "count.toml"]);
    assert!(text(&output.stderr).contains("neither HOST:PORT nor"), "{output:?}");
}

/// The events of a trace, after checking that those of each track are nested and in order.
fn events(trace: &Path) -> Vec<Value> {
    let trace = fs::read(trace).unwrap();
    let mut trace: Value = serde_json::from_slice(&trace).expect("the trace is JSON");
    let Value::Array(events) = trace["traceEvents"].take() else { panic!("there are no events") };
    let mut tracks: BTreeMap<u64, (f64, u32)> = BTreeMap::new();
    for event in &events {
        let phase = event["ph"].as_str().unwrap();
        if !matches!(phase, "B" | "E") {
            assert!(matches!(phase, "M" | "C" | "i"), "{event}");
            continue;
        }
        let (last, open) = tracks.entry(event["tid"].as_u64().unwrap()).or_default();
        let at = event["ts"].as_f64().unwrap();
        assert!(at >= *last, "{event}");
        *last = at;
        *open = if phase == "B" { *open + 1 } else { open.checked_sub(1).unwrap() };
    }
    assert!(tracks.values().all(|(_, open)| *open == 0), "{tracks:?}");
    events
}

fn sum(events: &[Value], track: u64, argument: &str) -> u64 {
    let process = |event: &&Value| event["name"] == "process" && event["tid"] == track;
    events.iter().filter(process).map(|event| event["args"][argument].as_u64().unwrap()).sum()
}

#[test]
fn a_trace_has_every_block() {
    let directory = write_pipeline();
    let mut running = Running::start(directory.path(), &["-q", "--trace", "trace.json"]);
    for _ in 0..5 {
        running.pass(&[b'x'; 100_000]);
    }
    let status = running.get("/status").1;
    let status: Value = serde_json::from_str(&status).unwrap();
    assert!(running.end().0.success());
    let events = events(&directory.path().join("trace.json"));
    let names: Vec<_> = events.iter().filter(|event| event["name"] == "thread_name").collect();
    let names: Vec<_> = names.iter().map(|event| event["args"]["name"].as_str()).collect();
    assert_eq!(names, ["read 0", "pass 0", "pass 1", "print 0"].map(Some));
    for (at, copy) in status["copies"].as_array().unwrap().iter().enumerate() {
        let track = at as u64 + 1;
        assert_eq!(sum(&events, track, "bytes"), copy["bytes"].as_u64().unwrap(), "{copy}");
        let blocks = events.iter().filter(|it| it["name"] == "process" && it["tid"] == track);
        assert_eq!(blocks.count() as u64, copy["blocks"].as_u64().unwrap(), "{copy}");
    }
    assert_eq!(sum(&events, 4, "bytes"), 500_000);
    let held = events.iter().filter(|event| event["ph"] == "C");
    let held: Vec<_> = held.filter(|event| event["name"] == "read.out -> pass.in").collect();
    assert!(held.iter().all(|event| event["args"]["held"].as_u64().unwrap() <= 1 << 20));
    assert!(held.len() > 1, "{held:?}");
}

#[test]
fn a_trace_is_whole_where_the_pipeline_is_not() {
    let directory = write_pipeline();
    let trace = directory.path().join("trace.json");
    for signal in ["-INT", "-TERM"] {
        let mut running = Running::start(directory.path(), &["--trace", "trace.json"]);
        running.pass(&[b'x'; 100_000]);
        assert!(running.kill(signal).signal().is_some());
        assert_eq!(sum(&events(&trace), 4, "bytes"), 100_000);
    }
    let failing = PIPELINE
        .replace("run = \"burn\"\nnanoseconds-per-byte = 1\ncopies = 2", "run = \"gunzip\"");
    fs::write(directory.path().join("pass.toml"), failing).unwrap();
    let mut running = Running::start(directory.path(), &["--trace", "trace.json"]);
    running.input.as_mut().unwrap().write_all(b"no gzip at all").unwrap();
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert_eq!(sum(&events(&trace), 2, "bytes"), 14);
}

#[test]
fn where_a_trace_cannot_be_written_the_pipeline_goes_on() {
    let directory = write_pipeline();
    let mut running = Running::start(directory.path(), &["-q", "--trace", "/dev/full"]);
    running.pass(&[b'x'; 100_000]);
    let (status, said) = running.end();
    assert!(status.success(), "{said}");
    let begin = "seekwire: cannot write the trace /dev/full: No space left on device";
    assert!(said.starts_with(begin) && said.lines().count() == 1, "{said}");
    let output = flow(directory.path(), &["run", "pass.toml", "--trace", "none/trace"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot write the trace none/trace: No such file"));
}

/// Runs in a terminal of script(1).
fn in_terminal(directory: &Path, line: &str) -> Child {
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", line, "/dev/null"]).current_dir(directory);
    script.env("XDG_RUNTIME_DIR", directory).env("TERM", "xterm");
    script.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Reads the output of a terminal until it contains `expected`.
fn read_until(terminal: &mut impl Read, expected: &str) -> String {
    let mut shown = Vec::new();
    while !text(&shown).contains(expected) {
        let mut more = [0; 4096];
        let count = terminal.read(&mut more).unwrap();
        assert!(count > 0, "{}", text(&shown));
        shown.extend_from_slice(&more[..count]);
    }
    text(&shown)
}

#[test]
fn a_terminal_shows_the_pipeline_and_the_data_stay_alone() {
    let directory = write_pipeline();
    assert!(Command::new("mkfifo").arg(directory.path().join("in")).status().unwrap().success());
    let program = env!("CARGO_BIN_EXE_seekwire-flow");
    let line = format!("{program} flow run pass.toml <in >out");
    let mut process = in_terminal(directory.path(), &line);
    let mut input = fs::OpenOptions::new().write(true).open(directory.path().join("in")).unwrap();
    let mut terminal = process.stdout.take().unwrap();
    input.write_all(&[b'x'; 100_000]).unwrap();
    let view = read_until(&mut terminal, "pass.out -> print.in");
    assert!(view.contains("pass.toml, process ") && view.contains("starved"), "{view}");
    let mut other = in_terminal(directory.path(), &format!("{program} flow top"));
    let mut shown = other.stdout.take().unwrap();
    let view = read_until(&mut shown, "print.in");
    assert!(view.contains("bottleneck") || view.contains("No filter"), "{view}");
    drop(input);
    let rest = text(&std::io::read_to_string(&mut terminal).unwrap().into_bytes());
    // The view is gone, and the final table has replaced it.
    assert!(rest.contains("\u{1b}[J") && rest.contains("held"), "{rest}");
    assert!(process.wait().unwrap().success());
    assert_eq!(fs::read(directory.path().join("out")).unwrap(), [b'x'; 100_000]);
    read_until(&mut shown, "The pipeline has ended.");
    assert!(other.wait().unwrap().success());
}

/// Silent connections keep no other client out, however many they are.
#[test]
fn silent_connections_do_not_keep_others_from_being_answered() {
    let directory = write_pipeline();
    let mut running = Running::start(directory.path(), &["-q"]);
    let silent: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(&running.address).unwrap()).collect();
    running.pass(b"line\n");
    let mut asking = TcpStream::connect(&running.address).unwrap();
    asking.write_all(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut answer = String::new();
    asking.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\nok\n"), "{answer}");
    // The oldest connections have made room; the newest ones are still open.
    let is_ended = |connection: &TcpStream| {
        connection.set_nonblocking(true).unwrap();
        !matches!((&*connection).read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    assert!(silent[..100].iter().all(is_ended));
    running.input = None;
    assert!(running.process.wait().unwrap().success());
}

#[test]
fn rejected_blocks_are_counted_while_it_runs() {
    let directory = write_pipeline();
    let decode = "run = \"decode-image\"\non_error = \"skip\"";
    let pipeline = PIPELINE.replace("run = \"burn\"\nnanoseconds-per-byte = 1", decode);
    fs::write(directory.path().join("pass.toml"), pipeline).unwrap();
    let mut running = Running::start(directory.path(), &["-q"]);
    running.input.as_mut().unwrap().write_all(b"no image").unwrap();
    let mut line = String::new();
    running.errors.read_line(&mut line).unwrap();
    assert!(line.contains(", block 0 (standard input): "), "{line}");
    let (_, metrics) = running.get("/metrics");
    let counts =
        metrics.lines().filter(|line| line.starts_with("seekwire_flow_copy_rejected_total{"));
    let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    assert_eq!(counts.sum::<u64>(), 1, "{metrics}");
    let top = flow(directory.path(), &["top", "--json", &running.pid()]);
    let top: Value = serde_json::from_slice(&top.stdout).unwrap();
    assert!(top.to_string().contains("\"rejected\":1"), "{top}");
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(3));
    assert_eq!(said, "seekwire: filter pass has rejected 1\n");
}
