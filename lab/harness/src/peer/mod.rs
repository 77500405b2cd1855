//! The `lab-peer` role: a process that a measurement starts from the executable that is running.
//!
//! `lab-peer search-send` and `lab-peer search-receive` are the ends of a message search; their
//! orders are JSON. Each takes `--of=PID` first: the process that started it, with which it ends.

mod parent_watch;
mod search;

use std::ffi::OsString;
use std::iter::Peekable;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::launch::OF;

/// Plays the role with the arguments that follow `lab-peer`. Errors go to standard error.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter().peekable();
    let played = begin(&mut arguments).and_then(|played| match played {
        true => Ok(()),
        false => bail!("no such role"),
    });
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            seekwire_program::tell(format_args!("lab-peer: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Makes this process end with the one that started it, and plays a role of this crate. False: the
/// role is none of these, and its arguments are still there.
///
/// # Errors
///
/// If the process that started it has ended, or the role fails.
pub fn begin(arguments: &mut Peekable<impl Iterator<Item = OsString>>) -> Result<bool> {
    let is_of = |argument: &OsString| argument.to_str().is_some_and(|text| text.starts_with(OF));
    if let Some(of) = arguments.next_if(is_of) {
        parent_watch::end_with(of.to_str().and_then(|of| of.strip_prefix(OF)).unwrap_or_default())?;
    }
    let role = arguments.peek().and_then(|argument| argument.to_str()).unwrap_or_default();
    match role {
        "search-send" => search::send(order(arguments))?,
        "search-receive" => search::receive(order(arguments))?,
        parent_watch::WATCH => {
            let mut pids = arguments.skip(1).map(|pid| pid.into_string().unwrap_or_default());
            parent_watch::watch(
                &pids.next().unwrap_or_default(),
                &pids.next().unwrap_or_default(),
            )?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn order(arguments: &mut impl Iterator<Item = OsString>) -> Option<String> {
    arguments.nth(1).and_then(|order| order.into_string().ok())
}
