//! The measuring harness: runs programs in alternation, and records and reports the results.
//!
//! ```text
//! command      `seekwire demo` and `seekwire bench`, from the command line
//! bench        a server and a client of the user
//! demo         the short tour of real programs
//!   programs   iperf3, redis, http, sockperf, slides and grpc, as pairs of server and client
//!   search     messages received out of order, and the cost to the receiver
//!   peer       processes of our own that a measurement starts
//!   compiled   C programs, compiled when first needed
//! context      options, and the context of an experiment
//! measure      from a measurement to its files
//! schedule     alternation of variants, warm-up, failures
//! launch       children: plain or accelerated, watched, never left behind
//! record       readings; row: what all rounds show; stats: medians, spread, bootstrap intervals
//! outcome      the findings of an experiment, and the contents of `result.json`
//! report       a page for one result, and its parts; plot: figures, and bars as SVG
//! output, machine, progress, text
//! ```
//!
//! The laboratory builds on it. It is a crate of its own so that `make demo` compiles little.

#![forbid(unsafe_code)]
// They panic if the stream cannot be written to: `seekwire_program::tell` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod bench;
pub mod command;
pub mod compiled;
pub mod context;
pub mod demo;
pub mod launch;
pub mod machine;
pub mod measure;
pub mod network;
pub mod outcome;
pub mod output;
pub mod peer;
pub mod plot;
pub mod programs;
pub mod progress;
pub mod record;
pub mod report;
mod row;
mod sample;
pub mod schedule;
pub mod search;
pub mod stats;
pub mod text;
