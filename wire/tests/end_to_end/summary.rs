//! The summary of `seekwire run`, and the command that waits for its program to print it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use nix::libc::SIGRTMIN;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use seekwire_transport::sys::signal;

use crate::harness::{Finished, Mode, Stage, python, seekwire, source};

/// A program under `seekwire run --summary`.
fn summed_up(stage: &Stage, program: &str, arguments: &[&str]) -> Command {
    let mut command = stage.plain_command(seekwire());
    command
        .env("SEEKWIRE_DIR", stage.path("registry"))
        .env("SEEKWIRE_STATS", stage.path("stats"))
        .args(["run", "--summary", "--", program])
        .args(arguments);
    command
}

fn shell(stage: &Stage, script: &str) -> Finished {
    stage.run(&mut summed_up(stage, "sh", &["-c", script]))
}

/// A client of an echo server that `serve` starts.
fn client(stage: &Stage, serve: &mut Command) -> Finished {
    let (server, port) = stage.serve_printing_port(serve);
    let python = python();
    let script = source("echo_client.py");
    let words = [&python, &script].map(|path| path.to_str().expect("text"));
    let mut command = summed_up(stage, words[0], &[words[1], "127.0.0.1", &port]);
    let finished = stage.run(&mut command);
    server.finish().success();
    finished
}

#[test]
fn what_an_accelerated_program_gained_is_summed_up() {
    let stage = Stage::new(Mode::Accelerated);
    let finished = client(&stage, &mut stage.script("echo_server.py", &["epoll"]));
    let said = &finished.stderr;
    assert!(said.contains(": 1 connection, ") && said.contains("through shared memory"), "{said}");
    let row = |carrier: &str| {
        let line = said.lines().find(|line| line.trim_start().starts_with(carrier));
        line.unwrap_or_else(|| panic!("no row for {carrier}: {said}")).to_owned()
    };
    assert!(row("ring").contains("MiB"), "{said}");
    assert_eq!(row("tcp").split_whitespace().nth(1), Some("0"), "{said}");
    assert!(!said.contains("Why TCP"), "{said}");
    assert_eq!(finished.success(), "8000000\n");
    // The user's own counters are written as well.
    assert!(stage.stats().ring() > 0);
}

#[test]
fn a_plain_peer_is_named_with_the_next_step() {
    let stage = Stage::new(Mode::Accelerated);
    let finished = client(&stage, &mut stage.plain_script("echo_server.py", &["epoll"]));
    let said = finished.stderr.clone();
    assert!(said.contains("1 connection, nothing went through shared memory"), "{said}");
    assert!(said.contains("\nWhy TCP: 1 peer not found.\n"), "{said}");
    assert!(said.contains("start the other end under `seekwire run`"), "{said}");
    assert!(said.contains("`seekwire reasons`"), "{said}");
    finished.success();
}

#[test]
fn children_count_and_standard_output_is_left_alone() {
    let stage = Stage::new(Mode::Accelerated);
    let (server, port) = stage.serve_printing_port(&mut stage.script("echo_server.py", &["epoll"]));
    let [python, script] = [python(), source("echo_client.py")];
    let one = format!("{} {} 127.0.0.1 {port} --bytes 200000", python.display(), script.display());
    let finished = shell(&stage, &format!("{one}; {one} --connections 2; cat"));
    server.finish().success();
    assert!(finished.stderr.contains("sh: 3 connections, "), "{}", finished.stderr);
    assert_eq!(finished.success(), "200000\n400000\n");
}

#[test]
fn the_program_ends_the_command_as_itself() {
    let stage = Stage::new(Mode::Accelerated);
    let finished = shell(&stage, "exit 7");
    assert_eq!(finished.status.code(), Some(7));
    let none = "seekwire: sh: no TCP connections through the C library\n";
    assert_eq!(finished.stderr, none);
    for signal in [Signal::KILL, Signal::SEGV, Signal::PIPE, Signal::TERM, Signal::USR1] {
        let finished = shell(&stage, &format!("kill -{} $$", signal.as_raw()));
        assert_eq!(finished.status.signal(), Some(signal.as_raw()), "{}", finished.stderr);
        assert!(finished.stderr.contains("wrote no counters"), "{}", finished.stderr);
    }
    // The shell runs a script without a `#!` line, as it does without a summary.
    let script = stage.path("script");
    fs::write(&script, "exit $1\n").expect("room for a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("an own file");
    let finished = stage.run(&mut summed_up(&stage, script.to_str().expect("text"), &["6"]));
    assert_eq!(finished.status.code(), Some(6), "{}", finished.stderr);
    let missing = stage.run(&mut summed_up(&stage, "no-such-program", &[]));
    assert_eq!(missing.status.code(), Some(127));
}

#[test]
fn a_summary_that_cannot_be_had_is_missed_aloud() {
    let stage = Stage::new(Mode::Accelerated);
    let run = summed_up(&stage, "true", &[]);
    let mut command = stage.plain_command("env");
    command.args(["--ignore-signal=CHLD"]).arg(run.get_program()).args(run.get_args());
    let finished = stage.run(&mut command);
    assert_eq!(finished.status.code(), Some(0));
    assert!(finished.stderr.contains("no summary: SIGCHLD is ignored"), "{}", finished.stderr);
}

#[test]
fn in_a_container_the_status_says_which_signal_has_ended_the_program() {
    let stage = Stage::new(Mode::Accelerated);
    let run = summed_up(&stage, "sh", &["-c", "kill -TERM $$"]);
    let mut command = stage.plain_command("unshare");
    command.args(["--pid", "--fork"]).arg(run.get_program()).args(run.get_args());
    let finished = stage.run(&mut command);
    assert_eq!(finished.status.code(), Some(128 + Signal::TERM.as_raw()), "{}", finished.stderr);
}

#[test]
fn a_killed_child_is_said_to_have_no_counters() {
    let stage = Stage::new(Mode::Accelerated);
    let (server, port) = stage.serve_printing_port(&mut stage.script("echo_server.py", &["epoll"]));
    let [python, script] = [python(), source("steps.py")];
    let steps = format!("{} {} connect 127.0.0.1 {port}", python.display(), script.display());
    // The child reads its commands from this shell's standard input.
    let script = format!("exec 3<&0; {steps} <&3 & echo $!; wait $!; exit 0");
    let mut program = stage.start(&mut summed_up(&stage, "sh", &["-c", &script]));
    let child = program.line();
    for _ in 0..50 {
        assert_eq!(program.ask("send 1000"), "ok");
        assert_eq!(program.ask("recv 1000"), "ok");
    }
    let pid = Pid::from_raw(child.parse().expect("a number")).expect("a process");
    rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
    let finished = program.finish();
    let expected = format!("Process {child} has ended without writing its counters");
    assert!(finished.stderr.contains(&expected), "{}", finished.stderr);
    finished.success();
    server.finish();
}

#[test]
fn signals_reach_the_program() {
    let stage = Stage::new(Mode::Accelerated);
    // Blocked until they are waited for: none comes too early.
    let script = "\
import signal, sys
all = {signal.SIGUSR1, signal.SIGTERM, signal.SIGRTMIN + 3}
signal.pthread_sigmask(signal.SIG_BLOCK, all)
print('ready', flush=True)
print(signal.sigwait(all).name, flush=True)
print(signal.sigwait(all) - signal.SIGRTMIN, flush=True)
print(signal.sigwait(all).name, flush=True)
sys.exit(3)";
    let python = python();
    let python = python.to_str().expect("text");
    let mut program = stage.start(&mut summed_up(&stage, python, &["-c", script]));
    assert_eq!(program.line(), "ready");
    program.signal(Signal::USR1);
    assert_eq!(program.line(), "SIGUSR1");
    let pid = Pid::from_raw(program.pid() as i32).expect("a process");
    signal::send(pid, SIGRTMIN() + 3).expect("it runs");
    assert_eq!(program.line(), "3");
    let finished = program.stop(Signal::TERM);
    assert_eq!(finished.status.code(), Some(3));
    assert_eq!(finished.stdout, "SIGTERM\n");
}

#[test]
fn a_program_that_stops_stops_the_command() {
    let stage = Stage::new(Mode::Accelerated);
    let script = "echo ready; kill -STOP $$; echo again; exit 5";
    let mut program = stage.start(&mut summed_up(&stage, "sh", &["-c", script]));
    assert_eq!(program.line(), "ready");
    let pid = Pid::from_raw(program.pid() as i32).expect("a process");
    let stopped = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("a child");
    let signal = stopped.and_then(|stopped| stopped.stopping_signal());
    assert_eq!(signal, Some(Signal::STOP.as_raw()));
    program.signal(Signal::CONT);
    assert_eq!(program.line(), "again");
    assert_eq!(program.finish().status.code(), Some(5));
}

/// `seekwire run` at a terminal.
fn at_terminal(stage: &Stage, answers: &str, words: &[&str]) -> String {
    let mut command = stage.plain_command(python());
    command.env("SEEKWIRE_DIR", stage.path("registry"));
    command.arg(source("terminal.py")).arg(answers).arg(seekwire()).arg("run").args(words);
    stage.run(&mut command).success()
}

#[test]
fn the_end_of_a_terminal_ends_the_program_that_it_was_opened_for() {
    let stage = Stage::new(Mode::Accelerated);
    let script = "echo ready; exec sleep 1000";
    let said = at_terminal(&stage, r#"[["ready", null]]"#, &["sh", "-c", script]);
    assert!(said.ends_with("ended: -1\n"), "{said}");
}

#[test]
fn at_a_terminal_the_summary_is_the_default_and_keys_reach_the_program_once() {
    let stage = Stage::new(Mode::Accelerated);
    let python = python();
    let terminal = |answers: &str, words: &[&str]| at_terminal(&stage, answers, words);
    // Blocked until it is waited for: it comes neither too early, nor to a child before its exec.
    let script = "\
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
print('ready', flush=True)
signal.sigwait({signal.SIGINT})
print('interrupted', flush=True)
print(input(), len(signal.sigpending()))
sys.exit(4)";
    let answers = r#"[["ready", "\u0003"], ["interrupted", "end\n"]]"#;
    let said = terminal(answers, &[python.to_str().expect("text"), "-c", script]);
    assert!(said.contains("end 0\n"), "{said}");
    assert!(said.contains(": no TCP connections"), "{said}");
    assert!(said.ends_with("ended: 4\n"), "{said}");
    for words in [&["--no-summary", "true"][..], &["--off", "true"]] {
        let said = terminal("[]", words);
        assert!(!said.contains("seekwire: true:"), "{said}");
    }
    // One summary is enough.
    let inner = format!("{} run true; true", seekwire().display());
    let said = terminal("[]", &["sh", "-c", &inner]);
    assert_eq!(said.matches("no TCP connections").count(), 1, "{said}");
}

#[test]
fn without_a_summary_the_command_becomes_the_program() {
    let stage = Stage::new(Mode::Accelerated);
    let mut program = stage.start(stage.accelerated_command("sh").args(["-c", "echo $$; env"]));
    assert_eq!(program.line(), program.pid().to_string());
    let environment = program.finish().success();
    assert!(!environment.contains("SEEKWIRE_SUMMARY"), "{environment}");
}
