//! A copy of a hedged filter that is stuck with one block.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use seekwire_flow::{
    Block, Cut, DealingPolicy, Filter, FilterError, Graph, GraphError, Outputs, Ports, Running,
    Step, StreamOptions, StreamReport, Unit,
};

use crate::jobs::jobs;

/// The blocks of a unit, and the one that a copy is stuck with: the budget allows for it by then.
const MANY: (u64, u64) = (400, 200);

/// So few that the budget allows for none.
const SHORT: (u64, u64) = (15, 12);

struct Numbers {
    next: u64,
    blocks: u64,
}

impl Filter for Numbers {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        out.send(0, self.next.to_le_bytes().to_vec())?;
        self.next += 1;
        Ok(if self.next < self.blocks { Step::More } else { Step::Done })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Stage {
    /// The next copy that gets the block is stuck with it.
    #[default]
    Armed,
    Standing,
    Released,
}

#[derive(Default)]
struct Gate {
    stage: Mutex<Stage>,
    change: Condvar,
}

impl Gate {
    fn set(&self, stage: Stage) {
        *self.stage.lock().unwrap() = stage;
        self.change.notify_all();
    }

    fn wait(&self) {
        let mut stage = self.stage.lock().unwrap();
        if *stage == Stage::Armed {
            *stage = Stage::Standing;
            while *stage != Stage::Released {
                stage = self.change.wait(stage).unwrap();
            }
        }
    }
}

/// Also released when the test fails: a pipeline that is dropped waits for its copies.
struct Releases<'g>(&'g Gate);

impl Drop for Releases<'_> {
    fn drop(&mut self) {
        self.0.set(Stage::Released);
    }
}

/// Sends its block twice, one half before it is stuck.
struct Work {
    gate: Arc<Gate>,
    late: u64,
    /// The error that it returns when it goes on.
    error: Option<&'static str>,
}

impl Filter for Work {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        let number = u64::from_le_bytes(block[..].try_into()?);
        out.send(0, block.bytes().clone())?;
        if number == self.late {
            let was = *self.gate.stage.lock().unwrap();
            self.gate.wait();
            if was == Stage::Armed {
                self.error.map_or(Ok(()), |error| Err(FilterError::from(error)))?;
            }
        }
        out.send(0, block)
    }
}

type Seen = Arc<Mutex<Vec<u64>>>;

struct Collect(Seen);

impl Filter for Collect {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let numbers =
            block.chunks_exact(8).map(|number| u64::from_le_bytes(number.try_into().unwrap()));
        self.0.lock().unwrap().extend(numbers);
        Ok(())
    }
}

struct Kind {
    blocks: (u64, u64),
    is_ordered: bool,
    cut: Cut,
    placement: [&'static [u32]; 3],
    error: Option<&'static str>,
    percent: u32,
}

/// Enough within one process. If copies in others are slow to report that they are done, more
/// blocks seem late.
const FEW: u32 = 5;

fn graph(kind: &Kind, gate: &Arc<Gate>, seen: &Seen) -> Graph {
    let mut graph = Graph::new();
    let (blocks, late) = kind.blocks;
    graph.filter("numbers", 1, Ports::source(), move || Numbers { next: 0, blocks }).unwrap();
    let (gate, error) = (Arc::clone(gate), kind.error);
    let work = move || Work { gate: Arc::clone(&gate), late, error };
    graph.filter("work", 1, Ports::step(), work).unwrap();
    let seen = Arc::clone(seen);
    graph.filter("collect", 1, Ports::sink(), move || Collect(Arc::clone(&seen))).unwrap();
    for (filter, ranks) in ["numbers", "work", "collect"].into_iter().zip(kind.placement) {
        graph.place(filter, ranks).unwrap();
    }
    graph.idempotent("work").unwrap();
    graph.hedge("work", kind.percent).unwrap();
    let options =
        StreamOptions { is_ordered: kind.is_ordered, limit: 1 << 20, ..Default::default() };
    graph.connect("numbers", "work", options.clone()).unwrap();
    graph.connect("work", "collect", StreamOptions { cut: kind.cut, ..options }).unwrap();
    graph
}

fn check(kind: &Kind, seen: &Seen) {
    let mut seen = std::mem::take(&mut *seen.lock().unwrap());
    if !kind.is_ordered {
        seen.sort_unstable();
    }
    let all: Vec<u64> = (0..kind.blocks.0).flat_map(|number| [number; 2]).collect();
    assert!(
        seen == all,
        "{:?} {}: {} of {}",
        kind.placement,
        kind.is_ordered,
        seen.len(),
        all.len()
    );
}

fn into_work(running: &Running) -> StreamReport {
    running.streams().into_iter().find(|stream| &*stream.name == "numbers.out -> work.in").unwrap()
}

/// Three units: in the middle of the first a copy is stuck, the second runs meanwhile, the third
/// after.
fn three_units(kind: &Kind, running: &Running, gate: &Gate, seen: &Seen) {
    let releases = Releases(gate);
    running.submit(Unit::default()).wait().unwrap();
    assert_eq!(*gate.stage.lock().unwrap(), Stage::Standing);
    check(kind, seen);
    running.submit(Unit::default()).wait().unwrap();
    check(kind, seen);
    let unit = running.submit(Unit::default());
    drop(releases);
    unit.wait().unwrap();
    check(kind, seen);
    let stream = into_work(running);
    // The one that a copy is stuck with goes beyond the budget; and where copies are elsewhere, each
    // that waits for a process that this machine is slow to run, because that one seems stopped.
    let most = if *kind.placement[0] == [0] && kind.placement[1].iter().all(|rank| *rank == 0) {
        3 * kind.blocks.0 * u64::from(kind.percent) / 100 + 1
    } else {
        3 * kind.blocks.0
    };
    assert!((1..=most).contains(&stream.hedged), "{stream:?}");
    assert!((1..=stream.hedged).contains(&stream.hedges_won), "{stream:?}");
    while running.streams().iter().any(|stream| stream.held > 0) {
        thread::yield_now();
    }
    for stream in running.streams() {
        assert!(stream.peak <= stream.limit, "{stream:?}");
    }
}

#[test]
fn no_unit_waits_for_a_copy_whose_block_another_one_is_done_with() {
    for (is_ordered, cut) in [(false, Cut::Whole), (true, Cut::Whole), (true, Cut::Bytes(24))] {
        for error in [None, Some("too late to matter")] {
            let placement: [&[u32]; 3] = [&[0], &[0, 0, 0], &[0]];
            let kind = Kind { blocks: MANY, is_ordered, cut, placement, error, percent: FEW };
            let (gate, seen) = Default::default();
            let running = graph(&kind, &gate, &seen).start().unwrap();
            three_units(&kind, &running, &gate, &seen);
        }
    }
}

/// Stops before that block.
struct Pausing(Numbers, u64, Arc<Gate>);

impl Filter for Pausing {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        if self.0.next == self.1 {
            self.2.wait();
        }
        self.0.generate(out)
    }
}

/// Counts its instances that are gone.
struct Counted(Work, Arc<AtomicUsize>);

impl Filter for Counted {
    fn process(
        &mut self,
        block: Block,
        port: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        self.0.process(block, port, out)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_late_copy_that_fails_ends_no_unit_that_goes_on_without_it() {
    let (gate, pause, gone, seen) = <(Arc<Gate>, Arc<Gate>, Arc<AtomicUsize>, Seen)>::default();
    let placement: [&[u32]; 3] = [&[0], &[0, 0], &[0]];
    let error = Some("too late to matter");
    let (is_ordered, cut) = (false, Cut::Whole);
    let kind = Kind { blocks: MANY, is_ordered, cut, placement, error, percent: FEW };
    let (blocks, late) = MANY;
    let mut graph = graph(&kind, &gate, &seen);
    let source = {
        let pause = Arc::clone(&pause);
        move || Pausing(Numbers { next: 0, blocks }, late + 50, Arc::clone(&pause))
    };
    graph.replace("numbers", Arc::new(move || Box::new(source()))).unwrap();
    let work = {
        let (gate, gone) = (Arc::clone(&gate), Arc::clone(&gone));
        move || Counted(Work { gate: Arc::clone(&gate), late, error }, Arc::clone(&gone))
    };
    graph.replace("work", Arc::new(move || Box::new(work()))).unwrap();
    let running = graph.start().unwrap();
    let (releases, ends) = (Releases(&gate), Releases(&pause));
    let unit = running.submit(Unit::default());
    while into_work(&running).hedges_won == 0 {
        thread::yield_now();
    }
    drop(releases);
    while gone.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    drop(ends);
    unit.wait().unwrap();
    check(&kind, &seen);
}

#[test]
fn copies_in_another_process_hedge_each_other() {
    for (is_ordered, placement) in [
        (false, [&[0][..], &[1, 1], &[0]]),
        (true, [&[0], &[1, 1], &[2]]),
        (true, [&[1], &[0, 0], &[1]]),
    ] {
        let cut = Cut::Whole;
        let kind = Kind { blocks: MANY, is_ordered, cut, placement, error: None, percent: FEW };
        in_three_processes(&kind);
    }
}

#[test]
fn copies_in_several_processes_hedge_each_other() {
    for (is_ordered, placement) in [
        // The process that deals has no copy, or there are one or two elsewhere; and the output
        // goes there, beside the copies, or elsewhere.
        (false, [&[0][..], &[1, 2], &[0]]),
        (true, [&[0], &[1, 2], &[0]]),
        (true, [&[0], &[1, 2], &[1]]),
        (false, [&[0], &[0, 1], &[2]]),
        (true, [&[0], &[0, 1], &[1]]),
        (false, [&[0], &[0, 0, 2], &[2]]),
        (true, [&[1], &[0, 1, 2], &[1]]),
        (false, [&[1], &[2, 2, 0, 0], &[0]]),
    ] {
        for cut in [Cut::Whole, Cut::Bytes(24)] {
            let kind = Kind { blocks: MANY, is_ordered, cut, placement, error: None, percent: 100 };
            in_three_processes(&kind);
        }
    }
}

/// Otherwise the unit would never end.
#[test]
fn a_copy_that_stands_still_is_hedged_beyond_the_budget() {
    for placement in [[&[0][..], &[0, 0], &[0]], [&[0], &[1, 2], &[0]], [&[0], &[0, 1], &[2]]] {
        let (is_ordered, cut) = (true, Cut::Whole);
        let kind = Kind { blocks: SHORT, is_ordered, cut, placement, error: None, percent: 1 };
        in_three_processes(&kind);
    }
}

fn in_three_processes(kind: &Kind) {
    let (gate, seen) = Default::default();
    let mut jobs = jobs(3).into_iter();
    let first = jobs.next().unwrap();
    thread::scope(|scope| {
        for job in jobs {
            let (gate, seen) = (&gate, &seen);
            scope.spawn(move || {
                graph(kind, gate, seen).start_in(&job, b"").unwrap().serve().unwrap();
            });
        }
        let running = graph(kind, &gate, &seen).start_in(&first, b"").unwrap();
        three_units(kind, &running, &gate, &seen);
    });
}

#[test]
fn only_what_is_idempotent_and_dealt_late_is_hedged() {
    let mut graph = Graph::new();
    let numbers = || Numbers { next: 0, blocks: 1 };
    graph.filter("numbers", 1, Ports::source(), numbers).unwrap();
    let work = || Work { gate: Arc::default(), late: 0, error: None };
    graph.filter("work", 2, Ports::step(), work).unwrap();
    graph.filter("collect", 1, Ports::sink(), || Collect(Arc::default())).unwrap();
    assert_eq!(graph.hedge("work", 5), Err(GraphError::NotHedged("work".to_owned())));
    graph.idempotent("work").unwrap();
    for percent in [0, 101] {
        let filter = "work".to_owned();
        assert_eq!(graph.hedge("work", percent), Err(GraphError::NoBudget { filter, percent }));
    }
    graph.hedge("work", 5).unwrap();
    let options = StreamOptions { policy: DealingPolicy::Demand, ..Default::default() };
    graph.connect("numbers", "work", options).unwrap();
    graph.connect("work", "collect", StreamOptions::default()).unwrap();
    let error = graph.check().unwrap_err();
    assert!(matches!(error, GraphError::HedgedAtOnce { .. }), "{error}");
}

#[test]
fn what_is_not_hedged_is_not_given_to_a_second_copy() {
    let (gate, seen): (Arc<Gate>, Seen) = Default::default();
    let placement: [&[u32]; 3] = [&[0], &[0, 0], &[0]];
    let kind = Kind {
        blocks: MANY,
        is_ordered: false,
        cut: Cut::Whole,
        placement,
        error: None,
        percent: FEW,
    };
    let mut graph = graph(&kind, &gate, &seen);
    let late = Arc::clone(&gate);
    // The same filters, and one that is not declared idempotent.
    graph.filter("other", 2, Ports::sink(), move || Late(Arc::clone(&late))).unwrap();
    graph.connect("numbers", "other", StreamOptions::default()).unwrap();
    let running = graph.start().unwrap();
    running.submit(Unit::default()).wait().unwrap();
    let streams = running.streams();
    let other = streams.iter().find(|stream| &*stream.name == "numbers.out -> other.in").unwrap();
    assert_eq!((other.hedged, other.hedges_won), (0, 0));
}

/// Is stuck until the other filter has given its block to another copy.
struct Late(Arc<Gate>);

impl Filter for Late {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        if u64::from_le_bytes(block[..].try_into()?) == MANY.0 - 1 {
            self.0.set(Stage::Released);
        }
        Ok(())
    }
}
