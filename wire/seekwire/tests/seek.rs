//! `SeekStream` as a program uses it: the scenario of the papers, threads, and the ends of a
//! stream.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use seekwire::{SeekError, SeekSocket as _, SeekStream};
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::socket::receive_low_water;

fn pair() -> (TcpStream, SeekStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (sender, SeekStream::new(listener.accept().unwrap().0))
}

/// SEEKWIRE_TEST_WAY restricts the tests to one way.
#[test]
fn the_best_way_is_gone() {
    let (_sender, stream) = pair();
    let way = stream.way().unwrap();
    if let Ok(name) = std::env::var("SEEKWIRE_TEST_WAY") {
        assert_eq!(way.name(), name);
    }
}

/// Messages A, B and C; B is wanted first.
#[test]
fn the_papers_scenario() {
    let (mut sender, stream) = pair();
    sender.write_all(b"AAAABBBBCCCC").unwrap();
    let mut four = [0; 4];
    assert_eq!(stream.seek_recv(&mut four, 4).unwrap(), 4);
    assert_eq!(&four, b"BBBB");
    let extent = stream.extent().unwrap();
    assert_eq!((extent.head, extent.holes.len()), (0, 1));
    let taken = stream.try_seek_recv(&mut four, 2).unwrap_err();
    assert!(matches!(taken, SeekError::Taken), "{taken}");
    assert_eq!(taken.raw_os_error(), Some(6), "ENXIO");
    let told = std::io::Error::from(taken);
    assert!(told.get_ref().unwrap().is::<SeekError>(), "what to do is kept: {told}");
    let mut rest = [0; 8];
    (&stream).read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"AAAACCCC");
    assert_eq!(stream.extent().unwrap().head, 12);
}

#[test]
fn threads_take_different_messages_as_they_arrive() {
    const LEN: usize = 30_000;
    let (mut sender, stream) = pair();
    std::thread::scope(|scope| {
        // The last one first, so that no head moves before the other threads have begun.
        let takers: Vec<_> = (0..4u8)
            .map(|n| {
                let stream = &stream;
                scope.spawn(move || {
                    let mut message = vec![0; LEN];
                    let offset = (usize::from(n) + 1) * LEN;
                    assert_eq!(stream.seek_recv(&mut message, offset as u64).unwrap(), LEN);
                    message.iter().all(|byte| *byte == n + 1)
                })
            })
            .collect();
        for n in 0..5u8 {
            sender.write_all(&vec![n; LEN]).unwrap();
        }
        for taker in takers {
            assert!(taker.join().unwrap());
        }
    });
    drop(sender);
    let mut rest = Vec::new();
    (&stream).read_to_end(&mut rest).unwrap();
    assert_eq!(rest, vec![0; LEN]);
}

#[test]
fn a_range_that_the_end_cuts_off_is_short() {
    let (mut sender, stream) = pair();
    sender.write_all(b"0123456789").unwrap();
    drop(sender);
    let mut buf = [0; 8];
    assert_eq!(stream.seek_recv(&mut buf, 6).unwrap(), 4);
    assert_eq!(&buf[..4], b"6789");
    assert_eq!(stream.seek_recv(&mut buf, 100).unwrap(), 0);
    let mut rest = String::new();
    (&stream).read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "012345");
}

#[test]
fn what_does_not_block_says_so_and_a_timeout_ends_a_wait() {
    let (mut sender, stream) = pair();
    sender.write_all(b"0123").unwrap();
    let mut buf = [0; 4];
    stream.get_ref().set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    assert_eq!(stream.seek_recv(&mut buf, 2).unwrap_err().kind(), ErrorKind::WouldBlock);
    stream.set_nonblocking(true).unwrap();
    assert_eq!(stream.seek_recv(&mut buf, 2).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(stream.seek_peek(&mut buf, 0).unwrap(), 4);
    assert_eq!(stream.seek_recv(&mut buf, 0).unwrap(), 4);
    assert_eq!(&buf, b"0123");
}

/// While nobody else polls the socket, the low-water mark stays as the last sleep needed it. It is
/// reset where it would delay others.
#[test]
fn the_low_water_mark_goes_back_before_anybody_else_polls() {
    let (mut sender, stream) = pair();
    // A program should not do this: the stream controls the socket's options.
    let socket = stream.get_ref().try_clone().unwrap();
    let stream = SeekStream::new(socket.try_clone().unwrap());
    let mark = || receive_low_water(Fd::from(&socket)).unwrap();
    // Returns false if the sleep ended, or began to wait for any byte, before the mark was read:
    // the machine is slow.
    let has_slept = || {
        std::thread::scope(|scope| {
            let seeker = scope.spawn(|| {
                let mut message = [0; 1000];
                assert_eq!(stream.seek_recv(&mut message, 2000).unwrap(), 1000);
                (&stream).read_exact(&mut [0; 2000]).unwrap();
            });
            let is_raised = (0..100_000).any(|_| {
                std::thread::yield_now();
                mark() == 3000
            });
            (&sender).write_all(&[1; 3000]).unwrap();
            seeker.join().unwrap();
            is_raised
        })
    };
    let sleep_once = || assert!((0..100).any(|_| has_slept()), "nobody raises the mark");
    assert!((0..100).any(|_| has_slept() && mark() == 3000), "it stays");
    let again = stream.try_seek_recv(&mut [0; 1], 0).unwrap_err();
    assert_eq!((again.kind(), mark()), (ErrorKind::WouldBlock, 1), "somebody will poll");
    sleep_once();
    stream.wait_send(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(mark(), 1, "it was polled");
    sleep_once();
    stream.set_nonblocking(true).unwrap();
    assert_eq!(mark(), 1, "the program polls from now on");
    stream.set_nonblocking(false).unwrap();
    sleep_once();
    assert_eq!(mark(), 1, "for good");
    sender.write_all(&[2]).unwrap();
    assert_eq!(stream.seek_recv(&mut [0; 1], 0).unwrap(), 1);
}

#[test]
fn the_time_of_a_receive_is_what_was_set_last() {
    let (_silent, stream) = pair();
    let short = Duration::from_millis(20);
    assert_eq!(stream.read_timeout().unwrap(), None);
    stream.set_read_timeout(Some(short)).unwrap();
    assert_eq!(stream.read_timeout().unwrap(), Some(short));
    assert!(matches!(stream.seek_recv(&mut [0; 4], 4), Err(SeekError::WouldBlock)));
    assert_eq!((&stream).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_look_in_order_takes_nothing_and_skips_holes() {
    let (mut sender, stream) = pair();
    sender.write_all(b"AAAABBBB").unwrap();
    let mut four = [0; 4];
    assert_eq!(stream.seek_recv(&mut four, 0).unwrap(), 4);
    for _ in 0..2 {
        assert_eq!(stream.peek(&mut four).unwrap(), 4);
        assert_eq!(&four, b"BBBB");
    }
}
