//! Servers that work in other ways than those of the other scenarios: memcached hands its
//! connections to threads and lowers its own limits, haproxy stands between two others, rsync forks
//! for each client.

use std::fs;

use rustix::process::Signal;

use crate::harness::{Stage, in_every_mode, installed, python, sha256};

in_every_mode!(memcached, haproxy, rsync);

fn memcached(stage: &mut Stage) {
    const VALUES: &str = "1000";
    let (address, port) = (stage.address.to_string(), stage.port());
    let mut command = stage.command(installed("memcached"));
    command.args(["-u", "root", "-t", "2", "-l", &address, "-p", &port.to_string()]);
    let server = stage.serve(&mut command, port);
    let mut client = stage.script("memcached_client.py", &[&address, &port.to_string(), VALUES]);
    assert_eq!(stage.run(&mut client).success().trim(), VALUES);
    server.stop(Signal::TERM);
}

fn haproxy(stage: &mut Stage) {
    fs::create_dir(stage.path("site")).expect("a directory");
    let file = stage.file("site/file", 20_000_000);
    let (address, inner_port, port) = (stage.address.to_string(), stage.port(), stage.port());
    let mut command = stage.command(python());
    command.args(["-m", "http.server", "--bind", &address, "--directory"]).arg(stage.path("site"));
    let inner = stage.serve(command.arg(inner_port.to_string()), inner_port);

    let configuration = format!(
        "defaults\n mode http\n timeout connect 60s\n timeout client 60s\n timeout server 60s\n\
         listen proxy\n bind {address}:{port}\n server inner {address}:{inner_port}\n"
    );
    fs::write(stage.path("haproxy.cfg"), configuration).expect("a file");
    let mut command = stage.command(installed("haproxy"));
    let outer = stage.serve(command.arg("-db").arg("-f").arg(stage.path("haproxy.cfg")), port);

    let back = stage.path("back");
    let mut command = stage.command(installed("curl"));
    command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--output"]).arg(&back);
    stage.run(command.arg(format!("http://{address}:{port}/file"))).success();
    assert_eq!(sha256(&back), sha256(&file));
    outer.stop(Signal::TERM);
    inner.stop(Signal::INT);
}

fn rsync(stage: &mut Stage) {
    fs::create_dir(stage.path("module")).expect("a directory");
    let file = stage.file("module/large", 20_000_000);
    for number in 0..100 {
        stage.file(&format!("module/{number}"), number * 100);
    }
    // As root it would otherwise become nobody, whom the registry rightly keeps out.
    let user = if rustix::process::geteuid().is_root() { "uid = root\ngid = root\n" } else { "" };
    let configuration =
        format!("use chroot = no\n{user}[module]\npath = {}\n", stage.path("module").display());
    fs::write(stage.path("rsyncd.conf"), configuration).expect("a file");
    let (address, port) = (stage.address.to_string(), stage.port());
    let mut command = stage.command(installed("rsync"));
    command.args([
        "--daemon",
        "--no-detach",
        "--address",
        &address,
        "--port",
        &port.to_string(),
        "--config",
    ]);
    let server = stage.serve(command.arg(stage.path("rsyncd.conf")), port);

    let mut client = stage.command(installed("rsync"));
    client
        .args(["--archive", &format!("rsync://{address}:{port}/module/")])
        .arg(stage.path("back"));
    stage.run(&mut client).success();
    assert_eq!(sha256(&stage.path("back/large")), sha256(&file));
    for number in 0..100 {
        let name = number.to_string();
        let read = |directory: &str| fs::read(stage.path(directory).join(&name)).expect("a file");
        assert_eq!(read("back"), read("module"));
    }
    server.stop(Signal::TERM);
}
