//! The pipelines of `flow-peers` that are roles of the laboratory: every block comes once, whole.

use std::time::Duration;

use seekwire_lab::launch::{Finished, Mode, Program, Running};
use seekwire_lab::pipeline::{PipelineOrder, PipelineReport};

const ORDER: PipelineOrder = PipelineOrder {
    size: 2048,
    milliseconds: 10,
    interval_ns: 0,
    limit: 64 << 10,
    copies: 3,
    sink_ns: 0,
    service_ns: 0,
    pause_ms: 0,
};

fn role(runtime: &str) -> Program {
    let command = env!("CARGO_BIN_EXE_seekwire-lab");
    Program::role(command, &Mode::Plain)
        .args(["pipeline", runtime])
        .timeout(Duration::from_secs(60))
}

fn report(finished: &Finished) -> PipelineReport {
    serde_json::from_str(finished.stdout.lines().last().unwrap()).unwrap()
}

/// Two processes.
fn joined(order: &PipelineOrder) -> PipelineReport {
    let start = |rank| role("joined").arg(rank).args(order.arguments()).start().unwrap();
    let mut both: [Running; 2] = ["0", "1"].map(start);
    let address = |running: &Running| {
        let line = running.wait_for_line(|line| line.starts_with("ready ")).unwrap();
        line.trim_start_matches("ready ").to_owned()
    };
    let addresses = both.each_ref().map(address);
    let line = serde_json::to_string(&addresses).unwrap();
    both.iter_mut().for_each(|running| running.send_line(&line).unwrap());
    let [first, second] = both.map(|running| report(&running.wait().unwrap()));
    let mut all = first;
    all.join(second);
    all
}

fn alone(runtime: &str, order: &PipelineOrder) -> PipelineReport {
    report(&role(runtime).args(order.arguments()).run().unwrap())
}

#[test]
fn every_stage_reads_every_block() {
    let timed = PipelineOrder { interval_ns: 100_000, ..ORDER };
    for order in [ORDER, timed] {
        for runtime in ["local", "crossbeam", "timely", "joined"] {
            let report = match runtime {
                "joined" => joined(&order),
                _ => alone(runtime, &order),
            };
            assert!(report.blocks > 0 && report.seconds > 0.0, "{runtime}: {report:?}");
            assert_eq!(report.sums, [order.expected(report.blocks); 3], "{runtime}");
            assert_eq!(report.p50_ns.is_some(), order.interval_ns > 0, "{runtime}");
            assert!(report.p50_ns <= report.p99_ns && report.resident.is_some(), "{runtime}");
        }
    }
}

#[test]
fn a_pause_is_reported_and_copies_have_begun_with_every_block() {
    let short = PipelineOrder { service_ns: 100_000, pause_ms: 5, milliseconds: 30, ..ORDER };
    for runtime in ["local", "crossbeam", "joined"] {
        // The first copy pauses only if it gets a block after a third of the time.
        let longer = [1, 10, 100].map(|times| PipelineOrder { milliseconds: 30 * times, ..short });
        let pauses = longer.iter().map(|order| {
            let report = match runtime {
                "joined" => joined(order),
                _ => alone(runtime, order),
            };
            let begun: usize = report.copies.iter().map(|copy| copy.starts.len()).sum();
            assert_eq!(begun as u64, report.blocks, "{runtime}");
            report.copies.iter().filter(|copy| copy.resumed.is_some()).count()
        });
        assert_eq!(pauses.into_iter().find(|pauses| *pauses > 0), Some(1), "{runtime}");
    }
}
