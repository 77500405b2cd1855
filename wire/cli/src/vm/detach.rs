//! `seekwire vm detach`: takes the connections off a link.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use seekwire_link::Link;

use super::map_file::{find, read_map};
use super::output::say;
use super::{state, status};
use crate::arguments::VmDetach;

/// The exit status if bytes or processes are left.
const LEFT: u8 = 3;

/// Detaches the link, and reports what is left in its region.
///
/// # Errors
///
/// The map cannot be understood, or has no such link; this machine is not attached to it.
pub(super) fn detach(options: &VmDetach) -> Result<ExitCode> {
    let (path, map) = read_map()?;
    let definition = find(&map, &path, &options.name)?;
    let name = &definition.name;
    let link = Link::inspect(definition, map.state()).map_err(|error| anyhow!("{error}"))?;
    link.take_back();
    wait_for_readers(&link, options.wait.get());
    let left = status::left(&state::unread(&link), &state::users(definition, &link));
    say(format_args!("{name}: detached"));
    for line in &left {
        seekwire_program::tell(format_args!("seekwire: {name}: {line}"));
    }
    if !left.is_empty() {
        seekwire_program::tell(format_args!(
            "seekwire: {name}: the memory may be removed once nothing is left: `seekwire vm detach {name} --wait TIME` \
             waits for bytes; a process unmaps it when its connections are closed, or when it ends"
        ));
    }
    Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(LEFT) })
}

/// Waits until all bytes are received, or the time has passed. Also waits for the agent to unmap
/// the region. Polls, since programs take bytes out of shared memory without a notification.
fn wait_for_readers(link: &Link, patience: Duration) {
    const PERIOD: Duration = Duration::from_millis(20);
    /// The agent may be in the middle of a question.
    const OF_AGENT: Duration = Duration::from_secs(5);
    let begin = Instant::now();
    let waits = |patience| begin.elapsed() < patience;
    while (waits(patience) && !link.unread().is_empty()) || (waits(OF_AGENT) && link.has_agent()) {
        std::thread::sleep(PERIOD);
    }
}
