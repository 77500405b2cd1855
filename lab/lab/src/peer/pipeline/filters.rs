//! `seekwire-flow`: filters with copies, in one process or in two. In two, every stream leads from
//! one to the other: source and second step are on rank 0, first step and sink on rank 1.

use std::io::BufRead;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use seekwire_flow::{
    Block, ClusterConfig, Filter, FilterError, Graph, Outputs, Peer, Ports, Running, SILENCE_LIMIT,
    Step, StreamOptions, Unit,
};

use super::notes::Notes;
use crate::messaging;
use crate::pipeline::{BlockSource, Copies, PipelineOrder, PipelineReport, Sink, StepWork};

/// Number of blocks that a source makes before others get their turn.
const AT_ONCE: usize = 32;

struct Making {
    source: BlockSource,
    is_timed: bool,
}

impl Filter for Making {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        for _ in 0..if self.is_timed { 1 } else { AT_ONCE } {
            match self.source.next() {
                Some(block) => out.send(0, block)?,
                None => return Ok(Step::Done),
            }
        }
        Ok(Step::More)
    }
}

struct Reading {
    number: usize,
    work: StepWork,
    notes: Arc<Notes>,
}

impl Filter for Reading {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        self.work.work(&block);
        out.send(0, block)
    }

    fn finalize(&mut self, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.notes.add(self.work.report(self.number));
        Ok(())
    }
}

struct Taking {
    sink: Sink,
    notes: Arc<Notes>,
}

impl Filter for Taking {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.sink.take(&block);
        Ok(())
    }

    fn finalize(&mut self, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.notes.add(self.sink.report());
        Ok(())
    }
}

/// The pipeline; `ranks`: the processes of the four filters.
fn graph(order: PipelineOrder, ranks: [u32; 4], notes: &Arc<Notes>) -> Result<Graph> {
    let mut graph = Graph::new();
    let is_timed = order.interval_ns > 0;
    graph.filter("source", 1, Ports::source(), move || Making {
        source: BlockSource::new(order),
        is_timed,
    })?;
    let copies = Copies::default();
    let to = Arc::clone(notes);
    graph.filter("first", order.copies, Ports::step(), move || Reading {
        number: 0,
        work: StepWork::new(order, copies.is_first()),
        notes: Arc::clone(&to),
    })?;
    let to = Arc::clone(notes);
    graph.filter("second", order.copies, Ports::step(), move || Reading {
        number: 1,
        work: StepWork::second(order),
        notes: Arc::clone(&to),
    })?;
    let to = Arc::clone(notes);
    graph.filter("sink", 1, Ports::sink(), move || Taking {
        sink: Sink::new(order),
        notes: Arc::clone(&to),
    })?;
    let copies = [1, order.copies, order.copies, 1];
    for ((name, rank), copies) in
        ["source", "first", "second", "sink"].iter().zip(ranks).zip(copies)
    {
        graph.place(name, &vec![rank; copies])?;
    }
    for (from, to) in [("source", "first"), ("first", "second"), ("second", "sink")] {
        let limit = order.limit;
        graph.connect(from, to, StreamOptions { limit, ..StreamOptions::default() })?;
    }
    Ok(graph)
}

/// All in this process.
pub(super) fn local(order: PipelineOrder) -> Result<PipelineReport> {
    let notes = Arc::new(Notes::default());
    let running = graph(order, [0; 4], &notes)?.start()?;
    notes.begin();
    done(&running, &notes)
}

/// Prints where this process listens, and reads where both do.
pub(super) fn cluster_config(rank: u32) -> Result<ClusterConfig> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
    messaging::ready(&listener.local_addr()?.to_string())?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let addresses: Vec<SocketAddr> =
        serde_json::from_str(&line).context("not the addresses of all")?;
    let peer =
        |address: &SocketAddr| Peer { host: "localhost".to_owned(), addresses: vec![*address] };
    Ok(ClusterConfig {
        rank,
        peers: addresses.iter().map(peer).collect(),
        listener,
        // On loopback, in an experiment: no secret is needed.
        secret: [0; 32],
        limit: Duration::from_secs(10),
        patience: SILENCE_LIMIT,
        called_off: None,
    })
}

/// One of two processes.
pub(super) fn joined(rank: u32, order: PipelineOrder) -> Result<PipelineReport> {
    let job = cluster_config(rank)?;
    let notes = Arc::new(Notes::default());
    let running = graph(order, [0, 1, 0, 1], &notes)?.start_in(&job, b"")?;
    notes.begin();
    if rank == 0 {
        return done(&running, &notes);
    }
    running.serve()?;
    Ok(notes.end())
}

fn done(running: &Running, notes: &Notes) -> Result<PipelineReport> {
    running.submit(Unit::new("")).wait()?;
    let mut report = notes.end();
    let of_limit = |peak: usize, limit: usize| peak as f64 / limit as f64;
    let streams = running.streams();
    report.held = streams.iter().map(|stream| of_limit(stream.peak, stream.limit)).reduce(f64::max);
    Ok(report)
}
