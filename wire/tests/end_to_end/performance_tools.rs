//! iperf3 and sockperf, for what they move and check rather than for their numbers.

use rustix::process::Signal;

use crate::harness::{Stage, in_every_mode, installed};

in_every_mode!(
    iperf3_one_stream,
    iperf3_reverse,
    iperf3_parallel_streams,
    iperf3_both_directions,
    sockperf_ping_pong,
    sockperf_throughput,
);

fn iperf3_one_stream(stage: &mut Stage) {
    iperf3(stage, &[]);
}

fn iperf3_reverse(stage: &mut Stage) {
    iperf3(stage, &["--reverse"]);
}

fn iperf3_parallel_streams(stage: &mut Stage) {
    iperf3(stage, &["--parallel", "4"]);
}

fn iperf3_both_directions(stage: &mut Stage) {
    iperf3(stage, &["--bidir"]);
}

fn iperf3(stage: &Stage, options: &[&str]) {
    const BYTES: u64 = 200_000_000;
    let program = installed("iperf3");
    let (address, port) = (stage.address.to_string(), stage.port());
    let mut command = stage.command(&program);
    command.args(["--server", "--one-off", "--bind", &address, "--port", &port.to_string()]);
    let server = stage.serve(&mut command, port);

    let mut command = stage.command(&program);
    command.args([
        "--client",
        &address,
        "--port",
        &port.to_string(),
        "--json",
        "--bytes",
        &BYTES.to_string(),
    ]);
    let text = stage.run(command.args(options)).success();
    let report: serde_json::Value = serde_json::from_str(&text).expect("iperf3 writes JSON");
    assert!(report["error"].is_null(), "{}", report["error"]);
    let moved = |direction: &str| report["end"][direction]["bytes"].as_u64().unwrap_or(0);
    assert!(moved("sum_received") > 0, "{}", report["end"]);
    // With both directions, whichever is first to have moved them all ends the test.
    let most = moved("sum_sent").max(moved("sum_sent_bidir_reverse"));
    assert!(most >= BYTES, "{}", report["end"]);
    server.finish().success();
}

fn sockperf_ping_pong(stage: &mut Stage) {
    // Without a limit of ours sockperf has numbers for 600,000 messages a second, and the ring can
    // be faster.
    let report = sockperf(stage, &["ping-pong", "--msg-size", "64", "--mps", "6000000"]);
    assert!(
        report.contains(
            "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0"
        ),
        "{report}"
    );
}

fn sockperf_throughput(stage: &mut Stage) {
    let report = sockperf(stage, &["throughput", "--msg-size", "1472"]);
    assert!(report.contains("Summary: BandWidth is"), "{report}");
}

fn sockperf(stage: &Stage, test: &[&str]) -> String {
    let program = installed("sockperf");
    let (address, port) = (stage.address.to_string(), stage.port());
    let place = ["--tcp", "--ip", &address, "--port", &port.to_string()];
    let server = stage.serve(stage.command(&program).arg("server").args(place), port);
    let report =
        stage.run(stage.command(&program).args(test).args(place).args(["--time", "1"])).success();
    server.stop(Signal::TERM);
    report
}
