//! Echo servers in every style in which a program may wait for its sockets.

use crate::harness::{Stage, in_every_mode};

in_every_mode!(
    threads,
    forked_for_each_connection,
    forked_before_accepting,
    select,
    poll,
    epoll_level_triggered,
    epoll_edge_triggered,
    asyncio,
    non_blocking_client,
    ipv6,
);

fn threads(stage: &mut Stage) {
    echo(stage, "threads", "127.0.0.1", &[]);
}

fn forked_for_each_connection(stage: &mut Stage) {
    echo(stage, "fork", "127.0.0.1", &[]);
}

fn forked_before_accepting(stage: &mut Stage) {
    echo(stage, "prefork", "127.0.0.1", &[]);
}

fn select(stage: &mut Stage) {
    echo(stage, "select", "127.0.0.1", &[]);
}

fn poll(stage: &mut Stage) {
    echo(stage, "poll", "127.0.0.1", &[]);
}

fn epoll_level_triggered(stage: &mut Stage) {
    echo(stage, "epoll", "127.0.0.1", &[]);
}

fn epoll_edge_triggered(stage: &mut Stage) {
    echo(stage, "epoll-edge", "127.0.0.1", &[]);
}

fn asyncio(stage: &mut Stage) {
    echo(stage, "asyncio", "127.0.0.1", &[]);
}

fn non_blocking_client(stage: &mut Stage) {
    echo(stage, "epoll-edge", "127.0.0.1", &["--non-blocking"]);
}

fn ipv6(stage: &mut Stage) {
    echo(stage, "epoll", "::1", &[]);
}

fn echo(stage: &Stage, style: &str, address: &str, options: &[&str]) {
    const CONNECTIONS: u64 = 3;
    const BYTES: u64 = 3_000_000;
    let (server, port) =
        stage.serve_printing_port(&mut stage.script("echo_server.py", &[style, address]));
    for seed in ["1", "2"] {
        let sizes = [
            "--connections",
            &CONNECTIONS.to_string(),
            "--bytes",
            &BYTES.to_string(),
            "--seed",
            seed,
        ];
        let mut client = stage.script("echo_client.py", &[address, &port]);
        let echoed = stage.run(client.args(sizes).args(options)).success();
        assert_eq!(echoed.trim(), (CONNECTIONS * BYTES).to_string());
    }
    server.finish().success();
}
