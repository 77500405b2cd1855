//! `seekwire-zeromq`: the messaging programs of the laboratory over libzmq, as the system has it.
//!
//! ```text
//! seekwire-zeromq serve ADDRESS | request ORDER | alone ORDER      two ends, or both in one process (inproc://)
//! seekwire-zeromq hub ORDER | member ORDER                         the models of messaging
//! seekwire-zeromq pipeline ADDRESS RANK ORDER                      one of two processes of a pipeline
//! ```
//!
//! It is a program of its own because `seekwire` does not depend on libzmq. Orders and reports are
//! those of [`seekwire_lab::messaging`]; they come from the laboratory and go there, so there is no
//! help.

#![forbid(unsafe_code)]

mod broker;
mod file;
mod frames;
mod pipeline;
mod point_to_point;
mod publish;
mod scatter;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use seekwire_lab::messaging::{Hub, Member, Model, complain, parse};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("seekwire-zeromq", &error);
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let role =
        arguments.next().context("started by `seekwire lab run`; it has no use of its own")?;
    let order = arguments.next().with_context(|| format!("{role} lacks its order"))?;
    match role.as_str() {
        "serve" => point_to_point::serve(&order),
        "request" => point_to_point::drive(&order),
        "alone" => point_to_point::alone(&order),
        "pipeline" => pipeline::run(&order, &arguments.collect::<Vec<_>>()),
        "hub" => {
            let hub: Hub = parse(&order)?;
            let run = match hub.model {
                Model::Broker => broker::broker,
                Model::Publish => publish::publisher,
                Model::File => file::receiver,
                Model::Scatter => scatter::root,
            };
            run(&hub).context("hub")
        }
        "member" => {
            let member: Member = parse(&order)?;
            let run = match (member.model, member.clients) {
                (Model::Broker, 0) => broker::service,
                (Model::Broker, _) => broker::clients,
                (Model::Publish, _) => publish::subscriber,
                (Model::File, _) => file::sender,
                (Model::Scatter, _) => scatter::worker,
            };
            run(&member).with_context(|| format!("member {}", member.rank))
        }
        _ => bail!("there is no role '{role}'"),
    }
}
