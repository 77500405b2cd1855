//! Threads and bounded channels of `crossbeam-channel`: the floor, since nothing but a queue is between
//! two stages. The copies of a step take from one channel.

use std::sync::Arc;
use std::thread;

use anyhow::{Result, anyhow};
use crossbeam_channel::{Receiver, Sender, bounded};

use super::notes::Notes;
use crate::pipeline::{BlockSource, PipelineOrder, PipelineReport, Sink, StepWork};

type Block = Vec<u8>;

pub(super) fn run(order: PipelineOrder) -> Result<PipelineReport> {
    let notes = Arc::new(Notes::default());
    let (first, into_first) = bounded(order.room());
    let (second, into_second) = bounded(order.room());
    let (last, into_sink) = bounded(order.room());
    let mut threads = Vec::new();
    for copy in 0..order.copies {
        let work = StepWork::new(order, copy == 0);
        threads.push(step(0, work, into_first.clone(), second.clone(), &notes));
        threads.push(step(1, StepWork::second(order), into_second.clone(), last.clone(), &notes));
    }
    // Only those of the copies remain: a channel closes with them.
    drop((into_first, second, into_second, last));
    let sink = thread::spawn({
        let notes = Arc::clone(&notes);
        move || {
            let mut sink = Sink::new(order);
            into_sink.iter().for_each(|block| sink.take(&block));
            notes.add(sink.report());
        }
    });
    threads.push(sink);
    notes.begin();
    let source = thread::spawn(move || {
        let mut source = BlockSource::new(order);
        while let Some(block) = source.next() {
            if first.send(block).is_err() {
                break;
            }
        }
    });
    threads.push(source);
    for thread in threads {
        thread.join().map_err(|_| anyhow!("a stage panicked"))?;
    }
    Ok(notes.end())
}

fn step(
    number: usize,
    mut work: StepWork,
    from: Receiver<Block>,
    to: Sender<Block>,
    notes: &Arc<Notes>,
) -> thread::JoinHandle<()> {
    let notes = Arc::clone(notes);
    thread::spawn(move || {
        for block in from {
            work.work(&block);
            if to.send(block).is_err() {
                break;
            }
        }
        notes.add(work.report(number));
    })
}
