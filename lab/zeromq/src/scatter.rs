//! Scatter and gather, as in a cluster (MPI 4.1, sections 6.5 and 6.6): ROUTER at the root, which
//! addresses each worker by its rank, and DEALER at the workers.

use std::time::Instant;

use anyhow::Result;
use seekwire_lab::messaging::{
    Hub, Journey, Member, Modelled, Violation, answer, ready, repeat, report,
};
use zmq::{Context, DEALER, Message, ROUTER};

use crate::frames::{bind, connect, receive_exactly, send};

/// Scatters, gathers and checks, round after round; each sends the results of the preceding one.
pub(crate) fn root(order: &Hub) -> Result<()> {
    let context = Context::new();
    let workers = context.socket(ROUTER)?;
    workers.set_router_mandatory(true)?;
    ready(&bind(&workers, &order.address)?)?;
    for _ in 0..order.members {
        let [_rank, _empty] = receive_exactly(&workers)?;
    }
    let ranks: Vec<Vec<u8>> = (0..order.members).map(identity).collect();

    let mut journeys: Vec<Journey> = ranks.iter().map(|_| Journey::new(order.size)).collect();
    let mut blocks: Vec<Message> =
        journeys.iter().map(|journey| Message::from(journey.first())).collect();
    let (latencies, rate) = repeat(order.time(), |turn| {
        let of_block = |rank: usize| turn.part(rank, order.members);
        for (rank, (journey, block)) in journeys.iter_mut().zip(&mut blocks).enumerate() {
            journey.depart(of_block(rank), block);
        }
        let began = Instant::now();
        for (rank, block) in ranks.iter().zip(&mut blocks) {
            send(&workers, [Message::from(&rank[..]), std::mem::replace(block, Message::new())])?;
        }
        // In any order.
        for _ in &ranks {
            let [from, result] = receive_exactly(&workers)?;
            let rank = ranks.iter().position(|rank| **rank == *from);
            let Some(block) = rank.and_then(|rank| blocks.get_mut(rank)) else {
                return Err(Violation(format!(
                    "a result arrived from {from:?}, which is no worker"
                ))
                .into());
            };
            *block = result;
        }
        let time = began.elapsed();
        for (rank, (journey, block)) in journeys.iter().zip(&mut blocks).enumerate() {
            journey.answered(of_block(rank), rank, block)?;
        }
        Ok(time)
    })?;
    journeys.iter().zip(&blocks).try_for_each(|(journey, block)| journey.end(block))?;
    ranks.iter().try_for_each(|rank| send(&workers, [&rank[..], b""]))?;
    report(&Modelled::of(rate, &latencies, None)?)
}

/// Not zero, which libzmq reserves for identities of its own.
fn identity(rank: usize) -> Vec<u8> {
    format!("worker {rank}").into_bytes()
}

/// Works on blocks until an empty one comes.
pub(crate) fn worker(order: &Member) -> Result<()> {
    let context = Context::new();
    let root = context.socket(DEALER)?;
    root.set_identity(&identity(order.rank))?;
    connect(&root, &order.address)?;
    root.send("", 0)?;
    let mut block = Message::new();
    loop {
        root.recv(&mut block, 0)?;
        if block.is_empty() {
            return Ok(());
        }
        answer(order.rank, &mut block);
        root.send(std::mem::replace(&mut block, Message::new()), 0)?;
    }
}
