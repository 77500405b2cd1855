//! Latency, throughput and CPU load of TCP between two hosts, after TCP_RR, TCP_STREAM and
//! TCP_MAERTS of netperf (R. Jones, "Care and Feeding of Netperf", version 2.7): one end is a
//! server for other hosts, the other end chooses the tests.
//!
//! ```text
//! client    connect, run a test, get a reading
//! server    accept, limits, stop
//!   session    one client of the server
//!   handover   a data connection, from the thread that accepts it to its session
//!   transfer   the bytes of a test: requests and responses, streams
//!   message    the messages between the two ends, in lines of JSON
//!   lines      reads lines without taking a byte of what follows
//!   pattern    the values of the bytes of a test
//!   socket     congestion control, time-outs
//!   early_stop early ends of a test
//! test, reading, cpu_load    the request, its result, its CPU cost
//! ```
//!
//! ```no_run
//! use std::time::Duration;
//! use seekwire_gauge::{Client, TestKind, Test};
//!
//! // The other host runs `seekwire nic serve`, or Server::bind and Server::serve.
//! let mut client = Client::connect("192.0.2.1:7117")?;
//! let test = Test::new(TestKind::RequestResponse, 64, Duration::from_secs(2));
//! let reading = client.run(&test)?;
//! println!("{:.1} us one way", reading.one_way_seconds().unwrap() * 1e6);
//! println!("{} ns p99 there and back", reading.histogram.unwrap().value_at_quantile(0.99));
//! # Ok::<(), seekwire_gauge::Error>(())
//! ```
//!
//! The sockets are blocking kernel sockets, and each end moves the bytes of a test in one thread.
//! There is no encryption and no password: anyone who reaches the port may measure, within limits.
//! The data are meaningless.

#![forbid(unsafe_code)]

use std::time::Duration;

mod client;
mod cpu_load;
mod early_stop;
mod error;
mod handover;
mod limits;
mod lines;
mod message;
mod pattern;
mod reading;
mod server;
mod server_state;
mod session;
mod socket;
mod test;
mod transfer;

pub use client::{Client, between};
pub use cpu_load::{CpuTimes, Load, Moment};
pub use error::Error;
/// The histogram of a [`Reading`].
pub use hdrhistogram::Histogram;
pub use reading::Reading;
pub use server::{Server, Stop};
pub use server_state::{Event, Limits};
pub use test::{Test, TestKind};

/// The default port of `seekwire nic serve`.
pub const PORT: u16 = 7117;

/// How long to wait for a link after a reset of its interface: the link is negotiated again, and a
/// switch with the spanning tree protocol forwards nothing for twice 15 s (IEEE 802.1D, forward
/// delay).
pub const LINK_RETURN: Duration = Duration::from_secs(40);
