//! A copy that is stuck with one block of many, in an ordered stream with a source that runs ahead:
//! the others have room for only a part of the later blocks.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use seekwire_flow::{
    Block, Filter, FilterError, Graph, Outputs, Ports, Running, Step, StreamOptions, Unit,
};

use crate::jobs::jobs;

const BLOCKS: u64 = 1200;

/// The block that a copy is stuck with: the budget allows for it by then.
const LATE: u64 = 200;

/// How long a block takes.
const SERVICE: Duration = Duration::from_micros(200);

/// Room for some hundreds of blocks of each copy.
const LIMIT: usize = 256 << 10;

/// How long the copy is stuck if the pipeline does not go on without it, which is a failure.
const LONGEST: Duration = Duration::from_secs(20);

struct Numbers(u64);

impl Filter for Numbers {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        out.send(0, self.0.to_le_bytes().to_vec())?;
        self.0 += 1;
        Ok(if self.0 < BLOCKS { Step::More } else { Step::Done })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Armed,
    Standing,
    Released,
    TooLong,
}

#[derive(Default)]
struct Gate {
    stage: Mutex<Stage>,
    change: Condvar,
}

impl Gate {
    /// The first copy that comes is stuck.
    fn stand(&self) {
        let mut stage = self.stage.lock().unwrap();
        if *stage == Stage::Armed {
            *stage = Stage::Standing;
            let is_standing = |stage: &mut Stage| *stage == Stage::Standing;
            let waited = self.change.wait_timeout_while(stage, LONGEST, is_standing).unwrap();
            (stage, _) = waited;
            if *stage == Stage::Standing {
                *stage = Stage::TooLong;
            }
        }
    }

    fn release(&self) -> Stage {
        let was = std::mem::replace(&mut *self.stage.lock().unwrap(), Stage::Released);
        self.change.notify_all();
        was
    }
}

struct Work(Arc<Gate>);

impl Filter for Work {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        let until = Instant::now() + SERVICE;
        while Instant::now() < until {
            thread::yield_now();
        }
        if u64::from_le_bytes(block[..].try_into()?) == LATE {
            self.0.stand();
        }
        out.send(0, block)
    }
}

type Seen = Arc<Mutex<Vec<u64>>>;

struct Collect(Seen);

impl Filter for Collect {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.0.lock().unwrap().push(u64::from_le_bytes(block[..].try_into()?));
        Ok(())
    }
}

fn graph(placement: [&[u32]; 3], gate: &Arc<Gate>, seen: &Seen) -> Graph {
    let mut graph = Graph::new();
    graph.filter("numbers", 1, Ports::source(), || Numbers(0)).unwrap();
    let gate = Arc::clone(gate);
    graph.filter("work", 1, Ports::step(), move || Work(Arc::clone(&gate))).unwrap();
    let seen = Arc::clone(seen);
    graph.filter("collect", 1, Ports::sink(), move || Collect(Arc::clone(&seen))).unwrap();
    for (filter, ranks) in ["numbers", "work", "collect"].into_iter().zip(placement) {
        graph.place(filter, ranks).unwrap();
    }
    graph.idempotent("work").unwrap();
    // On a busy machine many blocks are late. The stuck copy must find a hedge left.
    graph.hedge("work", 50).unwrap();
    let options = StreamOptions { is_ordered: true, ..Default::default() };
    graph.connect("numbers", "work", options.clone()).unwrap();
    graph.connect("work", "collect", StreamOptions { limit: LIMIT, ..options }).unwrap();
    graph
}

fn check(placement: [&[u32]; 3], running: &Running, gate: &Gate, seen: &Seen) {
    running.submit(Unit::default()).wait().unwrap();
    assert_eq!(gate.release(), Stage::Standing, "{placement:?}: {:?}", running.streams());
    assert!(seen.lock().unwrap().iter().copied().eq(0..BLOCKS), "{placement:?}");
    let streams = running.streams();
    assert!(streams[0].hedges_won > 0, "{streams:?}");
    assert!(streams.iter().all(|stream| stream.peak <= stream.limit), "{streams:?}");
}

#[test]
fn a_late_block_comes_before_new_ones_where_an_order_is_kept() {
    let (gate, seen) = Default::default();
    let placement: [&[u32]; 3] = [&[0], &[0, 0], &[0]];
    let running = graph(placement, &gate, &seen).start().unwrap();
    check(placement, &running, &gate, &seen);
    drop(running);
    for placement in [[&[0][..], &[1, 2], &[0]], [&[0], &[1, 2], &[1]], [&[0], &[0, 1], &[0]]] {
        let (gate, seen) = Default::default();
        let mut jobs = jobs(3).into_iter();
        let first = jobs.next().unwrap();
        thread::scope(|scope| {
            for job in jobs {
                let (gate, seen) = (&gate, &seen);
                scope.spawn(move || {
                    graph(placement, gate, seen).start_in(&job, b"").unwrap().serve().unwrap();
                });
            }
            let running = graph(placement, &gate, &seen).start_in(&first, b"").unwrap();
            check(placement, &running, &gate, &seen);
        });
    }
}
