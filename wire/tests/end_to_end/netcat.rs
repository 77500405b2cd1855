//! netcat and socat: bulk from standard input to a file, half-closes, relays.

use std::fs;
use std::process::Command;

use crate::harness::{Mode, Stage, in_every_mode, installed, sha256};

in_every_mode!(netcat_sends_a_file, socat_sends_a_file, socat_relays_in_the_middle);

const LENGTH: usize = 50_000_000;

fn netcat_sends_a_file(stage: &mut Stage) {
    let (file, back, port) = (stage.file("file", LENGTH), stage.path("back"), stage.port());
    let nc = installed("nc.openbsd").display().to_string();
    let receive = format!("exec {nc} -N -l {} {port} >{}", stage.address, back.display());
    let receiver = stage.serve(stage.command("sh").args(["-c", &receive]), port);
    let send = format!("exec {nc} -N {} {port} <{}", stage.address, file.display());
    stage.run(stage.command("sh").args(["-c", &send])).success();
    receiver.finish().success();
    assert_eq!(sha256(&back), sha256(&file));
}

fn socat_sends_a_file(stage: &mut Stage) {
    let (file, back, port) = (stage.file("file", LENGTH), stage.path("back"), stage.port());
    let receiver = stage.serve(
        &mut socat(
            stage,
            &[
                &format!("TCP-LISTEN:{port},bind={}", stage.address),
                &format!("CREATE:{}", back.display()),
            ],
        ),
        port,
    );
    let to = format!("TCP:{}:{port}", stage.address);
    stage.run(&mut socat(stage, &[&format!("OPEN:{},rdonly", file.display()), &to])).success();
    receiver.finish().success();
    assert_eq!(sha256(&back), sha256(&file));
}

/// Bytes in both directions, with a half-close in each, through a process that only passes them on.
fn socat_relays_in_the_middle(stage: &mut Stage) {
    let (server, inner) =
        stage.serve_printing_port(&mut stage.script("echo_server.py", &["epoll"]));
    let port = stage.port();
    let listen = format!("TCP-LISTEN:{port},bind={},fork,reuseaddr", stage.address);
    let mut relay = stage.command(installed("socat"));
    let relay =
        stage.serve(relay.args(["-t", "60", &listen, &format!("TCP:127.0.0.1:{inner}")]), port);
    let address = stage.address.to_string();
    let arguments = [&address, &port.to_string(), "--connections", "3"];
    let echoed = stage.run(&mut stage.script("echo_client.py", &arguments)).success();
    assert_eq!(echoed.trim(), (3 * 8_000_000).to_string());
    drop(relay);
    server.finish().success();
}

/// socat copying from the first address to the second only.
fn socat(stage: &Stage, addresses: &[&str]) -> Command {
    let mut command = stage.command(installed("socat"));
    command.arg("-u").args(addresses);
    command
}

#[test]
fn a_plain_netcat_is_echoed_by_an_accelerated_server() {
    let stage = Stage::new(Mode::Accelerated);
    let (server, port) =
        stage.serve_printing_port(&mut stage.script("echo_server.py", &["threads"]));
    let file = stage.file("file", 1_000_000);
    let back = stage.path("back");
    let through = format!(
        "{} -N 127.0.0.1 {port} <{} >{}",
        installed("nc.openbsd").display(),
        file.display(),
        back.display()
    );
    // netcat is plain: the accelerated server must serve it by TCP, to the byte.
    stage.run(stage.plain_command("sh").args(["-c", &through])).success();
    assert!(fs::read(&back).expect("what netcat wrote") == fs::read(&file).expect("the file"));
    server.finish().success();
    assert_eq!(stage.stats().ring(), 0);
}
