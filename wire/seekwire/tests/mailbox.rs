//! Mailboxes over TCP: one thread, several threads, both ends at once, and peers that misbehave.

use std::io::{IoSlice, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use seekwire::mailbox::{
    Envelope, Limits, Mailbox, PeerMisbehaved, RecvError, Selector, SendError,
};
use seekwire::{SeekSocket as _, SeekStream};
use seekwire_protocol::message::{HELLO, MessageHeader};

use crate::content::content;

pub(crate) fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let left = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let right = listener.accept().unwrap().0;
    left.set_nodelay(true).unwrap();
    right.set_nodelay(true).unwrap();
    (left, right)
}

fn pair() -> (Mailbox<SeekStream>, Mailbox<SeekStream>) {
    let (left, right) = streams();
    (Mailbox::from_tcp(left).unwrap(), Mailbox::from_tcp(right).unwrap())
}

pub(crate) fn exact(tag: u64) -> Selector {
    Selector::exact(tag)
}

#[test]
fn messages_are_received_in_any_order() {
    let (left, right) = pair();
    for tag in 0..100 {
        left.send(tag, &content(tag, 10 * tag as usize)).unwrap();
    }
    for tag in (0..100).rev() {
        let (envelope, bytes) = right.recv_vec(exact(tag)).unwrap();
        let Envelope { tag: of, len, sequence, .. } = envelope;
        assert_eq!((of, len, sequence), (tag, 10 * tag as usize, tag as u32));
        assert_eq!(bytes, content(tag, 10 * tag as usize));
    }
}

#[test]
fn messages_of_one_tag_do_not_overtake_each_other_whatever_their_sizes() {
    let (left, right) = pair();
    let lens = [10, 100_000, 0, 3000, 1, 2032, 2033, 50_000];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (n, &len) in lens.iter().enumerate() {
                left.send(7, &content(n as u64, len)).unwrap();
                left.send(8, b"in between").unwrap();
            }
        });
        for (n, &len) in lens.iter().enumerate() {
            assert_eq!(right.recv_vec(exact(7)).unwrap().1, content(n as u64, len));
        }
        for _ in lens {
            assert_eq!(right.recv_vec(Selector::ANY).unwrap().1, b"in between");
        }
    });
}

#[test]
fn what_nobody_has_asked_for_stays_in_the_stream() {
    const LEN: usize = 3000;
    let (left, right) = pair();
    for tag in 0..20 {
        left.send(tag, &content(tag, LEN)).unwrap();
    }
    assert_eq!(right.probe_wait(exact(19)).unwrap().len, LEN);
    let extent = right.get_ref().extent().unwrap();
    assert!(extent.head <= HELLO.len() as u64 && extent.holes.is_empty(), "{extent:?}");
    assert_eq!(right.recv_vec(exact(10)).unwrap().1, content(10, LEN));
    let hole = right.get_ref().holes().unwrap()[0];
    let start = (HELLO.len() + 10 * (16 + LEN)) as u64;
    assert_eq!((hole.start, hole.end), (start, start + 16 + LEN as u64));
    for tag in (0..20).filter(|tag| *tag != 10) {
        assert_eq!(right.recv_any(&mut [0; LEN]).unwrap().tag, tag);
    }
    assert!(right.get_ref().holes().unwrap().is_empty());
}

#[test]
fn a_buffer_that_is_too_small_leaves_the_message() {
    let (left, right) = pair();
    left.send(1, b"0123456789").unwrap();
    let mut small = [0; 4];
    for _ in 0..2 {
        let error = right.recv(exact(1), &mut small).unwrap_err();
        assert!(matches!(error, RecvError::TooSmall { needed: 10, room: 4 }), "{error}");
    }
    assert_eq!(right.recv_vec(exact(1)).unwrap().1, b"0123456789");

    let ticket = right.post(exact(2), vec![0; 3]);
    left.send(2, b"abcdef").unwrap();
    assert!(matches!(right.wait(ticket).unwrap_err(), RecvError::TooSmall { needed: 6, room: 3 }));
    assert_eq!(right.cancel(ticket).unwrap().len(), 3);
    assert!(matches!(right.wait(ticket).unwrap_err(), RecvError::UnknownTicket(_)));
    assert_eq!(right.recv_vec(exact(2)).unwrap().1, b"abcdef");
}

#[test]
fn calls_that_do_not_wait_say_so() {
    let (left, right) = pair();
    let mut buffer = [0; 16];
    assert!(right.try_recv(Selector::ANY, &mut buffer).unwrap().is_none());
    assert!(right.probe(Selector::ANY).unwrap().is_none());
    let ticket = right.post(exact(5), vec![0; 16]);
    assert!(right.test(ticket).unwrap().is_none());
    left.send_vectored(6, &[IoSlice::new(b"in "), IoSlice::new(b""), IoSlice::new(b"pieces")])
        .unwrap();
    let envelope = right.probe_wait(exact(6)).unwrap();
    let Envelope { tag, len, sequence, .. } = envelope;
    assert_eq!((tag, len, sequence), (6, 9, 0));
    assert_eq!(right.probe(Selector::ANY).unwrap(), Some(envelope));
    assert_eq!(right.try_recv(exact(6), &mut buffer).unwrap(), Some(envelope));
    assert_eq!(&buffer[..9], b"in pieces");
    assert_eq!(right.cancel(ticket).unwrap().len(), 16);
    assert!(right.cancel(ticket).is_none());
}

#[test]
fn posted_receives_get_messages_in_the_order_of_posting() {
    let (left, right) = pair();
    let any = right.post(Selector { tag: 1, mask: 1 }, vec![0; 300_000]);
    let three = right.post(exact(3), vec![0; 300_000]);
    let gone = right.post(exact(3), vec![0; 8]);
    assert!(right.cancel(gone).is_some());
    let last = right.post(Selector::ANY, vec![0; 300_000]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..3 {
                left.send(3, &content(n, 250_000)).unwrap();
            }
            left.send(2, b"nobody").unwrap();
        });
        for (ticket, seed) in [(last, 2), (any, 0), (three, 1)] {
            let completed = right.wait(ticket).unwrap();
            assert_eq!(completed.bytes(), content(seed, 250_000));
            assert_eq!(completed.buffer.len(), 300_000);
        }
        assert_eq!(right.recv_vec(Selector::ANY).unwrap().1, b"nobody");
    });
}

#[test]
fn a_message_that_is_larger_than_all_buffers_needs_no_memory() {
    const LEN: usize = 32 << 20;
    let (left, right) = streams();
    let (left, right) = (
        Mailbox::from_tcp(left).unwrap(),
        Mailbox::new(SeekStream::with_memory(right, 1 << 20)).unwrap(),
    );
    let sent = content(9, LEN);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                left.send(1, &sent).unwrap();
            }
        });
        let mut buffer = vec![0; LEN];
        assert_eq!(right.recv(exact(1), &mut buffer).unwrap().len, LEN);
        assert!(buffer == sent);
        assert!(right.recv_vec(exact(1)).unwrap().1 == sent);
        buffer.fill(0);
        let ticket = right.post(exact(1), buffer);
        assert!(right.wait(ticket).unwrap().bytes() == sent);
    });
}

#[test]
fn both_ends_may_send_far_more_than_the_buffers_hold() {
    const COUNT: u64 = 300;
    const LEN: usize = 100_000;
    let (left, right) = pair();
    std::thread::scope(|scope| {
        for end in [&left, &right] {
            scope.spawn(move || {
                for n in 0..COUNT {
                    end.send(n, &content(n, LEN)).unwrap();
                }
                for n in (0..COUNT).rev() {
                    assert!(end.recv_vec(exact(n)).unwrap().1 == content(n, LEN));
                }
            });
        }
    });
}

/// The same over shared memory, if available.
#[test]
fn both_ends_may_send_over_streams_that_leave_tcp() {
    const COUNT: u64 = 300;
    let listener = seekwire::Listener::bind("127.0.0.1:0").unwrap();
    let left = seekwire::Stream::connect(listener.local_addr().unwrap()).unwrap();
    let (right, _) = listener.accept().unwrap();
    let (left, right) = (Mailbox::new(left).unwrap(), Mailbox::new(right).unwrap());
    std::thread::scope(|scope| {
        for end in [&left, &right] {
            scope.spawn(move || {
                for n in 0..COUNT {
                    end.send(n, &content(n, 100_000)).unwrap();
                }
                for n in (0..COUNT).rev() {
                    assert!(end.recv_vec(exact(n)).unwrap().1 == content(n, 100_000));
                }
                end.finish().unwrap();
                assert!(matches!(end.recv_vec(Selector::ANY).unwrap_err(), RecvError::Closed));
            });
        }
    });
}

#[test]
fn both_ends_may_send_while_threads_of_both_receive() {
    const COUNT: u64 = 400;
    let (left, right) = pair();
    std::thread::scope(|scope| {
        for end in [&left, &right] {
            scope.spawn(move || {
                for n in 0..COUNT {
                    end.send(n % 3, &content(n, 1 << (n % 18))).unwrap();
                }
            });
            for tag in 0..3 {
                scope.spawn(move || {
                    for n in (tag..COUNT).step_by(3) {
                        assert!(end.recv_vec(exact(tag)).unwrap().1 == content(n, 1 << (n % 18)));
                    }
                });
            }
        }
    });
}

#[test]
fn threads_wait_for_different_tags() {
    let (left, right) = pair();
    different_tags(&left, &right);
}

#[test]
fn threads_wait_for_different_tags_when_the_buffers_are_tiny() {
    let (left, right) = streams();
    rustix::net::sockopt::set_socket_recv_buffer_size(&right, 32_768).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&left, 32_768).unwrap();
    different_tags(&Mailbox::from_tcp(left).unwrap(), &Mailbox::from_tcp(right).unwrap());
}

fn different_tags(left: &Mailbox<SeekStream>, right: &Mailbox<SeekStream>) {
    const THREADS: u64 = 6;
    const ROUNDS: u64 = 400;
    let probed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for tag in 0..THREADS {
            let probed = &probed;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let len = (tag * 997 + round * 31) as usize % 5000;
                    match (tag + round) % 3 {
                        0 => assert_eq!(right.recv_vec(exact(tag)).unwrap().1, content(round, len)),
                        1 => {
                            assert_eq!(right.probe_wait(exact(tag)).unwrap().len, len);
                            probed.fetch_add(1, Ordering::Relaxed);
                            assert_eq!(right.recv_vec(exact(tag)).unwrap().1, content(round, len));
                        }
                        _ => {
                            let ticket = right.post(exact(tag), vec![0; 5000]);
                            assert_eq!(right.wait(ticket).unwrap().bytes(), content(round, len));
                        }
                    }
                }
            });
        }
        for round in 0..ROUNDS {
            for tag in 0..THREADS {
                let tag = (tag + round) % THREADS;
                left.send(tag, &content(round, (tag * 997 + round * 31) as usize % 5000)).unwrap();
            }
        }
    });
    assert!(probed.load(Ordering::Relaxed) > 0);
}

#[test]
fn threads_wake_each_other_when_messages_come_one_at_a_time() {
    let (left, right) = pair();
    std::thread::scope(|scope| {
        for tag in 0..3u64 {
            let right = &right;
            scope.spawn(move || {
                let mut buffer = [0; 8];
                for round in 0..200u64 {
                    right.recv(exact(tag), &mut buffer).unwrap();
                    assert_eq!(u64::from_le_bytes(buffer), round);
                    right.send(tag, &buffer).unwrap();
                }
            });
        }
        let mut buffer = [0; 8];
        for round in 0..200u64 {
            for tag in [2, 0, 1] {
                left.send(tag, &round.to_le_bytes()).unwrap();
                assert_eq!(left.recv(exact(tag), &mut buffer).unwrap().len, 8);
            }
        }
    });
}

/// A receiver whose message comes after more messages than it has memory for gets an error, and can
/// go on.
#[test]
fn a_tag_that_is_never_asked_for_fills_the_memory_and_no_more() {
    const LEN: usize = 50_000;
    let (left, right) = streams();
    let left = Mailbox::from_tcp(left).unwrap();
    let right = Mailbox::new(SeekStream::with_memory(right, 1 << 20)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..400 {
                left.send(1, &content(n, LEN)).unwrap();
            }
            left.send(2, b"wanted").unwrap();
        });
        let mut buffer = vec![0; LEN];
        let mut received = 0;
        loop {
            match right.recv(exact(2), &mut buffer) {
                Ok(envelope) => {
                    assert_eq!(&buffer[..envelope.len], b"wanted");
                    break;
                }
                Err(RecvError::Full { messages, bytes }) => {
                    assert!(messages > 0 && bytes > 0);
                    for _ in 0..messages {
                        let envelope = right.recv_any(&mut buffer).unwrap();
                        assert_eq!((envelope.tag, u64::from(envelope.sequence)), (1, received));
                        assert!(buffer == content(received, LEN));
                        received += 1;
                    }
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(received > 0);
        for n in received..400 {
            assert!(right.recv_vec(exact(1)).unwrap().1 == content(n, LEN));
        }
    });
}

#[test]
fn the_number_of_messages_that_wait_is_limited() {
    let (left, right) = streams();
    let left = Mailbox::from_tcp(left).unwrap();
    let limits = Limits::default().unexpected(10);
    let right = Mailbox::with_limits(SeekStream::new(right), limits).unwrap();
    for n in 0..12 {
        left.send(1, &content(n, 5)).unwrap();
    }
    left.send(2, b"wanted").unwrap();
    let mut buffer = [0; 16];
    let posted = right.post(exact(2), vec![0; 16]);
    assert!(matches!(
        right.recv(exact(3), &mut buffer).unwrap_err(),
        RecvError::Full { messages: 10, bytes: 50 }
    ));
    assert!(matches!(right.wait(posted).unwrap_err(), RecvError::Full { .. }));
    for _ in 0..2 {
        right.recv_any(&mut buffer).unwrap();
    }
    assert_eq!(right.wait(posted).unwrap().bytes(), b"wanted");
    for n in 2..12 {
        assert_eq!(right.recv_vec(exact(1)).unwrap().1, content(n, 5));
    }
}

/// Takes every second message, which makes more holes than a stream may have.
#[test]
fn many_messages_are_taken_out_of_order() {
    const COUNT: u64 = 6000;
    for len in [20, 3000] {
        let (left, right) = pair();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..COUNT {
                    left.send(n % 2, &content(n, len)).unwrap();
                }
            });
            for n in (1..COUNT).step_by(2).chain((0..COUNT).step_by(2)) {
                assert!(right.recv_vec(exact(n % 2)).unwrap().1 == content(n, len));
            }
        });
    }
}

#[test]
fn holes_without_memory_to_close_them_are_reported() {
    const COUNT: u64 = 2400;
    let (left, right) = streams();
    let left = Mailbox::from_tcp(left).unwrap();
    let limits = Limits::default().memory(0);
    let right = Mailbox::with_limits(SeekStream::new(right), limits).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..COUNT {
                left.send(n % 2, &content(n, 3000)).unwrap();
            }
        });
        let mut buffer = vec![0; 3000];
        let (mut even, mut full) = (0, 0);
        for n in (1..COUNT).step_by(2) {
            let ticket = (n % 4 == 1).then(|| right.post(exact(1), vec![0; 3000]));
            loop {
                let received = match ticket {
                    Some(ticket) => right.wait(ticket).map(|completed| buffer = completed.buffer),
                    None => right.recv(exact(1), &mut buffer).map(drop),
                };
                let Err(error) = received else { break };
                assert!(matches!(error, RecvError::Full { .. }), "{error}");
                full += 1;
                assert!(right.recv_vec(exact(0)).unwrap().1 == content(even, 3000));
                even += 2;
            }
            assert!(buffer == content(n, 3000));
        }
        assert!(full > 0);
        for n in (even..COUNT).step_by(2) {
            assert!(right.recv_vec(exact(0)).unwrap().1 == content(n, 3000));
        }
    });
}

/// Neither end receives until the memory of both is full and both have got an error.
#[test]
fn senders_that_nobody_receives_from_are_told_when_the_memory_is_full() {
    const LEN: usize = 30_000;
    let (left, right) = streams();
    let left = Mailbox::new(SeekStream::with_memory(left, 1 << 20)).unwrap();
    let right = Mailbox::new(SeekStream::with_memory(right, 1 << 20)).unwrap();
    std::thread::scope(|scope| {
        for end in [&left, &right] {
            scope.spawn(move || {
                let mut buffer = vec![0; LEN];
                let (mut sent, mut received, mut full) = (0, 0, 0);
                while sent < 1000 {
                    match end.send(sent, &content(sent, LEN)) {
                        Ok(()) => sent += 1,
                        Err(SendError::Full { messages, begun }) => {
                            assert!(messages > 0);
                            // The rest of a message that was begun is sent by later calls.
                            sent += u64::from(begun);
                            full += 1;
                            let envelope = end.recv_any(&mut buffer).unwrap();
                            assert_eq!(
                                (envelope.tag, u64::from(envelope.sequence)),
                                (received, received)
                            );
                            assert!(buffer == content(received, LEN));
                            received += 1;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                for n in received..1000 {
                    assert_eq!(end.recv_any(&mut buffer).unwrap().tag, n);
                    assert!(buffer == content(n, LEN));
                }
                end.flush().unwrap();
                full
            });
        }
    });
}

/// The rest of a message that was begun goes out while this end waits for something else.
#[test]
fn what_was_begun_goes_out_while_receiving() {
    const COUNT: u32 = 300;
    const LEN: u32 = 30_000;
    let (left, mut right) = streams();
    let left = Mailbox::new(SeekStream::with_memory(left, 1 << 20)).unwrap();
    let sent = content(3, 32 << 20);
    std::thread::scope(|scope| {
        let (full, is_full) = std::sync::mpsc::channel();
        let sent = &sent;
        scope.spawn(move || {
            right.write_all(&HELLO).unwrap();
            for n in 0..COUNT {
                right.write_all(&message(n, 1, LEN, &content(n.into(), LEN as usize))).unwrap();
            }
            is_full.recv().unwrap();
            let mut received = vec![0; HELLO.len() + 16 + sent.len()];
            right.read_exact(&mut received).unwrap();
            assert!(received.ends_with(sent));
            right.write_all(&message(COUNT, 2, 4, b"done")).unwrap();
        });
        let error = left.send(7, sent).unwrap_err();
        assert!(matches!(error, SendError::Full { begun: true, .. }), "{error}");
        full.send(()).unwrap();
        for n in 0..COUNT {
            assert!(left.recv_vec(exact(1)).unwrap().1 == content(n.into(), LEN as usize));
        }
        assert_eq!(left.recv_vec(exact(2)).unwrap().1, b"done");
    });
}

#[test]
fn cancelling_wakes_the_thread_that_waits() {
    let (_left, right) = pair();
    let ticket = right.post(exact(1), vec![0; 8]);
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| right.recv_vec(exact(2)));
        let waiting = scope.spawn(|| right.wait(ticket));
        // One of the two sleeps in the stream. If it is the one that waits for the ticket, closing
        // wakes it.
        assert!(right.cancel(ticket).is_some());
        right.close();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, RecvError::UnknownTicket(_)), "{error}");
        assert!(leader.join().unwrap().is_err());
    });
}

#[test]
fn messages_that_wait_outlive_their_sender() {
    let (left, right) = pair();
    left.send(1, b"first").unwrap();
    left.send(2, &content(2, 10_000)).unwrap();
    left.finish().unwrap();
    assert!(matches!(left.send(3, b""), Err(SendError::Finished)));
    let ticket = right.post(exact(4), vec![0; 8]);
    assert!(matches!(right.recv_vec(exact(3)).unwrap_err(), RecvError::Closed));
    assert!(matches!(right.wait(ticket).unwrap_err(), RecvError::Closed));
    assert_eq!(right.cancel(ticket).unwrap().len(), 8);
    // The other direction still works.
    right.send(5, b"answer").unwrap();
    assert_eq!(left.recv_vec(exact(5)).unwrap().1, b"answer");
    drop(left);
    assert_eq!(right.recv_vec(exact(2)).unwrap().1, content(2, 10_000));
    assert_eq!(right.recv_vec(Selector::ANY).unwrap().1, b"first");
    assert!(matches!(right.recv_vec(Selector::ANY).unwrap_err(), RecvError::Closed));
    assert!(matches!(right.probe(Selector::ANY).unwrap_err(), RecvError::Closed));
}

/// An end that only sends has the peer's greeting unread; dropping it must not reset the
/// connection.
#[test]
fn what_was_sent_arrives_although_the_sender_is_dropped() {
    for _ in 0..20 {
        let (left, right) = pair();
        left.send(1, &content(1, 100_000)).unwrap();
        drop(left);
        assert_eq!(right.recv_vec(exact(1)).unwrap().1, content(1, 100_000));
        assert!(matches!(right.recv_vec(Selector::ANY).unwrap_err(), RecvError::Closed));
    }
}

#[test]
fn closing_wakes_those_who_wait() {
    let (_left, right) = pair();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..4)
            .map(|tag| {
                scope.spawn({
                    let right = &right;
                    move || right.recv_vec(exact(tag))
                })
            })
            .collect();
        right.close();
        for thread in waiting {
            assert!(matches!(thread.join().unwrap().unwrap_err(), RecvError::Closed));
        }
    });
    assert!(matches!(right.send(1, b""), Err(SendError::Finished)));
}

/// A mailbox whose peer sends these bytes and then ends the stream.
fn after(bytes: &[u8]) -> (TcpStream, Mailbox<SeekStream>) {
    let (mut left, right) = streams();
    left.write_all(bytes).unwrap();
    left.shutdown(Shutdown::Write).unwrap();
    (left, Mailbox::from_tcp(right).unwrap())
}

pub(crate) fn message(sequence: u32, tag: u64, len: u32, bytes: &[u8]) -> Vec<u8> {
    [&MessageHeader { len, sequence, tag }.encode()[..], bytes].concat()
}

fn misbehaviour(mailbox: &Mailbox<SeekStream>) -> PeerMisbehaved {
    match mailbox.recv_vec(exact(99)).unwrap_err() {
        RecvError::Misbehaved(why) => why,
        other => panic!("{other}"),
    }
}

#[test]
fn a_peer_that_is_no_mailbox_is_found_out() {
    let (mut left, right) = streams();
    left.write_all(b"GET").unwrap();
    let right = Mailbox::from_tcp(right).unwrap();
    assert_eq!(misbehaviour(&right), PeerMisbehaved::Hello { found: b"GET".to_vec() });
    assert!(matches!(right.probe(Selector::ANY), Err(RecvError::Misbehaved(_))));
    let mut hello = [0; 8];
    left.read_exact(&mut hello).unwrap();
    assert_eq!(hello, HELLO);
    assert_eq!(misbehaviour(&after(&HELLO[..5]).1), PeerMisbehaved::CutOff { missing: 3 });
    assert!(matches!(after(b"").1.recv_vec(Selector::ANY).unwrap_err(), RecvError::Closed));
    assert!(matches!(after(&HELLO).1.recv_vec(Selector::ANY).unwrap_err(), RecvError::Closed));
}

#[test]
fn a_peer_that_breaks_the_rules_is_named_and_what_came_before_stays() {
    let good = [&HELLO[..], &message(0, 1, 4, b"good")].concat();
    let cases = [
        (message(2, 1, 4, b"lost"), "message 2 where 1 was due"),
        (message(1, 1, u32::MAX, b"long"), "4294967295 bytes"),
        (message(1, 1, 10, b"cut")[..9].to_vec(), "7 bytes before the end"),
        (message(1, 1, 10, b"cut"), "7 bytes before the end"),
        (message(1, 1, 10_000, b"cut"), "9997 bytes before the end"),
    ];
    for (bad, why) in cases {
        let (_left, right) = after(&[&good[..], &bad].concat());
        let error = misbehaviour(&right).to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(right.recv_vec(exact(1)).unwrap().1, b"good");
        assert!(right.recv_vec(exact(1)).is_err());
    }
}

/// The stream ends in the middle of a message while threads are receiving it.
#[test]
fn a_message_that_is_cut_off_is_not_received() {
    let bytes = [&HELLO[..], &message(0, 1, 1_000_000, &[7; 5000])].concat();
    let mut buffer = vec![0; 1_000_000];
    let (_left, right) = after(&bytes);
    let error = right.recv(exact(1), &mut buffer).unwrap_err();
    assert!(
        matches!(error, RecvError::Misbehaved(PeerMisbehaved::CutOff { missing: 995_000 })),
        "{error}"
    );
    let (_left, right) = after(&bytes);
    let ticket = right.post(exact(1), buffer);
    assert!(matches!(
        right.wait(ticket).unwrap_err(),
        RecvError::Misbehaved(PeerMisbehaved::CutOff { .. })
    ));
    assert_eq!(right.cancel(ticket).unwrap().len(), 1_000_000);
    let (_left, right) = after(&bytes);
    assert!(right.try_recv(exact(1), &mut [0; 1_000_000]).is_err());
}

#[test]
fn a_reset_is_an_error_to_all_who_wait() {
    let (left, right) = streams();
    let right = Mailbox::from_tcp(right).unwrap();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..3)
            .map(|tag| {
                scope.spawn({
                    let right = &right;
                    move || right.recv_vec(exact(tag))
                })
            })
            .collect();
        // The greeting is still unread, so closing resets the connection.
        drop(left);
        for thread in waiting {
            let error = thread.join().unwrap().unwrap_err();
            assert!(matches!(error, RecvError::Io(_) | RecvError::Closed), "{error}");
        }
    });
}

#[test]
fn a_message_that_is_too_long_is_refused_here() {
    let (left, _right) = streams();
    let limits = Limits::default().message(10);
    let left = Mailbox::with_limits(SeekStream::new(left), limits).unwrap();
    let error = left.send(1, &[0; 11]).unwrap_err();
    assert!(matches!(error, SendError::TooLong { len: 11, most: 10 }), "{error}");
    left.send(1, &[0; 10]).unwrap();
}
