//! The promises of TCP to a program, step by step, at both ends of one connection
//! (wire/tests/programs/steps.py).

use rustix::process::Signal;

use crate::harness::{Child, Mode, Stage, in_every_mode};

in_every_mode!(
    half_closes_in_both_directions,
    close_with_unread_bytes_resets,
    linger_of_zero_resets,
    killed_peer_ends_the_stream,
    out_of_band_bytes_arrive,
    unread_bytes_are_counted,
    receive_timeouts_are_kept,
    sendfile_keeps_the_order,
    more_than_any_buffer_waits_for_the_reader,
    stopped_peer_goes_on,
);

/// Enough calls for any threshold, and bytes for any switch back.
fn warm_up(ends: &mut Ends) {
    for _ in 0..200 {
        ends.pass(600);
    }
}

fn half_closes_in_both_directions(stage: &mut Stage) {
    let mut ends = Ends::connected(stage);
    ends.tell_client("send 3000");
    ends.tell_client("shutdown");
    assert_eq!(ends.server.ask("end"), "3000 eof");
    ends.tell_server("send 5000");
    ends.tell_server("shutdown");
    assert_eq!(ends.client.ask("end"), "5000 eof");
    assert_eq!(ends.client.ask("send 1"), "EPIPE");
    ends.finish();
}

fn close_with_unread_bytes_resets(stage: &mut Stage) {
    let mut ends = Ends::connected(stage);
    ends.tell_client("send 3000");
    ends.tell_server("recv 1");
    ends.tell_server("close");
    assert_eq!(ends.client.ask("end"), "0 ECONNRESET");
    ends.finish();
}

fn linger_of_zero_resets(stage: &mut Stage) {
    let mut ends = Ends::connected(stage);
    ends.tell_server("linger0");
    ends.tell_server("close");
    assert_eq!(ends.client.ask("end"), "0 ECONNRESET");
    ends.finish();
}

fn killed_peer_ends_the_stream(stage: &mut Stage) {
    let mut ends = Ends::connected(stage);
    ends.tell_server("send 30000");
    ends.server.signal(Signal::KILL);
    // The sent bytes arrive; then the kernel reports the end of the stream.
    assert_eq!(ends.client.ask("end"), "30000 eof");
    ends.client.finish().success();
}

fn out_of_band_bytes_arrive(stage: &mut Stage) {
    let mut ends = Ends::connected(stage);
    ends.tell_client("send 2000");
    ends.tell_client("oob");
    ends.tell_client("send 2000");
    ends.tell_server("recv 2000");
    assert_eq!(ends.server.ask("recv-oob"), "!");
    ends.tell_server("recv 2000");
    ends.finish();
}

fn unread_bytes_are_counted(stage: &mut Stage) {
    let mut ends = Ends::connected(stage);
    ends.tell_client("send 4321");
    // The call that reads the first byte waits for all of them to have been sent.
    ends.tell_server("recv 1");
    assert_eq!(ends.server.ask("unread"), "4320");
    ends.tell_server("recv 4320");
    assert_eq!(ends.server.ask("unread"), "0");
    ends.finish();
}

fn receive_timeouts_are_kept(stage: &mut Stage) {
    let mut ends = Ends::connected(stage);
    ends.tell_client("timeout 1");
    assert_eq!(ends.client.ask("recv 1"), "EAGAIN");
    ends.pass(1000);
    ends.finish();
}

fn sendfile_keeps_the_order(stage: &mut Stage) {
    let mut ends = Ends::connected(stage);
    for _ in 0..5 {
        ends.server.tell("recv 81000");
        ends.tell_client("send 500");
        ends.tell_client("splice 80000");
        ends.tell_client("send 500");
        assert_eq!(ends.server.line(), "ok");
    }
    ends.finish();
}

fn more_than_any_buffer_waits_for_the_reader(stage: &mut Stage) {
    let mut ends = Ends::connected(stage);
    ends.client.tell("send 200000000");
    ends.tell_server("recv 200000000");
    assert_eq!(ends.client.line(), "ok");
    ends.finish();
}

fn stopped_peer_goes_on(stage: &mut Stage) {
    let mut ends = Ends::connected(stage);
    ends.server.signal(Signal::STOP);
    ends.client.tell("send 50000000");
    ends.server.tell("recv 50000000");
    ends.server.signal(Signal::CONT);
    assert_eq!(ends.server.line(), "ok");
    assert_eq!(ends.client.line(), "ok");
    ends.finish();
}

/// A signal handler that the program installed with SA_RESTART does not show in its calls.
#[test]
fn one_accelerated_end_and_one_plain_end_understand_each_other() {
    for server_is_plain in [false, true] {
        let stage = Stage::new(Mode::Accelerated);
        let command = |plain, arguments: &[&str]| match plain {
            true => stage.plain_script("steps.py", arguments),
            false => stage.script("steps.py", arguments),
        };
        let (server, port) = stage.serve_printing_port(&mut command(server_is_plain, &["listen"]));
        let client = stage.start(&mut command(!server_is_plain, &["connect", "127.0.0.1", &port]));
        let mut ends = Ends { server, client };
        warm_up(&mut ends);
        ends.tell_client("shutdown");
        assert_eq!(ends.server.ask("end"), "0 eof");
        ends.finish();
        let stats = stage.stats();
        assert_eq!(stats.ring(), 0, "{stats:?}");
        assert_eq!(stats.tcp(), 2 * 200 * 600, "{stats:?}");
    }
}

#[test]
fn switched_off_library_moves_nothing() {
    let mut stage = Stage::new(Mode::Accelerated);
    stage.set("SEEKWIRE", "off");
    Ends::connected(&stage).finish();
    assert_eq!(stage.stats().ring(), 0);
}

#[test]
fn every_byte_is_counted_once() {
    let stage = Stage::new(Mode::Accelerated);
    let mut ends = Ends::connected(&stage);
    for _ in 0..50 {
        ends.pass(60_000);
    }
    ends.finish();
    let stats = stage.stats();
    let each_way = 200 * 600 + 50 * 60_000;
    assert_eq!(stats.bytes.tx_tcp + stats.bytes.tx_ring, 2 * each_way, "{stats:?}");
    assert_eq!(stats.bytes.rx_tcp + stats.bytes.rx_ring, 2 * each_way, "{stats:?}");
    assert!(stats.ring() > stats.tcp(), "{stats:?}");
}

struct Ends {
    server: Child,
    client: Child,
}

impl Ends {
    /// Two programs with a connection that has seen some traffic.
    fn connected(stage: &Stage) -> Self {
        let (server, port) = stage.serve_printing_port(&mut stage.script("steps.py", &["listen"]));
        let client = stage.start(&mut stage.script("steps.py", &["connect", "127.0.0.1", &port]));
        let mut ends = Self { server, client };
        warm_up(&mut ends);
        ends
    }

    /// `length` bytes from the client to the server, and as many back.
    fn pass(&mut self, length: usize) {
        let (send, recv) = (format!("send {length}"), format!("recv {length}"));
        self.server.tell(&recv);
        self.tell_client(&send);
        assert_eq!(self.server.line(), "ok");
        self.client.tell(&recv);
        self.tell_server(&send);
        assert_eq!(self.client.line(), "ok");
    }

    #[track_caller]
    fn tell_client(&mut self, step: &str) {
        assert_eq!(self.client.ask(step), "ok", "client: {step}");
    }

    #[track_caller]
    fn tell_server(&mut self, step: &str) {
        assert_eq!(self.server.ask(step), "ok", "server: {step}");
    }

    fn finish(self) {
        self.client.finish().success();
        self.server.finish().success();
    }
}
