//! The `lab-peer` role: a client or server that uses the Rust API instead of plain sockets.
//!
//! It speaks the protocol, takes the options and prints the reports of `peer/streambench.c`, with one option more:
//!
//! ```text
//! lab-peer serve --tcp ADDRESS:PORT [--api std|stream|in-place]
//! lab-peer drive --tcp ADDRESS:PORT [--api std|stream|in-place] --test OPERATION:SIZE:MILLISECONDS ...
//! ```
//!
//! `std` uses `std::net`: it shows what Rust itself costs, and needs nothing of Seekwire.

mod channel;
mod drive;
mod options;
mod serve;
mod wire;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use options::{Action, Api, Options};

/// Plays the role with the arguments that follow `lab-peer`.
///
/// Meant to be called by the binary that runs the experiments, in a child process. Complaints go to standard error.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab-peer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<()> {
    let options = Options::parse(arguments)?;
    let mut stdout = std::io::stdout();
    match (options.api, options.action) {
        (Api::Std, Action::Serve) => serve::listen::<channel::Std>(options.address, &mut stdout),
        (Api::Std, Action::Drive(tests)) => drive::all::<channel::Std>(options.address, &tests, &mut stdout),
    }
}
