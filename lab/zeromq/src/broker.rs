//! Request and reply through a broker that knows the services by name, after the Majordomo pattern
//! (<https://rfc.zeromq.org/spec/7/>): REQ - ROUTER - DEALER.
//!
//! ```text
//!   client to broker    [empty, service, request]      broker to service    [empty, client, request]
//!   broker to client    [empty, reply]                 service to broker    [empty, client, reply]
//! ```
//!
//! The routing identity of a service is its name. It introduces itself with a message for client
//! "", and a client leaves with a message for service "".

use std::thread;
use std::time::Instant;

use anyhow::Result;
use seekwire_lab::messaging::{
    Hub, Journey, Latencies, Member, Modelled, SERVICES, answer, join, ready, repeat, report,
};
use zmq::{Context, DEALER, Message, REQ, ROUTER, Socket};

use crate::frames::{bind, connect, receive_exactly, send};

/// Passes requests on until the last client has left.
pub(crate) fn broker(order: &Hub) -> Result<()> {
    let context = Context::new();
    let router = context.socket(ROUTER)?;
    router.set_router_mandatory(true)?;
    ready(&bind(&router, &order.address)?)?;
    let mut services: Vec<Vec<u8>> = Vec::new();
    // Requests of clients from before all services were there.
    let mut early = Vec::new();
    while services.len() < order.members {
        let [from, empty, to, body] = receive_exactly(&router)?;
        if to.is_empty() {
            services.push(from.to_vec());
        } else {
            early.push([from, empty, to, body]);
        }
    }
    let mut clients = order.clients;
    let mut early = early.into_iter();
    while clients > 0 {
        let [from, empty, to, body] = early.next().map_or_else(|| receive_exactly(&router), Ok)?;
        if services.iter().any(|service| **service == *from) {
            send(&router, [to, empty, body])?;
        } else if to.is_empty() {
            clients -= 1;
            send(&router, [from, empty, body])?;
        } else {
            send(&router, [to, empty, from, body])?;
        }
    }
    services.iter().try_for_each(|service| send(&router, [&service[..], b"", b"", b""]))
}

/// Replies to requests until the broker leaves.
pub(crate) fn service(order: &Member) -> Result<()> {
    let context = Context::new();
    let broker = context.socket(DEALER)?;
    broker.set_identity(SERVICES[order.rank].as_bytes())?;
    connect(&broker, &order.address)?;
    send(&broker, ["", "", ""])?;
    loop {
        let [empty, client, mut body] = receive_exactly(&broker)?;
        if client.is_empty() {
            return Ok(());
        }
        answer(order.rank, &mut body);
        send(&broker, [empty, client, body])?;
    }
}

/// Clients, each in a thread and with a connection of its own, that send requests to one service
/// after the other.
pub(crate) fn clients(order: &Member) -> Result<()> {
    let context = Context::new();
    let brokers: Vec<Socket> = (0..order.clients)
        .map(|_| {
            let broker = context.socket(REQ)?;
            connect(&broker, &order.address)?;
            // Reaches its service when all are there.
            ask(&broker, SERVICES[0], Message::new())?;
            Ok(broker)
        })
        .collect::<Result<_>>()?;
    let (latencies, rate) = thread::scope(|scope| {
        let clients: Vec<_> = brokers
            .into_iter()
            .map(|broker| scope.spawn(move || ask_all(order, &broker)))
            .collect();
        join(clients)
    })?;
    report(&Modelled::of(rate, &latencies, None)?)
}

fn ask(broker: &Socket, service: &str, request: Message) -> Result<Message> {
    send(broker, [Message::from(service), request])?;
    Ok(broker.recv_msg(0)?)
}

/// Sends a request to each service in turn, the reply of the preceding one, and checks the replies.
fn ask_all(order: &Member, broker: &Socket) -> Result<(Latencies, f64)> {
    let mut journey = Journey::new(order.size);
    let mut message = Message::from(journey.first());
    let measured = repeat(order.time(), |turn| {
        let service = turn.number as usize % SERVICES.len();
        journey.depart(turn, &mut message);
        let request = std::mem::replace(&mut message, Message::new());
        let began = Instant::now();
        message = ask(broker, SERVICES[service], request)?;
        let time = began.elapsed();
        journey.answered(turn, service, &mut message)?;
        Ok(time)
    })?;
    journey.end(&message)?;
    ask(broker, "", Message::new())?;
    Ok(measured)
}
