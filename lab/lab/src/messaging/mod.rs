//! Common parts of the messaging programs, whichever library moves their messages: their orders,
//! their reports, how they measure, and how they check the messages that they receive.
//!
//! The programs over [`seekwire::mailbox::Mailbox`] are roles of [`crate::peer`]; those over libzmq
//! are a program of their own, `seekwire-zeromq`, which takes the same roles and orders. A role
//! takes its order as one argument, a JSON object. It prints `ready ADDRESS ...` when others may
//! connect to it, and reports one JSON object per line.

mod contents;
mod file;
mod latencies;
mod measure;
mod order;
pub(crate) mod programs;

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use contents::{Journey, MessageContents, SHARE, Violation, answer, digest, renumber};
pub use file::{CHUNK, Header, create, transfer, verify};
pub use latencies::{Iteration, Latencies, join, repeat};
pub use measure::{Measured, Puller, Pusher, Replier, Requester, pull, push, reply, request};
pub use order::{
    Ask, Check, Drive, Hub, Member, MessagePattern, MessagingTest, Model, Modelled, SERVICES,
    TOPICS, TestReading, subscribed,
};

/// How long a program waits for the others before it gives up: far longer than needed on a loaded
/// machine.
pub const EXCHANGE_LIMIT: Duration = Duration::from_secs(60);

/// Parses the argument of a role.
///
/// # Errors
///
/// If it is not what the role expects.
pub fn parse<T: DeserializeOwned>(argument: &str) -> Result<T> {
    serde_json::from_str(argument).with_context(|| format!("not an order of this role: {argument}"))
}

/// Prints a line for the laboratory.
///
/// # Errors
///
/// If standard output cannot be written to.
pub fn report(value: &impl Serialize) -> Result<()> {
    Ok(writeln!(io::stdout(), "{}", serde_json::to_string(value)?)?)
}

/// Reports that others may connect.
///
/// # Errors
///
/// If standard output cannot be written to.
pub fn ready(address: &str) -> io::Result<()> {
    writeln!(io::stdout(), "ready {address}")
}

/// Reports `error` to the laboratory: on standard error, and as a [`Check`] if a message was not
/// what it should be.
pub fn complain(program: &str, error: &anyhow::Error) {
    seekwire_program::tell(format_args!("{program}: {error:#}"));
    if let Some(violation) = error.downcast_ref::<Violation>() {
        // A failure of this one cannot be reported.
        let _ = report(&Check { violation: violation.to_string() });
    }
}
