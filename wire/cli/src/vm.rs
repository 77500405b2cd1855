//! `seekwire vm`: memory that this machine shares with others.
//!
//! ```text
//! map          shows the map of this machine
//! edit         adds addresses to it and removes them
//! attach       makes this machine ready to use its links
//! agent        finds the addresses of the other machines, while it runs
//! hold         holds memory that has no name, or is granted to another domain of Xen's
//! detach       takes the connections off one
//! state        what is known of a link: for status, and for `seekwire doctor`
//! status       prints that
//! plan         what to give machines on their host: the pairs, and their regions
//!   xen        the same for domains of Xen's
//! size         sizes of regions, as people write them
//! ```
//!
//! The map, the regions and the state of links are those of the crate `seekwire-link`.

mod agent;
mod attach;
mod detach;
mod edit;
mod hold;
mod map;
mod plan;
pub(crate) mod size;
pub(crate) mod state;
mod status;

use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use seekwire_link::{Definition, Map, Provider};
use seekwire_program::standard;

use crate::arguments::{VmCommand, VmMapEdit};

/// Runs one of the commands.
///
/// # Errors
///
/// Those of the command.
pub(crate) fn vm(command: &VmCommand) -> Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        VmCommand::Map(options) => match &options.edit {
            None => map::show(options.check).map(done),
            Some(VmMapEdit::Add(options)) => edit::add(options.address, &options.link).map(done),
            Some(VmMapEdit::Remove(options)) => edit::remove(options.address).map(done),
        },
        VmCommand::Attach(options) => attach::attach(options),
        VmCommand::Agent(options) => agent::agent(options),
        VmCommand::Hold(options) => hold::hold(options),
        VmCommand::Detach(options) => detach::detach(options),
        VmCommand::Status(options) => status::status(options).map(done),
        VmCommand::Plan(options) => plan::plan(options),
    }
}

/// The map of this machine, and its file.
fn read_map() -> Result<(PathBuf, Map)> {
    let path = Map::path();
    let map = Map::read(&path)?;
    Ok((path, map))
}

/// The link of this name; if it does not exist, the error lists the names that do.
fn find<'m>(map: &'m Map, path: &std::path::Path, name: &str) -> Result<&'m Definition> {
    map.get(name).ok_or_else(|| {
        let known: Vec<&str> = map.links().iter().map(|link| link.name.as_str()).collect();
        if known.is_empty() {
            anyhow!("there is no link {name:?}: {} defines none", path.display())
        } else {
            anyhow!("there is no link {name:?}: {} has {}", path.display(), known.join(", "))
        }
    })
}

/// Writes what was asked for to standard output.
fn print(text: &str) -> Result<()> {
    let written = standard::output().and_then(|out| out.lock().write_all(text.as_bytes()));
    written.context("cannot write to standard output")
}

/// Reports a finished change on standard output. A failure to write is reported on standard error,
/// and changes neither the exit status nor the rest of the command.
fn say(line: impl Display) {
    match print(&format!("{line}\n")) {
        Err(error) if !seekwire_program::is_broken_pipe(&error) => {
            seekwire_program::tell(format_args!("seekwire: {error:#}"));
        }
        _ => {}
    }
}

/// The words that the map uses for a provider.
pub(crate) fn provider(provider: &Provider) -> (&'static str, String) {
    match provider {
        Provider::File(path) => ("file", path.display().to_string()),
        Provider::Memory(socket) => ("memory", socket.display().to_string()),
        Provider::Ivshmem(address) => ("ivshmem", address.clone()),
        Provider::Xen { domain, length } => ("xen", format!("{domain}/{}M", length >> 20)),
    }
}
