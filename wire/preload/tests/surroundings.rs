//! A program in a constrained environment, plain and accelerated: short of resources, within
//! limits, under tools that watch it. It ends as it does plain, and the log names the reason if it
//! stays on TCP.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{compile, library, output};

/// An empty directory for a test.
fn emptied(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("surroundings").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Runs `command` plain and accelerated, and compares. Returns the log of the accelerated run.
fn log_of(name: &str, command: &dyn Fn() -> Command) -> String {
    let mut plain = command();
    plain.env_remove("LD_PRELOAD");
    let plain = output(plain);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(plain.status.success(), "{name}, plain: {}\n{}", plain.status, text(&plain.stderr));
    let mut accelerated = command();
    accelerated.env("SEEKWIRE_LOG", "stderr:debug").env("LD_PRELOAD", library());
    let accelerated = output(accelerated);
    let log = text(&accelerated.stderr);
    assert_eq!(accelerated.status, plain.status, "{name}: {log}");
    assert_eq!(text(&accelerated.stdout), text(&plain.stdout), "{name}: {log}");
    log
}

/// Number of ends that came to the ring.
fn attached(log: &str) -> usize {
    log.matches(": attached after").count()
}

/// Runs a shell's commands, then `program`.
fn shell(script: &str, program: &Path, directory: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", &format!("{script}\nexec \"$0\"")]).arg(program);
    command.env("SEEKWIRE_DIR", directory.join("registry"));
    command
}

#[test]
fn a_limit_on_the_size_of_files_keeps_connections_on_tcp() {
    for blocks in ["0", "1", "64", "6000"] {
        let name = format!("file-size-{blocks}");
        let directory = emptied(&name);
        let program = compile("exchange", &directory, &[]);
        let log = log_of(&name, &|| shell(&format!("ulimit -f {blocks}"), &program, &directory));
        assert_eq!(attached(&log), 0, "{log}");
        assert!(log.contains("stays on TCP: no shared memory"), "{name}: {log}");
        assert!(log.contains("ulimit -v, -f"), "{name}: {log}");
    }
}

#[test]
fn the_entry_of_a_connection_is_given_back_when_it_is_closed() {
    let directory = emptied("registry_entries");
    let program = compile("registry_entries", &directory, &[]);
    let log = log_of("registry_entries", &|| shell("", &program, &directory));
    assert_eq!(attached(&log), 0, "{log}");
}

#[test]
fn without_proc_it_is_that_which_is_missing() {
    let directory = emptied("no-proc");
    let program = compile("exchange", &directory, &[]);
    let log = log_of("no-proc", &|| {
        let mut command = Command::new("unshare");
        // Without privileges, a user namespace provides them.
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let script = "mount -t tmpfs tmpfs /proc; exec \"$0\"";
        command.args(["--mount", "sh", "-ec", script]).arg(&program);
        command.env("SEEKWIRE_DIR", directory.join("registry"));
        command
    });
    // The shell started with /proc, the program without.
    assert!(log.contains("/proc/self/status cannot be read"), "{log}");
    assert!(!log.contains("are filtered (seccomp)"), "{log}");
    assert_eq!(attached(&log), 0, "{log}");
}

/// If real-time processes are not allowed, the test is skipped.
#[test]
fn who_must_sleep_now_and_then_does_not_wait_awake() {
    let directory = emptied("realtime");
    let program = compile("realtime", &directory, &[]);
    let command = || shell("", &program, &directory);
    let mut plain = command();
    plain.env_remove("LD_PRELOAD");
    if output(plain).status.code() == Some(77) {
        eprintln!("skipped: real-time processes need CAP_SYS_NICE");
        return;
    }
    let log = log_of("realtime", &command);
    assert_eq!(attached(&log), 2, "{log}");
}

#[test]
fn who_runs_out_of_address_space_does_not_blame_the_peer() {
    let directory = emptied("address-space");
    let program = compile("exchange", &directory, &[]);
    let mut attaches = false;
    // From the needs of the program itself to those of two ends.
    for kib in (12_000..60_000).step_by(1_000) {
        let limited = || shell(&format!("ulimit -v {kib}"), &program, &directory);
        let mut plain = limited();
        plain.env("LD_PRELOAD", library()).env("SEEKWIRE", "off");
        if !output(plain).status.success() {
            continue;
        }
        let log = log_of(&format!("{kib} KiB"), &limited);
        assert!(!log.contains("violated"), "{kib} KiB: {log}");
        attaches = attached(&log) == 2;
        assert!(attaches || log.contains("stays on TCP"), "{kib} KiB: {log}");
        if attaches {
            break;
        }
    }
    assert!(attaches, "no tried limit was enough");
}

#[test]
fn a_full_file_system_of_the_default_directory_keeps_connections_on_tcp() {
    let directory = emptied("full");
    let program = compile("exchange", &directory, &[]);
    let full = |size: &str, then: &str| {
        let mut command = Command::new("unshare");
        let script = format!("mount -t tmpfs -o size={size} tmpfs /dev/shm; {then} exec \"$0\"");
        // Without privileges, a user namespace provides them.
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "sh", "-ec", &script]).arg(&program);
        command
    };
    let fill = "head -c 1M /dev/zero >/dev/shm/fill 2>/dev/null || true;";
    let log = log_of("full", &|| full("64k", fill));
    assert_eq!(attached(&log), 0, "{log}");
    assert!(log.contains("stays on TCP: no shared memory"), "{log}");
    assert!(log.contains("No space left on device"), "{log}");
    let log = log_of("roomy", &|| full("64m", ""));
    assert_eq!(attached(&log), 2, "{log}");
}

/// All of its tools partly stand in for the kernel, and none has its vDSO.
fn under_valgrind(tool: &str) {
    let directory = emptied(tool);
    let program = compile("exchange", &directory, &["-g"]);
    let log = log_of(tool, &|| {
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--error-exitcode=99", &format!("--tool={tool}")]);
        if tool == "callgrind" {
            command.arg("--callgrind-out-file=/dev/null");
        }
        command.arg(&program).env("SEEKWIRE_DIR", directory.join("registry"));
        command
    });
    assert_eq!(attached(&log), 2, "{log}");
    assert!(!log.contains("unhandled"), "{log}");
}

#[test]
fn valgrind_finds_no_error_in_memory() {
    under_valgrind("memcheck");
}

#[test]
fn tools_of_valgrind_do_not_end_the_program() {
    for tool in ["none", "callgrind"] {
        under_valgrind(tool);
    }
}

/// These tools do not support atomics in memory that two processes share.
#[test]
fn valgrind_finds_no_race() {
    for tool in ["helgrind", "drd"] {
        under_valgrind(tool);
    }
}

/// Runs `seccomp` with these arguments, and optionally a program that it becomes.
fn filtered(program: &Path, arguments: &[&str], becomes: Option<&Path>) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).args(becomes);
    command.env("SEEKWIRE_DIR", program.with_file_name("registry"));
    command
}

#[test]
fn a_program_that_forbids_itself_system_calls_makes_no_others() {
    let directory = emptied("seccomp");
    let program = compile("seccomp", &directory, &[]);
    let mut all = Vec::new();
    for list in ["least", "systemd", "session", "before-login"] {
        for action in ["kill", "kill-thread", "trap", "errno"] {
            all.push([list, action, "prctl"]);
        }
    }
    all.extend([["least", "kill", "seccomp"], ["least", "kill", "prctl-number"]]);
    for arguments in all {
        let name = arguments.join("-");
        let log = log_of(&name, &|| filtered(&program, &arguments, None));
        assert_eq!(attached(&log), 6, "{name}: {log}");
        assert!(log.contains("the program filters system calls"), "{name}: {log}");
        assert!(!log.contains("ERROR"), "{name}: {log}");
    }
}

#[test]
fn a_filter_for_all_threads_meets_none_of_them_in_the_library() {
    let directory = emptied("seccomp_asleep");
    let program = compile("seccomp_asleep", &directory, &[]);
    for action in ["kill", "errno"] {
        let log = log_of(action, &|| filtered(&program, &[action], None));
        assert_eq!(attached(&log), 56, "{action}: {log}");
        assert!(log.contains("the program filters system calls"), "{action}: {log}");
        assert!(!log.contains("did not leave the library in time"), "{action}: {log}");
    }
}

/// The additional restrictions of prctl(2) on x86-64.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_program_that_forbids_calls_from_elsewhere_or_the_clock_meets_neither() {
    let directory = emptied("prctl_restrictions");
    let program = compile("prctl_restrictions", &directory, &[]);
    for argument in ["calls", "clock"] {
        let log = log_of(argument, &|| filtered(&program, &[argument], None));
        assert_eq!(attached(&log), 2, "{argument}: {log}");
        assert!(log.contains("the program filters system calls"), "{argument}: {log}");
    }
}

#[test]
fn a_filter_that_lets_the_library_through_changes_nothing() {
    let directory = emptied("harmless");
    let program = compile("seccomp", &directory, &[]);
    let arguments = ["harmless", "kill", "seccomp"];
    let log = log_of("harmless", &|| filtered(&program, &arguments, None));
    assert_eq!(attached(&log), 6, "{log}");
    assert!(log.contains("allows all calls that the library needs"), "{log}");
}

/// The library tries its calls in a process of its own, which the filter may end.
#[test]
fn under_a_filter_that_was_there_before_the_library_tries_its_calls() {
    let directory = emptied("inherited");
    let program = compile("seccomp", &directory, &[]);
    let exchange = compile("exchange", &directory, &[]);
    for action in ["kill", "kill-thread", "trap", "errno"] {
        let under = |list: &str| {
            let arguments = [list, action, "prctl"];
            log_of(&arguments.join("-"), &|| filtered(&program, &arguments, Some(&exchange)))
        };
        assert_eq!(attached(&under("harmless")), 2, "{action}");
        let log = under("needed");
        assert_eq!(attached(&log), 0, "{action}: {log}");
        let why = match action {
            "errno" => "blocks ftruncate",
            _ => "ends processes for a call",
        };
        assert!(log.contains("nothing is accelerated") && log.contains(why), "{action}: {log}");
    }
    // A filter that is known to be harmless is not tried.
    let arguments = ["harmless", "kill", "prctl"];
    let log = log_of("known", &|| {
        let mut command = filtered(&program, &arguments, Some(&exchange));
        command.env("SEEKWIRE_SECCOMP", "1");
        command
    });
    assert_eq!(attached(&log), 2, "{log}");
}

/// A program that inherits a connection begins under the same filter, and tries it before it looks
/// for bytes that were left to it.
#[test]
fn under_a_filter_a_program_inherits_all_unread_bytes() {
    let directory = emptied("inherited-unread");
    let program = compile("seccomp", &directory, &[]);
    let inherits = compile("inherit_unread", &directory, &[]);
    let arguments = ["harmless", "kill", "prctl"];
    let log = log_of("inherited-unread", &|| filtered(&program, &arguments, Some(&inherits)));
    assert!(attached(&log) > 0, "{log}");
}
