//! Streams on tokio.

use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};

use seekwire::tokio::{Listener, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::{on_both, upgraded, upgraded_after};

async fn pair() -> (Stream, Stream) {
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let client = Stream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (client, server)
}

fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}

/// A future that counts how often it is polled, and notifies when it is pending.
struct Counted<F> {
    future: Pin<Box<F>>,
    polls: Arc<AtomicU32>,
    waits: Arc<Notify>,
}

impl<F: Future> Counted<F> {
    fn new(future: F) -> (Self, Arc<AtomicU32>, Arc<Notify>) {
        let (polls, waits) = (Arc::<AtomicU32>::default(), Arc::new(Notify::new()));
        let counted = Self { future: Box::pin(future), polls: polls.clone(), waits: waits.clone() };
        (counted, polls, waits)
    }
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        let polled = self.future.as_mut().poll(cx);
        if polled.is_pending() {
            self.waits.notify_one();
        }
        polled
    }
}

async fn echo(mut stream: Stream) {
    let mut buffer = vec![0; 20_000];
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => return,
            n => stream.write_all(&buffer[..n]).await.unwrap(),
        }
    }
}

/// Sends and receives at the same time; returns the stream once both are done.
async fn exchange(stream: Stream, send: &[u8], expected: &[u8]) -> Stream {
    let (mut from, mut to) = tokio::io::split(stream);
    let mut received = vec![0; expected.len()];
    let (sent, got) = tokio::join!(to.write_all(send), from.read_exact(&mut received));
    sent.unwrap();
    got.unwrap();
    assert!(received == expected);
    from.unsplit(to)
}

#[test]
fn both_directions_at_a_time_on_the_ring() {
    on_both(|| async {
        let (client, server) = upgraded().await;
        let (ask, answer) = (pattern(5_000_000, 1), pattern(3_000_000, 2));
        let (theirs, ours) = (ask.clone(), answer.clone());
        let server = tokio::spawn(async move { exchange(server, &ours, &theirs).await });
        let client = exchange(client, &ask, &answer).await;
        let server = server.await.unwrap();
        assert!(client.status().unwrap().totals.tx_ring > 0);
        assert!(server.status().unwrap().totals.tx_ring > 0);
    });
}

#[test]
fn what_is_corked_is_read_when_the_time_is_over() {
    on_both(|| async {
        let cork = |socket: &TcpStream| {
            rustix::net::sockopt::set_tcp_cork(socket, true).unwrap();
        };
        let (mut client, mut server) = upgraded_after(cork).await;
        for sleeps_first in [false, true] {
            let mut bytes = [0; 6];
            let (read, polls, waits) = Counted::new(server.read_exact(&mut bytes));
            if sleeps_first {
                let read = tokio::join!(read, async {
                    waits.notified().await;
                    client.write_all(b"corked").await.unwrap();
                });
                read.0.unwrap();
            } else {
                client.write_all(b"corked").await.unwrap();
                read.await.unwrap();
            }
            assert!(polls.load(Ordering::SeqCst) > 1, "it was not held back");
            assert_eq!(&bytes, b"corked");
        }
    });
}

#[test]
fn with_a_peer_that_knows_nothing_of_it() {
    on_both(|| async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        });
        let mut client = Stream::connect(address).await.unwrap();
        let bytes = pattern(300_000, 3);
        client.write_all(&bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).await.unwrap();
        assert!(back == bytes);
        assert_eq!(client.status().unwrap().totals.tx_ring, 0);
        peer.join().unwrap();
    });
}

/// A task that waits for the kernel's socket is woken when another task has brought the connection
/// to the ring, on which the answers then arrive.
#[test]
fn who_waits_already_hears_of_the_ring() {
    const LAST: u8 = 9;
    on_both(|| async {
        for _ in 0..20 {
            let (client, mut server) = pair().await;
            let (mut from, mut to) = tokio::io::split(client);
            let is_attached = Arc::new(AtomicBool::new(false));
            let seen = is_attached.clone();
            let server = tokio::spawn(async move {
                let mut buffer = [0; 64];
                // Silent until all bytes have arrived: nothing wakes the other end's reader before.
                while buffer[0] != LAST {
                    server.read_exact(&mut buffer).await.unwrap();
                    seen.store(server.status().unwrap().totals.attached, Ordering::SeqCst);
                }
                server.write_all(b"answer").await.unwrap();
                server
            });
            let (reader, _, waits) = Counted::new(async move {
                let mut answer = [0; 6];
                from.read_exact(&mut answer).await.unwrap();
                (answer, from)
            });
            let reader = tokio::spawn(reader);
            waits.notified().await;
            while !is_attached.load(Ordering::SeqCst) {
                to.write_all(&[7; 64]).await.unwrap();
                tokio::task::yield_now().await;
            }
            to.write_all(&[LAST; 64]).await.unwrap();
            let (answer, from) = reader.await.unwrap();
            assert_eq!(&answer, b"answer");
            let server = server.await.unwrap();
            let client = from.unsplit(to);
            assert!(client.status().unwrap().totals.tx_ring > 0);
            assert_eq!(server.status().unwrap().totals.tx_ring, 6);
        }
    });
}

#[test]
fn a_peer_that_is_slow_loses_nothing() {
    on_both(|| async {
        for on_ring in [false, true] {
            let (mut client, mut server) = if on_ring { upgraded().await } else { pair().await };
            let bytes = pattern(20_000_000, 4);
            let all = bytes.clone();
            let (writer, _, waits) = Counted::new(async move {
                client.write_all(&all).await.unwrap();
                client.shutdown().await.unwrap();
                client
            });
            let writer = tokio::spawn(writer);
            // It is blocked now: both ends' buffers are full.
            waits.notified().await;
            let mut received = Vec::new();
            let mut buffer = vec![0; 300_000];
            while let n @ 1.. = server.read(&mut buffer).await.unwrap() {
                received.extend_from_slice(&buffer[..n]);
                tokio::task::yield_now().await;
            }
            assert!(received == bytes);
            writer.await.unwrap();
        }
    });
}

#[test]
fn one_direction_ends_and_the_other_goes_on() {
    on_both(|| async {
        for on_ring in [false, true] {
            let (mut client, mut server) = if on_ring { upgraded().await } else { pair().await };
            client.write_all(b"all of it").await.unwrap();
            client.shutdown().await.unwrap();
            let mut question = Vec::new();
            server.read_to_end(&mut question).await.unwrap();
            assert_eq!(question, b"all of it");
            let long = pattern(2_000_000, 5);
            let answer = long.clone();
            let server = tokio::spawn(async move {
                server.write_all(&answer).await.unwrap();
                server.shutdown().await.unwrap();
                server
            });
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.unwrap();
            assert!(received == long);
            server.await.unwrap();
        }
    });
}

#[test]
fn a_read_that_is_dropped_has_taken_nothing() {
    on_both(|| async {
        for on_ring in [false, true] {
            let (mut client, server) = if on_ring { upgraded().await } else { pair().await };
            let bytes = pattern(1_000_000, 6);
            let all = bytes.clone();
            let writer = tokio::spawn(async move {
                for piece in all.chunks(777) {
                    client.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                client
            });
            let mut server = server;
            let mut received = Vec::new();
            let mut buffer = [0; 1000];
            let mut dropped = 0;
            while received.len() < bytes.len() {
                // Polled once, which may start to wait, and dropped.
                let mut reading = Box::pin(server.read(&mut buffer));
                let polled = poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await;
                drop(reading);
                match polled {
                    Poll::Ready(n) => received.extend_from_slice(&buffer[..n.unwrap()]),
                    Poll::Pending => {
                        dropped += 1;
                        tokio::task::yield_now().await;
                    }
                }
            }
            assert!(received == bytes && dropped > 0);
            writer.await.unwrap();
        }
    });
}

#[test]
fn many_streams_on_one_runtime() {
    on_both(|| async {
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let mut echoes = JoinSet::new();
            for _ in 0..100 {
                let (stream, _) = listener.accept().await.unwrap();
                echoes.spawn(echo(stream));
            }
            echoes.join_all().await;
        });
        let mut clients = JoinSet::new();
        for number in 0..100u32 {
            clients.spawn(async move {
                let mut stream = Stream::connect(address).await.unwrap();
                for round in 0..100u32 {
                    let len = 1 + (number * 7919 + round * 104_729) as usize % 3000;
                    let question = pattern(len, number + round);
                    stream.write_all(&question).await.unwrap();
                    let mut answer = vec![0; len];
                    stream.read_exact(&mut answer).await.unwrap();
                    assert!(answer == question);
                }
                u32::from(stream.status().unwrap().totals.tx_ring > 0)
            });
        }
        let on_ring: u32 = clients.join_all().await.into_iter().sum();
        assert!(on_ring > 50, "{on_ring} of 100 came to the ring");
        server.await.unwrap();
    });
}

/// Counts polls: a waiting task is polled only when it is woken.
#[test]
fn who_waits_is_not_polled_for_others_nor_again_and_again() {
    on_both(|| async {
        for on_ring in [false, true] {
            let (mut client, mut server) = if on_ring { upgraded().await } else { pair().await };
            let (reader, polls, waits) = Counted::new(async move {
                let mut one = [0];
                client.read_exact(&mut one).await.unwrap();
                client
            });
            let reader = tokio::spawn(reader);
            waits.notified().await;
            // After a thousand round trips of another connection, the task has not been polled.
            let (mut other, others) = upgraded().await;
            let other_end = tokio::spawn(echo(others));
            let before = polls.load(Ordering::SeqCst);
            for _ in 0..1000 {
                other.write_all(b"ping").await.unwrap();
                other.read_exact(&mut [0; 4]).await.unwrap();
            }
            // The wake-up for the attached connection may come late.
            let idle = polls.load(Ordering::SeqCst) - before;
            assert!(idle <= 2, "polled {idle} times while nothing came");
            server.write_all(&[1]).await.unwrap();
            reader.await.unwrap();
            let all = polls.load(Ordering::SeqCst);
            assert!(all <= before + idle + 3, "polled {all} times in all");
            drop(other);
            other_end.await.unwrap();
        }
    });
}

#[test]
fn the_death_of_a_peer_wakes_who_reads_and_who_writes() {
    on_both(|| async {
        for on_ring in [false, true] {
            let (client, mut server) = if on_ring { upgraded().await } else { pair().await };
            server.write_all(b"unread").await.unwrap();
            let (mut from, mut to) = tokio::io::split(server);
            let (writer, _, waits) = Counted::new(async move {
                loop {
                    if let Err(error) = to.write_all(&[1; 100_000]).await {
                        return error.kind();
                    }
                }
            });
            let writer = tokio::spawn(writer);
            let reader = tokio::spawn(async move { from.read(&mut [0]).await });
            waits.notified().await;
            // Closing with unread bytes resets the connection.
            drop(client);
            let kind = writer.await.unwrap();
            assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{kind:?}");
            match reader.await.unwrap() {
                Ok(n) => assert_eq!(n, 0),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            }
        }
    });
}

#[test]
fn with_a_peer_that_sleeps_in_threads() {
    on_both(|| async {
        let listener = seekwire::Listener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = vec![0; 5000];
            loop {
                match stream.read(&mut buffer).unwrap() {
                    0 => return stream.status().unwrap().totals,
                    n => stream.write_all(&buffer[..n]).unwrap(),
                }
            }
        });
        let mut client = Stream::connect(address).await.unwrap();
        for bytes in pattern(3_000_000, 8).chunks(10_000) {
            client = exchange(client, bytes, bytes).await;
        }
        client.shutdown().await.unwrap();
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        let totals = tokio::task::spawn_blocking(|| peer.join().unwrap()).await.unwrap();
        assert!(totals.rx_ring > 0, "{totals:?}");
    });
}

#[test]
fn a_look_takes_nothing_and_options_are_the_sockets() {
    on_both(|| async {
        let (mut client, mut server) = upgraded().await;
        client.set_nodelay(true).unwrap();
        assert!(client.nodelay().unwrap());
        assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
        let mut seen = [0; 3];
        let looking = async {
            let n = server.peek(&mut seen).await.unwrap();
            assert!(n > 0);
        };
        let sending = pin!(async { client.write_all(b"abc").await.unwrap() });
        tokio::join!(looking, sending);
        let mut got = [0; 3];
        server.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"abc");
    });
}

#[test]
#[should_panic = "reactor"]
fn outside_of_a_runtime_it_says_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = seekwire::Stream::connect(listener.local_addr().unwrap()).unwrap();
    let _ = Stream::new(stream);
}
