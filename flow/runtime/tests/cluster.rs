//! Pipelines in several processes, which are simulated by threads with links between them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use seekwire_flow::{
    Block, ClusterConfig, CopyReport, Cut, DealingPolicy, Failure, Filter, FilterError, Graph,
    Outputs, Ports, Running, StartError, Step, StreamOptions, StreamReport, Unit,
};

use crate::jobs::jobs;

/// Runs `coordinator` with the pipeline in that many processes.
fn run_in_processes(
    size: usize,
    graph: impl Fn() -> Graph + Sync,
    coordinator: impl FnOnce(&Running),
) {
    let mut jobs = jobs(size).into_iter();
    let first = jobs.next().unwrap();
    thread::scope(|scope| {
        for job in jobs {
            let graph = &graph;
            scope.spawn(move || graph().start_in(&job, b"").unwrap().serve().unwrap());
        }
        let running = graph().start_in(&first, b"").unwrap();
        coordinator(&running);
    });
}

/// Sends the numbers below the argument, eight bytes each, this many at once.
struct Numbers {
    next: u64,
    end: u64,
    at_once: u64,
}

impl Filter for Numbers {
    fn init(&mut self, argument: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.end = argument.parse()?;
        Ok(())
    }

    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        let until = (self.next + self.at_once).min(self.end);
        let bytes: Vec<u8> = (self.next..until).flat_map(u64::to_le_bytes).collect();
        self.next = until;
        out.send(0, bytes)?;
        Ok(if until == self.end { Step::Done } else { Step::More })
    }
}

/// Passes blocks on, and counts how often it was called.
struct Pass(Arc<AtomicUsize>);

impl Filter for Pass {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        // In two parts, so that a block has several output blocks.
        let bytes = block.bytes();
        let half = bytes.len() / 16 * 8;
        out.send(0, bytes.slice(..half))?;
        out.send(0, bytes.slice(half..))
    }
}

/// The reports once nothing is under way any more: notices that memory is free arrive later.
fn at_rest(running: &Running) -> (Vec<CopyReport>, Vec<StreamReport>) {
    loop {
        let report = running.report();
        if report.1.iter().all(|stream| stream.held == 0) {
            return report;
        }
    }
}

type Seen = Arc<Mutex<Vec<u64>>>;

struct Collect {
    seen: Seen,
    own: Vec<u64>,
}

impl Filter for Collect {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let numbers =
            block.chunks_exact(8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap()));
        self.own.extend(numbers);
        Ok(())
    }

    fn finalize(&mut self, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.seen.lock().unwrap().append(&mut self.own);
        Ok(())
    }
}

struct Layout {
    steps: &'static [&'static [u32]],
    sinks: &'static [u32],
    options: StreamOptions,
    is_idempotent: bool,
}

/// Numbers on rank 0, steps, and sinks.
fn chain(layout: &Layout, called: &Arc<AtomicUsize>, seen: &Seen) -> Graph {
    let mut graph = Graph::new();
    let numbers = || Numbers { next: 0, end: 0, at_once: 10 };
    graph.filter("numbers", 1, Ports::source(), numbers).unwrap();
    let mut before = "numbers".to_owned();
    for (at, ranks) in layout.steps.iter().enumerate() {
        let name = format!("step{at}");
        let called = Arc::clone(called);
        graph.filter(&name, 1, Ports::step(), move || Pass(Arc::clone(&called))).unwrap();
        graph.place(&name, ranks).unwrap();
        if layout.is_idempotent {
            graph.idempotent(&name).unwrap();
        }
        graph.connect(&before, &name, layout.options.clone()).unwrap();
        before = name;
    }
    let seen = Arc::clone(seen);
    let collect = move || Collect { seen: Arc::clone(&seen), own: Vec::new() };
    graph.filter("collect", 1, Ports::sink(), collect).unwrap();
    graph.place("collect", layout.sinks).unwrap();
    graph.connect(&before, "collect", layout.options.clone()).unwrap();
    graph
}

const POLICIES: [DealingPolicy; 3] =
    [DealingPolicy::Adaptive, DealingPolicy::Demand, DealingPolicy::RoundRobin];

#[test]
fn every_block_comes_once_wherever_filters_are() {
    let layouts: [(&[&[u32]], &[u32]); 6] = [
        (&[], &[1]),
        (&[&[1, 2, 1]], &[0]),
        (&[&[0, 1, 2]], &[2]),
        (&[&[1, 2], &[1, 2, 0]], &[0]),
        (&[&[1, 2], &[2, 1]], &[1, 2]),
        (&[&[2], &[1], &[0]], &[2, 1, 0]),
    ];
    for (at, (steps, sinks)) in layouts.into_iter().enumerate() {
        for is_idempotent in [false, true] {
            for policy in POLICIES {
                let options = StreamOptions { policy, limit: 64 << 10, ..StreamOptions::default() };
                let layout = Layout { steps, sinks, options, is_idempotent };
                let (called, seen) = (Arc::default(), Seen::default());
                run_in_processes(
                    3,
                    || chain(&layout, &called, &seen),
                    |running| {
                        for numbers in [0_u64, 1, 5000] {
                            running.submit(Unit::new(numbers.to_string())).wait().unwrap();
                            let mut seen = std::mem::take(&mut *seen.lock().unwrap());
                            seen.sort_unstable();
                            assert_eq!(
                                seen,
                                (0..numbers).collect::<Vec<_>>(),
                                "layout {at}, {policy:?}"
                            );
                        }
                        let (copies, streams) = at_rest(running);
                        let all: usize = steps.iter().map(|ranks| ranks.len()).sum();
                        assert_eq!(copies.len(), 1 + all + sinks.len());
                        assert_eq!(streams.len(), steps.len() + 1);
                        assert_eq!(streams[0].blocks, 1 + 1 + 500);
                        assert!(
                            streams.iter().all(|stream| stream.peak <= stream.limit),
                            "{streams:?}"
                        );
                    },
                );
            }
        }
    }
}

#[test]
fn order_is_kept_between_processes() {
    let layouts: [(&[&[u32]], &[u32]); 4] = [
        (&[], &[1]),
        (&[&[1, 2, 1, 0]], &[0]),
        (&[&[1, 2, 0], &[2, 2, 1]], &[1]),
        (&[&[1, 2, 0], &[2, 0, 1], &[0, 1, 2]], &[2]),
    ];
    for (steps, sinks) in layouts {
        for is_idempotent in [false, true] {
            for cut in [Cut::Whole, Cut::Bytes(24), Cut::Bytes(1000)] {
                let options = StreamOptions {
                    is_ordered: true,
                    cut,
                    limit: 64 << 10,
                    ..StreamOptions::default()
                };
                let layout = Layout { steps, sinks, options, is_idempotent };
                let (called, seen) = (Arc::default(), Seen::default());
                run_in_processes(
                    3,
                    || chain(&layout, &called, &seen),
                    |running| {
                        running.submit(Unit::new("3000")).wait().unwrap();
                        let seen = std::mem::take(&mut *seen.lock().unwrap());
                        assert_eq!(seen, (0..3000).collect::<Vec<_>>(), "{steps:?} {cut:?}");
                    },
                );
            }
        }
    }
}

/// Collects the numbers of blocks.
struct Count(Seen);

impl Filter for Count {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.0.lock().unwrap().push(block.sequence());
        Ok(())
    }
}

#[test]
fn no_two_blocks_of_a_stream_have_the_same_number() {
    let seen = Seen::default();
    let graph = || {
        let mut graph = Graph::new();
        let numbers = || Numbers { next: 0, end: 0, at_once: 10 };
        graph.filter("numbers", 1, Ports::source(), numbers).unwrap();
        graph.filter("pass", 1, Ports::step(), || Pass(Arc::default())).unwrap();
        graph.place("pass", &[0, 1, 2]).unwrap();
        let seen = Arc::clone(&seen);
        graph.filter("count", 1, Ports::sink(), move || Count(Arc::clone(&seen))).unwrap();
        graph.place("count", &[1, 2]).unwrap();
        // Each copy gets a third of the blocks.
        let policy = DealingPolicy::RoundRobin;
        let options = StreamOptions { policy, ..StreamOptions::default() };
        graph.connect("numbers", "pass", options).unwrap();
        graph.connect("pass", "count", StreamOptions::default()).unwrap();
        graph
    };
    run_in_processes(3, graph, |running| {
        for _ in 0..2 {
            running.submit(Unit::new("300")).wait().unwrap();
            let mut seen = std::mem::take(&mut *seen.lock().unwrap());
            seen.sort_unstable();
            assert_eq!(seen, (0..60).collect::<Vec<_>>());
        }
    });
}

#[test]
fn several_units_are_under_way_at_once() {
    let layout = Layout {
        steps: &[&[1, 2], &[0, 1]],
        sinks: &[2],
        options: StreamOptions { limit: 4096, ..StreamOptions::default() },
        is_idempotent: false,
    };
    let (called, seen) = (Arc::default(), Seen::default());
    run_in_processes(
        3,
        || chain(&layout, &called, &seen),
        |running| {
            let soon = Instant::now() + Duration::from_secs(1);
            let units: Vec<_> = (0..20)
                .map(|at| {
                    let unit = Unit::new("500");
                    running.submit(if at % 3 == 0 { unit.deadline(soon) } else { unit })
                })
                .collect();
            for (at, unit) in units.iter().enumerate() {
                if at % 4 == 1 {
                    running.cancel(unit);
                }
            }
            for (at, unit) in units.iter().enumerate() {
                match unit.wait() {
                    Ok(_) => {}
                    Err(Failure::Cancelled) if at % 4 == 1 => {}
                    Err(other) => panic!("{other}"),
                }
            }
            running.submit(Unit::new("10")).wait().unwrap();
            at_rest(running);
        },
    );
}

struct FailsAt(u64);

impl Filter for FailsAt {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        if block.chunks_exact(8).any(|eight| eight == self.0.to_le_bytes()) {
            return Err("no".into());
        }
        out.send(0, block)
    }
}

#[test]
fn a_failure_elsewhere_ends_the_unit_and_names_the_host() {
    let seen = Seen::default();
    let graph = || {
        let mut graph = Graph::new();
        let numbers = || Numbers { next: 0, end: 0, at_once: 10 };
        graph.filter("numbers", 1, Ports::source(), numbers).unwrap();
        graph.filter("fails", 1, Ports::step(), || FailsAt(1234)).unwrap();
        graph.place("fails", &[1]).unwrap();
        let seen = Arc::clone(&seen);
        let collect = move || Collect { seen: Arc::clone(&seen), own: Vec::new() };
        graph.filter("collect", 1, Ports::sink(), collect).unwrap();
        graph.place("collect", &[2]).unwrap();
        graph.connect("numbers", "fails", StreamOptions::default()).unwrap();
        graph.connect("fails", "collect", StreamOptions::default()).unwrap();
        graph
    };
    run_in_processes(3, graph, |running| {
        let failure = running.submit(Unit::new("5000")).wait().unwrap_err();
        let text = failure.to_string();
        assert_eq!(text, "unit 0: filter fails, copy 0 on host1, block 123: no");
        let long = "1".repeat((1 << 20) + 1);
        let failure = running.submit(Unit::new(long)).wait().unwrap_err();
        assert!(matches!(failure, Failure::LongArgument { .. }), "{failure}");
        running.submit(Unit::new("1000")).wait().unwrap();
        assert_eq!(seen.lock().unwrap().len(), 1000);
    });
}

/// Holds its block until the gate opens.
struct Gate {
    is_open: Arc<AtomicBool>,
}

impl Filter for Gate {
    fn process(&mut self, _: Block, _: usize, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        while !self.is_open.load(Ordering::Acquire) && !out.is_ended() {
            thread::yield_now();
        }
        Ok(())
    }
}

#[test]
fn a_consumer_that_stands_still_leaves_memory_bounded() {
    let is_open: Arc<AtomicBool> = Arc::default();
    let limit = 100_000;
    let graph = || {
        let mut graph = Graph::new();
        let numbers = || Numbers { next: 0, end: 0, at_once: 100 };
        graph.filter("numbers", 1, Ports::source(), numbers).unwrap();
        let is_open = Arc::clone(&is_open);
        graph
            .filter("gate", 1, Ports::sink(), move || Gate { is_open: Arc::clone(&is_open) })
            .unwrap();
        graph.place("gate", &[1]).unwrap();
        let options = StreamOptions { limit, ..StreamOptions::default() };
        graph.connect("numbers", "gate", options).unwrap();
        graph
    };
    run_in_processes(2, graph, |running| {
        let unit = running.submit(Unit::new("1000000"));
        // Until the source waits for room.
        while running.streams()[0].held + 2000 < limit {
            thread::yield_now();
        }
        is_open.store(true, Ordering::Release);
        unit.wait().unwrap();
        let stream = running.streams().remove(0);
        assert_eq!(stream.blocks, 10_000);
        assert!(stream.peak <= limit, "{stream:?}");
    });
}

#[test]
fn unauthenticated_peers_get_nothing_and_block_nobody() {
    let mut jobs = jobs(2).into_iter();
    let (coordinator, other) = (jobs.next().unwrap(), jobs.next().unwrap());
    let address = coordinator.listener.local_addr().unwrap();
    let layout = Layout {
        steps: &[&[1]],
        sinks: &[0],
        options: StreamOptions::default(),
        is_idempotent: false,
    };
    let (called, seen) = (Arc::default(), Seen::default());
    thread::scope(|scope| {
        let graph = || chain(&layout, &called, &seen);
        let running = scope.spawn(move || graph().start_in(&coordinator, b"").unwrap());
        // More than are tolerated: some are silent, some send nonsense.
        let mut silent: Vec<TcpStream> =
            (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut loud = TcpStream::connect(address).unwrap();
        loud.write_all(&[b'x'; 200]).unwrap();
        let mut answer = Vec::new();
        // Either nothing, or an error at the end of the connection.
        let _ = loud.read_to_end(&mut answer);
        assert_eq!(answer, b"");
        // A process that knows another secret.
        let mut wrong =
            ClusterConfig { secret: [8; 32], limit: Duration::from_secs(1), ..again(&other) };
        wrong.patience = Duration::from_secs(1);
        match graph().start_in(&wrong, b"") {
            Err(StartError::Connect(error)) => {
                let text = error.to_string();
                assert!(text.contains("rank 0 on host0 was not reached within 1 s"), "{text}");
                assert!(text.contains("does not know the secret"), "{text}");
            }
            _ => panic!("it knows another secret"),
        }
        // And a process that runs another pipeline.
        let wrong = ClusterConfig { limit: Duration::from_secs(1), ..again(&other) };
        assert!(matches!(graph().start_in(&wrong, b"x"), Err(StartError::Connect(_))));
        scope.spawn(move || graph().start_in(&other, b"").unwrap().serve().unwrap());
        let running = running.join().unwrap();
        running.submit(Unit::new("100")).wait().unwrap();
        // All of them were disconnected, some to make room, and the others at the end.
        assert_eq!(silent[0].read(&mut [0]).unwrap_or(0), 0);
    });
}

fn again(job: &ClusterConfig) -> ClusterConfig {
    ClusterConfig {
        rank: job.rank,
        peers: job.peers.clone(),
        listener: job.listener.try_clone().unwrap(),
        secret: job.secret,
        limit: job.limit,
        patience: job.patience,
        called_off: job.called_off.clone(),
    }
}

#[test]
fn who_does_not_come_is_named() {
    let job = jobs(2).remove(0);
    let job = ClusterConfig { limit: Duration::from_millis(100), ..job };
    let layout = Layout {
        steps: &[&[1]],
        sinks: &[0],
        options: StreamOptions::default(),
        is_idempotent: false,
    };
    let graph = chain(&layout, &Arc::default(), &Seen::default());
    let error = graph.start_in(&job, b"").err().map(|error| error.to_string());
    let expected = "rank 1 on host1 was not reached within 0 s: it has not connected";
    assert_eq!(error.as_deref(), Some(expected));
}

#[test]
fn units_that_end_early_leave_copies_as_able_as_before() {
    let layout = Layout {
        steps: &[&[1, 2], &[2, 1]],
        sinks: &[0],
        options: StreamOptions { limit: 4096, ..StreamOptions::default() },
        is_idempotent: true,
    };
    let (called, seen) = (Arc::default(), Seen::default());
    run_in_processes(
        3,
        || chain(&layout, &called, &seen),
        |running| {
            for _ in 0..40 {
                let before = called.load(Ordering::Relaxed);
                let unit = running.submit(Unit::new("100000"));
                while called.load(Ordering::Relaxed) < before + 20 {
                    thread::yield_now();
                }
                running.cancel(&unit);
                assert_eq!(unit.wait(), Err(Failure::Cancelled));
            }
            running.submit(Unit::new("1000")).wait().unwrap();
            assert_eq!(seen.lock().unwrap().len(), 1000);
            at_rest(running);
        },
    );
}
