//! Accelerated programs that have nothing to do use no CPU.

use std::fs;
use std::time::Duration;

use crate::harness::{Child, Mode, Stage};

/// CPU time that a pair of programs may use in [`WINDOW`].
const BUDGET: Duration = Duration::from_millis(10);
const WINDOW: Duration = Duration::from_secs(10);

#[test]
fn blocked_in_recv() {
    idle("threads");
}

#[test]
fn waiting_in_epoll() {
    idle("epoll");
}

#[test]
fn waiting_in_an_event_loop() {
    idle("asyncio");
}

#[test]
fn waiting_in_poll() {
    idle("poll");
}

fn idle(style: &str) {
    let stage = Stage::new(Mode::Accelerated);
    let (server, port) = stage.serve_printing_port(&mut stage.script("echo_server.py", &[style]));
    let mut client = stage.start(&mut stage.script("steps.py", &["connect", "127.0.0.1", &port]));
    for _ in 0..200 {
        assert_eq!(client.ask("send 1000"), "ok");
        assert_eq!(client.ask("recv 1000"), "ok");
    }
    // Now both wait on the accelerated connection: the server for the next message, the client for
    // bytes that nobody sends.
    client.tell("recv 1");

    let before = cpu_time(&server) + cpu_time(&client);
    std::thread::sleep(WINDOW);
    let used = cpu_time(&server) + cpu_time(&client) - before;
    assert!(used < BUDGET, "two idle programs used {used:?} of CPU time in {WINDOW:?}");

    client.signal(rustix::process::Signal::KILL);
    server.finish().success();
    assert!(stage.stats().ring() > 0, "nothing went through the ring");
}

/// CPU time of all threads, to the nanosecond: the first field of schedstat
/// (Documentation/scheduler/sched-stats).
fn cpu_time(child: &Child) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.pid())).expect("the child lives");
    let nanoseconds = tasks
        .map(|task| {
            let text = fs::read_to_string(task.expect("a thread").path().join("schedstat"))
                .expect("a thread that lives");
            text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).expect("nanoseconds")
        })
        .sum();
    Duration::from_nanos(nanoseconds)
}
