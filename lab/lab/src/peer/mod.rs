//! The `lab-peer` role: a client or server that uses the Rust API instead of plain sockets.
//!
//! It speaks the protocol, takes the options and prints the reports of `peer/streambench.c`, with
//! one option more:
//!
//! ```text
//! lab-peer serve --tcp ADDRESS:PORT [--api std|stream|in-place]
//! lab-peer drive --tcp ADDRESS:PORT [--api std|stream|in-place] --test OPERATION:SIZE:MILLISECONDS ...
//! ```
//!
//! `lab-peer gauge-serve ADDRESS:PORT` and `lab-peer gauge-drive` are the ends of network tests,
//! whose orders are also JSON.
//!
//! `lab-peer mailbox` plays the messaging programs (see [`crate::messaging`]) over
//! mailboxes. `lab-peer pipeline` plays a pipeline (see [`crate::pipeline`]).
//!
//! `lab-peer flow-host ADDRESS` is one of the processes that run the image pipeline (see
//! `imaging`).
//!
//! It also plays the roles of [`seekwire_harness::peer`].
//!
//! `stream` copies messages into and out of a Seekwire stream, `in-place` writes and reads them
//! where they are, and `std` (the default) uses `std::net`, which shows what Rust itself costs.

mod accelerated;
mod channel;
mod client;
mod flow;
mod gauge;
mod messaging;
mod options;
mod pipeline;
mod protocol;
mod server;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use channel::Channel;
use options::{Action, Api, Options};

/// Plays the role with the arguments that follow `lab-peer`.
///
/// Meant to be called by the binary that runs the experiments, in a child process. Errors go to
/// standard error.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::messaging::complain("lab-peer", &error);
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<()> {
    let mut arguments = arguments.into_iter().peekable();
    if seekwire_harness::peer::begin(&mut arguments)? {
        return Ok(());
    }
    match arguments.peek().and_then(|argument| argument.to_str()) {
        Some("gauge-serve") => {
            let address = arguments.nth(1).and_then(|address| address.into_string().ok());
            return gauge::serve(address, &mut std::io::stdout());
        }
        Some("gauge-drive") => {
            return gauge::drive(std::io::stdin().lock(), &mut std::io::stdout());
        }
        Some("pipeline") => return pipeline::play(arguments.skip(1)),
        Some("flow-host") => {
            return flow::play(arguments.nth(1).and_then(|address| address.into_string().ok()));
        }
        Some("mailbox") => return messaging::play(arguments.skip(1)),
        _ => {}
    }
    let options = Options::parse(arguments)?;
    match options.api {
        Api::Std => play::<channel::Std>(options),
        Api::Stream => play::<accelerated::Copied>(options),
        Api::InPlace => play::<accelerated::InPlace>(options),
    }
}

fn play<C: Channel>(options: Options) -> Result<()> {
    let mut stdout = std::io::stdout();
    match options.action {
        Action::Serve => server::listen::<C>(options.address, &mut stdout),
        Action::Drive(tests) => client::all::<C>(options.address, &tests, &mut stdout),
    }
}
