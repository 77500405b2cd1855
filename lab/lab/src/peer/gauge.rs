//! Ends of network tests: a server of `seekwire-gauge`, and a client that runs the tests on its
//! standard input.

use std::io::{self, BufRead, Write};
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use seekwire_gauge::{Client, Server};

use crate::network::{GaugeOrder, GaugeReading, GaugeResult};

/// Serves at `address` until its standard input ends, and prints its port.
pub(super) fn serve(address: Option<String>, announce: &mut impl Write) -> Result<()> {
    let address: SocketAddr =
        address.and_then(|address| address.parse().ok()).context("say ADDRESS:PORT")?;
    let server = Server::bind(address)?;
    writeln!(announce, "ready {}", server.local_addr().port())?;
    announce.flush()?;
    // The laboratory may be killed: no one else would stop a server in a namespace without a name.
    let stop = server.stop();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        stop.stop();
    });
    server.serve(|event| {
        if matches!(
            event,
            seekwire_gauge::Event::Failed { .. } | seekwire_gauge::Event::Refused { .. }
        ) {
            seekwire_program::tell(event);
        }
    })?;
    Ok(())
}

/// Runs one test for each line, and prints the result.
pub(super) fn drive(orders: impl BufRead, reports: &mut impl Write) -> Result<()> {
    for line in orders.lines() {
        let order: GaugeOrder = serde_json::from_str(&line?).context("not an order")?;
        let done = GaugeResult {
            turn: order.turn,
            outcome: run(&order).map_err(|error| error.to_string()),
        };
        writeln!(reports, "{}", serde_json::to_string(&done)?)?;
        reports.flush()?;
    }
    Ok(())
}

fn run(order: &GaugeOrder) -> Result<GaugeReading, seekwire_gauge::Error> {
    // A connection for each test: a server does not wait through long pauses. The interface may
    // just have been changed, and its link still has to come up. ^C kills this process.
    let reading =
        Client::of(order.server).persist(&order.test, seekwire_gauge::LINK_RETURN, &|| false)?;
    let quantile = |quantile: f64| {
        let histogram = reading.histogram.as_ref();
        histogram.map(|histogram| histogram.value_at_quantile(quantile) as f64 / 1e3)
    };
    Ok(GaugeReading {
        seconds: reading.seconds,
        bytes: reading.bytes,
        rate: reading.rate,
        round_trip_us: [quantile(0.5), quantile(0.99), quantile(0.999)],
        one_way_p50_us: reading.one_way_quantile(0.5).map(|seconds| seconds * 1e6),
        local: reading.local,
        remote: reading.remote,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use seekwire_gauge::{Event, Test, TestKind};

    use super::*;

    /// Also if an assertion fails: the scope waits for the server.
    struct StopAtEnd<'a>(&'a Server);

    impl Drop for StopAtEnd<'_> {
        fn drop(&mut self) {
            self.0.stop().stop();
        }
    }

    #[test]
    fn a_server_that_is_busy_is_waited_for() {
        let server = Server::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr();
        let (sender, events) = channel();
        let tell = |event: Event<'_>| drop(sender.send(format!("{event:?}")));
        let test = Test::new(TestKind::Stream, 1000, Duration::from_millis(10));
        let order = serde_json::to_string(&GaugeOrder { turn: 1, server: address, test }).unwrap();
        let mut reports = Vec::new();
        thread::scope(|scope| {
            let serving = scope.spawn(|| server.serve(tell));
            let stop = StopAtEnd(&server);
            let wait_for = |name: &str| assert!(events.iter().any(|event| event.starts_with(name)));
            let (leave, left) = channel::<()>();
            let first = scope.spawn(move || {
                let interrupted = || left.try_recv().is_ok();
                let test = Test::new(TestKind::Stream, 1000, Test::MAX_TIME);
                Client::of(address).run_unless(&test, &interrupted)
            });
            wait_for("Begun");
            let second = scope.spawn(|| drive(order.as_bytes(), &mut reports));
            wait_for("Refused");
            leave.send(()).unwrap();
            second.join().unwrap().unwrap();
            assert!(matches!(first.join().unwrap(), Err(seekwire_gauge::Error::Interrupted)));
            drop(stop);
            serving.join().unwrap().unwrap();
        });
        let done: GaugeResult = serde_json::from_slice(&reports).unwrap();
        assert!(done.outcome.unwrap().bytes > 0);
    }
}
