//! `pairs`: the total bandwidth of several pairs of processes.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::published_yasmin;
use super::result_names::pairs_case;
use super::sweep::{ACCELERATED, TCP, UNIX, curves, sweep};
use crate::bench::{self, BANDWIDTH, Operation, Peer, PeerPair, PeerServer, Socket, Test};
use crate::claim::{Evidence, PublishedComparison};
use crate::experiment::{Context, Experiment};
use crate::launch::{Mode, Running};
use crate::outcome::{Findings, Outcome, Recorded, ResultFile};
use crate::plot::{Axis, Scale};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::streambench;

pub(super) struct Pairs;

const MESSAGE: u64 = 64 << 10;
const COUNTS: [usize; 4] = [1, 2, 4, 8];

impl Experiment for Pairs {
    experiment_file!("pairs");

    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        (words == ["four pairs"]).then(|| published_yasmin::four_pairs(result))
    }

    fn comparisons(&self, result: &ResultFile) -> Vec<PublishedComparison> {
        published_yasmin::pairs(result)
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(3, 9);
        let time = Duration::from_millis(context.pick(150, 500));
        let tests = sweep(&[Operation::Bandwidth], &[MESSAGE], time);
        let mut groups: Vec<Group<'_>> = COUNTS
            .iter()
            .map(|&count| {
                let variant =
                    |name, socket, mode: Result<Mode>| variant(name, socket, mode, count, &tests);
                let variants = vec![
                    variant(TCP, Socket::Tcp, Ok(Mode::Plain)),
                    variant(UNIX, Socket::Unix, Ok(Mode::Plain)),
                    variant(ACCELERATED, Socket::Tcp, context.accelerated()),
                ];
                Group::new(pairs_case(count), variants)
            })
            .collect();
        let samples = alternate(&mut groups, rounds, context.progress())?;
        drop(groups);

        let mut parameters = context.parameters(rounds);
        parameters.insert("milliseconds".to_owned(), (time.as_millis() as u64).into());
        parameters.insert("message size".to_owned(), MESSAGE.into());
        Ok(Outcome { parameters, samples, baseline: TCP, violation: None })
    }

    fn findings(&self, Recorded { samples, .. }: Recorded<'_>) -> Findings {
        let rows = samples.rows(TCP);
        let x = Axis { label: "pairs of processes".to_owned(), scale: Scale::Log2 };
        let variants = [TCP, UNIX, ACCELERATED];
        let title = "Aggregate bandwidth of 64 KiB messages";
        let figures =
            vec![curves("bandwidth.svg", title, x, Scale::Linear, BANDWIDTH, &rows, &variants)];
        Findings { summary: self.file().summary(samples, &[]), figures, tables: Vec::new() }
    }
}

fn variant<'a>(
    name: &str,
    socket: Socket,
    mode: Result<Mode>,
    count: usize,
    tests: &[Test],
) -> Variant<'a> {
    let pair = streambench::path()
        .and_then(|path| Ok(PeerPair::new(Peer::Program(path.to_owned()), socket, mode?)));
    match pair {
        Ok(pair) => {
            let tests = tests.to_vec();
            Variant::new(name, move |trial: &mut Trial| together(&pair, count, &tests, trial))
        }
        Err(error) => Variant::unavailable(name, format!("{error:#}")),
    }
}

/// Runs `count` pairs at the same time and records the sum of their bandwidths.
fn together(pair: &PeerPair, count: usize, tests: &[Test], trial: &mut Trial) -> Result<()> {
    let servers: Vec<PeerServer> = (0..count).map(|_| pair.serve()).collect::<Result<_>>()?;
    let mut clients: Vec<Running> = servers
        .iter()
        .map(|server| pair.client(server, tests).arg("--barrier").start())
        .collect::<Result<_, _>>()?;
    for client in &clients {
        client.wait_for_line(|line| line == "connected")?;
    }
    for client in &mut clients {
        client.send_line("go")?;
    }
    let mut total = 0.0;
    for client in clients {
        let finished = client.wait()?;
        trial.count(finished.traffic);
        if !matches!(pair.mode, Mode::Plain) {
            trial.require_ring()?;
        }
        let report = bench::parse(&finished.stdout)?
            .into_iter()
            .next()
            .context("a client reported nothing")?;
        let bandwidth = report.readings().into_iter().find(|(metric, _)| *metric == BANDWIDTH);
        total += bandwidth.context("a client did not measure bandwidth")?.1;
    }
    for server in servers {
        server.running.stop()?;
    }
    trial.record(pairs_case(count), Some(count as f64), BANDWIDTH, total);
    Ok(())
}
