//! Seeking on a connection whose carriers change: against a model of the stream, every byte
//! compared.

use std::io::{IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use seekwire::{
    At, Errno, Listener, LoanBytes, Reason, Role, SeekOptions, SeekSocket as _, Stream,
};
use seekwire_endpoint::{Connection, LoanPiece, RecvFlags, SendFlags};
use seekwire_transport::sys::Fd;

const LONG: Duration = Duration::from_secs(120);
const NOW: RecvFlags = RecvFlags { dont_wait: true, peek: false, wait_all: false, truncate: false };
/// Fits into every first receive buffer, and into the ring.
const IN_FLIGHT: usize = 50_000;

#[derive(Clone, Debug)]
enum Operation {
    Send(usize),
    Seek { offset: usize, len: usize, options: SeekOptions },
    Receive { len: usize, peek: bool },
    Lend { offset: usize, len: usize },
    ReturnLoan,
    Unread,
    Upgrade,
    BackToTcp,
    End,
}

fn operation() -> impl Strategy<Value = Operation> {
    let size = || prop_oneof![4 => 1usize..100, 3 => 100usize..5000, 1 => 5000usize..20_000];
    let offset = || prop_oneof![1 => Just(0usize), 3 => 1usize..300, 3 => 300usize..20_000];
    let skip = || prop_oneof![3 => Just(0u64), 1 => 1u64..100, 1 => 100u64..5000];
    prop_oneof![
        60 => size().prop_map(Operation::Send),
        60 => (offset(), size(), skip(), any::<(bool, bool)>(), prop::bool::weighted(0.05)).prop_map(
            |(offset, len, skip, (peek, partial), bulk)| {
                let options = SeekOptions::TAKE.peek(peek).partial(partial).skip(skip).bulk(bulk);
                Operation::Seek { offset, len, options }
            },
        ),
        35 => (size(), any::<bool>()).prop_map(|(len, peek)| Operation::Receive { len, peek }),
        15 => (offset(), size()).prop_map(|(offset, len)| Operation::Lend { offset, len }),
        15 => Just(Operation::ReturnLoan),
        10 => Just(Operation::Unread),
        6 => Just(Operation::Upgrade),
        1 => Just(Operation::BackToTcp),
        1 => Just(Operation::End),
    ]
}

static OPERATIONS: AtomicU64 = AtomicU64::new(0);

fn byte(position: usize) -> u8 {
    (position.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

struct Ends {
    _sockets: (TcpStream, TcpStream),
    from: Connection,
    to: Connection,
    gone: Vec<bool>,
    ended: bool,
    pieces: Vec<(LoanPiece, usize)>,
    crossed: u32,
}

impl Ends {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        a.set_nodelay(true).unwrap();
        let (b, _) = listener.accept().unwrap();
        let from = Connection::new(Fd::from(&a), Role::Connected);
        let to = Connection::new(Fd::from(&b), Role::Accepted);
        Self {
            _sockets: (a, b),
            from,
            to,
            gone: Vec::new(),
            ended: false,
            pieces: Vec::new(),
            crossed: 0,
        }
    }

    fn head(&self) -> usize {
        self.gone.iter().position(|gone| !gone).unwrap_or(self.gone.len())
    }

    fn send(&mut self, len: usize) {
        let bytes: Vec<u8> = (self.gone.len()..self.gone.len() + len).map(byte).collect();
        let flags = SendFlags { no_signal: true, dont_wait: true, ..SendFlags::default() };
        let before = self.from.tx_on_ring();
        let sent = match self.from.enter_plain() {
            Some(bracket) => {
                let n = (&self._sockets.0).write(&bytes).unwrap();
                bracket.sent(n);
                n
            }
            None => match self.from.send(&[IoSlice::new(&bytes)], flags) {
                Err(Errno::AGAIN) => 0,
                sent => sent.unwrap(),
            },
        };
        self.crossed += u32::from(before != self.from.tx_on_ring());
        self.gone.resize(self.gone.len() + sent, false);
        // Loopback delivers within the sender's system call, except bytes that wait for an
        // acknowledgement. Bytes on the other carrier stay invisible until all bytes before them
        // have been received.
        let last = At::Position(self.gone.len() as u64 - 1);
        let mut one = [0];
        let look = SeekOptions::PEEK;
        while !self.gone.is_empty()
            && !self.gone.last().unwrap()
            && self.to.seek(&mut [IoSliceMut::new(&mut one)], last, look, true) == Err(Errno::AGAIN)
        {
            std::thread::yield_now();
        }
    }

    fn step(&mut self, operation: &Operation) {
        OPERATIONS.fetch_add(1, Ordering::Relaxed);
        let head = self.head();
        match *operation {
            Operation::Send(len) => {
                if !self.ended && self.gone.len() - head < IN_FLIGHT {
                    self.send(len);
                }
            }
            Operation::Seek { offset, len, options } => {
                let mut buf = vec![0; len];
                let result = self.to.seek(
                    &mut [IoSliceMut::new(&mut buf)],
                    At::Offset(offset as u64),
                    options,
                    true,
                );
                let begin = head + offset;
                let start = begin + options.skip as usize;
                let hole = (begin..(start + len).min(self.gone.len())).find(|at| self.gone[*at]);
                let end =
                    hole.filter(|hole| options.partial && *hole > start).unwrap_or(start + len);
                if hole.is_some_and(|hole| hole < end) {
                    assert_eq!(result, Err(Errno::NXIO));
                    return;
                }
                let there = end.min(self.gone.len()).saturating_sub(start);
                if !self.ended && (there == 0 || (there < end - start && !options.partial)) {
                    assert_eq!(result, Err(Errno::AGAIN));
                    return;
                }
                let n = result.unwrap();
                // A partial receive may end where a carrier does.
                assert!(n == there || (options.partial && 0 < n && n < there), "{n} of {there}");
                assert!(buf[..n].iter().enumerate().all(|(at, b)| *b == byte(start + at)));
                if !options.peek && n > 0 {
                    self.gone[begin..start + n].fill(true);
                }
            }
            Operation::Receive { len, peek } => {
                let mut buf = vec![0; len];
                let result = self.receive(&mut buf, peek);
                let live: Vec<usize> =
                    (head..self.gone.len()).filter(|at| !self.gone[*at]).take(len).collect();
                if live.is_empty() {
                    assert_eq!(result, if self.ended { Ok(0) } else { Err(Errno::AGAIN) });
                    return;
                }
                let n = result.unwrap();
                assert!(n > 0 && n <= live.len());
                for (b, at) in buf[..n].iter().zip(&live) {
                    assert_eq!(*b, byte(*at));
                    self.gone[*at] |= !peek;
                }
            }
            Operation::Lend { offset, len } => {
                let start = head + offset;
                if start + len > self.gone.len()
                    || self.gone[start..start + len].iter().any(|gone| *gone)
                {
                    return;
                }
                let mut at = start;
                for piece in self.to.seek_lend(At::Offset(offset as u64), len, true).unwrap() {
                    let n = match &piece {
                        LoanPiece::Segment(loan) => loan.len,
                        LoanPiece::Copy(copy) => copy.len(),
                    };
                    self.gone[at..at + n].fill(true);
                    self.pieces.push((piece, at));
                    at += n;
                }
                assert_eq!(at, start + len);
            }
            Operation::ReturnLoan => {
                let Some((piece, at)) = self.pieces.pop() else { return };
                match piece {
                    LoanPiece::Copy(copy) => {
                        assert!(copy.iter().enumerate().all(|(i, b)| *b == byte(at + i)));
                    }
                    LoanPiece::Segment(loan) => {
                        let bytes = self.to.loan_bytes(&loan);
                        assert!(!bytes.is_empty());
                        let right = |(i, b): (usize, &std::sync::atomic::AtomicU8)| {
                            b.load(Ordering::Relaxed) == byte(at + i)
                        };
                        assert!(bytes.iter().enumerate().all(right), "the lent bytes have changed");
                        self.to.return_loan(loan).unwrap();
                        assert_eq!(self.to.return_loan(loan), Err(Errno::INVAL));
                    }
                }
            }
            Operation::Unread => {
                // Counts the bytes of at least one carrier, and never counts holes.
                let live = (head..self.gone.len()).filter(|at| !self.gone[*at]).count();
                let unread = self.to.unread().unwrap();
                assert!(unread <= live && (unread > 0) == (live > 0), "{unread} of {live}");
            }
            Operation::Upgrade => {
                for _ in 0..4 {
                    if !self.ended && !self.from.is_attached() {
                        // Each end processes the other's last message.
                        drop(self.to.enter_plain());
                        drop(self.from.enter_plain());
                        self.traffic();
                    }
                }
            }
            Operation::BackToTcp => self.from.fall_back(Reason::Forced).unwrap(),
            Operation::End => {
                if !std::mem::replace(&mut self.ended, true) {
                    self.from.shutdown(std::net::Shutdown::Write).unwrap();
                    let end = At::Position(self.gone.len() as u64);
                    let look = SeekOptions::PEEK;
                    let mut one = [0];
                    while self.to.seek(&mut [IoSliceMut::new(&mut one)], end, look, true)
                        == Err(Errno::AGAIN)
                    {
                        std::thread::yield_now();
                    }
                }
            }
        }
    }

    /// Makes calls that move no bytes but count towards the threshold.
    fn traffic(&self) {
        for connection in [&self.from, &self.to] {
            for _ in 0..10 {
                if let Some(bracket) = connection.enter_plain() {
                    bracket.sent(0);
                }
            }
        }
    }

    fn receive(&self, buf: &mut [u8], peek: bool) -> Result<usize, Errno> {
        match self.to.enter_plain_to_receive() {
            Some(bracket) => {
                let mut socket = &self._sockets.1;
                socket.set_nonblocking(true).unwrap();
                let result = if peek { socket.peek(buf) } else { socket.read(buf) };
                socket.set_nonblocking(false).unwrap();
                let n = result.map_err(|error| Errno::from_io_error(&error).unwrap())?;
                bracket.received(if peek { 0 } else { n });
                Ok(n)
            }
            None => self.to.recv(&mut [IoSliceMut::new(buf)], RecvFlags { peek, ..NOW }),
        }
    }
}

#[test]
fn every_carrier_agrees_with_the_model() {
    let mut runner =
        TestRunner::new(Config { cases: 250, failure_persistence: None, ..Config::default() });
    let attached = AtomicU64::new(0);
    let crossed = AtomicU64::new(0);
    let outcome = runner.run(&prop::collection::vec(operation(), 1..150), |operations| {
        let mut ends = Ends::new();
        for operation in &operations {
            ends.step(operation);
        }
        while !ends.pieces.is_empty() {
            ends.step(&Operation::ReturnLoan);
        }
        while ends.head() < ends.gone.len() {
            ends.step(&Operation::Receive { len: 10_000, peek: false });
        }
        attached.fetch_add(ends.to.is_attached().into(), Ordering::Relaxed);
        crossed.fetch_add(ends.crossed.into(), Ordering::Relaxed);
        Ok(())
    });
    outcome.unwrap();
    let (attached, crossed) = (attached.into_inner(), crossed.into_inner());
    let operations = OPERATIONS.load(Ordering::Relaxed);
    eprintln!(
        "{operations} operations, {attached} connections attached, {crossed} changes of carrier"
    );
    assert!(operations > 10_000 && attached > 50 && crossed > 50);
}

fn pair(upgrade: bool) -> (Stream, Stream) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let client = Stream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    if upgrade {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| client.upgrade(LONG).unwrap());
            assert!(server.upgrade(LONG).unwrap());
            assert!(client.join().unwrap());
        });
    }
    (client, server)
}

/// Messages A, B and C; B is wanted first.
#[test]
fn the_papers_scenario() {
    for upgrade in [false, true] {
        let (mut client, server) = pair(upgrade);
        let message = |byte| [byte; 5000];
        for byte in *b"ABC" {
            client.write_all(&message(byte)).unwrap();
        }
        let mut buf = message(0);
        assert_eq!(server.seek_recv(&mut buf, 5000).unwrap(), 5000);
        assert_eq!(buf, message(b'B'));
        assert_eq!(server.holes().unwrap().len(), 1);
        assert_eq!(
            server.try_seek_recv(&mut buf, 2000).unwrap_err().raw_os_error(),
            Some(6),
            "ENXIO"
        );
        for byte in *b"AC" {
            (&server).read_exact(&mut buf).unwrap();
            assert_eq!(buf, message(byte));
        }
        assert_eq!(server.extent().unwrap().head, 15_000);
    }
}

#[test]
fn what_is_borrowed_lies_in_the_ring() {
    let (mut client, server) = pair(true);
    client.write_all(&[1; 100_000]).unwrap();
    let loan = server.seek_borrow(At::Offset(40_000), 50_000).unwrap();
    assert_eq!(loan.len(), 50_000);
    assert!(loan.pieces().all(|piece| matches!(piece, LoanBytes::Shared(_))));
    let mut rest = vec![0; 50_000];
    (&server).read_exact(&mut rest).unwrap();
    assert!(rest.iter().all(|byte| *byte == 1));
    let mut copy = vec![0; 50_000];
    assert_eq!(loan.copy_to(&mut copy), 50_000);
    assert!(copy.iter().all(|byte| *byte == 1));
}

/// Bytes that a call waited for are also lent in place. Only the end of the message, which lies
/// between the descriptors, is copied.
#[test]
fn what_is_borrowed_before_it_comes_lies_in_the_ring() {
    for sent_before in [0, 10_000] {
        let (mut client, server) = pair(true);
        let len = (64 << 10) + 100;
        client.write_all(&vec![1; sent_before]).unwrap();
        std::thread::scope(|scope| {
            let (ids, started) = std::sync::mpsc::channel();
            let server = &server;
            let borrower = scope.spawn(move || {
                ids.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
                let loan = server.seek_borrow(At::Offset(10_000), len).unwrap();
                let shared = |piece: &LoanBytes<'_>| matches!(piece, LoanBytes::Shared(_));
                assert_eq!(
                    loan.pieces().filter(shared).map(|piece| piece.len()).sum::<usize>(),
                    64 << 10
                );
                let mut copy = vec![0; len];
                assert_eq!((loan.copy_to(&mut copy), loan.len()), (len, len));
                assert!(copy.iter().all(|byte| *byte == 2));
            });
            until_asleep(&started.recv().unwrap());
            client.write_all(&vec![1; 10_000 - sent_before]).unwrap();
            client.write_all(&vec![2; len]).unwrap();
            borrower.join().unwrap();
        });
        let mut rest = vec![0; 10_000];
        (&server).read_exact(&mut rest).unwrap();
        assert!(rest.iter().all(|byte| *byte == 1));
    }
}

/// One thread waits in an ordinary read, others wait for later messages.
#[test]
fn a_reader_and_seekers_wait_at_once() {
    const LEN: usize = 30_000;
    for upgrade in [false, true] {
        for _ in 0..20 {
            let (mut client, server) = pair(upgrade);
            std::thread::scope(|scope| {
                let server = &server;
                for n in 1..4u8 {
                    scope.spawn(move || {
                        let mut buf = vec![0; LEN];
                        let bufs = &mut [IoSliceMut::new(&mut buf)];
                        let at = At::Position(u64::from(n) * LEN as u64);
                        let taken = server.seek_recv_vectored(bufs, at, SeekOptions::TAKE).unwrap();
                        assert_eq!(taken, LEN);
                        assert!(buf.iter().all(|byte| *byte == n));
                    });
                }
                // If the others have not begun yet, the reader may sleep in the kernel. Nothing is
                // lost either way.
                let reader = scope.spawn(move || {
                    let mut buf = vec![0; 100];
                    let n = (&mut &*server).read(&mut buf).unwrap();
                    assert!(buf[..n].iter().all(|byte| *byte == 0));
                    n
                });
                client.write_all(&[0; 100]).unwrap();
                let read = reader.join().unwrap();
                client.write_all(&vec![0; LEN - 100]).unwrap();
                for n in 1..4u8 {
                    client.write_all(&vec![n; LEN]).unwrap();
                }
                let mut rest = vec![1; LEN - read];
                (&mut &*server).read_exact(&mut rest).unwrap();
                assert!(rest.iter().all(|byte| *byte == 0));
            });
            assert_eq!(server.extent().unwrap().head, 4 * LEN as u64);
        }
    }
}

#[test]
fn more_than_the_ring_holds_can_lie_before_what_is_wanted() {
    for upgrade in [false, true] {
        let (client, server) = pair(upgrade);
        let total = 20 << 20;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let bytes: Vec<u8> = (0..total).map(byte).collect();
                (&mut &client).write_all(&bytes).unwrap();
            });
            let mut buf = vec![0; 1000];
            assert_eq!(server.seek_recv(&mut buf, (total - 1000) as u64).unwrap(), 1000);
            assert!(buf.iter().enumerate().all(|(at, b)| *b == byte(total - 1000 + at)));
            let mut rest = vec![0; total - 1000];
            (&mut &server).read_exact(&mut rest).unwrap();
            assert!(rest.iter().enumerate().all(|(at, b)| *b == byte(at)));
        });
    }
}

/// Bytes that went by TCP are still unread when the sender already uses the ring. The kernel may
/// have delivered more of them than the head has passed.
#[test]
fn holes_in_what_came_by_tcp_do_not_keep_from_the_ring() {
    let (mut client, server) = pair(false);
    client.write_all(&[1; 50_000]).unwrap();
    // Large enough to be taken in place.
    assert_eq!(server.seek_recv(&mut [0; 20_000], 25_000).unwrap(), 20_000);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| client.upgrade(LONG).unwrap());
        assert!(server.upgrade(LONG).unwrap());
        assert!(client.join().unwrap());
    });
    client.write_all(&[2; 1000]).unwrap();
    let mut rest = vec![0; 31_000];
    (&server).read_exact(&mut rest).unwrap();
    assert!(
        rest[..30_000].iter().all(|byte| *byte == 1)
            && rest[30_000..].iter().all(|byte| *byte == 2)
    );
    assert_eq!(server.status().unwrap().totals.rx_ring, 1000);
}

#[test]
fn what_came_by_tcp_before_the_ring_is_borrowed_as_a_copy() {
    let (mut client, server) = pair(false);
    client.write_all(&[1; 1000]).unwrap();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| client.upgrade(LONG).unwrap());
        assert!(server.upgrade(LONG).unwrap());
        assert!(client.join().unwrap());
    });
    client.write_all(&[2; 50_000]).unwrap();
    for (at, byte) in [(500, 1), (20_000, 2), (0, 1)] {
        let mut copy = [0; 500];
        let loan = server.seek_borrow(At::Position(at), 500).unwrap();
        assert_eq!(loan.copy_to(&mut copy), 500);
        assert_eq!(copy, [byte; 500]);
    }
}

/// Yields until a thread is asleep or has ended.
fn until_asleep(thread: &std::path::Path) {
    let stat = std::path::Path::new("/proc").join(thread).join("stat");
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") S")) {
        std::thread::yield_now();
    }
}

/// Several threads sleep for ranges, and the last range is sent first. No more is sent until they
/// have theirs.
#[test]
fn a_waiter_for_more_does_not_hold_up_one_for_less() {
    for upgrade in [false, true] {
        let (mut client, server) = pair(upgrade);
        server.set_read_timeout(Some(LONG)).unwrap();
        let server = &server;
        std::thread::scope(|scope| {
            let (ids, started) = std::sync::mpsc::channel();
            let take = |at, len: usize| {
                let ids = ids.clone();
                move || {
                    let mut buf = vec![0; len];
                    ids.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
                    let bufs = &mut [IoSliceMut::new(&mut buf)];
                    server.seek_recv_vectored(bufs, At::Position(at), SeekOptions::TAKE).unwrap()
                }
            };
            let more = scope.spawn(take(100, 10_000));
            until_asleep(&started.recv().unwrap());
            let less = scope.spawn(take(0, 50));
            until_asleep(&started.recv().unwrap());
            let least = scope.spawn(take(50, 1));
            until_asleep(&started.recv().unwrap());
            client.write_all(&[1; 51]).unwrap();
            assert_eq!((least.join().unwrap(), less.join().unwrap()), (1, 50));
            client.write_all(&[1; 10_049]).unwrap();
            assert_eq!(more.join().unwrap(), 10_000);
        });
    }
}

/// A reset after a receive that returned some bytes must not be lost.
#[test]
fn a_reset_behind_some_bytes_is_said_by_the_next_receive() {
    for drained in [false, true] {
        let (mut client, server) = pair(false);
        client.write_all(&[1; 100]).unwrap();
        assert_eq!(server.seek_recv(&mut [0; 10], 50).unwrap(), 10);
        if drained {
            server.make_room().unwrap();
        }
        client.set_nodelay(true).unwrap();
        (&server).write_all(b"unread").unwrap();
        client.wait_readable(Some(LONG)).unwrap();
        drop(client);
        let mut buf = [0; 200];
        let mut got = 0;
        let error = loop {
            match (&server).read(&mut buf) {
                Ok(0) => panic!("an orderly end"),
                Ok(n) => got += n,
                Err(error) => break error,
            }
        };
        assert_eq!((got, error.kind()), (90, std::io::ErrorKind::ConnectionReset));
    }
}

/// The doorbell that rings for bytes at the head also wakes a thread that needs other bytes and
/// goes back to sleep.
#[test]
fn who_sleeps_for_the_middle_does_not_silence_the_doorbell_for_who_watches_the_head() {
    let (mut client, server) = pair(true);
    server.set_read_timeout(Some(LONG)).unwrap();
    let server = &server;
    std::thread::scope(|scope| {
        let (ids, started) = std::sync::mpsc::channel();
        let name = || std::fs::read_link("/proc/thread-self").unwrap();
        let to_seeker = ids.clone();
        let seeker = scope.spawn(move || {
            to_seeker.send(name()).unwrap();
            server.seek_recv(&mut [0; 10_000], 100_000).unwrap()
        });
        until_asleep(&started.recv().unwrap());
        for round in 0..200 {
            let ids = ids.clone();
            let watcher = scope.spawn(move || {
                ids.send(name()).unwrap();
                server.wait_readable(Some(LONG)).unwrap()
            });
            until_asleep(&started.recv().unwrap());
            client.write_all(&[1; 10]).unwrap();
            assert!(watcher.join().unwrap(), "round {round}");
            assert_eq!((&mut &*server).read(&mut [0; 20]).unwrap(), 10);
        }
        client.write_all(&[1; 110_000]).unwrap();
        assert_eq!(seeker.join().unwrap(), 10_000);
    });
}
