//! The messaging programs over mailboxes: see [`crate::messaging`].
//!
//! ```text
//! lab-peer mailbox tcp|ring serve ADDRESS | request ORDER       two ends
//! lab-peer mailbox tcp|ring hub ORDER | member ORDER            the models of messaging
//! ```

mod broker;
mod file;
mod mailbox_stream;
mod point_to_point;
mod publish;
mod scatter;

use std::ffi::OsString;

use anyhow::{Context as _, Result, bail};
use seekwire::SeekStream;

use crate::messaging::{Hub, Member, Model, parse};
use mailbox_stream::Line;

/// Plays the role with the arguments that follow `lab-peer mailbox`.
pub(super) fn play(arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let arguments: Vec<String> =
        arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let [carrier, role, order] = &arguments[..] else {
        bail!("say tcp or ring, a role and its order")
    };
    match carrier.as_str() {
        "tcp" => play_over::<SeekStream>(role, order),
        "ring" => play_over::<seekwire::Stream>(role, order),
        _ => bail!("there is no carrier '{carrier}'"),
    }
}

fn play_over<S: Line>(role: &str, order: &str) -> Result<()> {
    match role {
        "serve" => point_to_point::serve::<S>(order),
        "request" => point_to_point::drive::<S>(order),
        "hub" => {
            let hub: Hub = parse(order)?;
            let run = match hub.model {
                Model::Broker => broker::broker::<S>,
                Model::Publish => publish::publisher::<S>,
                Model::File => file::receiver::<S>,
                Model::Scatter => scatter::root::<S>,
            };
            run(&hub).context("hub")
        }
        "member" => {
            let member: Member = parse(order)?;
            let run = match (member.model, member.clients) {
                (Model::Broker, 0) => broker::service::<S>,
                (Model::Broker, _) => broker::clients::<S>,
                (Model::Publish, _) => publish::subscriber::<S>,
                (Model::File, _) => file::sender::<S>,
                (Model::Scatter, _) => scatter::worker::<S>,
            };
            run(&member).with_context(|| format!("member {}", member.rank))
        }
        _ => bail!("there is no role '{role}'"),
    }
}
