//! Blocks that wait at a copy in another process, which has become slow.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use seekwire_flow::{
    Block, DealingPolicy, Filter, FilterError, Graph, Outputs, Ports, Step, StreamOptions, Unit,
};

use crate::jobs::jobs;

const BLOCKS: u64 = 40;

struct Numbers(u64);

impl Filter for Numbers {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        out.send(0, self.0.to_le_bytes().to_vec())?;
        self.0 += 1;
        Ok(if self.0 < BLOCKS { Step::More } else { Step::Done })
    }
}

/// The blocks done, and by which copies.
#[derive(Default)]
struct Progress {
    done: Mutex<usize>,
    change: Condvar,
}

/// The slow one is stuck with its first block until all others are done.
struct Work {
    progress: Arc<Progress>,
    is_slow: bool,
}

impl Filter for Work {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        let mut done = self.progress.done.lock().unwrap();
        while self.is_slow && *done < BLOCKS as usize - 1 {
            done = self.progress.change.wait(done).unwrap();
        }
        drop(done);
        out.send(0, block)?;
        *self.progress.done.lock().unwrap() += 1;
        self.progress.change.notify_all();
        Ok(())
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

/// Copies of the work on these ranks; it is slow in the process of rank 1.
fn graph(
    rank: u32,
    placement: &[u32],
    is_idempotent: bool,
    progress: &Arc<Progress>,
    seen: &Seen,
) -> Graph {
    let mut graph = Graph::new();
    graph.filter("numbers", 1, Ports::source(), || Numbers(0)).unwrap();
    let progress = Arc::clone(progress);
    let work = move || Work { progress: Arc::clone(&progress), is_slow: rank == 1 };
    graph.filter("work", 1, Ports::step(), work).unwrap();
    let seen = Arc::clone(seen);
    graph.filter("collect", 1, Ports::sink(), move || Collect(Arc::clone(&seen))).unwrap();
    graph.place("work", placement).unwrap();
    if is_idempotent {
        graph.idempotent("work").unwrap();
    }
    let options = StreamOptions { policy: DealingPolicy::Adaptive, ..Default::default() };
    graph.connect("numbers", "work", options.clone()).unwrap();
    graph.connect("work", "collect", options).unwrap();
    graph
}

#[test]
fn what_waits_at_a_slow_copy_goes_to_others() {
    for placement in [&[0, 1][..], &[1, 2], &[0, 1, 2]] {
        for is_idempotent in [false, true] {
            let (progress, seen): (Arc<Progress>, Seen) = Default::default();
            let make = |rank| graph(rank, placement, is_idempotent, &progress, &seen);
            let mut jobs = jobs(3).into_iter();
            let first = jobs.next().unwrap();
            thread::scope(|scope| {
                for job in jobs {
                    scope.spawn(move || {
                        make(job.rank).start_in(&job, b"").unwrap().serve().unwrap();
                    });
                }
                let running = make(0).start_in(&first, b"").unwrap();
                running.submit(Unit::default()).wait().unwrap();
            });
            let mut seen = seen.lock().unwrap();
            seen.sort_unstable();
            assert_eq!(*seen, (0..BLOCKS).collect::<Vec<_>>(), "{placement:?} {is_idempotent}");
        }
    }
}
