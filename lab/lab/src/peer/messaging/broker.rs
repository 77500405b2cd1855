//! Request and reply through a broker.
//!
//! ```text
//!   client 0 --- tag: service --->  +--------+  --- tag: client ---> service "quote"
//!   client 1 <-- tag: service ----  | broker |  <-- tag: client ---- service "order"
//!      ...                          +--------+                            ...
//! ```
//!
//! All programs introduce themselves to the broker, the services by name; the broker sends the
//! clients the tag of each service. After that it only swaps the two ends of a message: a message
//! from client `c` with tag `s` goes to service `s` with tag `c`, and back the other way round. The
//! broker has a thread for each connection, and mailboxes are shared by threads.

use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use seekwire::mailbox::{Mailbox, RecvError, Selector};

use super::mailbox_stream::{self, Line};
use crate::messaging::{
    Hub, Journey, Latencies, Member, Modelled, SERVICES, answer, join, ready, repeat, report,
};

/// Tag of introductions; above all numbers of services and clients.
const HELLO: u64 = 1 << 32;

/// Passes requests on until the last client has finished.
pub(super) fn broker<S: Line>(order: &Hub) -> Result<()> {
    let (listener, address) = S::listen(&order.address)?;
    ready(&address.to_string())?;
    let (mut names, mut services, mut clients) = (Vec::new(), Vec::new(), Vec::new());
    while services.len() < order.members || clients.len() < order.clients {
        let mailbox = S::accept(&listener)?;
        let (_, name) = mailbox.recv_vec(Selector::exact(HELLO))?;
        if name.is_empty() {
            clients.push(mailbox);
        } else {
            names.push(String::from_utf8(name)?);
            services.push(mailbox);
        }
    }
    for client in &clients {
        client.send(HELLO, &serde_json::to_vec(&names)?)?;
    }
    thread::scope(|scope| {
        let replies: Vec<_> = (0..services.len())
            .map(|number| {
                scope.spawn({
                    let (from, to) = (&services[number], &clients);
                    move || pass_on(number, from, to)
                })
            })
            .collect();
        let requests: Vec<_> = (0..clients.len())
            .map(|number| {
                scope.spawn({
                    let (from, to) = (&clients[number], &services);
                    move || pass_on(number, from, to)
                })
            })
            .collect();
        let requests: Vec<_> = requests.into_iter().map(|thread| thread.join()).collect();
        // The services finish in turn, which ends the other threads.
        services.iter().try_for_each(Mailbox::finish)?;
        let replies = replies.into_iter().map(|thread| thread.join());
        requests
            .into_iter()
            .chain(replies)
            .try_for_each(|end| end.map_err(|_| anyhow!("a thread panicked"))?)
    })
}

/// Forwards messages from `from`, which has number `number` on its side, to those on the other side
/// that the tags name.
fn pass_on<S: Line>(number: usize, from: &Mailbox<S>, to: &[Mailbox<S>]) -> Result<()> {
    loop {
        let (envelope, message) = match from.recv_vec(Selector::ANY) {
            Err(RecvError::Closed) => return Ok(()),
            received => received?,
        };
        let receiver = to.get(envelope.tag as usize).context("a message for nobody")?;
        receiver.send(number as u64, &message)?;
    }
}

/// Replies to requests until the broker finishes.
pub(super) fn service<S: Line>(order: &Member) -> Result<()> {
    let broker = S::connect(&order.address)?;
    broker.send(HELLO, SERVICES[order.rank].as_bytes())?;
    let mut message = vec![0; order.size];
    loop {
        let request = match broker.recv_any(&mut message) {
            Err(RecvError::Closed) => break,
            received => received?,
        };
        answer(order.rank, &mut message[..request.len]);
        broker.send(request.tag, &message[..request.len])?;
    }
    Ok(broker.finish()?)
}

/// Clients, each in a thread and with a connection of its own, that send requests to one service
/// after the other.
pub(super) fn clients<S: Line>(order: &Member) -> Result<()> {
    let mailboxes: Vec<Mailbox<S>> = (0..order.clients)
        .map(|_| {
            let mailbox = S::connect(&order.address)?;
            mailbox.send(HELLO, b"")?;
            Ok(mailbox)
        })
        .collect::<Result<_>>()?;
    let services = mailboxes.iter().map(services).collect::<Result<Vec<_>>>()?;
    let (latencies, rate) = thread::scope(|scope| {
        let clients: Vec<_> = mailboxes
            .iter()
            .zip(&services)
            .map(|(mailbox, services)| scope.spawn(|| ask(order, mailbox, services)))
            .collect();
        join(clients)
    })?;
    mailboxes.iter().try_for_each(Mailbox::finish)?;
    report(&Modelled::of(rate, &latencies, mailbox_stream::traffic(&mailboxes))?)
}

/// The tags of [`SERVICES`].
fn services<S: Line>(broker: &Mailbox<S>) -> Result<Vec<u64>> {
    let (_, names) = broker.recv_vec(Selector::exact(HELLO))?;
    let names: Vec<String> = serde_json::from_slice(&names)?;
    let tag = |service: &&str| names.iter().position(|name| name == service).map(|tag| tag as u64);
    SERVICES
        .iter()
        .map(|service| tag(service).with_context(|| format!("there is no service {service}")))
        .collect()
}

/// Sends a request to each service in turn, the reply of the preceding one, and checks the replies.
fn ask<S: Line>(order: &Member, broker: &Mailbox<S>, services: &[u64]) -> Result<(Latencies, f64)> {
    let mut journey = Journey::new(order.size);
    let (mut message, mut reply) = (journey.first(), vec![0; order.size]);
    let measured = repeat(order.time(), |turn| {
        let service = turn.number as usize % services.len();
        journey.depart(turn, &mut message);
        let began = Instant::now();
        broker.send(services[service], &message)?;
        let length = broker.recv(Selector::exact(services[service]), &mut reply)?.len;
        let time = began.elapsed();
        journey.answered(turn, service, &mut reply[..length])?;
        std::mem::swap(&mut message, &mut reply);
        Ok(time)
    })?;
    journey.end(&message)?;
    Ok(measured)
}
