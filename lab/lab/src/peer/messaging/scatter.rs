//! Scatter and gather, as in a cluster (MPI 4.1, sections 6.5 and 6.6): the root sends a block of
//! an array to each worker, and puts their results together.

use std::time::Instant;

use anyhow::Result;
use seekwire::mailbox::{Mailbox, RecvError, Selector};

use super::mailbox_stream::{self, Line};
use crate::messaging::{Hub, Journey, Member, Modelled, answer, ready, repeat, report};

const RANK: u64 = 0;
const BLOCK: u64 = 1;
const RESULT: u64 = 2;

/// A worker's block, which goes there and comes back round after round.
struct Block {
    journey: Journey,
    bytes: Vec<u8>,
    /// The result is received into it, so that missing bytes are not already there.
    result: Vec<u8>,
    /// Length of the result.
    length: usize,
}

/// Scatters, gathers and checks, round after round; each sends the results of the preceding one.
pub(super) fn root<S: Line>(order: &Hub) -> Result<()> {
    let (listener, address) = S::listen(&order.address)?;
    ready(&address.to_string())?;
    let mut workers: Vec<(usize, Mailbox<S>)> = (0..order.members)
        .map(|_| {
            let mailbox = S::accept(&listener)?;
            let (_, rank) = mailbox.recv_vec(Selector::exact(RANK))?;
            Ok((serde_json::from_slice(&rank)?, mailbox))
        })
        .collect::<Result<_>>()?;
    workers.sort_by_key(|(rank, _)| *rank);

    let block = |_| {
        let journey = Journey::new(order.size);
        Block { bytes: journey.first(), result: vec![0; order.size], length: 0, journey }
    };
    let mut blocks: Vec<Block> = workers.iter().map(block).collect();
    let (latencies, rate) = repeat(order.time(), |turn| {
        let of_block = |rank: usize| turn.part(rank, order.members);
        for ((rank, _), block) in workers.iter().zip(&mut blocks) {
            block.journey.depart(of_block(*rank), &mut block.bytes);
        }
        let began = Instant::now();
        for ((_, worker), block) in workers.iter().zip(&blocks) {
            worker.send(BLOCK, &block.bytes)?;
        }
        for ((_, worker), block) in workers.iter().zip(&mut blocks) {
            block.length = worker.recv(Selector::exact(RESULT), &mut block.result)?.len;
        }
        let time = began.elapsed();
        for ((rank, _), Block { journey, bytes, result, length }) in workers.iter().zip(&mut blocks)
        {
            journey.answered(of_block(*rank), *rank, &mut result[..*length])?;
            std::mem::swap(bytes, result);
        }
        Ok(time)
    })?;
    blocks.iter().try_for_each(|block| block.journey.end(&block.bytes))?;
    workers.iter().try_for_each(|(_, worker)| worker.finish())?;
    report(&Modelled::of(
        rate,
        &latencies,
        mailbox_stream::traffic(workers.iter().map(|(_, worker)| worker)),
    )?)
}

/// Works on blocks until the root finishes.
pub(super) fn worker<S: Line>(order: &Member) -> Result<()> {
    let root = S::connect(&order.address)?;
    root.send(RANK, &serde_json::to_vec(&order.rank)?)?;
    let mut block = vec![0; order.size];
    loop {
        let length = match root.recv(Selector::exact(BLOCK), &mut block) {
            Err(RecvError::Closed) => break,
            received => received?.len,
        };
        answer(order.rank, &mut block[..length]);
        root.send(RESULT, &block[..length])?;
    }
    Ok(root.finish()?)
}
