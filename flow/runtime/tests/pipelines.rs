//! Whole pipelines, inside one process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use seekwire_flow::{
    Block, Cut, DealingPolicy, Failure, Filter, FilterError, Graph, GraphError, Observer, Outputs,
    Ports, Running, SizeBounds, Span, Step, StreamOptions, Unit, UnitId,
};

/// Sends the results of a function for 0, 1, 2, ... until it returns none.
struct Give<F>(F, u64);

impl<F: FnMut(u64) -> Option<Vec<u8>> + Send> Filter for Give<F> {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        let Some(bytes) = (self.0)(self.1) else { return Ok(Step::Done) };
        self.1 += 1;
        out.send(0, bytes)?;
        Ok(Step::More)
    }
}

/// Calls a function for each block.
struct Each<F>(F);

impl<F> Filter for Each<F>
where
    F: FnMut(Block, usize, &mut Outputs<'_>) -> Result<(), FilterError> + Send,
{
    fn process(
        &mut self,
        block: Block,
        port: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        (self.0)(block, port, out)
    }
}

/// The blocks received for each unit.
type Kept = Arc<Mutex<BTreeMap<UnitId, Vec<Vec<u8>>>>>;

fn keep(graph: &mut Graph, name: &str, copies: usize) -> Kept {
    let kept = Kept::default();
    let shared = Arc::clone(&kept);
    let make = move || {
        let shared = Arc::clone(&shared);
        Each(move |block: Block, _, _: &mut Outputs<'_>| {
            shared.lock().unwrap().entry(block.unit()).or_default().push(block.to_vec());
            Ok(())
        })
    };
    graph.filter(name, copies, Ports::sink(), make).unwrap();
    kept
}

fn numbers(graph: &mut Graph, name: &str, count: u64) {
    let give = move || Give(move |at: u64| (at < count).then(|| at.to_le_bytes().to_vec()), 0);
    graph.filter(name, 1, Ports::source(), give).unwrap();
}

fn number(block: &[u8]) -> u64 {
    u64::from_le_bytes(block.try_into().unwrap())
}

/// Passes blocks on, after work whose length depends on the number.
fn work(graph: &mut Graph, name: &str, copies: usize) {
    let make = || {
        Each(|block: Block, _, out: &mut Outputs<'_>| {
            // Each yield may cost a time slice if others compute.
            std::thread::yield_now();
            for _ in 0..number(&block).wrapping_mul(2_654_435_761) % 40 * 40 {
                std::hint::spin_loop();
            }
            out.send(0, block)
        })
    };
    graph.filter(name, copies, Ports::step(), make).unwrap();
}

fn policies() -> [DealingPolicy; 3] {
    [DealingPolicy::RoundRobin, DealingPolicy::Demand, DealingPolicy::Adaptive]
}

#[test]
fn every_block_comes_once_whatever_the_policy() {
    for policy in policies() {
        let mut graph = Graph::new();
        numbers(&mut graph, "numbers", 2000);
        work(&mut graph, "work", 3);
        let kept = keep(&mut graph, "keep", 2);
        let options = StreamOptions { policy, ..StreamOptions::default() };
        graph.connect("numbers", "work", options.clone()).unwrap();
        graph.connect("work", "keep", options).unwrap();
        let running = graph.start().unwrap();
        let unit = running.submit(Unit::default());
        assert_eq!(unit.wait().unwrap().unit, unit.id());
        let mut got: Vec<u64> =
            kept.lock().unwrap()[&unit.id()].iter().map(|bytes| number(bytes)).collect();
        got.sort_unstable();
        assert!(got.iter().copied().eq(0..2000), "{policy:?}");
        let copies = running.copies();
        assert_eq!(copies.iter().map(|copy| copy.blocks).sum::<u64>(), 4000);
        for stream in running.streams() {
            assert_eq!((stream.blocks, stream.held), (2000, 0), "{stream:?}");
        }
    }
}

#[test]
fn an_ordered_stream_keeps_the_order_through_copies() {
    for policy in policies() {
        let mut graph = Graph::new();
        numbers(&mut graph, "numbers", 3000);
        work(&mut graph, "first", 3);
        work(&mut graph, "second", 4);
        let kept = keep(&mut graph, "keep", 1);
        // So small that early blocks have to wait for room.
        let options = StreamOptions { policy, limit: 2048, ..StreamOptions::default() };
        graph.connect("numbers", "first", options.clone()).unwrap();
        graph.connect("first", "second", options.clone()).unwrap();
        graph.connect("second", "keep", StreamOptions { is_ordered: true, ..options }).unwrap();
        let running = graph.start().unwrap();
        let units = [0, 1].map(|_| running.submit(Unit::default()));
        for unit in units {
            unit.wait().unwrap();
            let kept = kept.lock().unwrap();
            let got = kept[&unit.id()].iter().map(|bytes| number(bytes));
            assert!(got.eq(0..3000), "{policy:?}");
        }
        for stream in running.streams() {
            assert!(stream.peak <= stream.limit, "{stream:?}");
        }
    }
}

/// A pipeline whose sink waits for permission to go on.
fn stopped(limit: usize) -> (Running, Arc<Barrier>) {
    let mut graph = Graph::new();
    let give = || Give(|at| (at < 1000).then(|| vec![at as u8; 10_000]), 0);
    graph.filter("give", 1, Ports::source(), give).unwrap();
    let gate = Arc::new(Barrier::new(2));
    let pass = Arc::clone(&gate);
    let is_first = Arc::new(AtomicBool::new(true));
    let make = move || {
        let (pass, is_first) = (Arc::clone(&pass), Arc::clone(&is_first));
        Each(move |_: Block, _, _: &mut Outputs<'_>| {
            if is_first.swap(false, Ordering::SeqCst) {
                // It has arrived, and waits for permission.
                pass.wait();
                pass.wait();
            }
            Ok(())
        })
    };
    graph.filter("take", 1, Ports::sink(), make).unwrap();
    graph.connect("give", "take", StreamOptions { limit, ..StreamOptions::default() }).unwrap();
    (graph.start().unwrap(), gate)
}

/// Waits until the sink is at the gate, and the source waits for room.
fn await_blocked(running: &Running, gate: &Barrier) {
    gate.wait();
    let until = Instant::now() + Duration::from_secs(60);
    let mut before = Duration::ZERO;
    loop {
        let blocked = running.copies()[0].blocked;
        if blocked > before && before > Duration::ZERO {
            return;
        }
        before = blocked;
        assert!(Instant::now() < until, "{:?}", running.copies());
        std::thread::yield_now();
    }
}

#[test]
fn memory_is_flat_however_slow_the_consumer_is() {
    let (running, gate) = stopped(100_000);
    let unit = running.submit(Unit::default());
    await_blocked(&running, &gate);
    let stream = &running.streams()[0];
    assert!(stream.held <= 100_000 && stream.held > 80_000, "{stream:?}");
    gate.wait();
    unit.wait().unwrap();
    let stream = &running.streams()[0];
    assert!(stream.peak <= 100_000 && stream.bytes == 10_000_000, "{stream:?}");
}

#[test]
fn a_unit_that_is_cancelled_leaves_nothing_behind() {
    let (running, gate) = stopped(100_000);
    let unit = running.submit(Unit::default());
    await_blocked(&running, &gate);
    running.cancel(&unit);
    assert!(matches!(unit.wait(), Err(Failure::Cancelled)));
    gate.wait();
    running.submit(Unit::default()).wait().unwrap();
    assert_eq!(running.streams()[0].held, 0);
}

#[test]
fn a_pipeline_that_is_dropped_ends_its_units() {
    let (running, gate) = stopped(100_000);
    let unit = running.submit(Unit::default());
    await_blocked(&running, &gate);
    let dropping = std::thread::spawn(move || drop(running));
    assert!(matches!(unit.wait(), Err(Failure::Stopped)));
    gate.wait();
    dropping.join().unwrap();
}

#[test]
fn what_fails_ends_its_unit_alone_and_is_named() {
    for panics in [false, true] {
        let mut graph = Graph::new();
        numbers(&mut graph, "numbers", 500);
        let first = Arc::new(AtomicBool::new(true));
        let make = move || {
            let is_bad = first.swap(false, Ordering::SeqCst);
            Each(move |block: Block, _, out: &mut Outputs<'_>| {
                if is_bad && number(&block) == 77 {
                    assert!(!panics, "not 77");
                    return Err("77 is too much".into());
                }
                out.send(0, block)
            })
        };
        graph.filter("fragile", 1, Ports::step(), make).unwrap();
        let kept = keep(&mut graph, "keep", 2);
        graph.connect("numbers", "fragile", StreamOptions::default()).unwrap();
        graph.connect("fragile", "keep", StreamOptions::default()).unwrap();
        let running = graph.start().unwrap();
        let bad = running.submit(Unit::default());
        let failure = bad.wait().unwrap_err().to_string();
        let said = if panics { "panicked: not 77" } else { "77 is too much" };
        assert_eq!(failure, format!("unit 0: filter fragile, copy 0, block 77: {said}"));
        let good = running.submit(Unit::default());
        good.wait().unwrap();
        assert_eq!(kept.lock().unwrap()[&good.id()].len(), 500);
        assert!(running.streams().iter().all(|stream| stream.held == 0));
    }
}

#[test]
fn a_source_that_cannot_begin_goes_on_with_the_next_unit() {
    struct Picky;
    impl Filter for Picky {
        fn init(&mut self, argument: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
            if argument == "bad" { Err("not that".into()) } else { Ok(()) }
        }
        fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
            out.send(0, "fine")?;
            Ok(Step::Done)
        }
    }
    let mut graph = Graph::new();
    graph.filter("picky", 1, Ports::source(), || Picky).unwrap();
    let kept = keep(&mut graph, "keep", 1);
    graph.connect("picky", "keep", StreamOptions::default()).unwrap();
    let running = graph.start().unwrap();
    for round in 0..50 {
        let bad = running.submit(Unit::new("bad"));
        let said = bad.wait().unwrap_err().to_string();
        assert_eq!(said, format!("unit {}: filter picky, copy 0: not that", 2 * round));
        running.submit(Unit::new("good")).wait().unwrap();
    }
    assert_eq!(kept.lock().unwrap().len(), 50);
}

#[test]
fn the_unit_with_the_earliest_deadline_comes_first() {
    let mut graph = Graph::new();
    let begun = Arc::new(Barrier::new(2));
    let (pass, is_first) = (Arc::clone(&begun), Arc::new(AtomicBool::new(true)));
    let give = move || {
        let (pass, is_first) = (Arc::clone(&pass), Arc::clone(&is_first));
        let give = move |at| {
            if is_first.swap(false, Ordering::SeqCst) {
                pass.wait();
                pass.wait();
            }
            (at < 100).then(|| vec![0; 10])
        };
        Give(give, 0)
    };
    graph.filter("give", 1, Ports::source(), give).unwrap();
    let (says, order) = mpsc::channel();
    let make = move || {
        let says = says.clone();
        Each(move |block: Block, _, _: &mut Outputs<'_>| Ok(says.send(block.unit())?))
    };
    graph.filter("take", 1, Ports::sink(), make).unwrap();
    graph.connect("give", "take", StreamOptions::default()).unwrap();
    let running = graph.start().unwrap();
    let whenever = running.submit(Unit::default());
    begun.wait();
    let now = Instant::now();
    let later = running.submit(Unit::default().deadline(now + Duration::from_secs(20)));
    let soon = running.submit(Unit::default().deadline(now + Duration::from_secs(10)));
    begun.wait();
    for unit in [&whenever, &later, &soon] {
        unit.wait().unwrap();
    }
    drop(running);
    let mut order: Vec<UnitId> = order.iter().collect();
    // One block of it was on its way.
    let first = order.iter().position(|unit| *unit == whenever.id()).unwrap();
    order.remove(first);
    order.dedup();
    assert_eq!(order, [soon.id(), later.id(), whenever.id()]);
}

#[test]
fn ports_go_where_their_streams_lead() {
    let mut graph = Graph::new();
    numbers(&mut graph, "numbers", 100);
    let sort = || {
        Each(|block: Block, _, out: &mut Outputs<'_>| {
            out.send((number(&block) % 2) as usize, block)
        })
    };
    graph.filter("sort", 1, Ports::new(&["in"], &["even", "odd"]), sort).unwrap();
    let join = || {
        Each(|block: Block, port, out: &mut Outputs<'_>| out.send(0, vec![port as u8, block[0]]))
    };
    graph.filter("join", 1, Ports::new(&["left", "right"], &["out"]), join).unwrap();
    let kept = keep(&mut graph, "keep", 1);
    let odd = keep(&mut graph, "odd", 1);
    for (from, to) in [
        ("numbers", "sort"),
        ("sort.even", "join.left"),
        ("sort.odd", "join.right"),
        ("sort.odd", "odd"),
        ("join", "keep"),
    ] {
        graph.connect(from, to, StreamOptions::default()).unwrap();
    }
    let running = graph.start().unwrap();
    let unit = running.submit(Unit::default());
    unit.wait().unwrap();
    let mut joined = kept.lock().unwrap().remove(&unit.id()).unwrap();
    joined.sort_by_key(|pair| pair[1]);
    let expected: Vec<Vec<u8>> = (0..100).map(|number| vec![number % 2, number]).collect();
    assert_eq!(joined, expected);
    assert_eq!(odd.lock().unwrap()[&unit.id()].len(), 50);
}

#[test]
fn every_copy_is_finalized_once_for_each_unit() {
    struct Count(Arc<AtomicUsize>);
    impl Filter for Count {
        fn init(&mut self, argument: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
            assert_eq!(argument, "all of it");
            Ok(())
        }
        fn process(&mut self, _: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
            Ok(())
        }
        fn finalize(&mut self, out: &mut Outputs<'_>) -> Result<(), FilterError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            out.send(0, "done")
        }
    }
    let mut graph = Graph::new();
    numbers(&mut graph, "numbers", 2);
    let finalized = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&finalized);
    graph.filter("count", 5, Ports::step(), move || Count(Arc::clone(&count))).unwrap();
    let kept = keep(&mut graph, "keep", 1);
    graph.connect("numbers", "count", StreamOptions::default()).unwrap();
    let ordered = StreamOptions { is_ordered: true, ..StreamOptions::default() };
    graph.connect("count", "keep", ordered).unwrap();
    let running = graph.start().unwrap();
    for round in 1..=3 {
        let unit = running.submit(Unit::new("all of it"));
        unit.wait().unwrap();
        assert_eq!(finalized.load(Ordering::SeqCst), 5 * round);
        assert_eq!(kept.lock().unwrap()[&unit.id()].len(), 5);
    }
}

#[test]
fn the_time_of_a_copy_adds_up() {
    let began = Instant::now();
    let (running, gate) = stopped(100_000);
    let started = began.elapsed();
    let unit = running.submit(Unit::default());
    await_blocked(&running, &gate);
    gate.wait();
    unit.wait().unwrap();
    let before = began.elapsed();
    let copies = running.copies();
    let after = began.elapsed();
    for copy in copies {
        let all = copy.busy + copy.starved + copy.blocked;
        assert!(all <= after && all >= before - started, "{copy:?}: {before:?} {after:?}");
    }
}

/// The events of each copy, and of the streams.
#[derive(Default)]
struct Heard {
    spans: Mutex<BTreeMap<usize, Vec<Option<Span>>>>,
    held: Mutex<BTreeMap<usize, Vec<usize>>>,
    is_blocked: AtomicBool,
}

impl Observer for Heard {
    fn began(&self, copy: usize, span: Span, _: Instant) {
        if matches!(span, Span::Blocked { .. }) {
            self.is_blocked.store(true, Ordering::SeqCst);
        }
        self.spans.lock().unwrap().entry(copy).or_default().push(Some(span));
    }
    fn ended(&self, copy: usize, _: Instant) {
        self.spans.lock().unwrap().entry(copy).or_default().push(None);
    }
    fn held(&self, stream: usize, bytes: usize, _: Instant) {
        self.held.lock().unwrap().entry(stream).or_default().push(bytes);
    }
}

#[test]
fn who_watches_hears_of_every_call() {
    let mut graph = Graph::new();
    numbers(&mut graph, "numbers", 500);
    let heard = Arc::new(Heard::default());
    let watched = Arc::clone(&heard);
    let make = move || {
        let heard = Arc::clone(&watched);
        Each(move |block: Block, _, out: &mut Outputs<'_>| {
            // Not before the source is blocked, having sent more than there is room for.
            while !heard.is_blocked.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            out.send(0, block)
        })
    };
    graph.filter("work", 2, Ports::step(), make).unwrap();
    keep(&mut graph, "keep", 1);
    let options = StreamOptions { limit: 1024, ..StreamOptions::default() };
    graph.connect("numbers", "work", options).unwrap();
    graph.connect("work", "keep", StreamOptions::default()).unwrap();
    graph.observe(Arc::<Heard>::clone(&heard));
    let names: Vec<_> = graph.streams().map(str::to_owned).collect();
    assert_eq!(names, ["numbers.out -> work.in", "work.out -> keep.in"]);
    let running = graph.start().unwrap();
    let unit = running.submit(Unit::default());
    unit.wait().unwrap();
    let unit = unit.id();
    let copies = running.copies();
    drop(running);
    let spans = heard.spans.lock().unwrap();
    for (number, copy) in copies.iter().enumerate() {
        let mut open = 0;
        let mut counts = [0; 6];
        for span in &spans[&number] {
            let Some(span) = span else {
                open -= 1;
                assert!(open >= 0);
                continue;
            };
            open += 1;
            let (kind, depth) = match span {
                Span::Init { unit: of } if *of == unit => (0, 1),
                Span::Process { unit: of, bytes: 8, port: 0, .. } if *of == unit => (1, 1),
                Span::Generate { unit: of } if *of == unit => (2, 1),
                Span::Finalize { unit: of } if *of == unit => (3, 1),
                Span::Starved => (4, 1),
                Span::Blocked { stream: 0 } => (5, 2),
                other => panic!("{copy:?}: {other:?}"),
            };
            assert_eq!(open, depth, "{span:?}");
            counts[kind] += 1;
        }
        assert_eq!(open, 0, "{copy:?}");
        let generated = if number == 0 { 501 } else { 0 };
        assert_eq!(counts[..4], [1, copy.blocks, generated, 1], "{copy:?}");
        assert_eq!(counts[5] > 0, number == 0, "{copy:?}");
    }
    let held = heard.held.lock().unwrap();
    assert!(held[&0].iter().all(|held| *held <= 1024));
    assert!(held[&1].contains(&0));
}

#[test]
fn pipelines_that_cannot_run_are_reported_before_they_run() {
    let graph = || {
        let mut graph = Graph::new();
        numbers(&mut graph, "numbers", 1);
        work(&mut graph, "work", 2);
        keep(&mut graph, "keep", 1);
        graph
    };
    let plain = StreamOptions::default;
    let error = |graph: Graph| graph.start().err().unwrap().to_string();

    let mut unconnected = graph();
    unconnected.connect("numbers", "work", plain()).unwrap();
    assert_eq!(error(unconnected), "output port work.out is not connected");

    let mut twice = graph();
    twice.connect("numbers", "work", plain()).unwrap();
    let refused = twice.connect("numbers.out", "work.in", plain()).unwrap_err();
    assert_eq!(refused, GraphError::TwoInto("work.in".to_owned()));
    let refused = twice.connect("numbers", "wrok", plain()).unwrap_err();
    assert_eq!(refused.to_string(), "there is no filter called wrok");
    let refused = twice.connect("work.err", "keep", plain()).unwrap_err();
    assert_eq!(refused.to_string(), "filter work has no output port err; it has out");
    let small = StreamOptions { limit: 4096, cut: Cut::Bytes(2048), ..plain() };
    let refused = twice.connect("work", "keep", small).unwrap_err().to_string();
    assert!(refused.contains("needs a limit of at least 8704 bytes"), "{refused}");
    let refused =
        twice.filter("work", 1, Ports::sink(), || Each(|_, _, _: &mut Outputs<'_>| Ok(())));
    assert_eq!(refused.unwrap_err().to_string(), "there are two filters called work");

    let mut circle = Graph::new();
    numbers(&mut circle, "numbers", 1);
    let pass = || Each(|block, _, out: &mut Outputs<'_>| out.send(0, block));
    circle.filter("a", 1, Ports::new(&["in", "back"], &["out"]), pass).unwrap();
    circle.filter("b", 1, Ports::step(), pass).unwrap();
    for (from, to) in [("numbers", "a.in"), ("a", "b"), ("b", "a.back")] {
        circle.connect(from, to, plain()).unwrap();
    }
    assert_eq!(error(circle), "the streams lead in a circle through a, b");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However the bytes are cut, they arrive complete and in order, in blocks of the requested
    /// size.
    #[test]
    fn cutting_changes_no_byte(
        parts in prop::collection::vec("[a-c\n]{0,40}", 0..40),
        size in 1..30usize,
        how in 0..3,
        copies in 1..4usize,
    ) {
        let whole: String = parts.concat();
        let mut graph = Graph::new();
        let give = move || {
            let parts = parts.clone();
            Give(move |at| parts.get(at as usize).map(|part| part.clone().into_bytes()), 0)
        };
        graph.filter("give", 1, Ports::source(), give).unwrap();
        let pass = || Each(|block, _, out: &mut Outputs<'_>| out.send(0, block));
        graph.filter("pass", copies, Ports::step(), pass).unwrap();
        let kept = keep(&mut graph, "keep", 1);
        let cut = match how {
            0 => Cut::Lines(size),
            1 => Cut::Bytes(size),
            _ => Cut::Auto(SizeBounds { least: 1 + size / 2, most: size, record: 1 }),
        };
        let options = StreamOptions { cut, limit: 4096, ..StreamOptions::default() };
        graph.connect("give", "pass", options).unwrap();
        let ordered = StreamOptions { is_ordered: true, ..StreamOptions::default() };
        graph.connect("pass", "keep", ordered).unwrap();
        let running = graph.start().unwrap();
        let unit = running.submit(Unit::default());
        unit.wait().unwrap();
        let blocks = kept.lock().unwrap().remove(&unit.id()).unwrap_or_default();
        prop_assert_eq!(blocks.concat(), whole.as_bytes());
        let last = blocks.len().saturating_sub(1);
        for (at, block) in blocks.iter().enumerate() {
            let is_cut_well = match how {
                0 => block.len() >= size && block.ends_with(b"\n"),
                1 => block.len() == size,
                _ => (1 + size / 2..=size).contains(&block.len()),
            };
            prop_assert!(is_cut_well || at == last && (how == 0 || block.len() < size));
        }
    }
}
