//! Latency, throughput and CPU load of TCP between two hosts, after TCP_RR, TCP_STREAM and
//! TCP_MAERTS of netperf (R. Jones, "Care and Feeding of Netperf", version 2.7): one end is a
//! server that others can use, the other end decides what is measured.
//!
//! ```text
//! client    connect, run a test, get a reading
//! server    accept, limits, stop
//!   session    one client of the server
//!   handover   a data connection, from the thread that accepts it to its session
//!   flow       the bytes of a test: requests and responses, streams
//!   message    what the two ends say to each other, in lines of JSON
//!   lines      lines that never take a byte too many
//!   pattern    what the bytes of a test are
//!   socket     congestion control, time-outs
//!   watch      what ends a test before its time
//! test, reading, load    what is asked, what comes of it, what it costs the CPUs
//! ```
//!
//! ```no_run
//! use std::time::Duration;
//! use seekwire_gauge::{Client, Kind, Test};
//!
//! // The other host runs `seekwire nic serve`, or Server::bind and Server::serve.
//! let mut client = Client::connect("192.0.2.1:7117")?;
//! let test = Test::new(Kind::RequestResponse, 64, Duration::from_secs(2));
//! let reading = client.run(&test)?;
//! println!("{:.1} us one way", reading.one_way_seconds().unwrap() * 1e6);
//! println!("{} ns p99 there and back", reading.histogram.unwrap().value_at_quantile(0.99));
//! # Ok::<(), seekwire_gauge::Error>(())
//! ```
//!
//! The sockets are those of the kernel, blocking, with one thread for the bytes of a test at each
//! end. There is no encryption and no password: whoever reaches the port may measure, within
//! limits. The data mean nothing.

#![forbid(unsafe_code)]

use std::time::Duration;

mod client;
mod error;
mod flow;
mod handover;
mod limits;
mod lines;
mod load;
mod message;
mod pattern;
mod reading;
mod server;
mod session;
mod shared;
mod socket;
mod test;
mod watch;

pub use client::{Client, between};
pub use error::Error;
/// The histogram of a [`Reading`].
pub use hdrhistogram::Histogram;
pub use load::{Load, Machine, Moment};
pub use reading::Reading;
pub use server::{Server, Stop};
pub use shared::{Event, Limits};
pub use test::{Kind, Test};

/// The port of `seekwire nic serve` where none is named.
pub const PORT: u16 = 7117;

/// How long to wait for a link that its interface has reset: it is negotiated again, and a switch
/// with the spanning tree protocol forwards nothing for twice 15 s (IEEE 802.1D, forward delay).
pub const LINK_RETURN: Duration = Duration::from_secs(40);
