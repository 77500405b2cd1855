//! A member that knows the secret, and sends invalid messages.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::connect::{self, ClusterConfig, Peer, SILENCE_LIMIT};
use super::link::Link;
use super::message::{Frame, Message, Sequences};
use super::stats::EncodedStats;
use crate::policy::priority::UnitId;
use crate::stream::report::{CopyReport, Failure, StreamReport};
use crate::{
    Block, Filter, FilterError, Graph, Outputs, Ports, Running, Step, StreamOptions, Unit,
};

struct Endless;

impl Filter for Endless {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        out.send(0, vec![0; 100])?;
        Ok(Step::More)
    }
}

struct Pass;

impl Filter for Pass {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        out.send(0, block)
    }
}

struct Sink;

impl Filter for Sink {
    fn process(&mut self, _: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        Ok(())
    }
}

const LIMIT: usize = 64 << 10;

/// Copy 0 of the step is in the other process, and rank 0 is the owner of all streams.
fn graph() -> Graph {
    let mut graph = Graph::new();
    graph.filter("source", 1, Ports::source(), || Endless).unwrap();
    graph.filter("step", 1, Ports::step(), || Pass).unwrap();
    graph.place("step", &[1, 0]).unwrap();
    graph.filter("sink", 1, Ports::sink(), || Sink).unwrap();
    let options = StreamOptions { limit: LIMIT, is_ordered: true, ..StreamOptions::default() };
    graph.connect("source", "step", options.clone()).unwrap();
    graph.connect("step", "sink", options).unwrap();
    graph.check().unwrap();
    graph
}

/// A pipeline, and the link from its other member to it, which no thread reads or writes.
fn member(patience: Duration) -> (Running, Arc<Link>) {
    member_of(graph, patience)
}

fn member_of(graph: fn() -> Graph, patience: Duration) -> (Running, Arc<Link>) {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let peer = |listener: &TcpListener| Peer {
        host: "host".to_owned(),
        addresses: vec![listener.local_addr().unwrap()],
    };
    let peers: Vec<Peer> = listeners.iter().map(peer).collect();
    let job = |(rank, listener)| ClusterConfig {
        rank,
        peers: peers.clone(),
        listener,
        secret: [7; 32],
        limit: Duration::from_secs(60),
        patience,
        called_off: None,
    };
    let [coordinator, other] = {
        let mut jobs = (0..).zip(listeners).map(job);
        [jobs.next().unwrap(), jobs.next().unwrap()]
    };
    let member =
        thread::spawn(move || connect::connect_all(&other, graph().digest(b""), None).unwrap());
    let running = graph().start_in(&coordinator, b"").unwrap();
    (running, member.join().unwrap().swap_remove(0).unwrap())
}

/// The same, with the messages received sent to `heard`.
fn with_member(test: impl FnOnce(&Running, &Arc<Link>, &mpsc::Receiver<Message>)) {
    let (running, link) = member(SILENCE_LIMIT);
    let (hears, heard) = mpsc::channel();
    let (reader, writer) = (Arc::clone(&link), Arc::clone(&link));
    thread::spawn(move || {
        reader.read(LIMIT, |frame| {
            let _ = frame.map(|frame| hears.send(frame.message));
            Ok(())
        })
    });
    thread::spawn(move || writer.write());
    test(&running, &link, &heard);
    link.cut();
}

fn frame(message: Message, payload: usize) -> Frame {
    Frame { message, payload: vec![0; payload].into() }
}

/// Why the unit that these frames are sent for ends.
fn ends_with(frames: impl FnOnce(UnitId, &mpsc::Receiver<Message>) -> Vec<Frame>) -> String {
    let mut text = None;
    with_member(|running, link, heard| {
        let unit = running.submit(Unit::new(""));
        frames(unit.id(), heard).into_iter().for_each(|frame| link.send(frame));
        let failure = unit.wait().unwrap_err();
        assert!(matches!(failure, Failure::Lost { rank: 1, .. }), "{failure}");
        text = Some(failure.to_string());
    });
    text.unwrap()
}

#[track_caller]
fn assert_ends(text: &str, expected: &str) {
    assert!(text.contains(expected), "{text}");
}

/// The first block sent to it.
fn first(heard: &mpsc::Receiver<Message>) -> u64 {
    loop {
        if let Message::Block { sequence, .. } = heard.recv().unwrap() {
            return sequence;
        }
    }
}

#[test]
fn what_does_not_fit_ends_the_link() {
    type Case = (fn(UnitId) -> Vec<Frame>, &'static str);
    let cases: [Case; 13] = [
        (
            |unit| vec![Message::Started { to: (0, 1), unit, sequence: 0 }.into()],
            "a copy that is not there",
        ),
        (
            |unit| vec![Message::Started { to: (0, u16::MAX), unit, sequence: 0 }.into()],
            "a copy that is not there",
        ),
        (
            |unit| vec![Message::Started { to: (0, 0), unit, sequence: 1 << 60 }.into()],
            "a block that it does not have",
        ),
        (
            |unit| vec![Message::SentAll { from: (1, 1), unit, group: 0 }.into()],
            "a copy that does not send from there",
        ),
        (
            |unit| vec![Message::Last { from: (1, u16::MAX), unit }.into()],
            "a copy that does not send from there",
        ),
        (
            |unit| vec![Message::SentAll { from: (9, 0), unit, group: 0 }.into()],
            "the owner of a stream that is not here",
        ),
        (
            |_| vec![Message::SentAll { from: (1, 0), unit: UnitId(u64::MAX), group: 0 }.into()],
            "a unit that has not begun",
        ),
        (
            |_| vec![Message::Stats(EncodedStats::new(&(Vec::new(), Vec::new()))).into()],
            "a report that was not requested",
        ),
        (|_| vec![Message::Rejected { filter: 3, count: 1 }.into()], "a filter that is not there"),
        (|_| vec![frame(Message::Beat, 1)], "a payload where there can be none"),
        (
            |_| vec![Message::Lost { rank: 0, why: "x".repeat(15 << 20) }.into()],
            "is longer than any",
        ),
        (
            |unit| {
                let (host, why) = ("host".into(), "x".repeat(15 << 20).into());
                let failure = Failure::Lost { rank: 0, host, why };
                vec![Message::EndEarly { unit, failure }.into()]
            },
            "is longer than any",
        ),
        (
            |unit| {
                let sent = Message::Sent { from: (1, 0), unit, group: 0, index: 0, origin: None };
                vec![frame(sent, LIMIT + 1)]
            },
            "is larger than any stream takes",
        ),
    ];
    for (frames, expected) in cases {
        assert_ends(&ends_with(|unit, _| frames(unit)), expected);
    }
}

#[test]
fn nobody_sends_more_than_there_is_room_for() {
    let text = ends_with(|unit, _| {
        // The turn of these never comes.
        let sent = |index| {
            frame(
                Message::Sent { from: (1, 0), unit, group: 1 << 40, index, origin: None },
                1 << 10,
            )
        };
        (0..64).map(sent).collect()
    });
    assert_ends(&text, "more than there was room for");
}

#[test]
fn no_time_is_too_long() {
    let text = ends_with(|unit, heard| {
        let [sequence, _] = [first(heard), first(heard)];
        let (took, waited) = (Duration::MAX, Duration::MAX);
        vec![
            Message::Done {
                to: (0, 0),
                unit,
                sequences: Sequences(vec![sequence]),
                took,
                blocked: took,
                waited,
            }
            .into(),
            Message::Started { to: (0, 0), unit, sequence: 1 << 60 }.into(),
        ]
    });
    assert_ends(&text, "a block that it does not have");
}

#[test]
fn no_number_in_a_report_is_too_large() {
    with_member(|running, link, heard| {
        let streams = vec![
            StreamReport {
                name: "source.out -> step.in".into(),
                blocks: u64::MAX,
                bytes: u64::MAX,
                held: usize::MAX,
                peak: usize::MAX,
                limit: usize::MAX,
                block: None,
                copies: Vec::new(),
            };
            2
        ];
        thread::scope(|scope| {
            let report = scope.spawn(|| running.streams());
            while heard.recv().unwrap() != Message::AskStats {}
            link.send(Message::Stats(EncodedStats::new(&(Vec::new(), streams))));
            let streams = report.join().unwrap();
            assert_eq!((streams.len(), streams[0].blocks), (2, u64::MAX));
        });
    });
}

/// An empty report of its copy.
fn copy() -> CopyReport {
    CopyReport {
        filter: "step".into(),
        copy: 0,
        process: 1,
        host: None,
        busy: Duration::ZERO,
        starved: Duration::ZERO,
        blocked: Duration::ZERO,
        blocks: 0,
        bytes: 0,
        rejected: 0,
    }
}

#[test]
fn nobody_has_more_copies_than_were_placed_there() {
    with_member(|running, link, heard| {
        let unit = running.submit(Unit::new(""));
        thread::scope(|scope| {
            scope.spawn(|| running.copies());
            while heard.recv().unwrap() != Message::AskStats {}
            link.send(Message::Stats(EncodedStats::new(&(vec![copy(); 2], Vec::new()))));
            let text = unit.wait().unwrap_err().to_string();
            assert_ends(&text, "reports of more copies or streams than there are");
        });
    });
}

#[test]
fn two_who_ask_at_once_both_hear() {
    with_member(|running, link, heard| {
        thread::scope(|scope| {
            let reports = [(); 2].map(|()| scope.spawn(move || running.copies()));
            for _ in 0..2 {
                while heard.recv().unwrap() != Message::AskStats {}
                link.send(Message::Stats(EncodedStats::new(&(vec![copy()], Vec::new()))));
            }
            for report in reports {
                let copies = report.join().unwrap();
                assert_eq!(copies.iter().filter(|copy| copy.process == 1).count(), 1);
            }
        });
    });
}

struct One;

impl Filter for One {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        out.send(0, vec![0; 100])?;
        Ok(Step::Done)
    }
}

/// As [`graph`], but the other process can be lost.
fn idempotent() -> Graph {
    let mut graph = graph();
    graph.replace("source", Arc::new(|| Box::new(One))).unwrap();
    graph.idempotent("step").unwrap();
    graph
}

#[test]
fn rejections_of_a_process_that_is_lost_afterwards_count() {
    let (running, link) = member_of(idempotent, SILENCE_LIMIT);
    let unit = running.submit(Unit::new(""));
    link.send(Message::Rejected { filter: 1, count: 2 });
    link.finish();
    link.write();
    unit.wait().unwrap();
    assert!(matches!(running.next_loss(0), Some(Failure::Lost { rank: 1, .. })));
    assert_eq!(running.rejected(), [("step".into(), 2)]);
    link.cut();
}

#[test]
fn who_has_connected_to_others_is_waited_for_and_who_is_lost_is_not() {
    for is_lost in [false, true] {
        let (running, link) = member_of(idempotent, SILENCE_LIMIT);
        thread::scope(|scope| {
            let waits = scope.spawn(|| running.wait_for_others());
            assert!(!waits.is_finished(), "it has said nothing");
            if is_lost {
                link.cut();
            } else {
                scope.spawn(|| link.write());
            }
            waits.join().unwrap();
            link.cut();
        });
    }
}

/// It ignores all messages.
#[test]
fn nobody_who_is_sent_away_stays_by_saying_that_he_is_there() {
    // Longer than the interval of beats.
    let (running, link) = member(Duration::from_secs(4));
    let unit = running.submit(Unit::new(""));
    let (ends, ended) = mpsc::channel();
    let (written, writer) = (ends.clone(), Arc::clone(&link));
    thread::spawn(move || {
        writer.write();
        let _ = written.send("its writer");
    });
    running.finish();
    assert!(matches!(unit.wait(), Err(Failure::Stopped)));
    thread::spawn(move || {
        running.wait_for_links();
        let _ = ends.send("who listens to it");
    });
    for _ in 0..2 {
        if ended.recv_timeout(SILENCE_LIMIT).is_err() {
            link.cut();
            panic!("it stays");
        }
    }
}
