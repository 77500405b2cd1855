//! Programs that call the C library for their sockets, and wait for them by system calls of their
//! own: Bun, and Rust with smol. Nobody sees how they wait, so they stay on TCP.

use std::path::Path;
use std::process::Command;

use crate::harness::{Mode, Stage, installed_apart, source};

/// Starts a program as the server ("serve") or the client ("talk") of messages that are sent back.
type Program = fn(&Stage, &str) -> Command;

fn bun(stage: &Stage, role: &str) -> Command {
    let mut command = stage.command(installed_apart(Path::new("bun/bun")));
    command.arg(source("bun.js")).arg(role);
    command
}

fn smol(stage: &Stage, role: &str) -> Command {
    let mut command = stage.command(installed_apart(Path::new("smol/smol-echo")));
    command.arg(role);
    command
}

fn python(stage: &Stage, role: &str) -> Command {
    match role {
        "serve" => stage.script("echo_server.py", &["epoll"]),
        _ => stage.script("echo_client.py", &["--bytes", "2000000", "127.0.0.1"]),
    }
}

fn try_in_both_modes(server: Program, client: Program) {
    for mode in [Mode::Plain, Mode::Accelerated] {
        let stage = Stage::new(mode);
        let (mut served, port) = stage.serve_printing_port(&mut server(&stage, "serve"));
        stage.run(client(&stage, "talk").arg(port)).success();
        // Some end with their connection, the others with their input.
        served.end_input();
        served.finish().success();
        assert_eq!(stage.stats().ring(), 0, "{:?}", stage.stats());
    }
}

macro_rules! pairs {
    ($($name:ident: $server:ident $client:ident,)*) => {$(
        #[test]
        fn $name() {
            try_in_both_modes($server, $client);
        }
    )*};
}

pairs! {
    bun_serves_bun: bun bun,
    bun_serves_python: bun python,
    python_serves_bun: python bun,
    smol_serves_smol: smol smol,
    smol_serves_python: smol python,
    python_serves_smol: python smol,
}
