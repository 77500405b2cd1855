//! Pipelines in several processes: `seekwire flow run` as launchers start it, with processes that
//! are killed, stopped or cut off.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, Signal, kill_process};

/// Processes of one job, which find each other through files.
struct Group {
    directory: tempfile::TempDir,
    processes: Vec<Child>,
}

static JOBS: AtomicUsize = AtomicUsize::new(0);

fn program() -> &'static str {
    env!("CARGO_BIN_EXE_seekwire-flow")
}

impl Group {
    /// Starts `size` processes that run this pipeline with these arguments.
    fn start(size: usize, pipeline: &str, arguments: &[&str]) -> Self {
        Self::start_each(size, pipeline, |_| arguments)
    }

    /// The same, each with arguments of its own, by rank.
    fn start_each<'a>(
        size: usize,
        pipeline: &str,
        arguments: impl Fn(usize) -> &'a [&'a str],
    ) -> Self {
        Self::start_to(size, pipeline, arguments, |_| Stdio::piped())
    }

    /// The same, each with a standard output of its own.
    fn start_to<'a>(
        size: usize,
        pipeline: &str,
        arguments: impl Fn(usize) -> &'a [&'a str],
        output: impl Fn(usize) -> Stdio,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pipeline.toml");
        let here = directory.path().to_str().unwrap();
        fs::write(&file, pipeline.replace("@", here)).unwrap();
        let job = JOBS.fetch_add(1, Ordering::Relaxed);
        let start = |rank: usize| {
            let is_patient = arguments(rank).contains(&"--patience");
            let patience: &[&str] = if is_patient { &[] } else { &["--patience", "5"] };
            let directory = directory.path().join("meet");
            fs::create_dir_all(&directory).unwrap();
            Command::new(program())
                .args(["flow", "run"])
                .args(patience)
                .arg(&file)
                .args(arguments(rank))
                .env("SEEKWIRE_FLOW_RENDEZVOUS", &directory)
                .env("SEEKWIRE_FLOW_RANK", rank.to_string())
                .env("SEEKWIRE_FLOW_SIZE", size.to_string())
                .env("SEEKWIRE_FLOW_JOB", job.to_string())
                .env("SEEKWIRE_FLOW_LIMIT", "60")
                .env("SEEKWIRE_FLOW_ROLE", if rank == 0 { "" } else { "worker" })
                .stdin(Stdio::null())
                .stdout(output(rank))
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let processes = (0..size).map(start).collect();
        Self { directory, processes }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn signal(&self, rank: usize, signal: Signal) {
        let pid = Pid::from_child(&self.processes[rank]);
        // A process that has exited is not reaped yet, so its id is still valid.
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end of all processes. Returns their output.
    fn end(mut self) -> (Vec<Output>, tempfile::TempDir) {
        let processes = std::mem::take(&mut self.processes);
        let outputs = processes.into_iter().map(|child| child.wait_with_output().unwrap());
        (outputs.collect(), self.directory)
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until the file has that many bytes, which shows how far the pipeline has come.
fn has_grown(path: &Path, bytes: u64, group: &mut Group) {
    loop {
        // While this process is not running, the file may become complete and the process end.
        let has_ended = group.processes[0].try_wait().unwrap().is_some();
        if fs::metadata(path).map_or(0, |metadata| metadata.len()) >= bytes {
            break;
        }
        assert!(!has_ended, "it has ended before");
        std::thread::yield_now();
    }
}

/// Numbered lines. Copies of `burn` pass parts of them on, and they come back in order.
const CHAIN: &str = "
[filter.read]
run = \"read\"
path = \"@/input\"
[filter.burn]
run = \"burn\"
nanoseconds-per-byte = 20
role = \"worker\"
copies = 2
idempotent = true
[filter.write]
run = \"write\"
path = \"@/output\"
[[stream]]
from = \"read\"
to = \"burn\"
block = \"2KiB\"
limit = \"256KiB\"
[[stream]]
from = \"burn\"
to = \"write\"
ordered = true
limit = \"256KiB\"
";

fn input(bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(bytes as u64);
    (0..bytes).map(|_| random.u8(..)).collect()
}

fn start_chain(size: usize, pipeline: &str, bytes: usize) -> (Group, Vec<u8>) {
    // The input exists before any process looks for it: the pipeline names a directory of its own.
    let directory = tempfile::tempdir().unwrap();
    let data = input(bytes);
    fs::write(directory.path().join("input"), &data).unwrap();
    let kept = directory.keep();
    let pipeline = pipeline.replace("@/", &format!("{}/", kept.display()));
    let mut group = Group::start(size, &pipeline, &["--quiet"]);
    // It is removed with the others.
    let link = group.path("place");
    std::os::unix::fs::symlink(&kept, link).unwrap();
    group.processes.shrink_to_fit();
    (group, data)
}

#[test]
fn a_pipeline_in_several_processes_gives_the_same() {
    let (group, data) = start_chain(3, CHAIN, 1 << 20);
    let directory = fs::read_link(group.path("place")).unwrap();
    let (outputs, _directory) = group.end();
    for (rank, output) in outputs.iter().enumerate() {
        assert!(output.status.success(), "rank {rank}: {}", stderr(output));
    }
    assert!(fs::read(directory.join("output")).unwrap() == data);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn killed_workers_are_made_good_for_at_any_moment() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut noticed = 0;
    for round in 0..150 {
        let (mut group, data) = start_chain(4, CHAIN, 200_000);
        let directory = fs::read_link(group.path("place")).unwrap();
        let output = directory.join("output");
        // One or two of three workers, the second when the pipeline has come further.
        let mut workers = [1, 2, 3];
        random.shuffle(&mut workers);
        let mut moments = [random.u64(1..180_000), random.u64(1..180_000)];
        moments.sort_unstable();
        let killed = random.usize(1..=2);
        for (worker, moment) in workers.into_iter().zip(moments).take(killed) {
            has_grown(&output, moment, &mut group);
            group.signal(worker, Signal::KILL);
        }
        let (outputs, _directory) = group.end();
        let said = stderr(&outputs[0]);
        let all: Vec<String> = outputs.iter().map(stderr).collect();
        if all.iter().any(|said| said.contains(" was not reached within ")) {
            // It was killed before another worker had connected to it, which then gives up.
            fs::remove_dir_all(directory).unwrap();
            continue;
        }
        assert!(outputs[0].status.success(), "round {round}: {all:#?}");
        assert!(fs::read(output).unwrap() == data, "round {round}: {said}");
        // A process that is killed after all is done is not missed.
        let is_named = |worker: &&usize| said.contains(&format!("rank {worker} on "));
        noticed += workers[..killed].iter().filter(is_named).count();
        for worker in &workers[killed..] {
            let output = &outputs[*worker];
            assert!(output.status.success(), "round {round}: {}", stderr(output));
        }
        fs::remove_dir_all(directory).unwrap();
    }
    assert!(noticed >= 75, "{noticed} of those that were killed were missed");
}

#[test]
fn a_killed_process_that_is_needed_ends_the_unit_everywhere() {
    let plain = CHAIN.replace("idempotent = true\n", "");
    for (rank, pipeline) in [(0, CHAIN), (1, &plain[..]), (2, &plain[..])] {
        let (mut group, _) = start_chain(3, pipeline, 10_000_000);
        let directory = fs::read_link(group.path("place")).unwrap();
        has_grown(&directory.join("output"), 50_000, &mut group);
        group.signal(rank, Signal::KILL);
        let (outputs, _directory) = group.end();
        assert!(outputs.iter().all(|output| !output.status.success()), "{outputs:?}");
        let teller = if rank == 0 { 1 } else { 0 };
        let said = stderr(&outputs[teller]);
        assert!(
            said.contains(&format!("rank {rank} on ")) && said.contains("was lost: "),
            "{said}"
        );
        fs::remove_dir_all(directory).unwrap();
    }
}

#[test]
fn a_stopped_process_is_given_up_after_the_patience() {
    let (mut group, data) = start_chain(3, CHAIN, 400_000);
    let directory = fs::read_link(group.path("place")).unwrap();
    has_grown(&directory.join("output"), 20_000, &mut group);
    group.signal(1, Signal::STOP);
    let stopped = group.processes.remove(1);
    let (outputs, _directory) = group.end();
    let said = stderr(&outputs[0]);
    assert!(outputs[0].status.success(), "{said}");
    assert!(said.contains("rank 1 on ") && said.contains("has said nothing for 5 s"), "{said}");
    assert!(fs::read(directory.join("output")).unwrap() == data);
    // When it continues, it learns that nobody waits for it.
    kill_process(Pid::from_child(&stopped), Signal::CONT).unwrap();
    let output = stopped.wait_with_output().unwrap();
    assert!(!output.status.success());
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn what_is_wrong_is_said_once() {
    let pipeline = CHAIN.replace("role = \"worker\"", "role = \"wroker\"");
    let (outputs, _directory) = Group::start(3, &pipeline, &[]).end();
    let said: Vec<String> = outputs.iter().map(stderr).collect();
    assert!(said[0].contains("no process has the role wroker"), "{said:?}");
    assert!(said[0].contains("pipeline.toml:8"), "{said:?}");
    assert_eq!(said[1..], ["", ""]);
    assert!(outputs.iter().all(|output| output.status.code() == Some(1)));
}

/// The launcher may end all processes as soon as one has ended, so the first of them reports the
/// error.
#[test]
fn a_file_that_is_no_pipeline_everybody_names() {
    let pipeline = CHAIN.replacen("to = \"", "to = \"none-", 1);
    let (outputs, _directory) = Group::start(3, &pipeline, &[]).end();
    let said: Vec<String> = outputs.iter().map(stderr).collect();
    assert!(said.iter().all(|said| said.contains("no filter called none-")), "{said:?}");
    for rank in 1..3 {
        let start = format!("seekwire: rank {rank}: ");
        assert!(said[rank].starts_with(&start) && said[rank].lines().count() == 1, "{said:?}");
    }
    assert!(outputs.iter().all(|output| output.status.code() == Some(1)));
}

#[test]
fn processes_wait_no_longer_than_the_limit_for_one_that_was_not_started() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("pipeline.toml"), CHAIN).unwrap();
    let mut command = Command::new(program());
    command.args(["flow", "run", "--meet-within", "1", "pipeline.toml"]);
    command.current_dir(directory.path());
    command.env("SEEKWIRE_FLOW_RENDEZVOUS", directory.path()).env("SEEKWIRE_FLOW_LIMIT", "100");
    command.env("SEEKWIRE_FLOW_RANK", "0").env("SEEKWIRE_FLOW_SIZE", "2");
    let output = command.output().unwrap();
    let said = stderr(&output);
    assert!(said.contains("waited 1 s for rank 1 to come to exchange 1"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_the_system_says_is_said_once() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("pipeline.toml"), CHAIN).unwrap();
    let mut command = Command::new(program());
    command.args(["flow", "run", "pipeline.toml"]).current_dir(directory.path());
    command.env("SEEKWIRE_FLOW_RENDEZVOUS", directory.path().join("none"));
    command.env("SEEKWIRE_FLOW_RANK", "0").env("SEEKWIRE_FLOW_SIZE", "2");
    let said = stderr(&command.output().unwrap());
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
}

#[test]
fn a_program_that_may_keep_what_it_reads_is_not_idempotent() {
    let run = "run = \"exec\"\ncommand = [\"cat\"]";
    let pipeline = CHAIN.replace("run = \"burn\"\nnanoseconds-per-byte = 20", run);
    let (outputs, _directory) = Group::start(1, &pipeline, &[]).end();
    let said = stderr(&outputs[0]);
    assert!(said.contains("filter burn cannot be idempotent"), "{said}");
    assert!(said.contains("pipeline.toml:10:"), "{said}");
}

#[test]
fn files_that_differ_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let start = |rank: usize| {
        let name = format!("pipeline{rank}.toml");
        fs::write(directory.path().join(&name), format!("# {rank}\n{CHAIN}")).unwrap();
        let mut command = Command::new(program());
        command.args(["flow", "run", "--role", "worker", &name]).current_dir(directory.path());
        command.env("SEEKWIRE_FLOW_RENDEZVOUS", directory.path());
        command.env("SEEKWIRE_FLOW_RANK", rank.to_string()).env("SEEKWIRE_FLOW_SIZE", "2");
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let outputs = [0, 1].map(start).map(|child| child.wait_with_output().unwrap());
    let said: Vec<String> = outputs.iter().map(stderr).collect();
    let is_named = |said: &String| said.contains("is not the same as that of rank");
    assert!(said.iter().any(is_named), "{said:?}");
    assert!(outputs.iter().all(|output| output.status.code() == Some(1)));
}

/// They would wait for longer than a test may take.
#[test]
fn nobody_waits_for_one_that_has_failed_before_all_have_met() {
    let long = ["--meet-within", "100000"];
    let wrong = ["--meet-within", "100000", "--trace", "none/trace"];
    let arguments = |rank| if rank == 2 { &wrong[..] } else { &long };
    let (outputs, _directory) = Group::start_each(3, CHAIN, arguments).end();
    let said: Vec<String> = outputs.iter().map(stderr).collect();
    assert!(said[2].contains("none/trace.2"), "{said:?}");
    for said in &said[..2] {
        assert!(said.contains("the job was ended by rank "), "{said:?}");
        assert!(said.contains(": it left without finishing"), "{said:?}");
    }
    assert!(outputs.iter().all(|output| output.status.code() == Some(1)));
}

#[test]
fn a_full_disk_elsewhere_is_named() {
    let pipeline = "
[filter.read]
run = \"read\"
path = \"/dev/zero\"
[filter.write]
run = \"write\"
path = \"/dev/full\"
ranks = [1]
[[stream]]
from = \"read\"
to = \"write\"
";
    let (outputs, _directory) = Group::start(2, pipeline, &[]).end();
    let said = stderr(&outputs[0]);
    assert!(said.contains("filter write, copy 0 on ") && said.contains("No space left"), "{said}");
    assert_eq!(outputs[0].status.code(), Some(1));
    assert!(stdout(&outputs[0]).is_empty());
    assert!(outputs[1].status.success(), "{}", stderr(&outputs[1]));
}

/// A reader and a writer in two processes.
const APART: &str = "
[filter.read]
run = \"read\"
[filter.write]
run = \"write\"
role = \"worker\"
[[stream]]
from = \"read\"
to = \"write\"
";

/// A process does not read a file that another one writes.
#[test]
fn what_another_process_writes_is_not_read() {
    let content = "line\n".repeat(100_000);
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().to_str().unwrap();
    fs::create_dir(directory.path().join("below")).unwrap();
    let files = ["own", "below/own", "below/other"].map(|name| directory.path().join(name));
    let reset = || files.iter().for_each(|file| fs::write(file, &content).unwrap());
    let link = directory.path().join("link");
    reset();
    fs::hard_link(&files[0], &link).unwrap();
    let to =
        |path: &str| APART.replace("\"worker\"", &format!("\"worker\"\npath = \"{here}/{path}\""));
    let tree = |pipeline: &str| pipeline.replace("\"read\"\n[", "\"read\"\nfiles = [\"*\"]\n[");
    let [own, below] = ["own", "below"].map(|name| format!("{here}/{name}"));
    for (pipeline, unit, appends, is_refused) in [
        (APART.to_owned(), &own, Some(&link), true),
        (tree(APART), &below, Some(&files[1]), true),
        (to("own"), &own, None, true),
        (to("{name}"), &own, None, true),
        (tree(&to("below/own")), &below, None, true),
        (to("other"), &own, None, false),
        (APART.to_owned(), &own, Some(&files[1]), false),
    ] {
        reset();
        let output = |rank: usize| match appends {
            Some(file) if rank == 1 => fs::File::options().append(true).open(file).unwrap().into(),
            _ => Stdio::piped(),
        };
        let arguments = ["-q", unit];
        let group = Group::start_to(2, &pipeline, |_| &arguments, output);
        let (outputs, _directory) = group.end();
        let said = stderr(&outputs[0]);
        assert_eq!(outputs[0].status.success(), !is_refused, "{pipeline}{said}");
        if is_refused {
            assert!(said.contains(" another "), "{said}");
            for file in &files {
                // The first file of a tree is written before the reader comes to the second one.
                let length = fs::metadata(file).unwrap().len() as usize;
                assert!((content.len()..=2 * content.len()).contains(&length), "{said}: {length}");
                assert!(fs::read_to_string(file).unwrap().starts_with(&content), "{said}");
            }
        }
    }
}

#[test]
fn what_another_process_writes_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("in"), "line\n".repeat(100_000)).unwrap();
    fs::create_dir(path("below")).unwrap();
    std::os::unix::fs::symlink("../to", path("below/link")).unwrap();
    for (to, is_refused) in [("to", true), ("below/link", true), ("other", false)] {
        let both = format!(
            "{}path = \"{}\"\n[filter.also]\nrun = \"write\"\npath = \"{}\"\n\
             [[stream]]\nfrom = \"read\"\nto = \"also\"\n\
             [[stream]]\nfrom = \"read\"\nto = \"write\"\n",
            APART.split("[[stream]]").next().unwrap(),
            path("to"),
            path(to)
        );
        let input = path("in");
        let (outputs, _directory) = Group::start(2, &both, &["-q", &input]).end();
        let said = stderr(&outputs[0]);
        assert_eq!(outputs[0].status.success(), !is_refused, "{to}: {said}");
        if is_refused {
            assert!(said.contains("another process also writes it"), "{said}");
        }
    }
}

/// Every process knows the file of a block, if it is known at all.
#[test]
fn an_error_in_another_process_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in
        [("a.pgm", "P5 1 1 255\nx"), ("b.pgm", "no image"), ("c.pgm", "nor this")]
    {
        fs::write(directory.path().join(name), content).unwrap();
    }
    let here = directory.path().to_str().unwrap();
    let pipeline = |on_error: &str| {
        format!(
            "[filter.read]\nrun = \"read\"\nfiles = [\"*.pgm\"]\nwhole = true\n\
             [filter.pass]\nrun = \"burn\"\nnanoseconds-per-byte = 0\nranks = [1]\n\
             [filter.decode]\nrun = \"decode-image\"\nranks = [2]\n{on_error}\n\
             [filter.write]\nrun = \"write\"\n\
             [[stream]]\nfrom = \"read\"\nto = \"pass\"\n\
             [[stream]]\nfrom = \"pass\"\nto = \"decode\"\n\
             [[stream]]\nfrom = \"decode\"\nto = \"write\"\n"
        )
    };
    let (outputs, _directory) = Group::start(3, &pipeline(""), &["-q", here]).end();
    let said = stderr(&outputs[0]);
    assert!(!outputs[0].status.success());
    assert!(said.contains(&format!(", block 1 ({here}/b.pgm): ")), "{said}");
    let skip = pipeline("on_error = \"skip\"");
    let (outputs, _directory) = Group::start(3, &skip, &["-q", here]).end();
    let said = stderr(&outputs[0]);
    assert_eq!(outputs[0].status.code(), Some(3), "{said}");
    assert!(said.contains("filter decode has rejected 2\n"), "{said}");
    let said = stderr(&outputs[2]);
    for (block, name) in [(1, "b"), (2, "c")] {
        assert!(said.contains(&format!(", block {block} ({here}/{name}.pgm): ")), "{said}");
    }
}

#[test]
fn rejections_of_a_process_that_is_killed_count() {
    let directory = tempfile::tempdir().unwrap();
    let images = directory.path().join("images");
    fs::create_dir(&images).unwrap();
    // Both workers have some of the bad images.
    let bad = 20;
    for at in 0..400 {
        let image = match at < bad {
            true => b"no image".to_vec(),
            false => [b"P5 64 64 255\n", &[b'x'; 64 * 64][..]].concat(),
        };
        fs::write(images.join(format!("{at:03}")), image).unwrap();
    }
    let output = directory.path().join("output");
    let pipeline = format!(
        "[filter.read]\nrun = \"read\"\nfiles = [\"*\"]\nwhole = true\n\
         [filter.decode]\nrun = \"decode-image\"\nrole = \"worker\"\nidempotent = true\n\
         on_error = \"skip\"\n\
         [filter.write]\nrun = \"write\"\npath = \"{}\"\n\
         [[stream]]\nfrom = \"read\"\nto = \"decode\"\nlimit = \"64KiB\"\n\
         [[stream]]\nfrom = \"decode\"\nto = \"write\"\nordered = true\n",
        output.display()
    );
    let mut group = Group::start(3, &pipeline, &["-q", images.to_str().unwrap()]);
    has_grown(&output, 2_000_000, &mut group);
    group.signal(1, Signal::KILL);
    let (outputs, _directory) = group.end();
    let said = stderr(&outputs[0]);
    assert_eq!(outputs[0].status.code(), Some(3), "{said}");
    let count = said.split("filter decode has rejected ").nth(1).unwrap();
    // A block that both had counts twice.
    assert!(count.trim_end().parse::<usize>().unwrap() >= bad, "{said}");
}
