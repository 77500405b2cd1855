//! `seekwire vm hold`: holds the memory of a link, which has no name or is granted to another
//! domain of Xen's.

use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, anyhow};
use seekwire_link::{Access, Link};
use seekwire_values::Size;

use super::attach;
use super::map_file::{find, read_map};
use super::output::say;
use crate::arguments::VmHold;

/// Holds the memory of a link until this process is ended.
///
/// # Errors
///
/// The map cannot be understood, or has no such link; there is no such group; the memory cannot be
/// allocated or granted, or the link cannot be attached.
pub(super) fn hold(options: &VmHold) -> Result<ExitCode> {
    let (path, map) = read_map()?;
    let link = find(&map, &path, &options.name)?;
    let group = options.group.as_deref().map(attach::group).transpose()?;
    let access = Access { mode: options.mode, group };
    let size = options.size.map(Size::get);
    let held = Link::hold(link, map.state(), size, access).map_err(|error| anyhow!("{error}"))?;
    let server = thread::spawn(move || held.serve());
    // Attaching requests the memory from the server, as programs do.
    Link::attach(link, map.state(), access).map_err(|error| anyhow!("{error}"))?;
    say(format_args!("{}: held and attached", link.name));
    match server.join() {
        Ok(Err(error)) => Err(error).context("the memory is not given out any more"),
        Ok(Ok(never)) => match never {},
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
