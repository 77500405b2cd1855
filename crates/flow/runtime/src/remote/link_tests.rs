//! The queue of a link that nobody writes.

use std::net::{TcpListener, TcpStream};

use super::*;
use crate::remote::meet::PATIENCE;
use crate::unit::{Unit, UnitId, Units};

/// And the other end of its connection.
fn link() -> (Link, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    let stream = Stream::from_connected(socket).unwrap();
    (Link::new(1, stream, PATIENCE).unwrap(), other)
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
    let message = Message::Block { to: (0, 0), unit: UnitId(0), sequence: 0, is_again: false };
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
