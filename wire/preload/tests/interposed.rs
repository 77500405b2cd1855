//! C programs that print what they observe, each run plain and in several accelerated modes: the
//! outcome must be the same.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use common::{compile, library, output};

/// A mode to run a program in: variables, and whether bytes must have gone through the ring.
struct Mode {
    name: &'static str,
    accelerated: bool,
    variables: &'static [(&'static str, &'static str)],
}

/// Other test programs run at the same time, with directories beside this one.
const DIRECTORY: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/interposed");

const MODES: [Mode; 5] = [
    Mode { name: "off", accelerated: false, variables: &[("SEEKWIRE", "off")] },
    Mode { name: "ring", accelerated: true, variables: &[] },
    Mode {
        name: "asleep",
        accelerated: true,
        variables: &[("SEEKWIRE_SPIN_US", "0"), ("SEEKWIRE_THRESHOLD", "1")],
    },
    Mode {
        name: "small",
        accelerated: true,
        variables: &[("SEEKWIRE_SEGMENT_SIZE", "4096"), ("SEEKWIRE_SEGMENTS", "8")],
    },
    Mode { name: "fallback", accelerated: true, variables: &[("SEEKWIRE_FALLBACK_AFTER", "100")] },
];

fn command(program: &Path, mode: Option<&Mode>, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("SEEKWIRE_DIR", directory.join("registry")).env_remove("LD_PRELOAD");
    if let Some(mode) = mode {
        command
            .env("LD_PRELOAD", library())
            .env("SEEKWIRE_STATS", directory)
            .envs(mode.variables.iter().copied());
    }
    command
}

fn run(program: &Path, mode: Option<&Mode>, directory: &Path) -> Output {
    output(command(program, mode, directory))
}

/// The counters that processes have written.
fn counters(directory: &Path) -> impl Iterator<Item = String> {
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|kind| kind == "json"))
        .map(|path| fs::read_to_string(path).unwrap())
}

fn says(directory: &Path, words: &str) -> bool {
    counters(directory).any(|text| text.contains(words))
}

/// The sum of a counter over all processes that have written their counters.
fn counted(directory: &Path, counter: &str) -> u64 {
    counters(directory)
        .map(|text| {
            let (_, rest) =
                text.split_once(&format!("\"{counter}\":")).expect("the counter is there");
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().expect("it is a number")
        })
        .sum()
}

fn same_outcome(name: &str) {
    let directory = emptied(name);
    same_outcome_of(name, &compile(name, &directory, &[]), &directory, false);
}

/// An empty directory for a test.
fn emptied(name: &str) -> PathBuf {
    let directory = Path::new(DIRECTORY).join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// `at_once`: in all modes at the same time, for programs that mostly wait.
fn same_outcome_of(name: &str, program: &Path, directory: &Path, at_once: bool) {
    let plain = run(program, None, directory);
    assert!(
        plain.status.success(),
        "{name}, plain: {:?}\n{}",
        plain.status,
        String::from_utf8_lossy(&plain.stdout)
    );
    let failures: Vec<String> = match at_once {
        true => thread::scope(|scope| {
            let tries = MODES
                .each_ref()
                .map(|mode| scope.spawn(|| differences(name, program, mode, directory, &plain)));
            tries.into_iter().flat_map(|tried| tried.join().unwrap()).collect()
        }),
        false => MODES
            .iter()
            .filter_map(|mode| differences(name, program, mode, directory, &plain))
            .collect(),
    };
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The differences of a mode from plain.
fn differences(
    name: &str,
    program: &Path,
    mode: &Mode,
    directory: &Path,
    plain: &Output,
) -> Option<String> {
    let directory = directory.join(mode.name);
    fs::create_dir_all(&directory).unwrap();
    let output = run(program, Some(mode), &directory);
    if output.status != plain.status
        || output.stdout != plain.stdout
        || output.stderr != plain.stderr
    {
        return Some(format!(
            "{name}, {}: {:?}, signal {:?}\n{}{}",
            mode.name,
            output.status,
            output.status.signal(),
            difference(&plain.stdout, &output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let ring = if mode.accelerated { counted(&directory, "tx_ring") } else { 0 };
    println!("{name}, {}: {ring} bytes on the ring", mode.name);
    (mode.accelerated && ring == 0)
        .then(|| format!("{name}, {}: nothing went through the ring", mode.name))
}

/// The first lines that differ.
fn difference(expected: &[u8], found: &[u8]) -> String {
    let (expected, found) = (String::from_utf8_lossy(expected), String::from_utf8_lossy(found));
    let mut lines = expected
        .lines()
        .chain(std::iter::repeat("(nothing)"))
        .zip(found.lines().chain(["(nothing)"]));
    match lines.find(|(expected, found)| expected != found) {
        Some((expected, found)) => format!("  plain:  {expected}\n  now:    {found}\n"),
        None => String::new(),
    }
}

/// A directory below `directory` with the names for linking and for loading programs.
fn linkable(directory: &Path) -> PathBuf {
    let place = directory.join("lib");
    fs::create_dir_all(&place).unwrap();
    for name in ["libseekwire.so", "libseekwire.so.0"] {
        let _ = fs::remove_file(place.join(name));
        symlink(library(), place.join(name)).unwrap();
    }
    place
}

/// The library can also be linked, and then needs no LD_PRELOAD.
#[test]
fn api() {
    let directory = Path::new(DIRECTORY).join("api");
    fs::create_dir_all(&directory).unwrap();
    let place = linkable(&directory);
    let place = place.to_str().expect("a path that is text");
    let program = compile(
        "api",
        &directory,
        &["-Wl,--no-as-needed", "-L", place, "-Wl,-rpath", place, "-lseekwire"],
    );
    let output = run(&program, None, &directory);
    assert!(
        output.status.success(),
        "{:?}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout)
    );
}

/// A library that makes rings with instructions of its own.
#[test]
fn late_uring() {
    let directory = emptied("late_uring");
    let stand_in = compile("liburing", &directory, &["-shared", "-fPIC"]);
    let program =
        compile("late_uring", &directory, &[stand_in.to_str().expect("a path that is text")]);
    same_outcome_of("late_uring", &program, &directory, false);
}

/// A plugin that contains a liburing, and one that depends on one, both unknown to the program.
#[test]
fn a_liburing_that_only_a_plugin_has() {
    let directory = emptied("plugins");
    let text = |path: &Path| path.to_str().expect("a path that is text").to_owned();
    let plugin = |name: &str, arguments: &[&str]| {
        let directory = directory.join(name);
        fs::create_dir_all(&directory).unwrap();
        let shared = ["-shared", "-fPIC"];
        text(&compile("plugin", &directory, &[&shared, arguments].concat()))
    };
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/liburing.c");
    // With a call that returns to the plugin, and with a jump, which leaves no trace of it.
    let inside = plugin("inside", &["-DMARK=1", source, "-fno-optimize-sibling-calls"]);
    let jumps = plugin("jumps", &["-DMARK=3", source, "-foptimize-sibling-calls"]);
    let needed = text(&compile("liburing", &directory, &["-shared", "-fPIC", "-DMARK=2"]));
    let needs = plugin("needs", &[&needed, "-fno-optimize-sibling-calls"]);
    let paths = [("INSIDE", inside), ("NEEDS", needs), ("JUMPS", jumps)];
    let [inside, needs, jumps] = paths.map(|(name, path)| format!("-D{name}=\"{path}\""));
    let program = compile("plugins", &directory, &[&inside, &needs, &jumps, "-ldl"]);
    same_outcome_of("plugins", &program, &directory, false);
}

/// A reader that has the old counters open keeps them whole; one that opens the file finds the new
/// ones.
#[test]
fn counters_are_replaced_at_once() {
    let directory = Path::new(DIRECTORY).join("counters");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let program = compile("signals", &directory, &[]);
    let [named, old, link, behind] =
        ["counters.json", "old", "link", "behind"].map(|name| directory.join(name));
    fs::write(&named, "old").unwrap();
    fs::hard_link(&named, &old).unwrap();
    std::os::unix::fs::symlink(&behind, &link).unwrap();
    for target in [&named, &link] {
        let status = Command::new(&program)
            .env("LD_PRELOAD", library())
            .env("SEEKWIRE_DIR", directory.join("registry"))
            .env("SEEKWIRE_STATS", target)
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
    }
    let version = concat!("{\"version\":\"", env!("CARGO_PKG_VERSION"), "\",");
    assert!(fs::read_to_string(&named).unwrap().starts_with(version));
    assert_eq!(fs::read_to_string(&old).unwrap(), "old");
    assert!(link.is_symlink() && fs::read_to_string(&behind).unwrap().starts_with(version));
    let draft = |path: &PathBuf| path.to_string_lossy().contains("counters.json.");
    let left = fs::read_dir(&directory).unwrap().map(|file| file.unwrap().path()).find(draft);
    assert_eq!(left, None);
}

/// However a process is killed, it never leaves an empty file of counters.
#[test]
fn counters_are_never_empty() {
    let directory = emptied("counters-killed");
    let program = compile("counters", &directory, &[]);
    let counters = directory.join("written");
    fs::create_dir(&counters).unwrap();
    let mut command = Command::new(&program);
    command
        .env_remove("LD_PRELOAD")
        .env("LIBRARY", library())
        .env("SEEKWIRE_DIR", directory.join("registry"))
        .env("SEEKWIRE_STATS", &counters);
    let output = output(command);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {text}", output.status);
    assert_eq!(text, "empty at 0 stops\n");
    assert!(counted(&counters, "tx_ring") > 0);
}

/// The library's own files that may not grow, or that nobody reads, cause no signal to the program.
#[test]
fn limits_on_files_and_a_log_that_nobody_reads_end_no_program() {
    let directory = Path::new(DIRECTORY).join("limits");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let program = compile("half_close", &directory, &[]);
    let plain = run(&program, None, &directory);
    let shell = |script: &str, registry: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("PROGRAM", &program).env("LIBRARY", library());
        command
            .env("SEEKWIRE_DIR", directory.join(registry))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("sh runs");
        drop(child.stderr.take());
        child.wait_with_output().unwrap()
    };
    let limited = "ulimit -f 64; LD_PRELOAD=$LIBRARY exec $PROGRAM";
    let unread = "LD_PRELOAD=$LIBRARY SEEKWIRE_LOG=stderr:debug exec $PROGRAM";
    // Without a registry there can be none; with one there is no shared memory.
    for (script, registry) in [(limited, "none"), (unread, "there"), (limited, "there")] {
        let output = shell(script, registry);
        assert!(output.status.success(), "{script}, {registry}: {}", output.status);
        assert_eq!(output.stdout, plain.stdout, "{script}, {registry}");
    }
}

/// "option or flag" alone does not tell a user which option to do without.
#[test]
fn the_log_names_the_option_that_needs_tcp() {
    let directory = emptied("option-log");
    let program = compile("control_messages", &directory, &[]);
    let log = directory.join("log");
    let mut command = Command::new(&program);
    command
        .env("LD_PRELOAD", library())
        .env("SEEKWIRE_DIR", directory.join("registry"))
        .env("SEEKWIRE_LOG", format!("{}:info", log.display()));
    let output = output(command);
    assert!(output.status.success(), "{}", output.status);
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains(": TCP_ULP needs TCP: "), "{log}");
}

/// Only the library can be interrupted by a handler in the middle of a call.
#[test]
fn a_handler_may_call_what_it_interrupted() {
    let directory = Path::new(DIRECTORY).join("reentry");
    fs::create_dir_all(&directory).unwrap();
    let program = compile("reentry", &directory, &[]);
    for mode in MODES.iter().filter(|mode| mode.accelerated && mode.name != "fallback") {
        let output = run(&program, Some(mode), &directory);
        let text = [output.stdout, output.stderr].concat();
        assert!(
            output.status.success(),
            "{}: {}\n{}",
            mode.name,
            output.status,
            String::from_utf8_lossy(&text)
        );
    }
}

/// Random operations compared with a model.
#[test]
fn epoll_model() {
    let directory = Path::new(DIRECTORY).join("epoll_model");
    fs::create_dir_all(&directory).unwrap();
    let program = compile("epoll_model", &directory, &[]);
    for mode in &MODES {
        let output = run(&program, Some(mode), &directory);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {}\n{text}", mode.name, output.status);
    }
}

/// If both ends send before they read, a full ring is left after 50 ms without progress.
#[test]
fn capacity() {
    let directory = emptied("capacity");
    same_outcome_of("capacity", &compile("capacity", &directory, &[]), &directory, true);
}

/// With a small ring, or after leaving it, TCP sometimes finds more room.
#[test]
fn full_buffers() {
    let directory = emptied("full_buffers");
    let program = compile("full_buffers", &directory, &[]);
    let mut plain = run(&program, None, &directory);
    assert!(plain.status.success(), "{}", String::from_utf8_lossy(&plain.stdout));
    let right = ["variant 0: EAGAIN", "variant 1: EAGAIN", "variant 2: ECONNRESET"];
    for (line, right) in String::from_utf8_lossy(&plain.stdout).lines().zip(right) {
        // TCP may have found room in all attempts.
        assert!(line == right || line.ends_with(": 0"), "{line}");
    }
    plain.stdout = right.map(|line| format!("{line}\n")).concat().into_bytes();
    for mode in MODES.iter().filter(|mode| ["ring", "asleep"].contains(&mode.name)) {
        assert_eq!(differences("full_buffers", &program, mode, &directory, &plain), None);
    }
}

/// If descriptors are few and their limit is fixed, the library takes none, and the counters report
/// it.
#[test]
fn few_descriptors() {
    let directory = emptied("few_descriptors");
    let program = compile("few_descriptors", &directory, &[]);
    let limited = directory.join("limited");
    fs::write(&limited, format!("#!/bin/sh\nulimit -n 40\nexec {}\n", program.display())).unwrap();
    fs::set_permissions(&limited, fs::Permissions::from_mode(0o755)).unwrap();
    let ring = &MODES[1];
    let [plain, accelerated] = [None, Some(ring)].map(|mode| run(&limited, mode, &directory));
    assert!(plain.status.success() && accelerated.status.success());
    assert_eq!(
        String::from_utf8_lossy(&accelerated.stdout),
        String::from_utf8_lossy(&plain.stdout)
    );
    assert!(says(&directory, "\"file descriptor limit\":"));
}

/// Connections whose waits are not seen stay on TCP, and the counters name the reason.
#[test]
fn inline_syscalls() {
    same_outcome("inline_syscalls");
    let said = says(
        &Path::new(DIRECTORY).join("inline_syscalls/ring"),
        "\"waited for outside the C library\":",
    );
    assert!(said, "no connection says that it is waited for outside the C library");
}

/// No call needs more stack than a small program may have left.
#[test]
fn small_stack() {
    let directory = emptied("small_stack");
    // Without optimisation, each function keeps all its values in its frame.
    let more = if cfg!(debug_assertions) { 32 << 10 } else { 0 };
    let program = compile("small_stack", &directory, &[&format!("-DMORE={more}")]);
    same_outcome_of("small_stack", &program, &directory, false);
}

macro_rules! programs {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            same_outcome(stringify!($name));
        }
    )*};
}

#[test]
fn relayed() {
    let directory = emptied("relayed");
    let unaware = compile("relayed", &directory, &["-static"]);
    fs::rename(&unaware, unaware.with_extension("static")).unwrap();
    let program = compile("relayed", &directory, &[]);
    same_outcome_of("relayed", &program, &directory, true);
}

/// Only root sees the descriptors of all processes.
#[test]
fn relays_end_beside_processes_whose_descriptors_are_hidden() {
    const NOBODY: u32 = 65534;
    let directory = emptied("hidden");
    let program = compile("handover_after_end", &directory, &[]);
    let own = directory.join("own");
    fs::create_dir(&own).unwrap();
    if chown(&own, Some(NOBODY), Some(NOBODY)).is_err() {
        // These tests are not run by root.
        return;
    }
    let as_nobody = |mut command: Command| {
        command.uid(NOBODY).gid(NOBODY);
        command
    };
    let mut reads = Command::new("test");
    reads.arg("-r").arg(&program).args(["-a", "-r"]).arg(library());
    if !as_nobody(reads).status().is_ok_and(|status| status.success()) {
        return;
    }
    let plain = output(as_nobody(command(&program, None, &own)));
    assert!(plain.status.success(), "{}", String::from_utf8_lossy(&plain.stdout));
    let hidden = output(as_nobody(command(&program, Some(&MODES[1]), &own)));
    assert_eq!(difference(&plain.stdout, &hidden.stdout), "");
    assert!(hidden.status.success() && counted(&own, "tx_ring") > 0);
}

programs! { receive send close half_close poll poll_many epoll epoll_members signals single_signal fork retransmit paused_receiver blocked_tcp_read threads fallback_causes }
programs! { unseen_close uring signal_handler }
programs! { flags pointers control_messages zerocopy shared_options libc_aliases }
programs! { fork_fails fork_signal fork_ignored }
programs! { fork_exec exec_order shutdown_race peer_killed fd_reuse send_user_timeout clock clone_close_all poll_end_no_room partial_send options idle_user_timeout recvmsg_errors }
programs! { epoll_oneshot epoll_fairness libc_internals cancel other_interfaces handover_idle_peer epoll_nested cork close_ends_send }
programs! { no_memory nofile epoll_shared_by_fork inherit_unread epoll_after_fork handover_after_end close_unsent given_by_child last_holder jobs epoll_two_processes pid_namespaces epoll_across_exec preload_ignored inherit_epoll }
programs! { select_limit pending_signals ignored syscall_waits }
programs! { inherit_held spawn_unstarted splice_together attach_in_send late_fallback silenced }
