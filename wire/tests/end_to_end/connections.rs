//! Many connections at once, and what each of them may cost.

use std::fs;

use crate::harness::{Child, Mode, Stage, in_every_mode};

in_every_mode!(a_thousand_connections);

const CONNECTIONS: usize = 1000;
/// Resident memory of a process for one idle connection, its share of the interpreter included.
const KIB_FOR_EACH: usize = 100;

fn a_thousand_connections(stage: &mut Stage) {
    if stage.mode() == Mode::TakenBack {
        // Each moves ten kilobytes in all.
        stage.set("SEEKWIRE_FALLBACK_AFTER", "2000");
    }
    // Three descriptors for each accelerated connection.
    let needed = 4 * CONNECTIONS as u64;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let enough = limit.maximum.is_none_or(|hard| hard >= needed);

    let raise = |command: &str| format!("ulimit -S -n {needed} 2>/dev/null; exec {command}");
    let python = crate::harness::python().display().to_string();
    let script = |name: &str| format!("{python} {}", crate::harness::source(name).display());
    let serve = raise(&format!("{} asyncio {}", script("echo_server.py"), stage.address));
    let (mut server, port) = stage.serve_printing_port(stage.command("sh").args(["-c", &serve]));
    let before = resident_kib(&server);

    let call = raise(&format!("{} {} {port} {CONNECTIONS}", script("many.py"), stage.address));
    let mut client = stage.start(stage.command("sh").args(["-c", &call]));
    assert_eq!(client.line(), (CONNECTIONS * 20).to_string());

    let grown = resident_kib(&server).saturating_sub(before);
    assert!(
        grown < CONNECTIONS * KIB_FOR_EACH,
        "{CONNECTIONS} connections made the server grow by {grown} KiB"
    );
    client.finish().success();
    server.end_input();
    server.finish().success();

    let attached = stage.stats().connections.attached as usize;
    if stage.mode() == Mode::Accelerated && enough {
        assert_eq!(attached, 2 * CONNECTIONS, "not every connection was accelerated");
    }
}

fn resident_kib(child: &Child) -> usize {
    let status =
        fs::read_to_string(format!("/proc/{}/status", child.pid())).expect("the child lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
