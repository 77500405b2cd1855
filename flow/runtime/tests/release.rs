//! A pipeline in several processes releases all system resources when it is dropped.

mod jobs;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use seekwire_flow::{Block, Filter, FilterError, Graph, Outputs, Ports, Step, StreamOptions, Unit};

use crate::jobs::jobs;

struct One;

impl Filter for One {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        out.send(0, "one")?;
        Ok(Step::Done)
    }

    fn process(&mut self, _: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        Ok(())
    }
}

fn graph() -> Graph {
    let mut graph = Graph::new();
    graph.filter("source", 1, Ports::source(), || One).unwrap();
    graph.filter("sink", 1, Ports::sink(), || One).unwrap();
    graph.place("sink", &[1]).unwrap();
    graph.connect("source", "sink", StreamOptions::default()).unwrap();
    graph
}

fn run() {
    let mut jobs = jobs(2).into_iter();
    let [coordinator, other] = [jobs.next().unwrap(), jobs.next().unwrap()];
    thread::scope(|scope| {
        scope.spawn(move || graph().start_in(&other, b"").unwrap().serve().unwrap());
        let running = graph().start_in(&coordinator, b"").unwrap();
        running.submit(Unit::new("")).wait().unwrap();
    });
}

/// Open files of this process, which runs no other test.
fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn no_socket_stays_open() {
    run();
    let before = open_files();
    for _ in 0..50 {
        run();
    }
    // The threads that read see the end of their links, and then exit.
    let until = Instant::now() + Duration::from_secs(30);
    while open_files() > before + 10 {
        assert!(Instant::now() < until, "{} files were open, now {}", before, open_files());
        thread::yield_now();
    }
}
