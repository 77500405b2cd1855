//! uvloop's own tests of TCP: libuv under Python's asyncio, both ends mostly in one process, up to
//! hundreds of connections.

use std::path::Path;
use std::process::Command;

use crate::harness::{Finished, Mode, Stage, installed_apart};

#[test]
fn accelerated() {
    suite(Stage::new(Mode::Accelerated));
}

#[test]
fn from_the_first_call_on() {
    let mut stage = Stage::new(Mode::Accelerated);
    stage.set("SEEKWIRE_THRESHOLD", "0");
    suite(stage);
}

#[test]
fn taken_back() {
    suite(Stage::new(Mode::TakenBack));
}

fn suite(stage: Stage) {
    let python = installed_apart(Path::new("uvloop/venv/bin/python"));
    let finished = run(&stage, stage.command(&python));
    if !finished.status.success() && run(&stage, stage.plain_command(&python)).status.success() {
        finished.success();
    }
    assert!(stage.stats().ring() > 0, "nothing went through the ring: {:?}", stage.stats());
}

fn run(stage: &Stage, mut command: Command) -> Finished {
    // Verbose, to where the harness looks for a sign of life.
    let tests = "import sys, unittest; sys.stderr = sys.stdout; unittest.main('tests.test_tcp', verbosity=2)";
    command.current_dir(installed_apart(Path::new("uvloop/suite"))).args(["-c", tests]);
    stage.run(&mut command)
}
