//! Pipelines under real launchers, on one host and on two: network namespaces, between which a
//! cable can be pulled. The tests follow flow/docs/cluster.md step by step. If this process may not
//! create such namespaces, a test reports that and does nothing.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use crate::cluster::{Bed, Outcome, Shell, Slurm, directory, installed, on_far};
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::{Pid, Signal, kill_process};
use seekwire_testbed::TestHost;
use tempfile::TempDir;

/// A directory that all hosts share, with the program, a pipeline and its input.
struct TestDirectory {
    directory: TempDir,
    errors: usize,
}

impl TestDirectory {
    /// With the pipeline of the document, and a log of some megabytes.
    fn new() -> Self {
        let directory = directory();
        let log = log(1 << 20);
        let mut file = File::create(directory.path().join("app.log.gz")).unwrap();
        let packed = gzipped(&log);
        (0..MEMBERS).for_each(|_| file.write_all(&packed).unwrap());
        fs::write(directory.path().join("count.toml"), &blocks("toml")[0]).unwrap();
        fs::create_dir(directory.path().join("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_seekwire-flow"), directory.path().join("bin/seekwire"))
            .unwrap();
        let counted = shell(directory.path(), "zcat app.log.gz | grep -c ERROR");
        let errors = counted.trim().parse().unwrap();
        assert!(errors > 1000, "{errors}");
        Self { directory, errors }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn search_path(&self) -> String {
        format!("{}:{}", self.path("bin"), std::env::var("PATH").unwrap())
    }

    /// Checks that the result is that of the shell, and that the copies of grep ran at these
    /// workers: `host (rank)`.
    fn check(&self, outcome: &Outcome, workers: &[&str]) {
        assert_eq!(outcome.code, Some(0), "{outcome:#?}");
        assert_eq!(outcome.output.trim(), self.errors.to_string(), "{outcome:#?}");
        check_workers(&outcome.errors, workers);
    }
}

const MEMBERS: usize = 16;

/// Checks in the final table that grep ran on each of these workers, and nowhere else.
fn check_workers(table: &str, workers: &[&str]) {
    let mut worked = Vec::new();
    let rows = table.lines().filter_map(|line| line.trim().strip_prefix("grep "));
    for row in rows {
        let (worker, numbers) = row.split_once(')').unwrap();
        let worker = format!("{})", worker.split_once(" on ").unwrap().1);
        assert!(workers.contains(&&*worker), "{worker}: {table}");
        let blocks: Vec<&str> = numbers.split('%').next_back().unwrap().split(' ').collect();
        let blocks = blocks.iter().find(|word| !word.is_empty()).unwrap();
        if *blocks != "0" {
            worked.push(worker);
        }
    }
    for worker in workers {
        assert!(worked.iter().any(|other| other == worker), "{worker}: {table}");
    }
}

/// Lines, some of them with errors, up to that many bytes.
fn log(bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(bytes as u64);
    let mut log = Vec::new();
    loop {
        let level = ["DEBUG", "INFO", "INFO", "WARNING", "ERROR"][random.usize(..5)];
        let line = format!(
            "{:012} {level} request {:08x} took {} ms\n",
            log.len(),
            random.u32(..),
            random.u16(..)
        );
        if log.len() + line.len() > bytes {
            return log;
        }
        log.extend(line.bytes());
    }
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn shell(directory: &Path, command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).current_dir(directory).output().unwrap();
    assert!(output.stderr.is_empty(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The blocks of code of a language in flow/docs/cluster.md.
fn blocks(language: &str) -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cluster.md");
    let page = fs::read_to_string(page).unwrap();
    let start = format!("```{language}\n");
    let blocks = page.split(&start).skip(1);
    let blocks: Vec<String> =
        blocks.map(|rest| rest.split_once("```").unwrap().0.to_owned()).collect();
    assert!(!blocks.is_empty(), "{language}");
    blocks
}

fn outcome(child: Child) -> Outcome {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Outcome { code: status.code(), output: text(stdout), errors: text(stderr) }
}

/// Bytes that an interface of that end has received and sent.
fn traffic(end: &TestHost, interface: &str) -> [u64; 2] {
    let text = end.run(|| fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
    let mut lines = text.lines().filter_map(|line| line.trim().split_once(':'));
    let (_, numbers) = lines.find(|(name, _)| *name == interface).unwrap();
    let numbers: Vec<u64> = numbers.split_whitespace().map(|word| word.parse().unwrap()).collect();
    [numbers[0], numbers[8]]
}

/// Slow enough to be interrupted in the middle.
const IDEMPOTENT: &str = "
[filter.read]
run = \"read\"
path = \"@/data\"
[filter.burn]
run = \"burn\"
nanoseconds-per-byte = 500
role = \"worker\"
idempotent = true
[filter.write]
run = \"write\"
path = \"@/output\"
[[stream]]
from = \"read\"
to = \"burn\"
block = \"4KiB\"
[[stream]]
from = \"burn\"
to = \"write\"
ordered = true
";

/// Kills rank 1 of three in the middle; rank 2 takes over its work. The launcher's status may be
/// that of the killed process.
fn check_that_others_go_on(bed: &Bed, launcher: &[&str], variables: &[(&str, &str)]) {
    let test = TestDirectory::new();
    let pipeline = IDEMPOTENT.replace("@", test.directory.path().to_str().unwrap());
    fs::write(test.path("pipeline.toml"), pipeline).unwrap();
    let data = log(4_000_000);
    fs::write(test.path("data"), &data).unwrap();
    let script = "
        rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
        echo $$ >\"$1/pid-$rank\"
        [ $rank = 0 ] || export SEEKWIRE_FLOW_ROLE=worker
        exec \"$1/bin/seekwire\" flow run --quiet \"$1/pipeline.toml\"";
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "60"]).args(launcher).args(["sh", "-c", script, "sh"]);
    command.arg(test.directory.path()).envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = bed.near().spawn(&mut command).unwrap();
    while fs::metadata(test.path("output")).map_or(0, |output| output.len()) < 100_000 {
        assert!(child.try_wait().unwrap().is_none(), "it has ended before");
        thread::yield_now();
    }
    let pid = fs::read_to_string(test.path("pid-1")).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let outcome = outcome(child);
    assert!(outcome.errors.contains("other copies do its work"), "{outcome:#?}");
    assert!(outcome.errors.contains("rank 1 on "), "{outcome:#?}");
    assert!(!matches!(outcome.code, None | Some(124)), "{outcome:#?}");
    assert!(fs::read(test.path("output")).unwrap() == data, "{outcome:#?}");
}

fn here() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

mod hydra {
    use super::*;

    #[test]
    fn the_coordinator_and_workers_of_one_host() {
        let Some(bed) = Bed::new() else { return };
        installed("mpiexec.hydra");
        let test = TestDirectory::new();
        let (seekwire, pipeline) = (test.path("bin/seekwire"), test.path("count.toml"));
        let log = test.path("app.log.gz");
        let run = [&seekwire, "flow", "run"];
        let worker = ["--role", "worker"];
        let units = [&*pipeline, &log];
        let hydra = ["mpiexec.hydra", "-iface", bed.near().interface(), "-n", "1"];
        let command = [&hydra, &run[..], &units, &[":", "-n", "2"], &run, &worker, &units].concat();
        let workers = [1, 2].map(|rank| format!("{} ({rank})", here()));
        test.check(&bed.run(&command, &[]), &workers.each_ref().map(String::as_str));
    }

    /// Three in a row: from the first to the second, on one host, blocks go by shared memory, and
    /// from the second to the third, on another host, by TCP.
    const ROW: &str = "
[filter.read]
run = \"read\"
[filter.pass]
run = \"exec\"
command = [\"cat\"]
ranks = [1]
[filter.sum]
run = \"count\"
ranks = [2]
[filter.print]
run = \"write\"
[[stream]]
from = \"read\"
to = \"pass\"
[[stream]]
from = \"pass\"
to = \"sum\"
[[stream]]
from = \"sum\"
to = \"print\"
";

    #[test]
    fn blocks_go_by_shared_memory_on_a_host_and_by_tcp_between_hosts() {
        let Some(bed) = Bed::new() else { return };
        installed("mpiexec.hydra");
        let shell = Shell::new(&bed);
        let test = TestDirectory::new();
        fs::write(test.path("row.toml"), ROW).unwrap();
        let data = log(8_000_000);
        fs::write(test.path("data"), &data).unwrap();
        let hosts = format!("{}:2,{}:1", bed.near().address(), bed.far().address());
        let (seekwire, pipeline) = (test.path("bin/seekwire"), test.path("row.toml"));
        let data_path = test.path("data");
        let hydra = ["mpiexec.hydra", "-iface", bed.near().interface(), "-launcher", "rsh"];
        let options = ["-launcher-exec", &shell.script, "-hosts", &hosts, "-n", "3"];
        let run = [&*seekwire, "flow", "run", &pipeline, &data_path];
        let outcome = bed.run(&[&hydra, &options[..], &run].concat(), &[]);
        assert_eq!(outcome.code, Some(0), "{outcome:#?}");
        let counted = format!(" {} bytes", data.len());
        assert!(outcome.output.trim().ends_with(&counted), "{outcome:#?}");
        let table: Vec<String> = outcome.errors.lines().map(words).collect();
        for row in [
            format!("read 0 on {} (0) ", here()),
            format!("pass 0 on {} (1) ", here()),
            "sum 0 on far (2) ".to_owned(),
        ] {
            assert!(table.iter().any(|line| line.starts_with(&row)), "{row}: {outcome:#?}");
        }
        let [_, across] = traffic(bed.near(), bed.near().interface());
        let [within, _] = traffic(bed.near(), "lo");
        let bytes = data.len() as u64;
        assert!(across >= bytes, "{across} bytes went to the other host: {outcome:#?}");
        assert!(within < bytes / 4, "{within} bytes went by TCP within the host: {outcome:#?}");
    }
}

/// With one space between words.
fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

mod open_mpi {
    use super::*;

    #[test]
    fn the_coordinator_and_workers_of_one_host() {
        let Some(bed) = Bed::new() else { return };
        installed("mpirun.openmpi");
        let test = TestDirectory::new();
        let (seekwire, pipeline) = (test.path("bin/seekwire"), test.path("count.toml"));
        let log = test.path("app.log.gz");
        let session = directory();
        let run = [&seekwire, "flow", "run"];
        let worker = ["--role", "worker"];
        let units = [&*pipeline, &log];
        let mpirun = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "1"];
        let command = [&mpirun, &run[..], &units, &[":", "-n", "2"], &run, &worker, &units];
        let variables = [("TMPDIR", session.path().to_str().unwrap())];
        let workers = [1, 2].map(|rank| format!("{} ({rank})", here()));
        let outcome = bed.run(&command.concat(), &variables);
        test.check(&outcome, &workers.each_ref().map(String::as_str));
    }

    #[test]
    fn a_killed_worker_is_made_good_for() {
        let Some(bed) = Bed::new() else { return };
        installed("mpirun.openmpi");
        let session = directory();
        let variables = [("TMPDIR", session.path().to_str().unwrap())];
        let command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"];
        let options = ["--enable-recovery", "-n", "3"];
        check_that_others_go_on(&bed, &[&command[..], &options].concat(), &variables);
    }
}

mod slurm {
    use super::*;

    /// A single test, because the nodes take long to start.
    #[test]
    fn two_nodes_by_srun_and_by_the_scripts_of_the_document() {
        let Some(bed) = Bed::new() else { return };
        installed("sbatch");
        let slurm = Slurm::start(&bed);
        let test = TestDirectory::new();
        let path = test.search_path();
        let (pipeline, log) = (test.path("count.toml"), test.path("app.log.gz"));
        let srun = ["srun", "-N2", "-n2", "--mpi=pmi2"];
        let command = [&srun[..], &["seekwire", "flow", "run", &pipeline, &log]].concat();
        let variables = [("PATH", &*path), ("SEEKWIRE_FLOW_ROLE", "worker")];
        test.check(&slurm.run(&bed, &command, &variables), &["one (0)", "two (1)"]);

        let scripts = blocks("sh");
        let scripts: Vec<_> = scripts.iter().filter(|block| block.starts_with("#!")).collect();
        let both = &["one (0)", "two (1)"][..];
        let workers = [both, &["two (1)"], both];
        assert_eq!(scripts.len(), workers.len());
        for (script, workers) in scripts.into_iter().zip(workers) {
            let file = test.path("script");
            fs::write(&file, script).unwrap();
            let (output, errors) = (test.path("output"), test.path("errors"));
            let here = test.path("");
            let options = ["--chdir", &here, "--output", &output, "--error", &errors, &file];
            let mut outcome = slurm.batch(&bed, &options, &[("PATH", &path)]);
            outcome.output = fs::read_to_string(output).unwrap_or_default();
            outcome.errors += &fs::read_to_string(errors).unwrap_or_default();
            test.check(&outcome, workers);
        }

        let srun = ["srun", "-N2", "-n3", "--overcommit", "--mpi=pmi2", "--kill-on-bad-exit=0"];
        let configuration = slurm.configuration();
        check_that_others_go_on(&bed, &srun, &[("SLURM_CONF", &configuration)]);
    }
}

mod by_hand {
    use super::*;

    /// Processes of one job that only this test has started.
    struct Job {
        test: TestDirectory,
        size: usize,
    }

    impl Job {
        fn new(pipeline: &str, size: usize) -> Self {
            let test = TestDirectory::new();
            let pipeline = pipeline.replace("@", test.directory.path().to_str().unwrap());
            fs::write(test.path("pipeline.toml"), pipeline).unwrap();
            fs::create_dir(test.path("meet")).unwrap();
            Self { test, size }
        }

        fn start(&self, end: &TestHost, rank: usize, is_far: bool) -> Child {
            let program = self.test.path("bin/seekwire");
            let mut command = if is_far { on_far(&program) } else { Command::new(&program) };
            command.args(["flow", "run", "--quiet", "--patience", "5"]);
            command.arg(self.test.path("pipeline.toml"));
            command.env("SEEKWIRE_FLOW_RENDEZVOUS", self.test.path("meet"));
            command.env("SEEKWIRE_FLOW_RANK", rank.to_string());
            command.env("SEEKWIRE_FLOW_SIZE", self.size.to_string());
            command.env("SEEKWIRE_FLOW_ROLE", if rank == 0 { "" } else { "worker" });
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            end.spawn(&mut command).unwrap()
        }
    }

    fn pull_the_cable(bed: &Bed) {
        let outcome = bed.run(&["ip", "link", "set", bed.near().interface(), "down"], &[]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    }

    /// Waits until the pipeline has come this far.
    fn has_come(far: bool, bed: &Bed, bytes: u64, coordinator: &mut Child) {
        while traffic(bed.near(), bed.near().interface())[usize::from(far)] < bytes {
            assert!(coordinator.try_wait().unwrap().is_none(), "it has ended before");
            thread::yield_now();
        }
    }

    const ENDLESS: &str = "
[filter.read]
run = \"read\"
path = \"/dev/zero\"
[filter.drop]
run = \"write\"
path = \"/dev/null\"
ranks = [1]
[[stream]]
from = \"read\"
to = \"drop\"
";

    #[test]
    fn a_cable_that_is_pulled_ends_the_unit_at_both_ends() {
        let Some(bed) = Bed::new() else { return };
        let job = Job::new(ENDLESS, 2);
        let mut coordinator = job.start(bed.near(), 0, false);
        let far = job.start(bed.far(), 1, true);
        has_come(true, &bed, 10_000_000, &mut coordinator);
        pull_the_cable(&bed);
        let [coordinator, far] = [coordinator, far].map(outcome);
        let silent = "has said nothing for 5 s: it was stopped, or the link is cut";
        for (end, lost) in [(&coordinator, "rank 1 on far was lost: "), (&far, "was lost: ")] {
            assert_eq!(end.code, Some(1), "{end:#?}");
            assert!(end.errors.contains(lost) && end.errors.contains(silent), "{end:#?}");
        }
        assert!(far.errors.contains(&format!("rank 0 on {} was lost: ", here())), "{far:#?}");
    }

    #[test]
    fn behind_a_pulled_cable_nobody_is_missed_whose_work_others_can_do() {
        let Some(bed) = Bed::new() else { return };
        let job = Job::new(IDEMPOTENT, 3);
        let data = log(4_000_000);
        fs::write(job.test.path("data"), &data).unwrap();
        let mut coordinator = job.start(bed.near(), 0, false);
        let near = job.start(bed.near(), 1, false);
        let far = job.start(bed.far(), 2, true);
        has_come(false, &bed, 200_000, &mut coordinator);
        pull_the_cable(&bed);
        let [coordinator, near, far] = [coordinator, near, far].map(outcome);
        assert_eq!(coordinator.code, Some(0), "{coordinator:#?}");
        assert!(coordinator.errors.contains("rank 2 on far was lost: "), "{coordinator:#?}");
        assert!(coordinator.errors.contains("other copies do its work"), "{coordinator:#?}");
        assert!(fs::read(job.test.path("output")).unwrap() == data, "{coordinator:#?}");
        assert_eq!(near.code, Some(0), "{near:#?}");
        assert_eq!(far.code, Some(1), "{far:#?}");
    }

    /// Runs what a pod would run, with the variables of Kubernetes, on two hosts.
    #[test]
    fn the_container_of_the_document() {
        let Some(bed) = Bed::new() else { return };
        let test = TestDirectory::new();
        let manifest = &blocks("yaml")[0];
        let script = manifest.split_once("- |\n").unwrap().1;
        let is_deeper = |line: &&str| line.starts_with(&" ".repeat(14));
        let script: Vec<&str> = script.lines().take_while(is_deeper).map(str::trim).collect();
        let script = script.join("\n").replace("/shared", test.directory.path().to_str().unwrap());
        assert!(script.contains("exec seekwire flow run"), "{script}");
        let start = |(end, rank): (&TestHost, usize)| {
            let mut command = if rank == 2 { on_far("sh") } else { Command::new("sh") };
            command.args(["-c", &script]).env("PATH", test.search_path());
            command.env("JOB_COMPLETION_INDEX", rank.to_string());
            command.env("SEEKWIRE_FLOW_SIZE", "3").env("SEEKWIRE_FLOW_JOB", "4b2c-uid");
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            end.spawn(&mut command).unwrap()
        };
        let processes = [(bed.near(), 0), (bed.near(), 1), (bed.far(), 2)].map(start);
        let [coordinator, near, far] = processes.map(outcome);
        test.check(&coordinator, &[&format!("{} (1)", here()), "far (2)"]);
        assert_eq!((near.code, far.code), (Some(0), Some(0)), "{near:#?} {far:#?}");
    }
}

/// Each message in the document is a message of the program.
#[test]
fn the_messages_of_the_document_are_those_of_the_program() {
    let mut sources = String::new();
    let mut directories = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources += &fs::read_to_string(path).unwrap();
            }
        }
    }
    let mut parts = sources.split("\\\n");
    let first = parts.next().unwrap().to_owned();
    let sources = parts.fold(first, |all, part| all + part.trim_start());
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cluster.md");
    let page = fs::read_to_string(page).unwrap();
    let table = page.split_once("## Troubleshooting").unwrap().1;
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let messages: Vec<&str> = rows.map(|row| row.split_once('`').unwrap().0).collect();
    assert!(messages.len() > 10);
    for message in messages {
        for part in message.split("...").filter(|part| part.len() > 2) {
            assert!(sources.contains(part.trim()), "{part}, of `{message}`");
        }
    }
}

/// A large log in a realistic form: many members of a compressed file, one after the other. Two
/// processes on one host.
mod a_large_log {
    use super::*;

    /// Many times the capacity of streams and pipes, in hundreds of members.
    const BYTES: usize = 1 << 28;

    fn run(unpack: &str, packed: &[u8], member: usize, answer: impl FnOnce(&Path) -> String) {
        let directory = directory();
        let pipeline = blocks("toml")[0].replace("gunzip", unpack);
        fs::write(directory.path().join("count.toml"), pipeline).unwrap();
        let mut file = File::create(directory.path().join("app.log")).unwrap();
        (0..BYTES.div_ceil(member)).for_each(|_| file.write_all(packed).unwrap());
        fs::create_dir(directory.path().join("meet")).unwrap();
        let start = |rank: usize| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_seekwire-flow"));
            command.args(["flow", "run", "count.toml", "app.log"]).current_dir(directory.path());
            command.env("SEEKWIRE_FLOW_RENDEZVOUS", directory.path().join("meet"));
            command.env("SEEKWIRE_FLOW_RANK", rank.to_string()).env("SEEKWIRE_FLOW_SIZE", "2");
            command.env("SEEKWIRE_FLOW_ROLE", if rank == 0 { "" } else { "worker" });
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let [coordinator, worker] = [0, 1].map(start).map(outcome);
        assert_eq!(coordinator.code, Some(0), "{coordinator:#?}");
        assert_eq!(worker.code, Some(0), "{worker:#?}");
        assert_eq!(coordinator.output, answer(directory.path()), "{coordinator:#?}");
        check_workers(&coordinator.errors, &[&format!("{} (1)", here())]);
    }

    #[test]
    fn of_gzip() {
        let log = log(1 << 19);
        let answer = |directory: &Path| shell(directory, "zcat <app.log | grep -c ERROR");
        run("gunzip", &gzipped(&log), log.len(), answer);
    }

    #[test]
    fn of_zstandard() {
        let log = log(1 << 19);
        let packed = zstd::encode_all(&log[..], 1).unwrap();
        // Some shells cannot unpack it. Each member has the same lines.
        let answer = |directory: &Path| {
            fs::write(directory.join("member"), &log).unwrap();
            let errors: usize = shell(directory, "grep -c ERROR member").trim().parse().unwrap();
            format!("{}\n", errors * BYTES.div_ceil(log.len()))
        };
        run("unzstd", &packed, log.len(), answer);
    }
}
