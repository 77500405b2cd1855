//! Seeking on tokio: on an ordinary TCP stream, on one that is changing to the ring, and on the
//! ring.

use std::future::{Future, poll_fn};
use std::io::Write as _;
use std::sync::Arc;
use std::task::Poll;

use seekwire::tokio::{Listener, SeekStream, Stream};
use seekwire::{At, SeekError, SeekOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{on_both, upgraded};

fn tcp() -> (std::net::TcpStream, SeekStream) {
    tcp_with(seekwire::SeekStream::new)
}

fn tcp_with(
    make: impl Fn(std::net::TcpStream) -> seekwire::SeekStream,
) -> (std::net::TcpStream, SeekStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0, SeekStream::new(make(stream)).unwrap())
}

async fn pair(on_ring: bool) -> (Stream, Stream) {
    if !on_ring {
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let client = Stream::connect(listener.local_addr().unwrap()).await.unwrap();
        return (client, listener.accept().await.unwrap().0);
    }
    upgraded().await
}

/// Polls once, and drops the future.
async fn once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

const LEN: usize = 30_000;

fn message(number: u8) -> Vec<u8> {
    (0..LEN).map(|at| number ^ (at % 251) as u8).collect()
}

#[test]
fn tasks_take_different_messages_as_they_arrive() {
    on_both(|| async {
        for on_ring in [false, true] {
            let (mut from, to) = pair(on_ring).await;
            let to = Arc::new(to);
            let takers: Vec<_> = (0..8u8)
                .rev()
                .map(|number| {
                    let to = to.clone();
                    tokio::spawn(async move {
                        let mut taken = vec![0; LEN];
                        let at = At::Position(u64::from(number) * LEN as u64);
                        let into = &mut [std::io::IoSliceMut::new(&mut taken)];
                        let n = to.seek_recv_vectored(into, at, SeekOptions::TAKE).await.unwrap();
                        assert_eq!(n, LEN);
                        assert!(taken == message(number));
                    })
                })
                .collect();
            for number in 0..8 {
                for piece in message(number).chunks(1000) {
                    from.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
            for taker in takers {
                taker.await.unwrap();
            }
            assert!(to.holes().unwrap().is_empty());
            // A connection that began on TCP may have come to the ring in the meantime.
            assert!(!on_ring || from.status().unwrap().totals.tx_ring > 0);
        }
    });
}

#[test]
fn the_same_of_an_ordinary_tcp_stream() {
    on_both(|| async {
        let (mut from, to) = tcp();
        let to = Arc::new(to);
        let takers: Vec<_> = (1..5u8)
            .rev()
            .map(|number| {
                let to = to.clone();
                tokio::spawn(async move {
                    let mut taken = vec![0; LEN];
                    let offset = u64::from(number) * LEN as u64;
                    assert_eq!(to.seek_recv(&mut taken, offset).await.unwrap(), LEN);
                    assert!(taken == message(number));
                })
            })
            .collect();
        let sender = std::thread::spawn(move || {
            (0..5).for_each(|number| from.write_all(&message(number)).unwrap());
            from
        });
        for taker in takers {
            taker.await.unwrap();
        }
        let mut to = Arc::into_inner(to).unwrap();
        let mut first = vec![0; LEN];
        to.read_exact(&mut first).await.unwrap();
        assert!(first == message(0));
        drop(sender.join().unwrap());
        assert_eq!(to.read(&mut [0]).await.unwrap(), 0, "the rest was taken");
    });
}

#[test]
fn the_first_seek_finds_a_read_that_waits() {
    on_both(|| async {
        for on_ring in [false, true] {
            let (mut from, mut to) = pair(on_ring).await;
            assert!(once(to.read(&mut [0; 2])).await.is_none());
            let mut two = [0; 2];
            assert!(once(to.seek_recv(&mut two, 2)).await.is_none());
            let taking = async {
                assert_eq!(to.seek_recv(&mut two, 2).await.unwrap(), 2);
                &two
            };
            let sending = async { from.write_all(b"AABBCC").await.unwrap() };
            assert_eq!(tokio::join!(taking, sending).0, b"BB");
            let mut rest = [0; 4];
            to.read_exact(&mut rest).await.unwrap();
            assert_eq!(&rest, b"AACC");
        }
    });
}

#[test]
fn a_seek_that_is_dropped_has_taken_nothing() {
    on_both(|| async {
        for on_ring in [false, true] {
            let (mut from, mut to) = pair(on_ring).await;
            let mut taken = [0; 4];
            for byte in *b"abcdefgh" {
                assert!(once(to.seek_recv(&mut taken, 4)).await.is_none());
                from.write_all(&[byte]).await.unwrap();
            }
            assert_eq!(to.seek_peek(&mut taken, 4).await.unwrap(), 4);
            assert_eq!(to.seek_recv(&mut taken, 4).await.unwrap(), 4);
            assert_eq!(&taken, b"efgh");
            to.read_exact(&mut taken).await.unwrap();
            assert_eq!(&taken, b"abcd");
        }
    });
}

#[test]
fn what_cannot_come_is_told() {
    on_both(|| async {
        let (mut from, to) = tcp();
        from.write_all(b"AAAABBBB").unwrap();
        assert_eq!(to.seek_recv(&mut [0; 4], 4).await.unwrap(), 4);
        let taken = to.seek_recv(&mut [0; 4], 2).await;
        assert!(matches!(taken, Err(SeekError::Taken)), "{taken:?}");
        drop(from);
        assert_eq!(to.seek_recv(&mut [0; 4], 100).await.unwrap(), 0, "the end of the stream");
    });
}

/// More bytes precede the wanted ones than memory may hold: the call fails and loses nothing.
#[test]
fn library_memory_that_is_full_is_told() {
    on_both(|| async {
        let (mut from, mut to) =
            tcp_with(|stream| seekwire::SeekStream::with_memory(stream, 100_000));
        let sender = std::thread::spawn(move || {
            (0..100).for_each(|number| from.write_all(&message(number)).unwrap());
        });
        let full = to.seek_recv(&mut [0; LEN], 90 * LEN as u64).await;
        assert!(matches!(full, Err(SeekError::NoRoom)), "{full:?}");
        for number in 0..100 {
            let mut next = vec![0; LEN];
            to.read_exact(&mut next).await.unwrap();
            assert!(next == message(number));
        }
        sender.join().unwrap();
    });
}
