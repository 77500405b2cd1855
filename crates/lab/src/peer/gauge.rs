//! Ends of network tests: a server of `seekwire-gauge`, and a client that runs the tests on its standard input.

use std::io::{BufRead, Write};
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use gauge::{Client, Server};

use crate::network::{Done, Measured, Order};

/// Serves at `address` until it is killed, and says at which port.
pub(super) fn serve(address: Option<String>, announce: &mut impl Write) -> Result<()> {
    let address: SocketAddr = address.and_then(|address| address.parse().ok()).context("say ADDRESS:PORT")?;
    let server = Server::bind(address)?;
    writeln!(announce, "ready {}", server.local_addr().port())?;
    announce.flush()?;
    server.serve(|event| {
        if matches!(event, gauge::Event::Failed { .. } | gauge::Event::Refused { .. }) {
            eprintln!("{event}");
        }
    })?;
    Ok(())
}

/// Runs one test for each line, and prints what came of it.
pub(super) fn drive(orders: impl BufRead, reports: &mut impl Write) -> Result<()> {
    for line in orders.lines() {
        let order: Order = serde_json::from_str(&line?).context("not an order")?;
        let done = Done { turn: order.turn, outcome: run(&order).map_err(|error| error.to_string()) };
        writeln!(reports, "{}", serde_json::to_string(&done)?)?;
        reports.flush()?;
    }
    Ok(())
}

fn run(order: &Order) -> Result<Measured, gauge::Error> {
    // A connection for each test: a server does not wait for long pauses to end.
    let reading = Client::connect(order.server)?.run(&order.test)?;
    let quantile = |quantile: f64| {
        let histogram = reading.histogram.as_ref();
        histogram.map(|histogram| histogram.value_at_quantile(quantile) as f64 / 1e3)
    };
    Ok(Measured {
        seconds: reading.seconds,
        bytes: reading.bytes,
        rate: reading.rate,
        round_trip_us: [quantile(0.5), quantile(0.99), quantile(0.999)],
        local: reading.local,
        remote: reading.remote,
    })
}
