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
//! size         sizes of regions
//! ```
//!
//! The map, the regions and the state of links are those of the crate `seekwire-link`.

mod agent;
mod attach;
mod detach;
mod edit;
mod hold;
mod map;
mod map_file;
mod output;
mod plan;
pub(crate) mod size;
pub(crate) mod state;
mod status;

use std::process::ExitCode;

use anyhow::Result;

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
