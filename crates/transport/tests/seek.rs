//! Every way of receiving out of the middle, against a simple model: the stream as the sender wrote it and
//! one flag per byte. Every byte that comes out is compared.

use std::io::{IoSliceMut, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use proptest::prelude::*;
use rustix::fd::AsFd as _;
use seekwire_transport::Errno;
use seekwire_transport::seek::{At, Seek, SeekFlags, SeekTcp, Way};
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::poll::Deadline;

const MEMORY: usize = 64 << 20;
const LOOK: SeekFlags = SeekFlags { peek: true, partial: false };

#[derive(Clone, Copy, Debug)]
enum Operation {
    Send(usize),
    Seek { offset: usize, len: usize, peek: bool, pieces: usize },
    Receive { len: usize, peek: bool },
    End,
}

fn operation() -> impl Strategy<Value = Operation> {
    let size = prop_oneof![4 => 1usize..100, 2 => 100usize..5000, 1 => 5000usize..50_000];
    let offset = prop_oneof![1 => Just(0usize), 3 => 1usize..300, 3 => 300usize..30_000];
    prop_oneof![
        6 => size.clone().prop_map(Operation::Send),
        8 => (offset, size.clone(), any::<bool>(), 1usize..4).prop_map(|(offset, len, peek, pieces)| {
            Operation::Seek { offset, len, peek: peek && len < 1000, pieces }
        }),
        5 => (size, any::<bool>()).prop_map(|(len, peek)| Operation::Receive { len, peek }),
        1 => Just(Operation::End),
    ]
}

/// The byte at a position: no two places look alike for long.
fn byte(position: usize) -> u8 {
    (position.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

struct Stage {
    sender: Option<TcpStream>,
    _receiver: TcpStream,
    seek: SeekTcp,
}

fn stage(way: Way) -> Stage {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    let seek = SeekTcp::by(way, Fd::from(&receiver.as_fd()), 0, MEMORY);
    Stage { sender: Some(sender), _receiver: receiver, seek }
}

fn check(way: Way, operations: Vec<Operation>) -> Result<(), TestCaseError> {
    let mut stage = stage(way);
    let mut sent = 0usize;
    let mut gone: Vec<bool> = Vec::new();
    for operation in operations {
        let head = gone.iter().position(|gone| !gone).unwrap_or(gone.len());
        let ended = stage.sender.is_none();
        match operation {
            Operation::Send(len) if sent - head < 50_000 => {
                let Some(sender) = &mut stage.sender else { continue };
                let bytes: Vec<u8> = (sent..sent + len).map(byte).collect();
                sent += sender.write(&bytes).unwrap_or(0);
                gone.resize(sent, false);
                wait_for(&stage.seek, sent);
            }
            Operation::Send(_) => continue,
            Operation::Seek { offset, len, peek, pieces } => {
                let start = head + offset;
                let end = (start + len).min(gone.len()).max(start.min(gone.len()));
                let mut buf = vec![0; len];
                let size = len.div_ceil(pieces);
                let mut bufs: Vec<IoSliceMut<'_>> = buf.chunks_mut(size).map(IoSliceMut::new).collect();
                let result = stage.seek.try_seek(
                    At::Offset(offset as u64),
                    &mut bufs,
                    SeekFlags { peek, partial: false },
                );
                let taken = start < gone.len() && gone[start..end].iter().any(|gone| *gone);
                if taken {
                    prop_assert_eq!(result, Err(Errno::NXIO));
                } else if start + len > gone.len() && !ended {
                    prop_assert_eq!(result, Err(Errno::AGAIN));
                } else {
                    let n = end.saturating_sub(start);
                    prop_assert_eq!(result, Ok(n));
                    prop_assert!(buf[..n].iter().enumerate().all(|(at, b)| *b == byte(start + at)));
                    if !peek && n > 0 {
                        gone[start..end].fill(true);
                    }
                }
            }
            Operation::Receive { len, peek } => {
                let mut buf = vec![0; len];
                let result = stage.seek.try_recv(&mut [IoSliceMut::new(&mut buf)], peek);
                let live: Vec<usize> = (head..gone.len()).filter(|at| !gone[*at]).take(len).collect();
                if live.is_empty() {
                    prop_assert_eq!(result, if ended { Ok(0) } else { Err(Errno::AGAIN) });
                    continue;
                }
                let n = result.unwrap();
                // As much as there is, unless peeked at: then it may end where a hole begins.
                prop_assert!(n > 0 && n <= live.len(), "{n} of {}", live.len());
                prop_assert!(peek || n == live.len(), "{n} of {}", live.len());
                for (b, at) in buf[..n].iter().zip(&live) {
                    prop_assert_eq!(*b, byte(*at));
                    if !peek {
                        gone[*at] = true;
                    }
                }
            }
            Operation::End => {
                if let Some(sender) = stage.sender.take() {
                    drop(sender);
                    wait_for_end(&stage.seek);
                }
            }
        }
        let extent = stage.seek.extent().unwrap();
        let head = gone.iter().position(|gone| !gone).unwrap_or(gone.len());
        prop_assert_eq!(extent.head, head as u64);
        prop_assert_eq!(extent.arrived, gone.len() as u64);
        for hole in &extent.holes {
            prop_assert!((hole.start..hole.end).all(|at| gone[at as usize]));
        }
    }
    Ok(())
}

/// Loopback delivers within the sender's system call, but for what waits for an acknowledgement.
fn wait_for(seek: &SeekTcp, sent: usize) {
    while (seek.extent().unwrap().arrived as usize) < sent {
        std::thread::yield_now();
    }
}

fn wait_for_end(seek: &SeekTcp) {
    let mut one = [0];
    let arrived = seek.extent().unwrap();
    let offset = arrived.arrived - arrived.head;
    while seek.try_seek(At::Offset(offset), &mut [IoSliceMut::new(&mut one)], LOOK) == Err(Errno::AGAIN) {
        std::thread::yield_now();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn peeking_agrees_with_the_model(operations in prop::collection::vec(operation(), 1..80)) {
        check(Way::Peek, operations)?;
    }

    #[test]
    fn draining_agrees_with_the_model(operations in prop::collection::vec(operation(), 1..80)) {
        check(Way::Drain, operations)?;
    }
}

fn read_exactly(seek: &SeekTcp, offset: usize, len: usize, position: usize) {
    let mut buf = vec![0; len];
    let n = seek
        .seek(
            At::Offset(offset as u64),
            &mut [IoSliceMut::new(&mut buf)],
            SeekFlags::default(),
            Deadline::NEVER,
        )
        .unwrap();
    assert_eq!(n, len);
    assert!(buf.iter().enumerate().all(|(at, b)| *b == byte(position + at)));
}

/// A range that lies further behind the head than the kernel would ever store: what lies before it moves
/// into library memory, and the sender goes on.
#[test]
fn a_range_beyond_the_receive_buffer_arrives() {
    for way in [Way::Peek, Way::Drain] {
        let mut stage = stage(way);
        let mut sender = stage.sender.take().unwrap();
        let total = 24 << 20;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                sender.set_nonblocking(false).unwrap();
                let bytes: Vec<u8> = (0..total).map(byte).collect();
                sender.write_all(&bytes).unwrap();
            });
            read_exactly(&stage.seek, total - 1000, 1000, total - 1000);
            read_exactly(&stage.seek, 5000, 100_000, 5000);
            let mut buf = vec![0; total];
            let mut received = 0;
            let mut position = 0;
            while received < total - 101_000 {
                match stage.seek.try_recv(&mut [IoSliceMut::new(&mut buf)], false) {
                    Ok(n) => {
                        for b in &buf[..n] {
                            if position == 5000 {
                                position += 100_000;
                            }
                            assert_eq!(*b, byte(position), "at {position}");
                            position += 1;
                        }
                        received += n;
                    }
                    Err(Errno::AGAIN) => {
                        stage.seek.wait(At::Offset(0), 1, Deadline::NEVER).unwrap();
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
}

/// Without memory to move it to, what lies before the range keeps it away: that is an error, not a hang.
#[test]
fn a_range_that_cannot_arrive_is_an_error() {
    let mut stage = stage(Way::Peek);
    let sender = stage.sender.take().unwrap();
    stage.seek = SeekTcp::by(Way::Peek, Fd::from(&stage._receiver.as_fd()), 0, 0);
    std::thread::scope(|scope| {
        let mut writer = sender.try_clone().unwrap();
        scope.spawn(move || {
            writer.set_nonblocking(false).unwrap();
            let _ = writer.write_all(&vec![7; 64 << 20]);
        });
        let mut buf = [0; 10];
        let result = stage.seek.seek(
            At::Offset(60 << 20),
            &mut [IoSliceMut::new(&mut buf)],
            SeekFlags::default(),
            Deadline::NEVER,
        );
        assert_eq!(result, Err(Errno::NOBUFS));
        // Nothing was lost: the head is still there.
        assert_eq!(stage.seek.try_recv(&mut [IoSliceMut::new(&mut buf)], false), Ok(10));
        sender.shutdown(std::net::Shutdown::Both).unwrap();
    });
}

#[test]
fn a_wait_ends_when_its_time_is_over() {
    let stage = stage(Way::Peek);
    let until = Deadline::after(Some(Duration::from_millis(1)));
    let mut buf = [0; 1];
    let result =
        stage
            .seek
            .seek(At::Offset(10), &mut [IoSliceMut::new(&mut buf)], SeekFlags::default(), &|| Ok(until));
    assert_eq!(result, Err(Errno::TIMEDOUT));
}
