//! Options of `run` and environment variables: each takes effect, or is refused with the valid
//! values.

use std::fs;
use std::process::Command;

use crate::harness::{Mode, Stage, library_directory, seekwire};

#[test]
fn a_setting_that_cannot_be_obeyed_is_refused_with_what_can() {
    let stage = Stage::new(Mode::Accelerated);
    let refused = |variable: Option<(&str, &str)>, words: &[&str], possible: &str| {
        let mut command = Command::new(seekwire());
        command.arg("run").args(words).args(["echo", "ran"]).envs(variable);
        let finished = stage.run(&mut command);
        assert_eq!(finished.status.code(), Some(2), "{variable:?} {words:?} {}", finished.stderr);
        assert_eq!(finished.stdout, "", "{variable:?} {words:?}");
        assert!(finished.stderr.contains(possible), "{possible} is not in {}", finished.stderr);
    };
    for (variable, possible) in [
        (("SEEKWIRE", "0"), "SEEKWIRE=0: none of on, off"),
        (("SEEKWIRE_DIR", "here"), "SEEKWIRE_DIR=here: not an absolute path"),
        (("SEEKWIRE_LOG", "stderr:dbug"), "one of error, warn, info, debug, trace"),
        (("SEEKWIRE_LOG", "/no/such/log"), "SEEKWIRE_LOG=/no/such/log: no such directory"),
        (("SEEKWIRE_STATS", "/no/such/stats"), "no such directory"),
        (("SEEKWIRE_SPIN_US", "2s"), "from 0 to 1s"),
        (("SEEKWIRE_SEEK_MEMORY", "64MB"), "such as 65536, 64K or 64KiB"),
        (("SEEKWIRE_THRESHOLD", "1000000001"), "from 0 to 1000000000"),
        (("SEEKWIRE_SEGMENTS", "9"), "a power of two from 8 to 1024"),
        (("SEEKWIRE_SEEK_WAY", "magic"), "none of module, peek, drain"),
    ] {
        refused(Some(variable), &[], possible);
    }
    refused(None, &["--threshold", "1000000001"], "..=1000000000");
    refused(None, &["--spin-us", "1000001"], "from 0 to 1s");
    refused(None, &["--log", "stderr:dbug"], "one of error, warn, info, debug, trace");
    refused(None, &["--stats", "/no/such/stats"], "no such directory");

    // An option overrides the variable, and an empty variable counts as unset.
    let mut command = Command::new(seekwire());
    command.env("SEEKWIRE_THRESHOLD", "many").env("SEEKWIRE_SPIN_US", "");
    command.args(["run", "--threshold", "7", "echo", "ran"]);
    assert_eq!(stage.run(&mut command).success(), "ran\n");
}

#[test]
fn the_library_logs_once_what_it_cannot_obey_and_goes_on() {
    let stage = Stage::new(Mode::Accelerated);
    let library = library_directory().join("libseekwire.so");
    for (name, value, possible) in [
        ("SEEKWIRE_THRESHOLD", "many", "not a whole number from 0 to 1000000000"),
        ("SEEKWIRE_DIR", "here", "not an absolute path"),
        ("SEEKWIRE", "no", "none of on, off"),
    ] {
        let log = stage.path("log");
        let mut command = Command::new("echo");
        command.arg("ran").env("LD_PRELOAD", &library).env("SEEKWIRE_LOG", &log).env(name, value);
        assert_eq!(stage.run(&mut command).success(), "ran\n");
        let text = fs::read_to_string(&log).expect("a log");
        let said = format!("{name}={value}: {possible}; not obeyed");
        assert_eq!(text.matches(&said).count(), 1, "{text}");
        fs::remove_file(&log).expect("a log");
    }
}

#[test]
fn a_threshold_counts_calls_however_many_bytes_they_move() {
    for (threshold, attached) in [("1000000", 0), ("20", 2)] {
        let mut stage = Stage::new(Mode::Accelerated);
        stage.set("SEEKWIRE_THRESHOLD", threshold);
        let (server, port) =
            stage.serve_printing_port(&mut stage.script("echo_server.py", &["epoll"]));
        let steps = &mut stage.script("steps.py", &["connect", "127.0.0.1", &port]);
        let mut client = stage.start(steps);
        for _ in 0..200 {
            assert_eq!(client.ask("send 1024"), "ok");
            assert_eq!(client.ask("recv 1024"), "ok");
        }
        client.finish().success();
        server.finish().success();
        let stats = stage.stats();
        assert_eq!(stats.connections.attached, attached, "{threshold}: {stats:?}");
    }
}
