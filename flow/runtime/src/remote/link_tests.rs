//! The queue of a link that no thread writes.

use std::net::{TcpListener, TcpStream};
use std::thread;

use bytes::Bytes;

use super::*;
use crate::remote::meet::PATIENCE;
use crate::unit::{Unit, UnitId, Units};

/// A link, and the other end of its connection.
fn link() -> (Link, TcpStream) {
    link_with(PATIENCE)
}

fn link_with(patience: Duration) -> (Link, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    let stream = Stream::from_connected(socket).unwrap();
    (Link::new(1, stream, patience).unwrap(), other)
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
    assert!(matches!(*link.cut_for(), Some(LinkError::Deaf)));
    assert_eq!(other.read(&mut [0]).unwrap(), 0);
}

#[test]
fn whose_turn_it_was_is_not_told() {
    let (link, _other) = link();
    let turn = |stream, group| Message::Turn { stream, unit: UnitId(0), group };
    for group in 0..100 {
        link.send(turn(0, group));
        link.send(turn(1, group));
    }
    let queue = link.queue();
    let told: Vec<&Message> = queue.frames.iter().map(|frame| &frame.message).collect();
    assert_eq!(told, [&turn(0, 99), &turn(1, 99)]);
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
            let before = link.pulse.last();
            other.write_all(part).unwrap();
            while link.pulse.last() == before {
                thread::yield_now();
            }
        }
        drop(other);
        assert!(matches!(reads.join().unwrap(), LinkError::Ended));
    });
}

#[test]
fn who_was_told_to_end_and_only_beats_is_cut() {
    let mut beat = Vec::new();
    Message::Beat.write(0, &mut beat).unwrap();
    for end in [Link::finish, Link::give_up] {
        let (link, mut other) = link_with(Duration::from_secs(1));
        // A blocking write would wait for room forever: nothing is read after the cut.
        other.set_nonblocking(true).unwrap();
        let limit = Instant::now() + PATIENCE;
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
