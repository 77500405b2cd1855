//! `seekwire run` under filters of system calls: it finds out whether the library can work there.

use std::process::Command;

use crate::harness::{Mode, Stage};

/// Bytes that two threads moved through the ring under a seccomp filter against `filter`.
fn ring_under(filter: &str) -> u64 {
    let stage = Stage::new(Mode::Accelerated);
    let wrapper = stage.compile("under_filter.c", "under_filter", &[]);
    let program = stage.compile("two_threads.c", "two_threads", &["-pthread"]);
    let inner = stage.command(program);
    let mut command = Command::new(wrapper);
    command.arg(filter).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    for (name, _) in inner.get_envs().filter(|(_, value)| value.is_none()) {
        command.env_remove(name);
    }
    assert_eq!(stage.run(&mut command).success(), "400 turns\n");
    stage.stats().ring()
}

#[test]
fn a_filter_that_does_no_harm_does_not_keep_a_program_off_the_ring() {
    assert!(ring_under("harmless") > 0);
}

#[test]
fn a_filter_that_kills_for_what_the_library_needs_kills_nobody() {
    assert_eq!(ring_under("needed"), 0);
}
