//! The command itself: `run` for programs of every kind, `status`, `doctor`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::process::{Command, Stdio};

use seekwire_testbed::{Side, Testbed};
use serde_json::Value;

use crate::harness::{Mode, Stage, library_directory, program, seekwire, source};

#[test]
fn exit_status_is_the_programs() {
    let stage = Stage::new(Mode::Accelerated);
    let status =
        |words: &[&str]| stage.run(Command::new(seekwire()).arg("run").args(words)).status.code();
    assert_eq!(status(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(status(&["--", "true"]), Some(0));
    assert_eq!(status(&["no-such-program-here"]), Some(127));
    assert_eq!(status(&["/"]), Some(126));
    assert_eq!(status(&["--no-such-option", "true"]), Some(2));
    assert_eq!(status(&["--log", "", "true"]), Some(2));
}

/// Also through a program that this command becomes or starts.
#[test]
fn closed_standard_streams_stay_closed() {
    for (words, expected) in [
        ("status >&-", 1),
        ("status >/dev/null", 0),
        ("flow filters >&-", 1),
        ("flow filters 1</dev/null", 1),
        ("flow filters >/dev/null", 0),
        ("nic show lo >&-", 1),
        ("lab list >&-", 1),
        ("run sh -c 'echo text' >&-", 1),
        ("run cat <&-", 1),
        ("run cat </dev/null >&-", 0),
    ] {
        let script = format!("exec {} {words}", seekwire().display());
        let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{words}: {said}");
        assert_eq!(said.is_empty(), expected == 0, "{words}: {said}");
    }
}

#[test]
fn options_of_the_program_are_left_alone() {
    let stage = Stage::new(Mode::Accelerated);
    let output = stage
        .run(Command::new(seekwire()).args(["run", "echo", "--log", "-x", "--", "--help"]))
        .success();
    assert_eq!(output, "--log -x -- --help\n");
}

#[test]
fn options_become_variables() {
    let stage = Stage::new(Mode::Accelerated);
    let mut command = Command::new(seekwire());
    command.args([
        "run",
        "--off",
        "--log",
        "stderr:error",
        "--stats",
        "stats.%p",
        "--spin-us",
        "5",
    ]);
    command.args(["--threshold", "9", "--dir"]).arg(stage.path("registry")).arg("env");
    let output = stage.run(command.current_dir(stage.path(""))).success();
    let absolute = format!("SEEKWIRE_STATS={}", stage.path("stats.%p").display());
    let directory = format!("SEEKWIRE_DIR={}", stage.path("registry").display());
    for setting in [
        "SEEKWIRE=off",
        "SEEKWIRE_LOG=stderr:error",
        "SEEKWIRE_SPIN_US=5us",
        "SEEKWIRE_THRESHOLD=9",
        &absolute,
        &directory,
    ] {
        assert!(output.lines().any(|line| line == setting), "{setting} is not in:\n{output}");
    }
}

#[test]
fn a_static_program_runs_after_a_warning() {
    let stage = Stage::new(Mode::Accelerated);
    let program = stage.compile("exit_status.c", "static", &["-static"]);
    let finished = stage.run(stage.accelerated_command(&program).arg("9"));
    assert_eq!(finished.status.code(), Some(9));
    assert!(finished.stderr.contains("statically linked"), "{}", finished.stderr);
}

#[test]
fn a_program_for_another_machine_is_told_apart() {
    let stage = Stage::new(Mode::Accelerated);
    let program = stage.compile("exit_status.c", "other", &[]);
    let mut content = fs::read(&program).expect("a program");
    // e_machine of the ELF header; 0xF3 is RISC-V.
    content[18] = 0xf3;
    fs::write(&program, content).expect("a program");
    let finished = stage.run(&mut stage.accelerated_command(&program));
    assert!(!finished.status.success());
    assert!(finished.stderr.contains("another architecture"), "{}", finished.stderr);
}

#[test]
fn a_set_user_id_program_runs_after_a_warning() {
    let stage = Stage::new(Mode::Accelerated);
    if !rustix::process::geteuid().is_root() {
        // Only root can give a file away; what others see is tested with the file modes alone.
        return;
    }
    let program = stage.compile("exit_status.c", "set-user-id", &[]);
    std::os::unix::fs::chown(&program, Some(65534), None).expect("root may");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("root may");
    let finished = stage.run(stage.accelerated_command(&program).arg("4"));
    assert_eq!(finished.status.code(), Some(4));
    assert!(finished.stderr.contains("set-user-id"), "{}", finished.stderr);
}

#[test]
fn the_interpreter_of_a_script_is_judged() {
    let stage = Stage::new(Mode::Accelerated);
    let program = stage.compile("exit_status.c", "static", &["-static"]);
    let script = stage.path("script");
    fs::write(&script, format!("#!{}\n", program.display())).expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a script");
    let finished = stage.run(&mut stage.accelerated_command(&script));
    assert!(finished.stderr.contains("statically linked"), "{}", finished.stderr);
}

#[test]
fn an_existing_preload_is_kept() {
    let stage = Stage::new(Mode::Accelerated);
    let marker = stage.compile("marker.c", "marker.so", &["-shared", "-fPIC"]);
    let mut command = stage.accelerated_command("sh");
    let finished = stage.run(command.env("LD_PRELOAD", &marker).args(["-c", "echo $LD_PRELOAD"]));
    assert!(finished.stderr.contains("marker loaded"), "{}", finished.stderr);
    let expected =
        format!("{}:{}", library_directory().join("libseekwire.so").display(), marker.display());
    assert_eq!(finished.success().trim(), expected);
}

#[test]
fn the_environment_names_another_library_or_is_told_what_is_wrong() {
    let stage = Stage::new(Mode::Accelerated);
    let copy = stage.path("copy.so");
    fs::copy(library_directory().join("libseekwire.so"), &copy).expect("a copy");
    let run = |library: &std::path::Path| {
        let mut command = stage.accelerated_command("sh");
        stage.run(command.env("SEEKWIRE_LIBRARY", library).args(["-c", "echo $LD_PRELOAD"]))
    };
    assert_eq!(run(&copy).success().trim(), copy.to_str().expect("text"));
    let missing = stage.path("missing.so");
    let refused = run(&missing);
    assert_eq!(refused.status.code(), Some(125));
    let named = format!("SEEKWIRE_LIBRARY={}: No such file", missing.display());
    assert!(refused.stderr.contains(&named), "{}", refused.stderr);
    assert!(run(std::path::Path::new("/etc/passwd")).stderr.contains("not a shared library"));
}

#[test]
fn status_shows_what_carries_a_connection() {
    let stage = Stage::new(Mode::Accelerated);
    let (server, port) = stage.serve_printing_port(&mut stage.script("echo_server.py", &["epoll"]));
    let mut client = stage.start(&mut stage.script("steps.py", &["connect", "127.0.0.1", &port]));
    assert_eq!(client.ask("nodelay"), "ok");
    // The server has accepted it.
    assert_eq!(client.ask("send 1"), "ok");
    assert_eq!(client.ask("recv 1"), "ok");
    let pids = [server.pid(), client.pid()];
    let both = |rows: &[Value], carrier: &str| {
        let of = |pid: u32| {
            rows.iter()
                .find(|row| {
                    row["pid"] == pid && (row["local"] == end(&port) || row["peer"] == end(&port))
                })
                .unwrap_or_else(|| panic!("no line for {pid} in {rows:?}"))
        };
        for row in pids.map(of) {
            assert_eq!((&row["tx"], &row["rx"]), (&carrier.into(), &carrier.into()), "{row}");
        }
        of(pids[1]).clone()
    };

    let row = both(&rows(&stage), "tcp");
    assert_eq!(row["reason"], "below threshold");

    for _ in 0..200 {
        assert_eq!(client.ask("send 1000"), "ok");
        assert_eq!(client.ask("recv 1000"), "ok");
    }
    let row = both(&rows(&stage), "ring");
    let bytes = |name: &str| row["bytes"][name].as_u64().expect("a number of bytes");
    assert_eq!(bytes("tx_tcp") + bytes("tx_ring"), 200_001, "{row}");
    assert_eq!(bytes("rx_tcp") + bytes("rx_ring"), 200_001, "{row}");
    assert!(row["reason"].is_null(), "{row}");

    let table = stage.run(&mut status(&stage, &[])).success();
    assert!(table.contains("ring") && table.contains(&end(&port)), "{table}");
    assert!(!table.contains("`seekwire reasons`"), "{table}");

    // The second of two looks has the bytes per second between them.
    let registry = stage.path("registry");
    let watch = "exec \"$0\" status --watch 1 --json --dir \"$1\" | head -n 2";
    let mut command = stage.plain_command("sh");
    let looks = stage.run(command.args(["-c", watch]).arg(seekwire()).arg(registry)).success();
    let looks: Vec<&str> = looks.lines().collect();
    let counts = looks.iter().map(|look| look.matches("\"bytes_per_second\":{\"tx\":0,").count());
    assert_eq!(counts.collect::<Vec<_>>(), [0, 2], "{looks:?}");

    client.finish().success();
    server.finish().success();
    assert_eq!(rows(&stage).len(), 0, "lines of programs that have ended");
}

fn end(port: &str) -> String {
    format!("127.0.0.1:{port}")
}

fn rows(stage: &Stage) -> Vec<Value> {
    let text = stage.run(&mut status(stage, &["--json"])).success();
    serde_json::from_str(&text).expect("an array")
}

fn status(stage: &Stage, options: &[&str]) -> Command {
    let mut command = stage.plain_command(seekwire());
    command.arg("status").arg("--dir").arg(stage.path("registry")).args(options);
    command
}

#[test]
fn processes_that_share_a_connection_are_shown_alike() {
    let stage = Stage::new(Mode::Accelerated);
    let (server, port) = stage.serve_printing_port(&mut stage.script("echo_server.py", &["epoll"]));
    let mut client = stage.start(&mut stage.script("steps.py", &["connect", "127.0.0.1", &port]));
    for _ in 0..50 {
        assert_eq!(client.ask("send 1000"), "ok");
        assert_eq!(client.ask("recv 1000"), "ok");
    }
    assert_eq!(client.ask("fork"), "ok");
    let rows = rows(&stage);
    let of_client: Vec<&Value> = rows.iter().filter(|row| row["peer"] == end(&port)).collect();
    assert_eq!(of_client.len(), 2, "{rows:?}");
    assert_ne!(of_client[0]["pid"], of_client[1]["pid"]);
    for key in ["tx", "rx", "bytes", "reason"] {
        assert_eq!(of_client[0][key], of_client[1][key], "{rows:?}");
    }
    assert_eq!(of_client[0]["tx"], "ring", "{rows:?}");
    client.finish().success();
    server.finish().success();
}

#[test]
fn status_makes_no_registry() {
    let stage = Stage::new(Mode::Accelerated);
    let directory = stage.path("registry");
    fs::DirBuilder::new().mode(0o700).create(&directory).expect("a directory");
    assert_eq!(rows(&stage), Vec::<Value>::new());
    assert_eq!(directory.read_dir().expect("a directory").count(), 0);
}

#[test]
fn status_looks_where_each_program_was_told_to_meet_others() {
    let (here, there) = (Stage::new(Mode::Accelerated), Stage::new(Mode::Accelerated));
    let (server, port) = here.serve_printing_port(&mut here.script("echo_server.py", &["epoll"]));
    let mut client = here.start(&mut here.script("steps.py", &["connect", "127.0.0.1", &port]));
    for _ in 0..50 {
        assert_eq!(client.ask("send 1000"), "ok");
        assert_eq!(client.ask("recv 1000"), "ok");
    }
    assert_eq!(rows(&here).len(), 2);
    let unused = there.run(&mut status(&there, &["--json"]));
    assert!(unused.stderr.contains("no program has it as its SEEKWIRE_DIR"), "{}", unused.stderr);

    // Started from another environment, and not told where to look.
    let mut command = there.plain_command(seekwire());
    let text = there
        .run(command.args(["status", "--json"]).env("SEEKWIRE_DIR", there.path("registry")))
        .success();
    let rows: Vec<Value> = serde_json::from_str(&text).expect("an array");
    let row = rows.iter().find(|row| row["pid"] == client.pid()).expect("a line for the client");
    assert_eq!(row["tx"], "ring", "{row}");
    client.finish().success();
    server.finish().success();
}

#[test]
fn watching_ends_when_nobody_reads() {
    let stage = Stage::new(Mode::Accelerated);
    // An hour between drawings: it must notice that its reader has gone, not wait for the next.
    let watch = format!("exec {} status --watch 3600 | head -n 1", seekwire().display());
    let output = stage.run(stage.plain_command("sh").args(["-c", &watch])).success();
    assert_eq!(output.lines().count(), 1, "{output}");
}

#[test]
fn doctor_finds_this_host_usable() {
    let stage = Stage::new(Mode::Accelerated);
    let mut command = stage.plain_command(seekwire());
    let text = stage
        .run(command.args(["doctor", "--json", "--dir"]).arg(stage.path("registry")))
        .success();
    let findings: Vec<Value> = serde_json::from_str(&text).expect("an array");
    assert!(findings.iter().all(|finding| finding["verdict"] != "fail"), "{text}");
    let exchange = findings
        .iter()
        .find(|finding| finding["check"] == "exchange of messages")
        .expect("the exchange");
    assert_eq!(exchange["verdict"], "ok", "{exchange}");
}

#[test]
fn doctor_says_how_to_mend_an_open_registry() {
    let stage = Stage::new(Mode::Accelerated);
    // Only the name shows that the directory has no other use.
    for (name, may_be_mended) in [("seekwire-open", true), ("open", false)] {
        let registry = stage.path(name);
        fs::create_dir(&registry).expect("a directory");
        fs::set_permissions(&registry, fs::Permissions::from_mode(0o777)).expect("a directory");
        let mut command = stage.plain_command(seekwire());
        let finished = stage.run(command.args(["doctor", "--dir"]).arg(&registry));
        assert_eq!(finished.status.code(), Some(1));
        assert_eq!(finished.stdout.contains("chmod 700"), may_be_mended, "{}", finished.stdout);
        assert!(finished.stdout.contains("set SEEKWIRE_DIR"), "{}", finished.stdout);
    }
}

#[test]
fn a_chosen_directory_that_cannot_be_used_is_refused() {
    let stage = Stage::new(Mode::Plain);
    let file = stage.path("file");
    fs::write(&file, "").expect("a file");
    for directory in ["/proc".as_ref(), file.as_path(), "/nonexistent/registry".as_ref()] {
        let mut command = stage.plain_command(seekwire());
        let finished = stage.run(command.args(["run", "--dir"]).arg(directory).arg("true"));
        assert_eq!(finished.status.code(), Some(2), "{}", finished.stderr);
        assert!(finished.stderr.starts_with("seekwire: SEEKWIRE_DIR="), "{}", finished.stderr);
    }
}

/// In network namespaces of its own, where these can be made.
#[test]
fn doctor_tells_of_interfaces_that_were_left_changed() {
    let stage = Stage::new(Mode::Plain);
    program("seekwire-nic");
    let Ok(testbed) = Testbed::new() else {
        return;
    };
    let near = testbed.end(Side::Near);
    let state = stage.path("state");
    let run = |words: &[&str]| {
        let mut command = stage.plain_command(seekwire());
        near.spawn(
            command
                .args(words)
                .arg("--state")
                .arg(&state)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        )
        .expect("a program at one end")
    };
    let found = || -> Value {
        let output = run(&["doctor", "--json"]).wait_with_output().expect("findings");
        let all: Vec<Value> = serde_json::from_slice(&output.stdout).expect("an array");
        let found = all.into_iter().find(|finding| finding["check"] == "network interfaces");
        found.expect("a line for interfaces")
    };
    assert_eq!(found()["found"], "none has been changed");
    // The command has become the program for interfaces: what kills it kills that.
    let mut held = run(&["nic", "apply", near.interface(), "sg=off", "--hold"]);
    let mut lines =
        BufReader::new(held.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("held until interrupted")));
    held.kill().expect("a child");
    held.wait().expect("a child");
    let told = found();
    assert_eq!(told["verdict"], "warn", "{told}");
    assert!(
        told["advice"].as_str().is_some_and(|advice| advice.contains("seekwire nic restore")),
        "{told}"
    );
    assert!(run(&["nic", "restore", near.interface()]).wait().expect("a child").success());
    assert_eq!(found()["found"], "none has been changed");
}

/// A command without the other programs.
#[test]
fn the_command_alone_lists_its_subcommands_and_says_what_is_missing() {
    let stage = Stage::new(Mode::Plain);
    let alone = stage.path("seekwire");
    fs::copy(seekwire(), &alone).expect("a copy");
    let asked = |words: &[&str]| stage.run(stage.plain_command(&alone).args(words));
    let help = asked(&["--help"]).success();
    for line in [
        "  lab        Run the experiments",
        "  nic        Show and change",
        "  run        Run a program",
    ] {
        assert!(help.contains(line), "{line}: {help}");
    }
    let mistyped = asked(&["labs"]);
    assert_eq!(mistyped.status.code(), Some(2));
    assert!(mistyped.stderr.contains("a similar subcommand exists: 'lab'"), "{}", mistyped.stderr);
    let missing = asked(&["nic", "show"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(missing.stderr.contains("seekwire-nic was not found"), "{}", missing.stderr);
    let text =
        asked(&["doctor", "--json", "--dir", stage.path("registry").to_str().expect("text")])
            .stdout;
    let findings: Vec<Value> = serde_json::from_str(&text).expect("an array");
    let interfaces =
        findings.iter().find(|finding| finding["check"] == "network interfaces").expect("a line");
    assert_eq!(interfaces["verdict"], "ok", "{interfaces}");
    assert!(
        interfaces["found"].as_str().is_some_and(|found| found.contains("seekwire-nic")),
        "{interfaces}"
    );
}

#[test]
fn help_for_a_program_of_its_own_is_that_programs() {
    let stage = Stage::new(Mode::Plain);
    program("seekwire-lab");
    let asked = |words: &[&str]| stage.run(stage.plain_command(seekwire()).args(words));
    for (words, usage) in [
        (&["lab", "--help"][..], "Usage: seekwire lab <COMMAND>"),
        (&["help", "lab"], "Usage: seekwire lab <COMMAND>"),
        (&["help", "lab", "pack"], "Usage: seekwire lab pack <DIR>"),
        (&["demo", "-h"], "Usage: seekwire demo [OPTIONS]"),
    ] {
        let text = asked(words).success();
        assert!(text.contains(usage), "{words:?}: {text}");
    }
    let wrong = asked(&["lab", "rum"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(wrong.stderr.contains("similar subcommand exists: 'run'"), "{}", wrong.stderr);
}

#[test]
fn programs_that_a_program_starts_are_accelerated_too() {
    let stage = Stage::new(Mode::Accelerated);
    let python = crate::harness::python();
    let script = source("echo_server.py");
    let start = format!("{} {} epoll", python.display(), script.display());
    let (server, port) = stage.serve_printing_port(stage.command("sh").args(["-c", &start]));
    let echoed = stage.run(&mut stage.script("echo_client.py", &["127.0.0.1", &port])).success();
    assert_eq!(echoed.trim(), "8000000");
    server.finish().success();
    assert!(stage.stats().ring() > 0);
}
