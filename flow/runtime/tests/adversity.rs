//! Filters that misbehave, tight limits, and units that end at any moment.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use seekwire_flow::{
    Block, Cut, DealingPolicy, Filter, FilterError, Graph, GraphError, Observer, Outputs, Ports,
    Running, Span, Step, StreamOptions, Unit, UnitEnded,
};

type Outcome = Result<(), FilterError>;

/// Sends this many blocks, each with its number.
struct Numbers(u64, u64);

impl Filter for Numbers {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        if self.0 == self.1 {
            return Ok(Step::Done);
        }
        out.send(0, self.0.to_le_bytes().to_vec())?;
        self.0 += 1;
        Ok(Step::More)
    }
}

struct Each<F>(F);

impl<F: FnMut(Block, &mut Outputs<'_>) -> Outcome + Send> Filter for Each<F> {
    fn process(&mut self, block: Block, _: usize, out: &mut Outputs<'_>) -> Outcome {
        (self.0)(block, out)
    }
}

/// `numbers`, then a filter with that many copies, then a sink.
fn graph<F: Filter + 'static>(
    copies: usize,
    make: impl Fn() -> F + Send + Sync + 'static,
) -> Graph {
    let mut graph = Graph::new();
    graph.filter("numbers", 1, Ports::source(), || Numbers(0, 200)).unwrap();
    graph.filter("step", copies, Ports::step(), make).unwrap();
    let take = || Each(|_: Block, _: &mut Outputs<'_>| Ok(()));
    graph.filter("take", 1, Ports::sink(), take).unwrap();
    graph
}

fn start(mut graph: Graph, first: StreamOptions, second: StreamOptions) -> Running {
    graph.connect("numbers", "step", first).unwrap();
    graph.connect("step", "take", second).unwrap();
    graph.start().unwrap()
}

fn plain() -> StreamOptions {
    StreamOptions::default()
}

#[derive(Debug)]
struct Unspeakable;

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no words")
    }
}

impl std::error::Error for Unspeakable {}

/// Panics when it is dropped, except the first one.
struct Bomb(bool);

impl Filter for Bomb {
    fn process(&mut self, block: Block, _: usize, out: &mut Outputs<'_>) -> Outcome {
        out.send(0, block)
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0 || std::thread::panicking(), "bang");
    }
}

#[test]
fn whatever_a_filter_does_the_next_unit_is_done() {
    let is_first = Arc::new(AtomicBool::new(true));
    let make = move || Bomb(is_first.swap(false, Ordering::SeqCst));
    let running = start(graph(1, make), plain(), plain());
    let said = running.submit(Unit::default()).wait().unwrap_err().to_string();
    assert_eq!(said, "unit 0: filter step, copy 0: panicked: bang");
    running.submit(Unit::default()).wait().unwrap();

    for (number, error) in
        [(0, "panicked: no words"), (1, "the unit of work has ended"), (2, "panicked: no message")]
    {
        let is_first = Arc::new(AtomicBool::new(true));
        let make = move || {
            let is_first = is_first.swap(false, Ordering::SeqCst);
            Each(move |block: Block, out: &mut Outputs<'_>| match (is_first, number) {
                (false, _) => out.send(0, block),
                (true, 0) => Err(Unspeakable.into()),
                // The unit has not ended.
                (true, 1) => Err(UnitEnded.into()),
                (true, _) => std::panic::panic_any(Bomb(true)),
            })
        };
        let running = start(graph(1, make), plain(), plain());
        let said = running.submit(Unit::default()).wait().unwrap_err().to_string();
        assert_eq!(said, format!("unit 0: filter step, copy 0, block 0: {error}"));
        running.submit(Unit::default()).wait().unwrap();
    }
}

/// A block whose memory panics when it is freed.
struct Mine;

impl AsRef<[u8]> for Mine {
    fn as_ref(&self) -> &[u8] {
        b"mine"
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "bang");
    }
}

/// Sends one of these, and reports when it is sent.
struct Mines(Arc<AtomicBool>);

impl Filter for Mines {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        out.send(0, vec![0])?;
        out.send(0, Bytes::from_owner(Mine))?;
        self.0.store(true, Ordering::SeqCst);
        Ok(Step::Done)
    }
}

/// Whether or not the copy had it in its batch and cannot continue, everyone learns of an end.
#[test]
fn memory_that_cannot_be_freed_lets_nobody_wait() {
    let is_sent = Arc::new(AtomicBool::new(false));
    let mut graph = Graph::new();
    let mines = Arc::clone(&is_sent);
    graph.filter("mines", 1, Ports::source(), move || Mines(Arc::clone(&mines))).unwrap();
    let fail = move || {
        let is_sent = Arc::clone(&is_sent);
        Each(move |_: Block, _: &mut Outputs<'_>| {
            while !is_sent.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            Err(Unspeakable.into())
        })
    };
    graph.filter("fail", 1, Ports::sink(), fail).unwrap();
    graph.connect("mines", "fail", plain()).unwrap();
    let running = graph.start().unwrap();
    for _ in 0..2 {
        running.submit(Unit::default()).wait().unwrap_err();
    }
}

/// Panics whatever it gets.
struct Shocked;

impl Observer for Shocked {
    fn began(&self, _: usize, _: Span, _: Instant) {
        panic!("began");
    }

    fn ended(&self, _: usize, _: Instant) {
        panic!("ended");
    }

    fn held(&self, _: usize, _: usize, _: Instant) {
        panic!("held");
    }
}

#[test]
fn who_watches_and_panics_stops_nothing() {
    let pass = || Each(|block: Block, out: &mut Outputs<'_>| out.send(0, block));
    let mut graph = graph(2, pass);
    graph.observe(Arc::new(Shocked));
    let running = start(graph, plain(), plain());
    running.submit(Unit::default()).wait().unwrap();
}

/// Sends this many bytes when it is finalized.
struct Last(usize);

impl Filter for Last {
    fn process(&mut self, _: Block, _: usize, _: &mut Outputs<'_>) -> Outcome {
        Ok(())
    }

    fn finalize(&mut self, out: &mut Outputs<'_>) -> Outcome {
        (0..self.0).try_for_each(|_| out.send(0, vec![0; 100]))
    }
}

#[test]
fn much_comes_at_the_end_of_an_ordered_stream() {
    let narrow = StreamOptions { is_ordered: true, limit: 1024, ..plain() };
    let running = start(graph(3, || Last(50)), plain(), narrow);
    running.submit(Unit::default()).wait().unwrap();
    assert_eq!(running.streams()[1].blocks, 150);
}

#[test]
fn what_is_too_large_is_an_error_and_no_wait() {
    let send = |len: usize| {
        move || Each(move |_: Block, out: &mut Outputs<'_>| out.send(0, vec![b'x'; len]))
    };
    let said = |copies, len, options| {
        let running = start(graph(copies, send(len)), plain(), options);
        running.submit(Unit::default()).wait().err().map(|failure| failure.to_string())
    };
    let too_large = |said: Option<String>| said.is_some_and(|said| said.contains("is too large"));
    let whole = |is_ordered| StreamOptions { is_ordered, limit: 2048, ..plain() };
    assert_eq!(said(1, 1920, whole(false)), None);
    assert!(too_large(said(1, 1921, whole(false))));
    // With several copies, one must find the room that is kept for the group that all others wait
    // for.
    assert_eq!(said(3, 384, whole(true)), None);
    assert!(too_large(said(3, 385, whole(true))));
    // A line that never ends.
    let lines = StreamOptions { cut: Cut::Lines(128), limit: 2048, ..plain() };
    assert!(too_large(said(2, 400, lines.clone())));

    let mut graph = graph(2, send(1));
    let empty = StreamOptions { cut: Cut::Bytes(0), ..plain() };
    let refused = graph.connect("numbers", "step", empty).unwrap_err();
    assert!(matches!(refused, GraphError::EmptyBlocks(_)), "{refused}");
    let narrow = StreamOptions { cut: Cut::Bytes(512), limit: 2048, ..plain() };
    let refused = graph.connect("step", "take", narrow).unwrap_err();
    assert!(refused.to_string().contains("a limit of at least 2560 bytes"), "{refused}");
}

#[test]
fn copies_that_fill_blocks_do_not_wait_for_each_other() {
    for policy in [DealingPolicy::RoundRobin, DealingPolicy::Demand, DealingPolicy::Adaptive] {
        let make = || {
            Each(|block: Block, out: &mut Outputs<'_>| {
                // Few of the blocks produce output.
                if block[0] < 3 { out.send(0, "little") } else { Ok(()) }
            })
        };
        let first = StreamOptions { limit: 2048, policy, ..plain() };
        let second = StreamOptions { limit: 1920, cut: Cut::Bytes(256), policy, ..plain() };
        let running = start(graph(3, make), first, second);
        let now = Instant::now();
        // The last one is the most urgent: those before it have begun.
        let units = [30, 20, 10].map(|seconds| {
            running.submit(Unit::default().deadline(now + Duration::from_secs(seconds)))
        });
        for unit in units {
            unit.wait().unwrap();
        }
        assert!(running.streams().iter().all(|stream| stream.held == 0));
    }
}

#[test]
fn urgent_units_overtake_on_ordered_streams_without_a_circle() {
    for policy in [DealingPolicy::RoundRobin, DealingPolicy::Demand, DealingPolicy::Adaptive] {
        for _ in 0..20 {
            let make = || {
                Each(|block: Block, out: &mut Outputs<'_>| {
                    // Each yield may cost a time slice if others compute.
                    std::thread::yield_now();
                    for _ in 0..u32::from(block[0] % 5) * 400 {
                        std::hint::spin_loop();
                    }
                    out.send(0, vec![0; 60])
                })
            };
            let first = StreamOptions { policy, limit: 1 << 16, ..plain() };
            let second = StreamOptions { is_ordered: true, limit: 2048, policy, ..plain() };
            let running = start(graph(4, make), first, second);
            let now = Instant::now() + Duration::from_secs(100);
            let units: Vec<_> = (0..6)
                .map(|at| running.submit(Unit::default().deadline(now - Duration::from_secs(at))))
                .collect();
            for unit in units {
                unit.wait().unwrap();
            }
        }
    }
}

/// A number that only grows, and threads that wait until it is large enough.
#[derive(Default)]
struct Stage(Mutex<u64>, Condvar);

impl Stage {
    fn is_now(&self, stage: u64) {
        *self.0.lock().unwrap() = stage;
        self.1.notify_all();
    }

    fn waits_for(&self, stage: u64) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |now| *now < stage).unwrap());
    }
}

#[test]
fn lines_of_two_units_that_fill_an_ordered_stream_both_go_on() {
    let stage = Arc::new(Stage::default());
    let gates = Arc::clone(&stage);
    let make = move || {
        let stage = Arc::clone(&gates);
        Each(move |block: Block, out: &mut Outputs<'_>| {
            let (unit, is_first) = (out.unit().number(), block[0] == 0);
            let mut add = |bytes: usize, end: &str| {
                out.send(0, ["x".repeat(bytes - end.len()), end.to_owned()].concat())
            };
            match (unit, is_first) {
                // The turn of either unit is that of its first block.
                (0, true) => {
                    stage.waits_for(2);
                    add(23, "")?;
                    stage.waits_for(3);
                    add(30, "\n")
                }
                (1, true) => {
                    stage.waits_for(1);
                    add(272, "")?;
                    stage.waits_for(3);
                    add(9, "\n")
                }
                (1, false) => add(100, "\n"),
                _ => Ok(()),
            }
        })
    };
    let ordered = StreamOptions { is_ordered: true, limit: 2048, cut: Cut::Lines(1), ..plain() };
    let running = start(graph(3, make), plain(), ordered);
    let reaches = |held: usize| {
        while running.streams()[1].held != held {
            std::thread::yield_now();
        }
    };
    let units = [running.submit(Unit::default()), running.submit(Unit::default())];
    // Blocks that wait for their turn have three quarters of the limit: a line and 128 bytes each,
    // and the last one the room to begin.
    let waiting = 6 * 228 + 129;
    reaches(waiting);
    stage.is_now(1);
    reaches(waiting + 128 + 272);
    stage.is_now(2);
    reaches(2048);
    stage.is_now(3);
    for unit in units {
        unit.wait().unwrap();
    }
}

#[test]
fn units_that_are_cancelled_at_any_moment_leave_nothing() {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    struct Alive;
    impl Alive {
        fn new() -> Self {
            ALIVE.fetch_add(1, Ordering::SeqCst);
            Self
        }
    }
    impl Filter for Alive {
        fn process(&mut self, block: Block, _: usize, out: &mut Outputs<'_>) -> Outcome {
            out.send(0, block)
        }
    }
    impl Drop for Alive {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let options = StreamOptions { limit: 2048, ..plain() };
    let ordered = StreamOptions { is_ordered: true, ..options.clone() };
    let running = start(graph(3, Alive::new), options, ordered);
    for round in 0..2000 {
        let unit = running.submit(Unit::default());
        for _ in 0..round * 7 % 300 {
            std::hint::spin_loop();
        }
        running.cancel(&unit);
        let _ = unit.wait();
    }
    running.submit(Unit::default()).wait().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while ALIVE.load(Ordering::SeqCst) > 0 || running.streams().iter().any(|stream| stream.held > 0)
    {
        assert!(Instant::now() < until, "{} are left", ALIVE.load(Ordering::SeqCst));
        std::thread::yield_now();
    }
}
