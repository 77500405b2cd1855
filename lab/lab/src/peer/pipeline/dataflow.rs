//! `timely`: every worker, a thread, has all stages, and an exchange before each of them decides by
//! a key, the number of the block, which worker gets it. There are as many workers as copies;
//! source and sink are on one of them.
//!
//! timely bounds nothing by itself. The source counts with a probe, as timely's documentation
//! describes: the blocks under way are at most those that the three streams together may hold.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use timely::Config;
use timely::dataflow::operators::{Exchange, Input, Inspect, Probe};
use timely::dataflow::{InputHandle, ProbeHandle};
use timely::worker::Worker;

use super::notes::Notes;
use crate::pipeline::{BlockSource, PipelineOrder, PipelineReport, Sink, StepWork};

type Block = Vec<u8>;

/// Number of streams with a limit.
const STREAMS: usize = 3;

pub(super) fn run(order: PipelineOrder) -> Result<PipelineReport> {
    let notes = Arc::new(Notes::default());
    let shared = Arc::clone(&notes);
    let workers = timely::execute(Config::process(order.copies), move |worker| {
        work(worker, order, &shared);
    })
    .map_err(|error| anyhow!("timely: {error}"))?;
    for result in workers.join() {
        result.map_err(|error| anyhow!("a worker of timely: {error}"))?;
    }
    Ok(notes.end())
}

fn number(block: &Block) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&block[..8]);
    u64::from_ne_bytes(word)
}

fn work<A: timely::communication::Allocate>(
    worker: &mut Worker<A>,
    order: PipelineOrder,
    notes: &Notes,
) {
    let steps = [StepWork::new(order, false), StepWork::second(order)];
    let [first, second] = steps.map(|step| Rc::new(RefCell::new(step)));
    let sink = Rc::new(RefCell::new(Sink::new(order)));
    let mut input = InputHandle::new();
    let probe = ProbeHandle::new();
    let at = [Rc::clone(&first), Rc::clone(&second)];
    let end = Rc::clone(&sink);
    worker.dataflow::<u64, _, _>(|scope| {
        let [first, second] = at;
        scope
            .input_from(&mut input)
            .exchange(number)
            .inspect(move |block: &Block| first.borrow_mut().work(block))
            .exchange(number)
            .inspect(move |block: &Block| second.borrow_mut().work(block))
            .exchange(|_| 0)
            .inspect(move |block: &Block| end.borrow_mut().take(block))
            .probe_with(&probe);
    });
    if worker.index() == 0 {
        notes.begin();
        // One part may be under way while another one is made.
        let part = order.room() * STREAMS / 2;
        let mut source = BlockSource::new(order);
        let (mut epoch, mut made) = (0_u64, 0);
        loop {
            let wait = source.wait();
            if !wait.is_zero() {
                worker.step_or_park(Some(wait));
                continue;
            }
            let Some(block) = source.next() else { break };
            input.send(block);
            made += 1;
            if order.interval_ns > 0 || made == part {
                made = 0;
                epoch += 1;
                input.advance_to(epoch);
                while order.interval_ns == 0 && probe.less_than(&(epoch - 1)) {
                    worker.step_or_park(None);
                }
                worker.step();
            }
        }
    }
    input.close();
    while worker.step_or_park(None) {}
    for (number, step) in [first, second].iter().enumerate() {
        notes.add(step.borrow_mut().report(number));
    }
    if worker.index() == 0 {
        notes.add(sink.borrow_mut().report());
    }
}
