//! Scatter and gather, as in a cluster (MPI 4.1, sections 6.5 and 6.6): ROUTER at the root, which addresses each
//! worker by its rank, and DEALER at the workers.

use std::time::Instant;

use anyhow::{Result, ensure};
use lab::messaging::{Answers, Contents, Hub, Member, Modelled, Violation, partial, ready, repeat, report};
use zmq::{Context, DEALER, Message, ROUTER};

use crate::frames::{bind, connect, receive_exactly, send};

/// Scatters, gathers and checks, round after round.
pub(crate) fn root(order: &Hub) -> Result<()> {
    let context = Context::new();
    let workers = context.socket(ROUTER)?;
    workers.set_router_mandatory(true)?;
    ready(&bind(&workers, &order.address)?);
    for _ in 0..order.members {
        let [_rank, _empty] = receive_exactly(&workers)?;
    }
    let ranks: Vec<Vec<u8>> = (0..order.members).map(identity).collect();

    let mut contents = Contents::new(order.size);
    let mut answers = Answers::default();
    let mut results: Vec<Message> = ranks.iter().map(|_| Message::new()).collect();
    let (latencies, rate) = repeat(order.time(), |round| {
        let first = round * order.members as u64;
        let began = Instant::now();
        for (number, rank) in (first..).zip(&ranks) {
            send(&workers, [&rank[..], contents.message(number)])?;
        }
        // In whatever order they come.
        for _ in &ranks {
            let [from, result] = receive_exactly(&workers)?;
            let rank = ranks.iter().position(|rank| **rank == *from);
            let Some(place) = rank.and_then(|rank| results.get_mut(rank)) else {
                return Err(Violation(format!("a result came from {from:?}, who is no worker")).into());
            };
            *place = result;
        }
        for (number, (rank, result)) in (first..).zip(results.iter().enumerate()) {
            ensure!(
                answers.is(rank, contents.message(number), result),
                Violation(format!("worker {rank} returned a wrong result of block {number}"))
            );
        }
        Ok(began.elapsed())
    })?;
    ranks.iter().try_for_each(|rank| send(&workers, [&rank[..], b""]))?;
    report(&Modelled::of(rate, &latencies, None)?)
}

/// Not zero, which libzmq keeps for identities of its own.
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
        partial(order.rank, &mut block);
        root.send(std::mem::replace(&mut block, Message::new()), 0)?;
    }
}
