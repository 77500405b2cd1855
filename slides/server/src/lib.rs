//! `seekwire slides`: whole slides in a browser. The command `seekwire` starts this program.
//!
//! ```text
//! web        addresses, pages, access control; connections           (its first page has a map)
//! iiif, deepzoom   parse addresses of images
//! rendering  parses channels, focal planes and times in addresses
//! render     makes images from slides: as stored, or from pixels     (its first page has a map)
//! annotations  GeoJSON beside a slide, by view                    (its first page has a map)
//! workers    other processes that share the work                     (its first page has a map)
//! slide_cache  open slides, each opened once                  slide_cache, library, series, stamps
//! disk       encoded images, kept across restarts
//! prefetch   neighbours of tiles, made while the server is idle
//! privacy    access to labels, and to metadata that may name a person
//! single_flight  work done once for all concurrent requests
//! byte_lru   caches bounded in bytes
//! logging    the log, on standard error or in a file
//! web_limits  limits for slides on web servers, so that slow servers do not delay other slides
//! ```
//!
//! axum and tokio handle HTTP and waiting, and no more: tokio's blocking threads read, and do
//! expensive work; with workers or a guarantee, the threads of `seekwire-flow` filters do that.
//! When a client disconnects, its claims are dropped; work that nobody claims is not begun.

#![forbid(unsafe_code)]
// These macros panic if the stream cannot be written; `seekwire_program::tell` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod annotations;
mod arguments;
mod byte_lru;
mod counters;
mod deepzoom;
mod demo;
mod disk;
mod failure;
mod iiif;
mod library;
mod logging;
mod prefetch;
mod privacy;
mod render;
mod rendering;
mod series;
mod server;
mod sign;
mod single_flight;
mod slide_cache;
mod stamps;
mod warn_once;
mod web;
mod web_limits;
mod workers;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use seekwire_program::command_line::command_line;

use crate::arguments::{Action, Arguments, Command};

pub use privacy::LabelPolicy;
pub use server::{READERS, Server, Settings, WorkerSettings};
pub use web::tls::TlsFiles as CertificateFiles;

/// The commands and options of this program.
#[must_use]
pub fn definitions() -> clap::Command {
    command_line(Arguments::command())
}

/// Runs the command given by the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = seekwire_program::generate::asked(definitions) {
        return code;
    }
    let matches = definitions().get_matches();
    let Command::Slides(options) =
        Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command;
    let outcome = match &options.action {
        Some(Action::Worker(worker)) => workers::command::command(worker),
        _ => server::command(&options),
    };
    seekwire_program::finish(outcome.map(|()| ExitCode::SUCCESS))
}

#[cfg(test)]
#[path = "../../../program/shared/definitions.rs"]
mod tests;
