//! Errors of filters: what they name, and units that go on after them.

use std::sync::{Arc, Mutex};
use std::thread;

use seekwire_flow::{
    Block, Cut, Failure, Filter, FilterError, Graph, GraphError, OnError, Origin, Outputs, Ports,
    Running, Step, StreamOptions, Unit,
};

use crate::jobs::jobs;

/// Sends these pieces of a source.
struct Pieces(Vec<&'static str>, Origin);

impl Filter for Pieces {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        if self.0.is_empty() {
            return Ok(Step::Done);
        }
        let piece = self.0.remove(0);
        let next = self.1.skip(piece.len() as u64);
        out.begins_at(std::mem::replace(&mut self.1, next));
        out.send(0, piece)?;
        Ok(Step::More)
    }
}

/// Sends its block twice. A block that begins with `x` is an error after the first time, and one
/// that begins with `!` panics.
struct Twice;

impl Filter for Twice {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        out.send(0, block.bytes().clone())?;
        match block.first() {
            Some(b'x') => Err("it begins with x".into()),
            Some(b'!') => panic!("it begins with !"),
            _ => out.send(0, block),
        }
    }
}

type Seen = Arc<Mutex<Vec<(String, Option<String>)>>>;

struct See(Seen);

impl Filter for See {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let origin = block.origin().map(Origin::to_string);
        self.0.lock().unwrap().push((String::from_utf8(block.to_vec())?, origin));
        Ok(())
    }
}

/// Pieces that go through `Twice`, and the output at its two ports.
fn graph(pieces: &'static [&'static str], on_error: OnError, cut: Cut) -> (Graph, [Seen; 2]) {
    let mut graph = Graph::new();
    let make = move || Pieces(pieces.to_vec(), Origin::new("source"));
    graph.filter("pieces", 1, Ports::source(), make).unwrap();
    let ports = Ports { outputs: vec!["out".to_owned(), "bad".to_owned()], ..Ports::step() };
    graph.filter("twice", 1, ports, || Twice).unwrap();
    graph.blockwise("twice").unwrap();
    graph.on_error("twice", on_error).unwrap();
    let seen = <[Seen; 2]>::default();
    for (name, seen) in ["good", "bad"].into_iter().zip(&seen) {
        let seen = Arc::clone(seen);
        graph.filter(name, 1, Ports::sink(), move || See(Arc::clone(&seen))).unwrap();
    }
    let options = StreamOptions { is_ordered: true, cut, ..StreamOptions::default() };
    graph.connect("pieces", "twice", options).unwrap();
    let options = StreamOptions { is_ordered: true, limit: 64 << 10, ..StreamOptions::default() };
    graph.connect("twice.out", "good", options.clone()).unwrap();
    graph.connect("twice.bad", "bad", options).unwrap();
    (graph, seen)
}

fn run(graph: Graph) -> (Result<(), Failure>, Running) {
    let running = graph.start().unwrap();
    let outcome = running.submit(Unit::new("")).wait().map(|_| ());
    (outcome, running)
}

fn lines(seen: &Seen) -> Vec<String> {
    let line = |(text, origin): &(String, Option<String>)| {
        format!("{text} of {}", origin.as_deref().unwrap_or("nowhere"))
    };
    seen.lock().unwrap().iter().map(line).collect()
}

#[test]
fn a_rejected_block_leaves_nothing_behind() {
    for (on_error, bad) in [
        (OnError::Skip, &[][..]),
        (OnError::To(1), &["xb of source from byte 1", "x of source from byte 4"][..]),
    ] {
        let (mut graph, seen) = graph(&["a", "xb", "c", "x"], on_error, Cut::Whole);
        let messages = Arc::<Mutex<Vec<String>>>::default();
        let tell = Arc::clone(&messages);
        graph.tell_of_rejects(Arc::new(move |failure: &Failure| {
            tell.lock().unwrap().push(failure.to_string());
        }));
        let (outcome, running) = run(graph);
        outcome.unwrap();
        let good = ["a of source", "a of source", "c of source from byte 3"];
        assert_eq!(lines(&seen[0]), [&good[..], &good[2..]].concat());
        assert_eq!(lines(&seen[1]), bad);
        let why = "filter twice, copy 0, block 1 (source from byte 1): it begins with x";
        assert_eq!(messages.lock().unwrap()[0], format!("unit 0: {why}"));
        let (copies, _) = running.report();
        let rejected = copies.iter().map(|copy| (&*copy.filter, copy.rejected));
        let rejected: Vec<_> = rejected.filter(|(_, count)| *count > 0).collect();
        assert_eq!(rejected, [("twice", 2)]);
        assert_eq!(running.rejected(), [("twice".into(), 2)]);
    }
}

#[test]
fn other_errors_still_end_the_unit() {
    let too_large = "y".repeat(40_000).leak() as &'static str;
    for (piece, on_error, expected) in [
        ("x", OnError::Fail, "block 1 (source from byte 1): it begins with x"),
        ("!", OnError::Skip, "block 1 (source from byte 1): panicked: it begins with !"),
    ] {
        let pieces = Box::leak(Box::new(["a", piece]));
        let (outcome, _) = run(graph(pieces, on_error, Cut::Whole).0);
        let said = outcome.unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
    // The whole output of a block has to fit at once. This limit holds 40,000 bytes, but not twice
    // as many.
    let pieces = Box::leak(Box::new(["a", too_large]));
    let (graph, seen) = graph(pieces, OnError::Skip, Cut::Whole);
    run(graph).0.unwrap();
    assert_eq!(lines(&seen[0]), ["a of source"; 2]);
}

#[test]
fn blocks_that_are_cut_begin_where_they_begin() {
    let pieces = &["on", "e\ntwo\nth", "ree\n"];
    for (cut, expected) in [
        (
            Cut::Bytes(4),
            ["one\n of source", "two\n of source from byte 4", "thre of source from byte 8"],
        ),
        (
            Cut::Lines(1),
            ["one\n of source", "two\n of source from byte 4", "three\n of source from byte 8"],
        ),
    ] {
        let (graph, seen) = graph(pieces, OnError::Skip, cut);
        run(graph).0.unwrap();
        let mut lines = lines(&seen[0]);
        lines.dedup();
        assert_eq!(lines[..3], expected);
    }
}

#[test]
fn only_blockwise_filters_with_that_port_can_reject() {
    let mut graph = Graph::new();
    graph.filter("pieces", 1, Ports::source(), || Pieces(vec![], Origin::new(""))).unwrap();
    graph.filter("twice", 1, Ports::step(), || Twice).unwrap();
    let refused = |name: &str| Err(GraphError::NoReject(name.to_owned()));
    assert_eq!(graph.on_error("twice", OnError::Skip), refused("twice"));
    for name in ["pieces", "twice"] {
        graph.blockwise(name).unwrap();
    }
    assert_eq!(graph.on_error("pieces", OnError::Skip), refused("pieces"));
    assert_eq!(graph.on_error("twice", OnError::To(1)), refused("twice"));
    assert_eq!(graph.on_error("twice", OnError::To(0)), Ok(()));
}

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
        running.submit(Unit::new("")).wait().unwrap();
        coordinator(&running);
    });
}

#[test]
fn rejections_in_other_processes_count_without_their_reports() {
    let graph = || {
        let (mut graph, _) = graph(&["a", "xb", "c", "x"], OnError::Skip, Cut::Whole);
        graph.place("twice", &[1, 2]).unwrap();
        graph
    };
    run_in_processes(3, graph, |running| {
        // This asks no process.
        assert_eq!(running.rejected(), [("twice".into(), 2)]);
    });
}

#[test]
fn rejections_count_once_if_another_process_deals_the_blocks() {
    let graph = || {
        let (mut graph, _) = graph(&["a", "xb", "c", "x"], OnError::Skip, Cut::Whole);
        graph.place("pieces", &[1]).unwrap();
        // Also a copy at the process that deals, and at the coordinator.
        graph.place("twice", &[2, 3, 1, 0]).unwrap();
        graph.idempotent("twice").unwrap();
        graph
    };
    run_in_processes(4, graph, |running| {
        // Rejections elsewhere come before the reports of their processes.
        let _ = running.report();
        assert_eq!(running.rejected(), [("twice".into(), 2)]);
    });
}
