//! Programs that were built with sanitizers: they start, and find no fault that is not theirs.

use crate::harness::{Mode, Stage};

fn with(sanitizer: &str) {
    for mode in [Mode::Plain, Mode::Accelerated] {
        let stage = Stage::new(mode);
        let flags = ["-g", "-pthread", sanitizer];
        let program = stage.compile("two_threads.c", "two_threads", &flags);
        assert_eq!(stage.run(&mut stage.command(program)).success(), "400 turns\n");
        if mode == Mode::Accelerated {
            assert!(stage.stats().ring() > 0, "{sanitizer}: nothing went through the ring");
        }
    }
}

#[test]
fn address_sanitizer() {
    with("-fsanitize=address");
}

#[test]
fn undefined_behavior_sanitizer() {
    with("-fsanitize=undefined");
}

#[test]
fn thread_sanitizer() {
    with("-fsanitize=thread");
}
