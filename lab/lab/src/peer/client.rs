//! The client of the role: runs tests and reports them.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;

use super::channel::Channel;
use super::protocol::{Acknowledgement, Request};
use super::server::cpu_ns;
use crate::bench::{Operation, Report, Test};
use crate::launch::Traffic;

/// Round trips before the first that counts.
const WARM_UP_ROUND_TRIPS: usize = 200;

/// Runs `tests` in order, each on a connection of its own, and prints one report per line.
pub(super) fn all<C: Channel>(
    address: SocketAddr,
    tests: &[Test],
    reports: &mut impl Write,
) -> Result<()> {
    for test in tests {
        let report = match test.operation {
            Operation::Pingpong => pingpong::<C>(address, test),
            Operation::Bandwidth | Operation::Rate => one_way::<C>(address, test),
            Operation::Short => short::<C>(address, test),
        };
        let report =
            report.with_context(|| format!("{} of {} bytes", test.operation.name(), test.size))?;
        writeln!(reports, "{}", serde_json::to_string(&report)?)?;
        reports.flush()?;
    }
    Ok(())
}

fn pingpong<C: Channel>(address: SocketAddr, test: &Test) -> Result<Report> {
    let size = test.size as usize;
    let mut channel = begin::<C>(address, test, 0)?;
    channel.set_nodelay()?;
    let round_trip = |channel: &mut C| -> Result<()> {
        channel.send_message(size)?;
        ensure!(channel.receive_message(size)?, "the server closed the connection");
        Ok(())
    };
    let warm_up_begun = Instant::now();
    let mut warm_up = 0;
    while warm_up < WARM_UP_ROUND_TRIPS && warm_up_begun.elapsed() < test.time {
        round_trip(&mut channel)?;
        warm_up += 1;
    }

    let mut times: Histogram<u64> = Histogram::new(3)?;
    let (cpu, begun) = (cpu_ns(), Instant::now());
    let mut before = begun;
    loop {
        round_trip(&mut channel)?;
        let after = Instant::now();
        times.record((after - before).as_nanos() as u64)?;
        before = after;
        if after - begun >= test.time {
            break;
        }
    }
    let (cpu, elapsed, messages) = (cpu_ns() - cpu, before - begun, times.len());
    let traffic = channel.traffic();
    let end = finish(&mut channel)?;
    check(end.bytes, (warm_up as u64 + messages) * test.size)?;
    let mut report = report(test, messages, elapsed, [cpu, end.cpu_ns], traffic);
    report.p50_ns = Some(times.value_at_quantile(0.5));
    report.p99_ns = Some(times.value_at_quantile(0.99));
    Ok(report)
}

fn one_way<C: Channel>(address: SocketAddr, test: &Test) -> Result<Report> {
    let size = test.size as usize;
    // Enough messages to open windows and to get past any threshold, but not so many that small
    // ones take long.
    let warm_up = ((2 << 20) / test.size).clamp(16, 2000);
    // The clock is read once in a while: reading it costs as much as a small message.
    let batch = ((1 << 20) / test.size).clamp(1, 256);
    let mut channel = begin::<C>(address, test, warm_up * test.size)?;
    for _ in 0..warm_up {
        channel.send_message(size)?;
    }
    check(acknowledgement(&mut channel)?.bytes, warm_up * test.size)?;

    let (cpu, begun) = (cpu_ns(), Instant::now());
    let mut messages = 0;
    loop {
        for _ in 0..batch {
            channel.send_message(size)?;
        }
        messages += batch;
        if begun.elapsed() >= test.time {
            break;
        }
    }
    let traffic = channel.traffic();
    let end = finish(&mut channel)?;
    let (cpu, elapsed) = (cpu_ns() - cpu, begun.elapsed());
    check(end.bytes, messages * test.size)?;
    Ok(report(test, messages, elapsed, [cpu, end.cpu_ns], traffic))
}

fn short<C: Channel>(address: SocketAddr, test: &Test) -> Result<Report> {
    let size = test.size as usize;
    let (cpu, begun) = (cpu_ns(), Instant::now());
    let mut messages = 0;
    let mut traffic: Option<Traffic> = None;
    loop {
        let mut channel = begin::<C>(address, test, 0)?;
        channel.set_nodelay()?;
        channel.send_message(size)?;
        ensure!(channel.receive_message(size)?, "the server closed the connection");
        if let Some(moved) = channel.traffic() {
            *traffic.get_or_insert_default() += moved;
        }
        // The server closes first, so that TIME_WAIT does not eat up the ports of the client.
        ensure!(channel.receive_some(1)? == 0, "the server sent too much");
        messages += 1;
        let elapsed = begun.elapsed();
        if elapsed >= test.time {
            return Ok(report(test, messages, elapsed, [cpu_ns() - cpu, 0], traffic));
        }
    }
}

fn begin<C: Channel>(address: SocketAddr, test: &Test, warm_up: u64) -> Result<C> {
    let mut channel =
        C::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    let request = Request { operation: test.operation, size: test.size as usize, warm_up };
    channel.send(&request.encode())?;
    Ok(channel)
}

fn finish<C: Channel>(channel: &mut C) -> Result<Acknowledgement> {
    channel.finish()?;
    acknowledgement(channel)
}

fn acknowledgement<C: Channel>(channel: &mut C) -> Result<Acknowledgement> {
    let mut bytes = [0; Acknowledgement::LENGTH];
    ensure!(channel.receive(&mut bytes)?, "the server closed the connection");
    Ok(Acknowledgement::decode(&bytes))
}

fn check(received: u64, sent: u64) -> Result<()> {
    ensure!(received == sent, "sent {sent} bytes, but {received} arrived");
    Ok(())
}

/// The report of a test; `cpu_ns` is the processor time of this end and of the other one. `traffic`
/// is queried before the connection ends, because a closed one no longer reports it.
fn report(
    test: &Test,
    messages: u64,
    elapsed: Duration,
    cpu_ns: [u64; 2],
    traffic: Option<Traffic>,
) -> Report {
    let [cpu_seconds, peer_cpu_seconds] = cpu_ns.map(|ns| ns as f64 / 1e9);
    Report {
        operation: test.operation,
        size: test.size,
        messages,
        seconds: elapsed.as_secs_f64(),
        cpu_seconds,
        peer_cpu_seconds,
        p50_ns: None,
        p99_ns: None,
        traffic,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::bench;
    use crate::peer::accelerated::{Copied, InPlace};
    use crate::peer::channel::Std;
    use crate::peer::server;

    /// Runs every operation with small and large messages, against a server in another thread.
    fn run_everything<C: Channel<Listener: Sync>>() -> Vec<Report> {
        let (listener, address) = C::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let operations =
            [Operation::Pingpong, Operation::Bandwidth, Operation::Rate, Operation::Short];
        let tests: Vec<Test> = operations
            .into_iter()
            .flat_map(|operation| {
                [1, 100_000].map(|size| Test { operation, size, time: Duration::from_millis(1) })
            })
            .collect();
        let mut reports = Vec::new();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    server::connection(&mut C::accept(&listener).unwrap()).unwrap();
                }
            });
            let result = all::<C>(address, &tests, &mut reports);
            done.store(true, Ordering::SeqCst);
            // Wakes the server, which serves a connection that is closed at once.
            drop(C::connect(address).unwrap());
            result.unwrap();
        });
        let reports = bench::parse(&String::from_utf8(reports).unwrap()).unwrap();
        assert_eq!(reports.len(), tests.len());
        assert!(reports.iter().all(|report| report.messages > 0 && report.seconds > 0.0));
        assert!(reports.iter().all(|report| !report.readings().is_empty()));
        reports
    }

    #[test]
    fn every_operation_runs_over_plain_sockets() {
        assert!(run_everything::<Std>().iter().all(|report| report.traffic.is_none()));
    }

    #[test]
    fn every_operation_runs_over_streams() {
        assert!(run_everything::<Copied>().iter().all(|report| report.traffic.is_some()));
    }

    #[test]
    fn every_operation_runs_in_place() {
        assert!(run_everything::<InPlace>().iter().all(|report| report.traffic.is_some()));
    }
}
