//! Mailboxes whose ends are dropped, or whose threads sleep, at an unusual moment.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;

use seekwire::mailbox::{Mailbox, RecvError, Selector};
use seekwire_protocol::message::HELLO;

use crate::content::content;
use crate::mailbox::{exact, message, streams};

/// An end that has received nothing is dropped with its stream, which may have left TCP.
#[test]
fn what_was_sent_arrives_although_the_stream_is_dropped() {
    for rounds in [0, 40] {
        let listener = seekwire::Listener::bind("127.0.0.1:0").unwrap();
        let left = seekwire::Stream::connect(listener.local_addr().unwrap()).unwrap();
        let (right, _) = listener.accept().unwrap();
        let mut byte = [0];
        for _ in 0..rounds {
            (&left).write_all(&byte).unwrap();
            (&right).read_exact(&mut byte).unwrap();
            (&right).write_all(&byte).unwrap();
            (&left).read_exact(&mut byte).unwrap();
        }
        let (left, right) = (Mailbox::new(left).unwrap(), Mailbox::new(right).unwrap());
        left.send(1, &content(1, 100_000)).unwrap();
        drop(left);
        assert_eq!(right.recv_vec(exact(1)).unwrap().1, content(1, 100_000));
        assert!(matches!(right.recv_vec(Selector::ANY).unwrap_err(), RecvError::Closed));
    }
}

/// Waits until a thread of this process, by its name in /proc, sleeps.
fn await_sleep(thread: &Path) {
    let stat = Path::new("/proc").join(thread).join("stat");
    let sleeps = || {
        let stat = fs::read_to_string(&stat).unwrap();
        stat[stat.rfind(')').unwrap()..].starts_with(") S")
    };
    while !sleeps() {
        thread::yield_now();
    }
}

/// A thread that waits for something else sleeps in the stream, and another one is in the middle of
/// a message when the rest of that comes, and nothing more.
#[test]
fn the_rest_of_a_message_reaches_the_thread_that_receives_it() {
    const LEN: usize = 100_000;
    let (mut left, right) = streams();
    let right = Mailbox::from_tcp(right).unwrap();
    let body = content(2, LEN);
    let bytes = [&HELLO[..], &message(0, 2, LEN as u32, &body)].concat();
    let (first, rest) = bytes.split_at(LEN / 2);
    thread::scope(|scope| {
        let receive = |tag| {
            let (begun, begins) = channel();
            let right = &right;
            let receiving = scope.spawn(move || {
                begun.send(fs::read_link("/proc/thread-self").unwrap()).unwrap();
                right.recv_vec(exact(tag))
            });
            (receiving, begins.recv().unwrap())
        };
        let (other, leader) = receive(1);
        left.write_all(first).unwrap();
        while right.probe(exact(2)).unwrap().is_none() {}
        await_sleep(&leader);
        let (receiving, follower) = receive(2);
        await_sleep(&follower);
        left.write_all(rest).unwrap();
        assert_eq!(receiving.join().unwrap().unwrap().1, body);
        left.write_all(&message(1, 1, 4, b"done")).unwrap();
        assert_eq!(other.join().unwrap().unwrap().1, b"done");
    });
}
