//! One of the processes that run the image pipeline (see `imaging`).
//!
//! `lab-peer flow-host ADDRESS` prints where it listens, reads the addresses of the others, and
//! takes part. The coordinator then executes each line of its standard input.

mod coordinator;
mod emulation;
mod filters;
mod image;

use std::io::{self, BufRead};
use std::net::{IpAddr, TcpListener};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use seekwire_flow::{ClusterConfig, Graph, Peer, Ports, SILENCE_LIMIT, StreamOptions};

use crate::imaging::{COPIES, Setup};
use filters::{Clip, Desk, Repository, Subsample, Viewer};

/// How long the processes may take to meet.
const MEETING: Duration = Duration::from_secs(30);

/// Bytes that may be on their way from the repositories to clip: four blocks of 16 KiB for each
/// copy, as much for small ones.
const DEALT: usize = 12 * ((16 << 10) + 128);

/// Bytes that may be on their way after clip, for the output of each of three hosts.
const BEHIND: usize = 3 * (256 << 10);

pub(super) fn play(address: Option<String>) -> Result<()> {
    let address: IpAddr = address.and_then(|text| text.parse().ok()).context("say ADDRESS")?;
    // Makes sleeps end on time (prctl(2)). Threads inherit it.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))
        .context("cannot set the slack of timers")?;
    let listener = TcpListener::bind((address, 0))?;
    coordinator::say(&format!("listening {}", listener.local_addr()?.port()))?;
    let mut orders = io::stdin().lock().lines();
    let setup = orders.next().context("the list of participants is missing")??;
    let setup: Setup = serde_json::from_str(&setup).context("not a setup")?;

    let desk = Arc::new(Desk::new());
    let graph = graph(&setup, &desk)?;
    let peers = setup
        .addresses
        .iter()
        .enumerate()
        .map(|(rank, address)| Peer { host: format!("host {rank}"), addresses: vec![*address] });
    let job = ClusterConfig {
        rank: setup.rank,
        peers: peers.collect(),
        listener,
        secret: setup.secret,
        limit: MEETING,
        patience: SILENCE_LIMIT,
        called_off: None,
    };
    let running = graph.start_in(&job, b"")?;
    if running.is_coordinator() {
        coordinator::say("together")?;
        coordinator::follow(&running, &desk, orders)
    } else {
        Ok(running.serve()?)
    }
}

/// The same in all processes.
fn graph(setup: &Setup, desk: &Arc<Desk>) -> Result<Graph> {
    let mut graph = Graph::new();
    let coordinator = vec![0; COPIES as usize];
    let hosts: Vec<u32> = (1..=COPIES as u32).collect();
    let host = setup.rank;
    let own = Arc::clone(desk);
    let repository = move || Repository::new(Arc::clone(&own));
    graph.filter("repository", 1, Ports::source(), repository)?;
    graph.place("repository", &coordinator)?;
    graph.filter("clip", 1, Ports::new(&["in"], &["out", "trace"]), move || Clip::new(host))?;
    graph.place("clip", &hosts)?;
    graph.filter("subsample", 1, Ports::step(), Subsample::default)?;
    graph.place("subsample", &hosts)?;
    let own = Arc::clone(desk);
    let viewer = move || Viewer::new(Arc::clone(&own));
    graph.filter("viewer", 1, Ports::new(&["in", "trace"], &[]), viewer)?;

    let cut = setup.block.cut();
    let dealt =
        StreamOptions { policy: setup.dealing, cut, limit: DEALT, ..StreamOptions::default() };
    let behind = StreamOptions { policy: setup.behind, limit: BEHIND, ..StreamOptions::default() };
    graph.connect("repository", "clip", dealt)?;
    graph.connect("clip.out", "subsample", behind.clone())?;
    graph.connect("subsample", "viewer.in", behind.clone())?;
    graph.connect("clip.trace", "viewer.trace", behind)?;
    Ok(graph)
}
