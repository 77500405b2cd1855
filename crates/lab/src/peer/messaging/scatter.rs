//! Scatter and gather, as in a cluster (MPI 4.1, sections 6.5 and 6.6): the root sends a block of an array to each
//! worker, and puts their results together.

use std::time::Instant;

use anyhow::{Result, ensure};
use seekwire::mailbox::{Mailbox, RecvError, Selector};

use super::line::{self, Line};
use crate::messaging::{Answers, Contents, Hub, Member, Modelled, Violation, partial, ready, repeat, report};

const RANK: u64 = 0;
const BLOCK: u64 = 1;
const RESULT: u64 = 2;

/// Scatters, gathers and checks, round after round.
pub(super) fn root<S: Line>(order: &Hub) -> Result<()> {
    let (listener, address) = S::listen(&order.address)?;
    ready(&address.to_string());
    let mut workers: Vec<(usize, Mailbox<S>)> = (0..order.members)
        .map(|_| {
            let mailbox = S::accept(&listener)?;
            let (_, rank) = mailbox.recv_vec(Selector::exact(RANK))?;
            Ok((serde_json::from_slice(&rank)?, mailbox))
        })
        .collect::<Result<_>>()?;
    workers.sort_by_key(|(rank, _)| *rank);

    let mut contents = Contents::new(order.size);
    let (mut answers, mut result) = (Answers::default(), vec![0; order.size]);
    let (latencies, rate) = repeat(order.time(), |round| {
        let first = round * order.members as u64;
        let began = Instant::now();
        for (number, (_, worker)) in (first..).zip(&workers) {
            worker.send(BLOCK, contents.message(number))?;
        }
        for (number, (rank, worker)) in (first..).zip(&workers) {
            let length = worker.recv(Selector::exact(RESULT), &mut result)?.len;
            ensure!(
                answers.is(*rank, contents.message(number), &result[..length]),
                Violation(format!("worker {rank} returned a wrong result of block {number}"))
            );
        }
        Ok(began.elapsed())
    })?;
    workers.iter().try_for_each(|(_, worker)| worker.finish())?;
    report(&Modelled::of(rate, &latencies, line::traffic(workers.iter().map(|(_, worker)| worker)))?)
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
        partial(order.rank, &mut block[..length]);
        root.send(RESULT, &block[..length])?;
    }
    Ok(root.finish()?)
}
