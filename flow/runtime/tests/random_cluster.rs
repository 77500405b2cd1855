//! Random pipelines in several processes, which are simulated by threads with links between them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use seekwire_flow::{
    Block, Cut, DealingPolicy, Failure, Filter, FilterError, Graph, Outputs, Ports, SizeBounds,
    Step, StreamOptions, Unit,
};

use crate::jobs::jobs;

/// SplitMix64.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

/// Sends `number unit` for each number below the argument.
struct Numbers {
    next: u64,
    end: u64,
}

impl Filter for Numbers {
    fn init(&mut self, argument: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.end = argument.parse()?;
        Ok(())
    }

    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        let until = (self.next + 1 + self.next % 5).min(self.end);
        let bytes: Vec<u8> = (self.next..until).flat_map(u64::to_le_bytes).collect();
        self.next = until;
        out.send(0, bytes)?;
        Ok(if until == self.end { Step::Done } else { Step::More })
    }
}

/// Passes blocks on, keeps some for a while, and may fail.
struct Pass {
    random: Random,
    kept: Vec<Block>,
    fails: bool,
    keeps: bool,
    is_split: bool,
}

impl Filter for Pass {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        if self.fails {
            match self.random.below(300) {
                0 => return Err("no".into()),
                1 => panic!("never"),
                _ => {}
            }
        }
        let bytes = block.bytes().clone();
        if self.keeps && self.kept.is_empty() {
            self.kept.push(block);
        } else {
            self.kept.clear();
            drop(block);
        }
        if self.random.below(4) == 0 {
            thread::yield_now();
        }
        if !self.is_split {
            return out.send(0, bytes);
        }
        let half = bytes.len() / 16 * 8;
        out.send(0, bytes.slice(..half))?;
        out.send(0, bytes.slice(half..))
    }
}

type Seen = Arc<Mutex<Vec<(u64, Vec<u64>)>>>;

struct Collect {
    seen: Seen,
    own: Vec<Vec<u8>>,
    unit: u64,
}

impl Filter for Collect {
    fn init(&mut self, _: &str, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.unit = out.unit().number();
        Ok(())
    }

    fn process(
        &mut self,
        block: Block,
        port: usize,
        _: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        if self.own.len() <= port {
            self.own.resize(port + 1, Vec::new());
        }
        self.own[port].extend_from_slice(&block);
        Ok(())
    }

    fn finalize(&mut self, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let number = |eight: &[u8]| u64::from_le_bytes(eight.try_into().unwrap());
        let mut seen = self.seen.lock().unwrap();
        for own in &self.own {
            seen.push((self.unit, own.chunks_exact(8).map(number).collect()));
        }
        Ok(())
    }
}

/// The pipeline with that number: branches of steps from one source to one sink with an input for
/// each.
struct Plan {
    size: usize,
    is_ordered: bool,
    branches: usize,
    fails: bool,
    graph: Box<dyn Fn(&Seen) -> Graph + Sync>,
}

fn plan(seed: u64) -> Plan {
    let mut random = Random(seed);
    let size = 2 + random.below(3) as usize;
    let is_ordered = random.below(2) == 0;
    let branches = 1 + random.below(2) as usize;
    let fails = random.below(3) == 0;
    let keeps = random.below(2) == 0;
    let start = random.clone();
    let graph = move |seen: &Seen| {
        let mut random = start.clone();
        let mut graph = Graph::new();
        graph.filter("numbers", 1, Ports::source(), || Numbers { next: 0, end: 0 }).unwrap();
        graph.place("numbers", &[random.below(size as u64) as u32]).unwrap();
        let inputs: Vec<String> = (0..branches).map(|branch| format!("in{branch}")).collect();
        let ports = Ports { inputs, outputs: Vec::new() };
        let seen = Arc::clone(seen);
        let collect = move || Collect { seen: Arc::clone(&seen), own: vec![Vec::new()], unit: 0 };
        graph.filter("collect", 1, ports, collect).unwrap();
        let sinks = if is_ordered || branches > 1 { 1 } else { 1 + random.below(3) };
        let ranks = |random: &mut Random, copies: u64| -> Vec<u32> {
            (0..copies).map(|_| random.below(size as u64) as u32).collect()
        };
        let of_sinks = ranks(&mut random, sinks);
        graph.place("collect", &of_sinks).unwrap();
        for branch in 0..branches {
            let mut before = "numbers".to_owned();
            let mut is_repeated = false;
            let steps = random.below(4);
            for step in 0..=steps {
                let is_idempotent = random.below(2) == 0;
                let options = StreamOptions {
                    is_ordered,
                    policy: random.one(&[
                        DealingPolicy::Adaptive,
                        DealingPolicy::Demand,
                        DealingPolicy::RoundRobin,
                    ]),
                    cut: match random.one(&[0, 0, 24, 80, 1]) {
                        0 => Cut::Whole,
                        // Automatic cuts are not always the same.
                        1 if is_repeated => Cut::Whole,
                        1 => Cut::Auto(SizeBounds { least: 8, most: 100, record: 8 }),
                        size => Cut::Bytes(size),
                    },
                    limit: random.one(&[16 << 10, 24 << 10, 64 << 10]),
                };
                if step == steps {
                    graph.connect(&before, &format!("collect.in{branch}"), options).unwrap();
                    break;
                }
                let name = format!("step{branch}x{step}");
                let is_split = random.below(2) == 0;
                let own = random.clone();
                let make = move || Pass {
                    random: Random(own.0 ^ Instant::now().elapsed().as_nanos() as u64),
                    kept: Vec::new(),
                    fails,
                    keeps,
                    is_split,
                };
                graph.filter(&name, 1, Ports::step(), make).unwrap();
                let copies = 1 + random.below(4);
                let placed = ranks(&mut random, copies);
                graph.place(&name, &placed).unwrap();
                is_repeated = is_idempotent;
                if is_idempotent {
                    graph.idempotent(&name).unwrap();
                }
                graph.connect(&before, &name, options).unwrap();
                before = name;
            }
        }
        graph
    };
    Plan { size, is_ordered, branches, fails, graph: Box::new(graph) }
}

fn run(seed: u64) {
    let plan = plan(seed);
    let mut random = Random(!seed);
    let seen = Seen::default();
    let mut jobs = jobs(plan.size).into_iter();
    let first = jobs.next().unwrap();
    thread::scope(|scope| {
        for job in jobs {
            let (plan, seen) = (&plan, &seen);
            scope.spawn(move || (plan.graph)(seen).start_in(&job, b"").unwrap().serve().unwrap());
        }
        let running = (plan.graph)(&seen).start_in(&first, b"").unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    let _ = running.report();
                }
            });
            let mut units = Vec::new();
            for _ in 0..6 {
                let numbers = random.one(&[0, 1, 50, 400, 1500]);
                let mut unit = Unit::new(numbers.to_string());
                if random.below(2) == 0 {
                    unit = unit.deadline(Instant::now() + Duration::from_millis(random.below(50)));
                }
                let handle = running.submit(unit);
                let is_cancelled = random.below(3) == 0;
                if is_cancelled {
                    for _ in 0..random.below(200) {
                        thread::yield_now();
                    }
                    running.cancel(&handle);
                }
                units.push((numbers, is_cancelled, handle));
                if random.below(2) == 0 {
                    let _ = units[units.len() - 1].2.wait();
                }
            }
            for (numbers, is_cancelled, unit) in units {
                match unit.wait() {
                    Ok(_) => {
                        let seen = seen.lock().unwrap();
                        let own = seen.iter().filter(|(of, _)| *of == unit.id().number());
                        let mut own: Vec<u64> =
                            own.flat_map(|(_, numbers)| numbers).copied().collect();
                        if !plan.is_ordered || plan.branches > 1 {
                            if plan.is_ordered {
                                let branches = own.chunk_by(|one, next| one < next);
                                assert!(branches.count() <= plan.branches, "seed {seed}: no order");
                            }
                            own.sort_unstable();
                        }
                        let all: Vec<u64> = match (plan.is_ordered, plan.branches) {
                            (true, 1) => (0..numbers).collect(),
                            (_, branches) => {
                                (0..numbers).flat_map(|one| vec![one; branches]).collect()
                            }
                        };
                        assert!(own == all, "seed {seed}: {} of {}", own.len(), all.len());
                    }
                    Err(Failure::Cancelled) if is_cancelled => {}
                    Err(Failure::Filter { .. }) if plan.fails => {}
                    Err(other) => panic!("seed {seed}: {other}"),
                }
            }
            is_over.store(true, Ordering::Release);
        });
        loop {
            let (_, streams) = running.report();
            if streams.iter().all(|stream| stream.held == 0) {
                for stream in streams {
                    assert!(stream.peak <= stream.limit, "seed {seed}: {stream:?}");
                }
                break;
            }
        }
    });
}

#[test]
fn whatever_the_pipeline_is_nothing_is_lost_and_nothing_stands_still() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (first, count) = (number("FIRST_SEED").unwrap_or(0), number("SEEDS").unwrap_or(40));
    for seed in first..first + count {
        if number("SEEDS").is_some() {
            eprintln!("seed {seed}");
        }
        run(seed);
    }
}
