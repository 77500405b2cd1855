//! Receiving out of the middle of a stream, from C: each program against a sender without the
//! library, and with both ends sharing memory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Mode, Stage, library_directory, seekwire, source};

/// Runs each program of wire/tests/programs both ways, as two tests.
macro_rules! against_either_sender {
    ($($program:ident),+ $(,)?) => {
        $(mod $program {
            #[test]
            fn plain() {
                super::seek(stringify!($program), false, &[]);
            }

            #[test]
            fn accelerated() {
                super::seek(stringify!($program), true, &[]);
            }
        })+
    };
}

against_either_sender!(seek, seek_ready, seek_threads, seek_fork);

const NO_MEMORY: (&str, &str) = ("SEEKWIRE_SEEK_MEMORY", "0");

#[test]
fn without_memory_something_must_be_taken_out_first() {
    for accelerated in [false, true] {
        seek("seek", accelerated, &[NO_MEMORY]);
    }
}

#[test]
fn a_library_that_is_switched_off_seeks_all_the_same() {
    for program in ["seek", "seek_ready"] {
        seek(program, false, &[("SEEKWIRE", "off")]);
    }
}

#[test]
fn a_small_ring_is_no_limit() {
    for program in ["seek", "seek_ready"] {
        seek(program, true, &[("SEEKWIRE_SEGMENT_SIZE", "4096"), ("SEEKWIRE_SEGMENTS", "8")]);
    }
}

/// Back to TCP at once, in the middle of a case, or in the middle of a long range.
#[test]
fn seeks_go_on_in_a_direction_that_returns_to_tcp() {
    for after in ["100", "20000", "1000000"] {
        for program in ["seek", "seek_ready", "seek_threads"] {
            seek(program, true, &[("SEEKWIRE_FALLBACK_AFTER", after)]);
        }
    }
}

#[test]
fn the_library_can_be_inside_the_program() {
    let stage = Stage::new(Mode::Accelerated);
    let archive = library_directory().join("libseekwire.a");
    assert!(archive.is_file(), "no {}: run scripts/build tests", archive.display());
    let mut flags = vec![archive.to_str().expect("text")];
    flags.extend("-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc".split(' '));
    for program in ["seek", "seek_ready"] {
        let seeker = compile(&stage, program, &flags);
        run(&stage, &mut stage.plain_command(&seeker), false, &[]);
        // Two copies of the library, of which one stands back.
        run(&stage, &mut stage.accelerated_command(&seeker), false, &[]);
    }
}

fn seek(program: &str, accelerated: bool, variables: &[(&str, &str)]) {
    let stage = Stage::new(Mode::Accelerated);
    let place = linkable(&stage);
    let place = place.to_str().expect("text");
    let found_at = format!("-Wl,-rpath,{place}");
    let seeker = compile(&stage, program, &["-L", place, &found_at, "-lseekwire"]);
    run(&stage, &mut stage.plain_command(&seeker), accelerated, variables);
    let stats = stage.stats();
    assert_eq!(stats.ring() > 0, accelerated, "{stats:?}");
}

/// A directory with the names by which programs are linked and then loaded.
fn linkable(stage: &Stage) -> PathBuf {
    let place = stage.path("lib");
    fs::create_dir(&place).expect("a directory");
    for name in ["libseekwire.so", "libseekwire.so.0"] {
        symlink(library_directory().join("libseekwire.so"), place.join(name)).expect("a link");
    }
    place
}

fn compile(stage: &Stage, program: &str, library: &[&str]) -> PathBuf {
    let include = format!("-I{}", source("../../include").display());
    let mut flags = vec!["-pthread", include.as_str()];
    flags.extend(library);
    stage.compile(&format!("{program}.c"), program, &flags)
}

/// Runs a program that starts its sender itself.
fn run(stage: &Stage, seeker: &mut Command, accelerated: bool, variables: &[(&str, &str)]) {
    let sender = stage.compile("sender.c", "sender", &[]);
    seeker.env("SEEKWIRE_DIR", stage.path("registry")).env("SEEKWIRE_STATS", stage.path("stats"));
    seeker.envs(variables.iter().copied());
    if accelerated {
        seeker.arg("accelerated").arg(seekwire()).args(["run", "--"]).arg(sender);
    } else {
        seeker.args(["plain", "env", "-u", "LD_PRELOAD"]).arg(sender);
    }
    let cases = stage.run(seeker).success().lines().count();
    assert!(cases > 0, "no case was run");
}
