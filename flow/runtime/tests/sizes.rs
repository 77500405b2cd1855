//! Streams that choose the size of their blocks.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seekwire_flow::{
    Block, Cut, Filter, FilterError, Graph, GraphError, Observer, Outputs, Ports, Running,
    SizeBounds, SizeDecision, Span, Step, StreamOptions, Unit,
};

use crate::jobs::jobs;

/// 8 MiB, or less from a later beginning.
struct Bulk(usize);

impl Filter for Bulk {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        self.0 += 1;
        out.send(0, Bytes::from(vec![7; 1 << 18]))?;
        Ok(if self.0 < 32 { Step::More } else { Step::Done })
    }
}

/// The time for a block, and for each of its bytes; it passes all blocks on, or none.
#[derive(Clone, Copy)]
struct Takes {
    block: Duration,
    byte: f64,
    passes: bool,
}

impl Filter for Takes {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        // Sleep: a computing thread waits for its turn on a busy machine, which looks like a cost
        // of blocks.
        thread::sleep(self.block + Duration::from_secs_f64(self.byte * block.len() as f64));
        if self.passes { out.send(0, block) } else { Ok(()) }
    }
}

const COSTLY_BLOCKS: Takes = Takes { block: Duration::from_micros(50), byte: 0.0, passes: false };
/// 12 KiB take 24 ms. A tenth of that is far more than waking a thread takes, on any machine.
const COSTLY_BYTES: Takes = Takes { block: Duration::ZERO, byte: 2e-6, passes: false };

fn auto() -> StreamOptions {
    let cut = Cut::Auto(SizeBounds { least: 2 << 10, most: 256 << 10, ..SizeBounds::default() });
    StreamOptions { cut, ..StreamOptions::default() }
}

#[derive(Default)]
struct Sized(Mutex<Vec<SizeDecision>>);

impl Observer for Sized {
    fn began(&self, _: usize, _: Span, _: Instant) {}
    fn ended(&self, _: usize, _: Instant) {}
    fn held(&self, _: usize, _: usize, _: Instant) {}
    fn sized(&self, stream: usize, decision: &SizeDecision, _: Instant) {
        assert_eq!(stream, 0);
        self.0.lock().unwrap().push(decision.clone());
    }
}

/// Submits units until the size of blocks of the first stream is a wanted one.
fn until(running: &Running, is_there: impl Fn(usize) -> bool) -> Vec<SizeDecision> {
    const MOST_UNITS: usize = 100;
    for _ in 0..MOST_UNITS {
        running.submit(Unit::default()).wait().unwrap();
        let block = running.streams()[0].block.clone().unwrap();
        if is_there(block.size) {
            let last = block.decisions.last().unwrap();
            assert_eq!(last.to, block.size);
            return block.decisions;
        }
    }
    panic!("no such size in {MOST_UNITS} units: {:?}", running.streams()[0].block);
}

#[test]
fn costly_blocks_become_larger_and_costly_bytes_smaller() {
    for (takes, begin, range) in
        [(COSTLY_BLOCKS, 0, 100 << 10..1 << 30), (COSTLY_BYTES, 28, 0..12 << 10)]
    {
        let mut graph = Graph::new();
        graph.filter("bulk", 1, Ports::source(), move || Bulk(begin)).unwrap();
        graph.filter("takes", 2, Ports::sink(), move || takes).unwrap();
        graph.connect("bulk", "takes", auto()).unwrap();
        let seen = Arc::new(Sized::default());
        graph.observe(seen.clone());
        let running = graph.start().unwrap();
        let decisions = until(&running, |size| range.contains(&size));
        let seen = seen.0.lock().unwrap();
        assert!(seen.ends_with(&decisions) || seen.len() > decisions.len(), "{seen:?}");
        assert!(decisions.iter().all(|one| one.alpha.is_none() && one.from != one.to));
    }
}

/// The ranks of the source, of the filter that takes blocks, and of the sink.
fn chain(placement: [&[u32]; 3], is_idempotent: bool) -> Graph {
    let takes = Takes { passes: true, ..COSTLY_BLOCKS };
    let mut graph = Graph::new();
    graph.filter("bulk", 1, Ports::source(), || Bulk(0)).unwrap();
    graph.filter("takes", 1, Ports::step(), move || takes).unwrap();
    let end = Takes { block: Duration::ZERO, byte: 0.0, passes: false };
    graph.filter("end", 1, Ports::sink(), move || end).unwrap();
    for (filter, ranks) in ["bulk", "takes", "end"].iter().zip(placement) {
        graph.place(filter, ranks).unwrap();
    }
    if is_idempotent {
        graph.idempotent("takes").unwrap();
    }
    graph.connect("bulk", "takes", auto()).unwrap();
    graph.connect("takes", "end", StreamOptions::default()).unwrap();
    graph
}

#[test]
fn several_units_at_once_do_not_look_like_small_ones() {
    let mut graph = Graph::new();
    graph.filter("bulk", 1, Ports::source(), || Bulk(0)).unwrap();
    graph.filter("takes", 2, Ports::sink(), || COSTLY_BLOCKS).unwrap();
    graph.connect("bulk", "takes", auto()).unwrap();
    let running = graph.start().unwrap();
    let units: Vec<_> = (0..8).map(|_| running.submit(Unit::default())).collect();
    for unit in &units {
        unit.wait().unwrap();
    }
    let block = running.streams()[0].block.clone().unwrap();
    assert!(block.size > 16 << 10, "{block:?}");
    let decisions = block.decisions;
    assert!(decisions.iter().all(|one| one.to > 16 << 10), "{decisions:?}");
}

#[test]
fn who_sends_to_another_process_finds_it_too() {
    // The blocks are dealt where they are sent, and elsewhere.
    for (placement, is_idempotent) in
        [([&[0][..], &[1, 1], &[0]], false), ([&[1, 2], &[0, 1], &[0]], true)]
    {
        let make = || chain(placement, is_idempotent);
        let mut jobs = jobs(3).into_iter();
        let first = jobs.next().unwrap();
        thread::scope(|scope| {
            for job in jobs {
                scope.spawn(move || make().start_in(&job, b"").unwrap().serve().unwrap());
            }
            let running = make().start_in(&first, b"").unwrap();
            let decisions = until(&running, |size| size > 100 << 10);
            let with_link =
                decisions.iter().filter(|one| one.alpha.is_some() && one.beta.is_some());
            assert!(with_link.count() > 0, "{decisions:?}");
        });
    }
}

#[test]
fn what_may_be_sent_again_has_to_be_cut_as_before() {
    let mut graph = Graph::new();
    graph.filter("bulk", 1, Ports::source(), || Bulk(0)).unwrap();
    graph.filter("takes", 1, Ports::step(), || COSTLY_BYTES).unwrap();
    graph.filter("end", 1, Ports::sink(), || COSTLY_BYTES).unwrap();
    graph.place("takes", &[0, 1]).unwrap();
    graph.idempotent("takes").unwrap();
    graph.connect("bulk", "takes", StreamOptions::default()).unwrap();
    graph.connect("takes", "end", auto()).unwrap();
    let mut jobs = jobs(2).into_iter();
    let refused = graph.start_in(&jobs.next().unwrap(), b"").err().unwrap().to_string();
    assert!(
        refused.contains("takes is idempotent") && refused.contains("give it a size"),
        "{refused}"
    );

    let odd = StreamOptions {
        cut: Cut::Auto(SizeBounds { least: 9, most: 17, record: 9 * 2 }),
        ..auto()
    };
    let mut graph = Graph::new();
    graph.filter("bulk", 1, Ports::source(), || Bulk(0)).unwrap();
    graph.filter("takes", 1, Ports::sink(), || COSTLY_BYTES).unwrap();
    let refused = graph.connect("bulk", "takes", odd).unwrap_err();
    assert!(matches!(refused, GraphError::NoSizes { .. }), "{refused}");
}
