//! Sender and receiver of the message search (see [`crate::search`]).
//!
//! The sender serves one connection after the other: it receives the size and number of messages,
//! sends one byte when it is ready, and then the messages, as far ahead as the buffers allow. The
//! receiver opens as many connections as each line of its standard input orders, and prints what
//! they cost.

mod connection;
mod methods;
mod receive;
mod searcher;
mod send;
mod tagged;
mod usage;

use anyhow::{Context as _, Result};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::de::DeserializeOwned;

use crate::search::{Receive, Send};

/// Sends, as `order` (JSON) specifies.
pub(super) fn send(order: Option<String>) -> Result<()> {
    let order: Send = parse(order)?;
    stay_on(order.processor)?;
    send::serve(order.carrier, &mut std::io::stdout())
}

/// Receives, as `order` (JSON) specifies.
pub(super) fn receive(order: Option<String>) -> Result<()> {
    let order: Receive = parse(order)?;
    stay_on(order.processor)?;
    receive::take_turns(&order, std::io::stdin().lock(), &mut std::io::stdout())
}

fn parse<T: DeserializeOwned>(order: Option<String>) -> Result<T> {
    let order = order.context("say what to do, as JSON")?;
    serde_json::from_str(&order).with_context(|| format!("not an order: {order}"))
}

fn stay_on(processor: Option<usize>) -> Result<()> {
    if let Some(processor) = processor {
        let mut set = CpuSet::new();
        set.set(processor);
        sched_setaffinity(None, &set)
            .with_context(|| format!("cannot stay on processor {processor}"))?;
    }
    Ok(())
}
