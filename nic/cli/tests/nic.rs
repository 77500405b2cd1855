//! `seekwire nic` on a veth pair in a network namespace of its own.

#![forbid(unsafe_code)]

#[path = "../../nic/tests/namespace/mod.rs"]
mod namespace;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use namespace::with_pair;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// `seekwire nic WORDS --state STATE`; what follows `--` stays at the end.
fn command(state: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seekwire-nic"));
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    command.arg("nic").args(&words[..end]).arg("--state").arg(state).args(&words[end..]);
    command
}

fn run(state: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(state, words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// The JSON of `near`, without what is saved.
fn near(state: &Path) -> Value {
    let (code, json, errors) = run(state, &["show", "near", "--json"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    without_state(&json)
}

fn without_state(json: &str) -> Value {
    let mut shown: Value = serde_json::from_str(json).unwrap();
    let mut near = shown[0].take();
    near.as_object_mut().unwrap().remove("saved").unwrap();
    near
}

fn is_on(interface: &Value, name: &str) -> bool {
    let features = interface["features"].as_array().unwrap();
    features.iter().find(|feature| feature["name"] == name).unwrap()["active"] == true
}

#[test]
fn show_has_everything_in_words_and_in_json() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        let (code, text, _) = run(state.path(), &["show", "near"]);
        assert_eq!(code, Some(0));
        assert!(text.starts_with("near: driver veth, "), "{text}");
        assert!(
            text.contains("\n  tx-scatter-gather ") && text.contains("OFFLOAD, FIXED"),
            "{text}"
        );
        let (_, json, _) = run(state.path(), &["show", "--json"]);
        let shown: Value = serde_json::from_str(&json).unwrap();
        let names: Vec<_> =
            shown.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["lo", "near"]);
        assert!(shown[1]["saved"].is_null() && shown[1]["queues"]["rx"].is_number(), "{json}");
        assert_eq!(run(state.path(), &["show", "absent"]).0, Some(1));
    });
}

#[test]
fn a_dry_run_changes_and_saves_nothing() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        let before = near(state.path());
        let (code, text, _) =
            run(state.path(), &["apply", "near", "--profile", "baseline", "--dry-run"]);
        assert_eq!(code, Some(0));
        assert!(text.contains("would be changed") && text.contains("would change along"), "{text}");
        assert_eq!(near(state.path()), before);
        assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0);
    });
}

#[test]
fn what_is_applied_stays_until_it_is_restored() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        let before = near(state.path());
        let (code, text, errors) = run(state.path(), &["apply", "near", "--profile", "baseline"]);
        assert_eq!(code, Some(0), "{text}{errors}");
        assert!(text.contains("changed") && text.contains("seekwire nic restore near"), "{text}");
        let (code, text, _) =
            run(state.path(), &["apply", "near", "--profile", "offload", "lro=on"]);
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains("cannot be on"), "{text}");
        assert!(is_on(&near(state.path()), "tx-tcp-segmentation"));
        let (code, text, errors) = run(state.path(), &["restore", "near"]);
        assert_eq!(code, Some(0), "{text}{errors}");
        assert_eq!(near(state.path()), before);
        let (code, _, errors) = run(state.path(), &["restore", "near"]);
        assert!(code == Some(1) && errors.contains("nothing to restore"), "{errors}");
    });
}

#[test]
fn what_is_so_already_leaves_nothing_to_restore() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        let (code, text, _) = run(state.path(), &["apply", "near", "tx=on"]);
        assert!(
            code == Some(0) && text.contains("already so") && !text.contains("restore"),
            "{text}"
        );
        assert_eq!(run(state.path(), &["restore", "near"]).0, Some(1));
    });
}

#[test]
fn a_command_has_the_settings_and_its_exit_status_is_handed_on() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        let before = near(state.path());
        let show = format!("{} nic show near --json; exit 7", env!("CARGO_BIN_EXE_seekwire-nic"));
        let (code, json, errors) =
            run(state.path(), &["apply", "near", "--profile", "checksum", "--", "sh", "-c", &show]);
        assert_eq!(code, Some(7), "{errors}");
        let during: Value = serde_json::from_str(&json).unwrap();
        assert!(!is_on(&during[0], "tx-scatter-gather") && is_on(&during[0], "rx-checksum"));
        assert_eq!(near(state.path()), before);
        let (code, _, errors) =
            run(state.path(), &["apply", "near", "tx=off", "--", "/no/such/program"]);
        assert!(code == Some(1) && errors.contains("cannot run /no/such/program"), "{errors}");
        assert_eq!(near(state.path()), before);
    });
}

/// Starts `apply --hold` and waits until it holds.
fn hold(state: &Path) -> Child {
    let mut held = command(state, &["apply", "near", "tx=off", "--hold"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(held.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("held until interrupted") {
        line.clear();
        assert_ne!(errors.read_line(&mut line).unwrap(), 0, "it ended early");
    }
    held.stderr = Some(errors.into_inner());
    held
}

#[test]
fn signals_end_a_hold_and_everything_comes_back() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        let before = near(state.path());
        // The tests themselves may run under nohup.
        for signal in seekwire_program::signals::ending() {
            let signal = Signal::from_named_raw(signal).unwrap();
            let mut held = hold(state.path());
            // The second process waits, and names the first.
            let mut second = command(state.path(), &["apply", "near", "gro=on"]);
            let mut second = second.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(second.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
            assert!(
                line.contains(&format!("({})", held.id())) && line.contains("waiting"),
                "{line}"
            );
            kill_process(Pid::from_child(&held), signal).unwrap();
            assert_eq!(held.wait().unwrap().code(), Some(0));
            assert_eq!(second.wait().unwrap().code(), Some(0));
            assert_eq!(run(state.path(), &["restore", "near"]).0, Some(0));
            assert_eq!(near(state.path()), before);
        }
    });
}

#[test]
fn an_interrupt_ends_the_wait_for_another_process() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        let mut held = hold(state.path());
        let mut second = command(state.path(), &["apply", "near", "gro=on", "--hold"]);
        let mut second = second.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(second.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        assert!(line.contains("waiting"), "{line}");
        kill_process(Pid::from_child(&second), Signal::TERM).unwrap();
        assert_eq!(second.wait().unwrap().code(), Some(128 + Signal::TERM.as_raw()));
        assert_eq!(held.try_wait().unwrap(), None, "it need not have ended");
        kill_process(Pid::from_child(&held), Signal::TERM).unwrap();
        assert_eq!(held.wait().unwrap().code(), Some(0));
    });
}

#[test]
fn under_nohup_a_server_survives_its_terminal() {
    let script = "trap '' HUP; exec \"$0\" nic serve --listen 127.0.0.1:0";
    let mut server = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_seekwire-nic")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on"), "{line}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert_eq!(ignored & 1, 1, "{status}");
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn a_signal_goes_to_the_command_and_everything_comes_back() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        let before = near(state.path());
        let script = "trap 'echo ended; exit 9' TERM; echo ready; while :; do sleep 0.01; done";
        let mut running =
            command(state.path(), &["apply", "near", "tx=off", "--", "sh", "-c", script])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
        let mut output = BufReader::new(running.stdout.take().unwrap()).lines();
        assert_eq!(output.next().unwrap().unwrap(), "ready");
        kill_process(Pid::from_child(&running), Signal::TERM).unwrap();
        assert_eq!(output.next().unwrap().unwrap(), "ended");
        assert_eq!(running.wait().unwrap().code(), Some(9));
        assert_eq!(near(state.path()), before);
    });
}

/// A command of ip(8).
fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn settings_that_are_not_restored_determine_the_exit_status() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        ip("link add br0 type bridge");
        ip("link set near master br0");
        // A bridge can do what its ports can.
        let lame = format!(
            "{} nic apply near sg=off --state {}",
            env!("CARGO_BIN_EXE_seekwire-nic"),
            state.path().display()
        );
        let script = format!("{lame} >&2; exit 7");
        let (code, _, errors) =
            run(state.path(), &["apply", "br0", "sg=off", "lro=on", "--", "sh", "-c", &script]);
        assert_eq!(code, Some(1), "{errors}");
        let last = errors.lines().last().unwrap();
        assert!(
            last.contains("tx-scatter-gather") && last.contains("`seekwire nic restore br0`"),
            "{errors}"
        );
        // And once the port can again.
        assert_eq!(run(state.path(), &["restore", "near"]).0, Some(0));
        let (code, text, errors) = run(state.path(), &["restore", "br0"]);
        assert_eq!(code, Some(0), "{text}{errors}");

        let before = near(state.path());
        let (code, _, errors) = run(
            state.path(),
            &["apply", "near", "tx=off", "--", "ip", "link", "set", "near", "name", "uplink"],
        );
        assert!(code == Some(0) && errors.contains("near is called uplink now"), "{errors}");
        let (_, json, _) = run(state.path(), &["show", "uplink", "--json"]);
        assert_eq!(without_state(&json)["features"], before["features"]);

        let (code, _, errors) =
            run(state.path(), &["apply", "uplink", "tx=off", "--", "ip", "link", "del", "uplink"]);
        assert!(
            code == Some(1) && errors.contains("uplink is not in this network namespace"),
            "{errors}"
        );
    });
}

#[test]
fn after_a_kill_the_next_start_offers_to_restore() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        let before = near(state.path());
        let mut held = hold(state.path());
        held.kill().unwrap();
        held.wait().unwrap();
        let offer = format!("process {} changed it and ended without restoring it", held.id());
        let (_, text, errors) = run(state.path(), &["show", "near"]);
        assert!(
            errors.contains(&offer) && errors.contains("seekwire nic restore near"),
            "{errors}"
        );
        assert!(text.contains("\n  changed; "), "{text}");
        // A change on top keeps the first state.
        let (code, _, errors) = run(state.path(), &["apply", "near", "gso=off"]);
        assert!(code == Some(0) && errors.contains(&offer), "{errors}");
        assert_eq!(run(state.path(), &["restore", "near"]).0, Some(0));
        assert_eq!(near(state.path()), before);
    });
}

#[test]
fn coalescing_is_set_as_far_as_the_driver_goes_and_put_back() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        let made =
            Command::new("ip").args(["tuntap", "add", "dev", "tap0", "mode", "tap"]).output();
        match made {
            Ok(output) if output.status.success() => {}
            Ok(output) => return namespace::not_run(&String::from_utf8_lossy(&output.stderr)),
            Err(error) => return namespace::not_run(&format!("ip: {error}")),
        }
        let frames = || {
            let (_, json, _) = run(state.path(), &["show", "tap0", "--json"]);
            let mut shown: Value = serde_json::from_str(&json).unwrap();
            shown[0]["coalescing"][0].take()
        };
        assert_eq!((&frames()["name"], &frames()["value"]), (&"rx-frames".into(), &0.into()));
        let (code, text, _) = run(state.path(), &["apply", "tap0", "coalesce.rx-frames=16"]);
        assert!(code == Some(0) && frames()["value"] == 16, "{text}");
        // The driver limits it to the budget of a poll.
        let (code, text, _) = run(state.path(), &["apply", "tap0", "coalesce.rx-frames=1000"]);
        assert!(code == Some(3) && text.contains("refused: the driver has made it 64"), "{text}");
        // The other end is not open, so checksums and the features that need them are unavailable.
        let (code, text, _) = run(state.path(), &["apply", "tap0", "tx=on", "tso=on"]);
        assert!(code == Some(3) && text.contains("refused: the driver keeps it off"), "{text}");
        assert!(text.contains("refused: it needs tx-checksum-ip-generic"), "{text}");
        assert_eq!(run(state.path(), &["restore", "tap0"]).0, Some(0));
        assert_eq!(frames()["value"], 0);
    });
}

#[test]
fn json_says_what_was_done() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        let json = |words: &[&str], expected: i32| -> Value {
            let (code, text, errors) = run(state.path(), words);
            assert_eq!(code, Some(expected), "{text}{errors}");
            serde_json::from_str(&text).unwrap()
        };
        let result = |report: &Value, key: &str| -> (Value, Value) {
            let outcomes = report["outcomes"].as_array().unwrap();
            let outcome = outcomes.iter().find(|outcome| outcome["key"] == key).unwrap();
            (outcome["result"].clone(), outcome["after"].clone())
        };
        let foreseen = json(&["apply", "near", "sg=off", "lro=on", "--dry-run", "--json"], 0);
        assert_eq!(result(&foreseen, "tx-scatter-gather"), ("change".into(), false.into()));
        assert_eq!(result(&foreseen, "rx-lro"), ("fixed".into(), false.into()));
        assert!(!foreseen["along"].as_array().unwrap().is_empty());
        let done = json(&["apply", "near", "sg=off", "lro=on", "--json"], 3);
        assert_eq!((&done["interface"], &done["along"]), (&"near".into(), &foreseen["along"]));
        assert_eq!(result(&done, "tx-scatter-gather"), ("changed".into(), false.into()));
        let back = json(&["restore", "near", "--json"], 0);
        assert_eq!(result(&back, "tx-scatter-gather"), ("changed".into(), true.into()));
    });
}

#[test]
fn doctor_reports_interfaces_that_were_left_changed() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        let check = || -> Value {
            let mut command = Command::new(env!("CARGO_BIN_EXE_seekwire-nic"));
            let output = command.args(["left", "--state"]).arg(state.path()).output().unwrap();
            serde_json::from_slice(&output.stdout).unwrap()
        };
        assert_eq!(check()["verdict"], "ok");
        let mut held = hold(state.path());
        held.kill().unwrap();
        held.wait().unwrap();
        let report = check();
        assert_eq!(report["verdict"], "warn");
        assert!(
            report["advice"].as_str().unwrap().contains("seekwire nic restore near"),
            "{report}"
        );
        assert_eq!(run(state.path(), &["restore", "near"]).0, Some(0));
        assert_eq!(check()["found"], "none has been changed");
    });
}

#[test]
fn a_damaged_state_is_named_and_nothing_is_changed() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(run(state.path(), &["apply", "near", "gro=on"]).0, Some(0));
        let entries = std::fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().path());
        let file = entries.into_iter().find(|path| path.extension().unwrap() == "json").unwrap();
        std::fs::write(&file, "{\"layout\":").unwrap();
        for words in [&["restore", "near"][..], &["apply", "near", "tx=off"]] {
            let (code, _, errors) = run(state.path(), words);
            assert!(code == Some(1) && errors.contains(file.to_str().unwrap()), "{errors}");
        }
        let (code, json, _) = run(state.path(), &["show", "near", "--json"]);
        let shown: Value = serde_json::from_str(&json).unwrap();
        assert!(
            code == Some(0)
                && is_on(&shown[0], "tx-checksum-ip-generic")
                && is_on(&shown[0], "rx-gro")
        );
    });
}

/// As somebody who may do nothing. None: the build may be where others may not look.
fn as_nobody(command: &mut Command) -> Option<(Option<i32>, String, String)> {
    let nobody = 65534;
    match command.uid(nobody).gid(nobody).output() {
        Ok(Output { status, stdout, stderr }) => {
            let text = |bytes| String::from_utf8(bytes).unwrap();
            Some((status.code(), text(stdout), text(stderr)))
        }
        Err(error) => {
            namespace::not_run(&error.to_string());
            None
        }
    }
}

#[test]
fn without_the_capability_it_says_which() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(run(state.path(), &["apply", "near", "gro=on"]).0, Some(0));
        for words in [&["apply", "near", "tx=off"][..], &["restore", "near"]] {
            let Some((code, _, errors)) = as_nobody(&mut command(state.path(), words)) else {
                return;
            };
            assert!(code == Some(1) && errors.contains("CAP_NET_ADMIN"), "{errors}");
        }
    });
}

#[test]
fn another_user_can_read_interfaces_and_cannot_block_changes() {
    with_pair(|_| {
        // Where others may go.
        let outside = tempfile::tempdir().unwrap();
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(outside.path(), everybody).unwrap();
        // In a directory that is closed, and in one that is not, where only the files are.
        let state = outside.path().join("states");
        another_user_reads(&state);
        std::fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        another_user_reads(&state);
    });
}

fn another_user_reads(state: &Path) {
    assert_eq!(run(state, &["apply", "near", "tx=off"]).0, Some(0));
    let entries = std::fs::read_dir(state).unwrap().map(|entry| entry.unwrap().path());
    let lock = entries.into_iter().find(|path| path.extension().unwrap() == "lock").unwrap();
    let held = as_nobody(Command::new("flock").arg("--nonblock").arg(&lock).arg("true"));
    assert!(held.is_some_and(|(code, ..)| code != Some(0)), "the lock is there for everybody");
    let Some((code, json, errors)) = as_nobody(&mut command(state, &["show", "near", "--json"]))
    else {
        return;
    };
    assert!(code == Some(0) && errors.contains("only its owner can see"), "{errors}");
    let shown: Value = serde_json::from_str(&json).unwrap();
    assert!(!is_on(&shown[0], "tx-checksum-ip-generic") && shown[0]["saved"].is_null());
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_seekwire-nic"));
    doctor.args(["left", "--state"]).arg(state);
    let (_, json, _) = as_nobody(&mut doctor).unwrap();
    assert!(json.contains("only its owner can see"), "{json}");
    assert_eq!(run(state, &["restore", "near"]).0, Some(0));
}

#[test]
fn a_state_that_is_no_file_is_refused_at_once() {
    with_pair(|_| {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(run(state.path(), &["apply", "near", "gro=on"]).0, Some(0));
        let entries = std::fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().path());
        let file = entries.into_iter().find(|path| path.extension().unwrap() == "json").unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
        let (code, _, errors) = run(state.path(), &["show", "near"]);
        assert!(code == Some(0) && errors.contains("it is not a regular file"), "{errors}");
        for words in [&["apply", "near", "tx=off"][..], &["restore", "near"]] {
            let (code, _, errors) = run(state.path(), words);
            assert!(code == Some(1) && errors.contains(file.to_str().unwrap()), "{errors}");
        }
        let (_, json, _) = run(state.path(), &["show", "near", "--json"]);
        assert!(is_on(&without_state(&json), "tx-checksum-ip-generic"), "nothing was changed");
    });
}

#[test]
fn the_directory_of_states_can_be_named_by_the_environment() {
    with_pair(|_| {
        let outside = tempfile::tempdir().unwrap();
        let state = outside.path().join("states");
        let apply = |state: &Path| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_seekwire-nic"));
            let output = command
                .args(["nic", "apply", "near", "gro=on"])
                .env("SEEKWIRE_NIC_STATE", state)
                .output();
            let Output { status, stderr, .. } = output.unwrap();
            (status.code(), String::from_utf8(stderr).unwrap())
        };
        assert_eq!(apply(&state).0, Some(0));
        assert_eq!(run(&state, &["restore", "near"]).0, Some(0));
        let file = outside.path().join("file");
        std::fs::write(&file, "").unwrap();
        let (code, errors) = apply(&file);
        assert!(
            code == Some(1)
                && errors.contains("not a directory")
                && errors.contains("SEEKWIRE_NIC_STATE")
        );
    });
}
