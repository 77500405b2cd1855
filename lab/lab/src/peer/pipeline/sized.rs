//! The pipeline over `seekwire-flow` where the first stream cuts blocks: of a given size, or of the
//! one that it finds. Units of work have a fixed number of bytes; their time is measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use seekwire_flow::{
    Block, Cut, Filter, FilterError, Graph, Outputs, Ports, Running, SizeBounds, Step,
    StreamOptions, Unit,
};

use super::filters;
use super::notes::Notes;
use crate::pipeline::{PipelineReport, total};

/// Bytes that the source sends at once.
const PIECE: usize = 256 << 10;
const WORD: usize = 8;
const COPIES: usize = 3;
/// Room for a megabyte that each copy fills, and more.
const LIMIT: usize = 8 << 20;
/// Sizes that can be found.
const SIZES: SizeBounds = SizeBounds { least: 1 << 10, most: 1 << 20, record: WORD };

/// The sizes and times of a run.
#[derive(Clone, Copy, Debug)]
struct Order {
    /// Bytes of a block; 0: the size that the stream finds.
    size: usize,
    /// Bytes of a unit.
    unit: usize,
    /// Milliseconds before units are counted, in which a size is to be found.
    warm_up: u64,
    /// How long they are counted.
    milliseconds: u64,
}

impl Order {
    fn parse(arguments: &[String]) -> Result<Self> {
        let numbers = arguments.iter().map(|argument| argument.parse::<u64>());
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().context("not a number")?;
        let [size, unit, warm_up, milliseconds] = numbers[..] else {
            bail!(
                "say the size of blocks, that of units, and for how long before and while they count"
            )
        };
        Ok(Self { size: size as usize, unit: unit as usize, warm_up, milliseconds })
    }

    fn cut(&self) -> Cut {
        if self.size == 0 { Cut::Auto(SIZES) } else { Cut::Bytes(self.size) }
    }
}

struct Pieces {
    left: usize,
    next: u64,
}

impl Filter for Pieces {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        let mut piece = vec![0; self.left.min(PIECE)];
        for word in piece.chunks_exact_mut(WORD) {
            word.copy_from_slice(&self.next.to_ne_bytes());
            self.next += 1;
        }
        self.left -= piece.len();
        out.send(0, piece)?;
        Ok(if self.left == 0 { Step::Done } else { Step::More })
    }
}

struct Adding {
    stage: usize,
    sum: u64,
    notes: Arc<Notes>,
}

impl Filter for Adding {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        self.sum = self.sum.wrapping_add(total(&block));
        if self.stage < 2 { out.send(0, block) } else { Ok(()) }
    }

    fn finalize(&mut self, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let mut report = PipelineReport::default();
        report.sums[self.stage] = self.sum;
        self.notes.add(report);
        Ok(())
    }
}

/// In this process (`local`), or as one of two (a rank).
pub(super) fn run(location: &str, arguments: &[String]) -> Result<PipelineReport> {
    let order = Order::parse(arguments)?;
    let notes = Arc::new(Notes::default());
    let running = match location {
        "local" => graph(order, [0; 4], &notes)?.start()?,
        rank => {
            let job = filters::cluster_config(rank.parse().context("a rank is a number")?)?;
            graph(order, [0, 1, 0, 1], &notes)?.start_in(&job, b"")?
        }
    };
    if !running.is_coordinator() {
        running.serve()?;
        return Ok(notes.take());
    }
    timed(&running, order, &notes)
}

fn graph(order: Order, ranks: [u32; 4], notes: &Arc<Notes>) -> Result<Graph> {
    let mut graph = Graph::new();
    graph.filter("source", 1, Ports::source(), move || Pieces { left: order.unit, next: 0 })?;
    for (stage, (name, ports)) in
        [("first", Ports::step()), ("second", Ports::step()), ("sink", Ports::sink())]
            .into_iter()
            .enumerate()
    {
        let notes = Arc::clone(notes);
        let make = move || Adding { stage, sum: 0, notes: Arc::clone(&notes) };
        graph.filter(name, 1, ports, make)?;
    }
    let copies = [1, COPIES, COPIES, 1];
    for ((name, rank), copies) in
        ["source", "first", "second", "sink"].iter().zip(ranks).zip(copies)
    {
        graph.place(name, &vec![rank; copies])?;
    }
    let whole = StreamOptions { limit: LIMIT, ..StreamOptions::default() };
    graph.connect("source", "first", StreamOptions { cut: order.cut(), ..whole.clone() })?;
    graph.connect("first", "second", whole.clone())?;
    graph.connect("second", "sink", whole)?;
    Ok(graph)
}

/// Runs units one after the other; reports the time of one, and their number.
fn timed(running: &Running, order: Order, notes: &Notes) -> Result<PipelineReport> {
    let warm_up = Duration::from_millis(order.warm_up);
    let time = warm_up + Duration::from_millis(order.milliseconds);
    let begun = Instant::now();
    let mut times: Vec<f64> = Vec::new();
    let mut units = 0;
    while times.is_empty() || begun.elapsed() < time {
        let is_counted = begun.elapsed() >= warm_up;
        let started = Instant::now();
        running.submit(Unit::new("")).wait()?;
        units += 1;
        if is_counted {
            times.push(started.elapsed().as_secs_f64());
        }
    }
    let mut report = notes.take();
    report.blocks = units;
    report.seconds = crate::stats::median(&times).context("no unit was timed")?;
    let first = running.streams().into_iter().next();
    report.chosen = first.and_then(|stream| stream.block).map(|block| block.size as u64);
    Ok(report)
}
