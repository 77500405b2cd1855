//! The laboratory: experiments that are run, kept as raw data, plotted and reported.
//!
//! ```text
//! command         `seekwire lab` and `calibrate`, from the command line
//! experiments     what is measured: sockets, ring-size, pairs, links, vm, connections, programs, seek,
//!                 seek-fragments, mailbox, nic, zeromq, models, flow-demand, flow-reaction, flow-latency,
//!                 flow-updates, flow-peers, slides
//!   bench         two processes of our own that exchange bytes: streambench (C, unmodified) or peer (Rust API)
//!   imaging       an image through filters on several hosts, over `seekwire-flow` (peer)
//!   guests        two virtual machines that share memory, and programs in them
//!   network       two hosts, their interfaces, and what passes between them
//!   pipeline      work of the stages of a pipeline, in any runtime (peer, and programs of their own)
//!   slides        servers of whole slides, and those that ask them for tiles
//!   messaging     programs that exchange messages over libzmq (of their own) or mailboxes (peer)
//!   limits        what the memory of this machine can do
//! experiment      what can be measured
//!   experiment_file  its texts and claims, from lab/experiments/NAME.toml
//!   view, words   parts of it
//! run             experiments, one after another
//! claim, verdict  the claims of papers, judged by the measurements
//!   quantity      their numbers, by the names of rows
//!   estimate      numbers with intervals
//! published       published ratios beside ours
//! run_all, journal  every experiment in turn, and what became of each
//! site, markdown  the site that joins all results, and tables in Markdown pages
//! pack            results that are kept in little room
//! curves          figures as SVG
//! ```
//!
//! How programs are started, alternated, recorded and reported, and the programs of `seekwire
//! demo`, are in [`seekwire_harness`].
//!
//! The laboratory measures the shipped artefacts from outside, in processes of their own. It
//! contains no part of what it measures, except that [`peer`] uses the public Rust API, and that
//! `network` attaches two namespaces to a link.

#![forbid(unsafe_code)]
// They panic if the stream cannot be written to: `seekwire_program::tell` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
pub mod calibrate;
pub mod claim;
pub mod command;
mod curves;
mod estimate;
pub mod experiment;
#[macro_use]
pub mod experiment_file;
mod experiments;
mod guests;
mod imaging;
mod journal;
mod limits;
mod markdown;
pub mod messaging;
pub mod network;
mod pack;
pub mod peer;
pub mod pipeline;
pub mod published;
pub mod quantity;
pub mod run;
pub mod run_all;
mod site;
mod slides;
mod streambench;
mod verdict;
mod view;
mod words;

use seekwire_harness::{compiled, context, measure, output, programs, report, search, text};
pub use seekwire_harness::{
    demo, launch, machine, outcome, plot, progress, record, schedule, stats,
};

pub use context::Options;
pub use experiment::{Experiment, Unavailable};
pub use experiments::experiments;
pub use markdown::{Pages, write as write_pages};
pub use pack::pack;
pub use run::run;
pub use site::{Site, write as report};
