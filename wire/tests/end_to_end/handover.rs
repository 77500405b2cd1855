//! Connections that another program takes over in the middle of the stream.

use crate::harness::{Mode, Stage, in_every_mode, installed};

in_every_mode!(
    exec_of_a_program_that_loads_the_library,
    exec_of_a_static_program,
    fork_and_exec,
    fork_and_exec_of_a_static_program,
    posix_spawn,
    posix_spawn_of_a_static_program,
    descriptor_in_a_message,
    descriptor_in_a_message_to_a_static_program,
);

fn exec_of_a_program_that_loads_the_library(stage: &mut Stage) {
    hand_over(stage, "exec", installed("cat").to_str());
}

fn exec_of_a_static_program(stage: &mut Stage) {
    hand_over(stage, "exec", None);
}

fn fork_and_exec(stage: &mut Stage) {
    hand_over(stage, "fork", installed("cat").to_str());
}

fn fork_and_exec_of_a_static_program(stage: &mut Stage) {
    hand_over(stage, "fork", None);
}

fn posix_spawn(stage: &mut Stage) {
    hand_over(stage, "spawn", installed("cat").to_str());
}

fn posix_spawn_of_a_static_program(stage: &mut Stage) {
    hand_over(stage, "spawn", None);
}

fn descriptor_in_a_message(stage: &mut Stage) {
    hand_over(stage, "rights", installed("cat").to_str());
}

fn descriptor_in_a_message_to_a_static_program(stage: &mut Stage) {
    hand_over(stage, "rights", None);
}

/// `program`: what copies the rest of the stream; None: a static program.
fn hand_over(stage: &mut Stage, how: &str, program: Option<&str>) {
    if stage.mode() == Mode::TakenBack {
        // Back on TCP, with nothing left on the ring, before the program changes.
        stage.set("SEEKWIRE_FALLBACK_AFTER", "1000000");
    }
    let copy = match program {
        Some(program) => program.to_owned(),
        None => stage.compile("copy.c", "copy", &["-static"]).display().to_string(),
    };
    let (server, port) = stage.serve_printing_port(&mut stage.script("handover.py", &[how, &copy]));
    let echoed = stage.run(&mut stage.script("echo_client.py", &["127.0.0.1", &port])).success();
    assert_eq!(echoed.trim(), "8000000");
    server.finish().success();
}
