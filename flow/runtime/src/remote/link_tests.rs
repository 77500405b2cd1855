//! The queue of a link that no thread writes.

use std::net::{TcpListener, TcpStream};
use std::thread;

use bytes::Bytes;

use super::*;
use crate::policy::priority::UnitId;
use crate::remote::connect::SILENCE_LIMIT;
use crate::stream::report::Failure;
use crate::stream::unit::{Unit, Units};

/// How long the other end may take to connect to the rest.
const LIMIT: Duration = Duration::from_secs(60);

/// A link, and the other end of its connection.
fn link() -> (Link, TcpStream) {
    link_with(SILENCE_LIMIT)
}

fn link_with(patience: Duration) -> (Link, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    let stream = Stream::from_connected(socket).unwrap();
    (Link::new(1, stream, patience, LIMIT).unwrap(), other)
}

#[test]
fn who_does_not_listen_is_cut() {
    let (link, mut other) = link();
    for _ in 0..MOST_WAITING {
        link.send(Message::Beat);
    }
    assert!(!link.queue().is_closed);
    link.send(Message::Beat);
    assert!(link.queue().is_closed && link.queue().is_empty());
    assert!(matches!(*link.cut_for(), Some(LinkError::NotReading)));
    assert_eq!(other.read(&mut [0]).unwrap(), 0);
}

#[test]
fn outdated_turns_are_not_sent() {
    let (link, _other) = link();
    let turn = |stream, group| Message::Turn { stream, unit: UnitId(0), group };
    for group in 0..100 {
        link.send(turn(0, group));
        link.send(turn(1, group));
    }
    let queue = link.queue();
    let messages: Vec<&Message> = queue.frames.iter().map(|frame| &frame.message).collect();
    assert_eq!(messages, [&turn(0, 99), &turn(1, 99)]);
}

#[test]
fn what_a_lost_process_was_to_do_is_not_kept() {
    let (link, _other) = link();
    let message =
        Message::Block { to: (0, 0), unit: UnitId(0), sequence: 0, is_again: false, origin: None };
    link.send(Frame { message: message.clone(), payload: Bytes::from_static(b"block") });
    let dead = Message::Dead { rank: 1, why: "gone".to_owned() };
    link.send(dead.clone());
    let unit = Units::default().begin(Unit::new(""), vec![1]);
    link.send_of(unit.rank, Frame { message, payload: Bytes::from_static(b"block") });
    link.give_up();
    let queue = link.queue();
    assert!(queue.is_closed && queue.units.is_empty());
    assert!(queue.frames.iter().map(|frame| &frame.message).eq([&dead]));
}

#[test]
fn a_part_of_a_block_is_a_sign_of_life() {
    let (link, mut other) = link();
    let largest = 1 << 20;
    let message =
        Message::Block { to: (0, 0), unit: UnitId(0), sequence: 0, is_again: false, origin: None };
    let mut head = Vec::new();
    message.write(largest, &mut head).unwrap();
    thread::scope(|scope| {
        let reads = scope.spawn(|| {
            link.read(largest, |frame| {
                assert!(frame.is_none(), "the block is whole");
                Ok(())
            })
        });
        // After the last of these, the block is still incomplete.
        for part in [&head[..5], &head[5..], &[1; 1000], &[2; 70_000]] {
            let before = link.heartbeat.last();
            other.write_all(part).unwrap();
            while link.heartbeat.last() == before {
                thread::yield_now();
            }
        }
        drop(other);
        assert!(matches!(reads.join().unwrap(), LinkError::Ended));
    });
}

#[test]
fn a_peer_that_still_connects_to_others_may_be_silent_for_longer() {
    let patience = Duration::from_secs(5);
    let (link, mut other) = link_with(patience);
    let timeouts = || {
        let stream = &link.stream;
        let unacknowledged = sockopt::tcp_user_timeout(stream.kernel_socket()).unwrap();
        let unacknowledged = Duration::from_millis(unacknowledged.into());
        [stream.read_timeout().unwrap(), stream.write_timeout().unwrap(), Some(unacknowledged)]
    };
    assert_eq!(timeouts(), [Some(LIMIT + patience); 3]);
    let silent = || link.named(ErrorKind::TimedOut.into());
    assert!(matches!(silent(), LinkError::Silent(time) if time == LIMIT + patience));
    other.write_all(&[0]).unwrap();
    link.read_some(&mut [0]).unwrap();
    assert_eq!(timeouts(), [Some(patience); 3]);
    assert!(matches!(silent(), LinkError::Silent(time) if time == patience));
}

#[test]
fn a_patience_may_be_as_long_as_the_option_allows() {
    let (link, _other) = link_with(Duration::from_secs(u32::MAX.into()));
    let unacknowledged = sockopt::tcp_user_timeout(link.stream.kernel_socket()).unwrap();
    assert_eq!(unacknowledged, i32::MAX as u32);
}

#[test]
fn a_peer_that_was_asked_to_end_and_only_beats_is_cut() {
    let mut beat = Vec::new();
    Message::Beat.write(0, &mut beat).unwrap();
    for end in [Link::finish, Link::give_up] {
        let (link, mut other) = link_with(Duration::from_secs(1));
        // A blocking write would wait for room forever: nothing is read after the cut.
        other.set_nonblocking(true).unwrap();
        let limit = Instant::now() + SILENCE_LIMIT;
        thread::scope(|scope| {
            let reads = scope.spawn(|| link.read(0, |_| Ok(())));
            end(&link);
            let mut rest = &beat[..];
            while !reads.is_finished() {
                rest = &rest[other.write(rest).unwrap_or(0)..];
                if rest.is_empty() {
                    rest = &beat;
                }
                if Instant::now() > limit {
                    link.cut();
                    panic!("it is still listened to");
                }
                thread::yield_now();
            }
            assert!(matches!(reads.join().unwrap(), LinkError::Stays(_)));
        });
    }
}

/// Copies send faster than the network.
#[test]
fn blocks_that_wait_do_not_cut_the_link() {
    let (link, _other) = link();
    let unit = Units::default().begin(Unit::new(""), vec![1]);
    let payload = Bytes::from_static(b"x");
    for sequence in 0..=MOST_WAITING as u64 {
        let unit = unit.rank.unit;
        let message = Message::Block { to: (0, 0), unit, sequence, is_again: false, origin: None };
        link.send(Frame { message, payload: payload.clone() });
    }
    for group in 0..=MOST_WAITING as u64 {
        let id = unit.rank.unit;
        let message = Message::Sent { from: (0, 0), unit: id, group, index: 0, origin: None };
        link.send_of(unit.rank, Frame { message, payload: payload.clone() });
    }
    assert!(!link.queue().is_closed);
}

/// Blocks of two streams are dropped one by one, more of them than messages may wait.
#[test]
fn freed_room_in_the_queue_adds_up() {
    let (link, _other) = link();
    let blocks = MOST_WAITING as u64;
    for _ in 0..blocks {
        link.send(Message::Freed { stream: 0, bytes: 129 });
        link.send(Message::Freed { stream: 1, bytes: 1 });
    }
    let queue = link.queue();
    let messages: Vec<&Message> = queue.frames.iter().map(|frame| &frame.message).collect();
    let [first, second] =
        [(0, 129 * blocks), (1, blocks)].map(|(stream, bytes)| Message::Freed { stream, bytes });
    assert_eq!(messages, [&first, &second]);
}

#[test]
fn rejections_in_the_queue_add_up() {
    let (link, _other) = link();
    for filter in [0, 1, 0, 0] {
        link.send(Message::Rejected { filter, count: 1 });
    }
    let queue = link.queue();
    let messages: Vec<&Message> = queue.frames.iter().map(|frame| &frame.message).collect();
    let [first, second] =
        [(0, 3), (1, 1)].map(|(filter, count)| Message::Rejected { filter, count });
    assert_eq!(messages, [&first, &second]);
}

#[test]
fn a_copy_that_is_faster_than_the_link_waits_for_it() {
    for ends_early in [false, true] {
        let (link, _other) = link();
        let units = Units::default();
        let unit = units.begin(Unit::new(""), vec![1]);
        let groups = 2 * BACKLOG as u64;
        let id = unit.rank.unit;
        thread::scope(|scope| {
            let copy = scope.spawn(|| {
                for group in 0..groups {
                    let message = Message::GroupEnd { from: (0, 0), unit: id, group };
                    if link.send_of(unit.rank, message) {
                        link.wait_for_backlog(unit.rank, || unit.is_closed());
                    }
                }
            });
            while link.queue().waiting_copies == 0 {
                assert!(!copy.is_finished(), "it has not waited");
                thread::yield_now();
            }
            assert_eq!(link.queue().waiting_of(unit.rank), BACKLOG + 1);
            if ends_early {
                units.end_early(id, Failure::Cancelled);
                link.wake_copies();
                copy.join().unwrap();
                return;
            }
            let (mut sent, mut frames) = (0, Vec::new());
            while sent < groups {
                assert!(link.queue().waiting_of(unit.rank) <= BACKLOG + 1);
                if !link.queue().is_empty() {
                    link.next(&mut frames);
                    sent += frames.drain(..).count() as u64;
                }
            }
        });
    }
}
