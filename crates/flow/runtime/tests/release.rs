//! What a pipeline in several processes has taken of the system, it gives back when it is dropped.

use std::fs;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use seekwire_flow::{
    Block, Filter, FilterError, Graph, Job, Outputs, PATIENCE, Peer, Ports, Step, StreamOptions,
    Unit,
};

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
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let peer = |listener: &TcpListener| Peer {
        host: "host".to_owned(),
        addresses: vec![listener.local_addr().unwrap()],
    };
    let peers: Vec<Peer> = listeners.iter().map(peer).collect();
    let job = |(rank, listener)| Job {
        rank,
        peers: peers.clone(),
        listener,
        secret: [7; 32],
        limit: Duration::from_secs(60),
        patience: PATIENCE,
    };
    let mut jobs = (0..).zip(listeners).map(job);
    let [front, other] = [jobs.next().unwrap(), jobs.next().unwrap()];
    thread::scope(|scope| {
        scope.spawn(move || graph().start_in(&other, b"").unwrap().serve().unwrap());
        let running = graph().start_in(&front, b"").unwrap();
        running.submit(Unit::new("")).wait().unwrap();
    });
}

/// Of this process, which runs no other test.
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
    // The threads that read see the end of their links, and leave then.
    let until = Instant::now() + Duration::from_secs(30);
    while open_files() > before + 10 {
        assert!(Instant::now() < until, "{} files were open, now {}", before, open_files());
        thread::yield_now();
    }
}
