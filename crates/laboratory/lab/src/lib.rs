//! The laboratory: experiments that are run, kept as raw data, plotted and reported.
//!
//! ```text
//! command         `seekwire lab`, `demo` and `calibrate`, from the command line
//! demo            the short tour of real programs, for `seekwire demo`
//! experiments     what is measured: sockets, ring-size, pairs, links, vm, connections, programs, seek,
//!                 seek-fragments, mailbox, nic, zeromq, models, flow-demand, flow-reaction, flow-latency,
//!                 flow-updates, flow-peers, slides
//!   programs      iperf3, redis, http, sockperf and grpc, as pairs of server and client
//!   bench         two processes of our own that exchange bytes: streambench (C, unmodified) or peer (Rust API)
//!   search        messages received in another order than they came in, and what that costs the receiver
//!   imaging       an image through filters on several hosts, over `seekwire-flow` (peer)
//!   guests        two virtual machines that share memory, and programs in them
//!   network       two hosts, their interfaces, and what passes between them
//!   pipeline      what the stages of a pipeline do, in whatever runtime (peer, and programs of their own)
//!   slides        servers of whole slides, and those that ask them for tiles
//!   messaging     programs that exchange messages over libzmq (of their own) or mailboxes (peer)
//!   compiled      C programs, compiled when first needed
//!   limits        what the memory of this machine can do
//! experiment      options, context
//! run             the way from an experiment to its files
//! schedule        alternation of variants, warm-up, what happens to failures
//! launch          children: plain or accelerated, watched, never left behind
//! claim, verdict  what papers say, judged by what was measured
//! record, stats   readings, rows, medians, spread, bootstrap intervals
//! all, journal    every experiment in turn, and what became of each
//! report          a page for each result, the site that joins them, and tables in Markdown pages
//! pack            results that are kept in little room
//! output, plot, machine, progress
//! ```
//!
//! The laboratory measures the shipped artefacts from outside, in processes of their own. It
//! contains no part of what it measures, except that [`peer`] uses the public Rust API, and that
//! `network` attaches two namespaces to a link.

#![forbid(unsafe_code)]
// They panic if the stream cannot be written: `seekwire_program::tell` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod all;
mod bench;
pub mod calibrate;
pub mod claim;
pub mod command;
mod compiled;
pub mod demo;
pub mod experiment;
mod experiments;
mod guests;
mod imaging;
mod journal;
pub mod launch;
mod limits;
pub mod machine;
pub mod messaging;
pub mod network;
pub mod outcome;
mod output;
mod pack;
pub mod peer;
pub mod pipeline;
pub mod plot;
mod programs;
pub mod progress;
pub mod record;
mod report;
pub mod run;
pub mod schedule;
mod search;
mod slides;
pub mod stats;
mod streambench;
mod text;
mod verdict;

pub use experiment::{Experiment, Options, Unavailable};
pub use experiments::experiments;
pub use pack::pack;
pub use report::markdown::{Pages, write as write_pages};
pub use report::site::{Site, write as report};
pub use run::run;
