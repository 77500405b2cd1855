//! One end of a conversation suffers a fault: it is killed, stopped, or a system call fails, at
//! each step of coming to the ring, and at some random moments under load. Plain TCP is the
//! control. `make faults` tries more moments.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{compile, library, output};

/// Number of random moments of each kind. Keep a seed that finds something here.
const MOMENTS: &str = "60";
const SEED: &str = "1";

fn survive(faults: &[&str]) {
    let directory: PathBuf =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults").join(faults.join("-"));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let program = compile("faults", &directory, &[]);
    for accelerated in [false, true] {
        let mut command = Command::new(&program);
        command
            .args(["-n", MOMENTS, "-s", SEED, "-d"])
            .arg(directory.join("registry"))
            .env_remove("LD_PRELOAD");
        if accelerated {
            command.arg("-l").arg(library());
        }
        command.args(faults);
        let output = output(command);
        let text = String::from_utf8_lossy(&output.stdout);
        println!("accelerated: {accelerated}\n{text}");
        assert!(output.status.success(), "{}", output.status);
    }
}

#[test]
fn killed_at_each_step() {
    survive(&["kill-steps"]);
}

#[test]
fn stopped_at_each_step() {
    survive(&["stop-steps"]);
}

#[test]
fn each_step_fails() {
    survive(&["fail-steps"]);
}

#[test]
fn short_of_memory() {
    survive(&["memory", "group"]);
}

/// The registry's file system, and one that has no fallocate(2).
#[test]
fn short_of_room() {
    survive(&["full", "sparse"]);
}

#[test]
fn clocks_that_jump() {
    survive(&["clock"]);
}

#[test]
fn killed_or_stopped_at_random_moments() {
    survive(&["kill", "stop"]);
}
