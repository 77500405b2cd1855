//! Urgent data is not part of the stream, unless a later urgent byte overtakes it (tcp(7), RFC
//! 6093): whatever bytes seeks take, each byte of the stream comes once, in its place.

use std::collections::BTreeMap;
use std::io::{IoSliceMut, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use seekwire_transport::Errno;
use seekwire_transport::seek::{At, SeekMethod, SeekOptions, SeekTcp, cost};
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::poll::{self, Deadline, Events};

/// No byte of the stream has this value.
const URGENT: u8 = 255;

#[derive(Clone, Debug)]
enum Operation {
    Send(usize),
    Urgent,
    /// MSG_OOB: the mark stays where it is.
    ReceiveUrgent,
    Seek {
        offset: usize,
        len: usize,
        options: SeekOptions,
    },
    Receive(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (1usize..60).prop_map(Operation::Send),
        2 => Just(Operation::Urgent),
        1 => Just(Operation::ReceiveUrgent),
        5 => (0usize..80, 0usize..40, any::<(bool, bool)>()).prop_map(|(offset, len, (peek, partial))| {
            let options = SeekOptions::TAKE.peek(peek).partial(partial);
            Operation::Seek { offset, len, options }
        }),
        2 => (1usize..60).prop_map(Operation::Receive),
    ]
}

struct Model {
    sender: TcpStream,
    receiver: TcpStream,
    seek: SeekTcp,
    sent: usize,
    /// Bytes that were received or taken, and those that were peeked at, by position.
    gone: BTreeMap<u64, u8>,
    seen: BTreeMap<u64, u8>,
}

impl Model {
    fn new(method: SeekMethod) -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        sender.set_nodelay(true).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        let seek = SeekTcp::by(method, Fd::from(&receiver), 0, 1 << 20).ok()?;
        Some(Self { sender, receiver, seek, sent: 0, gone: BTreeMap::new(), seen: BTreeMap::new() })
    }

    fn head(&self) -> u64 {
        (0..).find(|position| !self.gone.contains_key(position)).unwrap()
    }

    fn got(&mut self, position: u64, byte: u8, stays: bool) {
        assert_eq!(*self.seen.entry(position).or_insert(byte), byte, "byte {position} has changed");
        if !stays {
            assert_eq!(self.gone.insert(position, byte), None, "byte {position} came twice");
        }
    }

    fn step(&mut self, operation: &Operation) {
        match *operation {
            Operation::Send(len) => {
                let bytes: Vec<u8> =
                    (self.sent..self.sent + len).map(|at| (at % 251) as u8).collect();
                self.sender.write_all(&bytes).unwrap();
                self.sent += len;
            }
            Operation::Urgent => {
                assert_eq!(send(&self.sender, &[URGENT], SendFlags::OOB), Ok(1));
            }
            Operation::ReceiveUrgent => drop(recv(&self.receiver, &mut [0; 1][..], RecvFlags::OOB)),
            Operation::Seek { offset, len, options } => {
                let position = self.head() + offset as u64;
                let mut buf = vec![0; len];
                let into = &mut [IoSliceMut::new(&mut buf)];
                match self.seek.try_seek(At::Offset(offset as u64), into, options) {
                    Ok(n) => {
                        (0..n).for_each(|at| self.got(position + at as u64, buf[at], options.peek))
                    }
                    Err(error) => assert!(matches!(error, Errno::AGAIN | Errno::NXIO), "{error:?}"),
                }
            }
            Operation::Receive(len) => drop(self.receive(len)),
        }
    }

    fn receive(&mut self, len: usize) -> Option<usize> {
        let mut buf = vec![0; len];
        match self.seek.try_recv(&mut [IoSliceMut::new(&mut buf)], false) {
            Ok(n) => {
                for byte in &buf[..n] {
                    self.got(self.head(), *byte, false);
                }
                Some(n)
            }
            Err(error) => {
                assert_eq!(error, Errno::AGAIN);
                None
            }
        }
    }

    fn finish(&mut self) {
        self.sender.shutdown(std::net::Shutdown::Write).unwrap();
        let hangup = Events { hangup: true, ..Events::default() };
        while !poll::look(Fd::from(&self.receiver), hangup).unwrap().hangup {
            std::thread::yield_now();
        }
        while self.receive(50) != Some(0) {}
        let stream: Vec<u8> = self.gone.values().copied().filter(|byte| *byte != URGENT).collect();
        let sent: Vec<u8> = (0..self.sent).map(|at| (at % 251) as u8).collect();
        assert_eq!(stream, sent);
    }
}

#[test]
fn urgent_bytes_do_not_move_others() {
    // The module has them in the stream.
    for method in [SeekMethod::Peek, SeekMethod::Drain] {
        if Model::new(method).is_none() {
            continue;
        }
        let mut runner =
            TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
        let operations = prop::collection::vec(operation(), 1..60);
        let outcome = runner.run(&(Just(method), operations), |(method, operations)| {
            cost::set_switch(0);
            let mut model = Model::new(method).unwrap();
            operations.iter().for_each(|operation| model.step(operation));
            model.finish();
            Ok(())
        });
        outcome.unwrap();
    }
}

#[test]
fn an_offset_beyond_all_that_can_be_there_has_not_arrived() {
    for method in SeekMethod::ALL {
        let Some(mut model) = Model::new(method) else { continue };
        model.step(&Operation::Send(10));
        let seek = |model: &Model, offset| {
            model.seek.try_seek(
                At::Offset(offset),
                &mut [IoSliceMut::new(&mut [0; 5])],
                SeekOptions::TAKE,
            )
        };
        let far = [1 << 30, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, i64::MAX as u64];
        for offset in far {
            assert_eq!(seek(&model, offset), Err(Errno::AGAIN), "{method}, {offset}");
        }
        model.finish();
        for offset in far {
            assert_eq!(seek(&model, offset), Ok(0), "{method}, {offset}");
        }
    }
}

#[test]
fn who_waits_for_bytes_behind_an_urgent_one_gets_them() {
    for method in [SeekMethod::Peek, SeekMethod::Drain] {
        let Some(mut model) = Model::new(method) else { continue };
        cost::set_switch(0);
        [Operation::Send(10), Operation::Urgent, Operation::Send(60)]
            .iter()
            .for_each(|now| model.step(now));
        std::thread::scope(|scope| {
            let seek = &model.seek;
            let waiter = scope.spawn(move || {
                let mut buf = [0; 20];
                let until = || Ok(Deadline::after(Some(Duration::from_secs(60))));
                let n = seek.seek(
                    At::Offset(60),
                    &mut [IoSliceMut::new(&mut buf)],
                    SeekOptions::TAKE,
                    &until,
                );
                assert_eq!(n, Ok(20));
                buf
            });
            model.sender.write_all(&(70..90).collect::<Vec<u8>>()).unwrap();
            assert!(waiter.join().unwrap().into_iter().eq(60..80));
        });
    }
}
