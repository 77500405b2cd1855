//! `seekwire slides`: whole slides in a browser. The command `seekwire` starts this program.
//!
//! ```text
//! web        addresses, pages, who may ask; connections              (its first page has a map)
//! iiif, deepzoom   what addresses of images mean: a picture
//! rendering  what they say of channels, focal planes and times
//! render     a picture out of a slide: as stored, or through filters (its first page has a map)
//! annotations  GeoJSON beside a slide, by view                    (its first page has a map)
//! workers    processes elsewhere that do a part of this           (its first page has a map)
//! opened     open slides, each once                          opened, library, series, stamps
//! disk       encoded images that outlive the server
//! prefetch   neighbours of tiles, made while there is nothing else to do
//! privacy    labels, and metadata that may name a person: who is shown them
//! flights    one piece of work for all that ask for the same
//! bounded    what was used last, within bytes
//! shares     what slides on web servers may have of what all slides share
//! ```
//!
//! axum and tokio do HTTP and waiting, and no more: what takes time is done by the threads of
//! filters of `seekwire-flow`, or by tokio's threads for blocking where it is reading. A client
//! that goes takes its claims with it; what nobody has a claim to is not begun.

#![forbid(unsafe_code)]
// They panic if the stream cannot be written: `seekwire_program::tell` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod annotations;
mod arguments;
mod bounded;
mod counters;
mod deepzoom;
mod demo;
mod disk;
mod failure;
mod flights;
mod iiif;
mod library;
mod opened;
mod prefetch;
mod privacy;
mod render;
mod rendering;
mod series;
mod server;
mod shares;
mod sign;
mod stamps;
mod told;
mod web;
mod workers;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::arguments::{Action, Arguments, Command};

pub use privacy::Whom;
pub use server::{READERS, Server, Settings, WorkerSettings};
pub use web::tls::Files as CertificateFiles;

/// The commands and options of this program.
#[must_use]
pub fn definitions() -> clap::Command {
    Arguments::command()
}

/// Does what the arguments of this process say.
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
#[path = "../../../../tests/definitions.rs"]
mod tests;
