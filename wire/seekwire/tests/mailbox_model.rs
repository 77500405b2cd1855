//! Compares mailboxes with MPI's matching, modelled as two plain lists that are searched from the
//! front. Every byte is checked.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use seekwire::mailbox::{Completed, Limits, Mailbox, RecvError, Selector, Ticket};
use seekwire::{At, Extent, SeekError, SeekOptions, SeekSocket, SeekStream};

use crate::content::content;

/// A tag that is never sent.
const NEVER: Selector = Selector { tag: 1 << 40, mask: u64::MAX };

#[derive(Clone, Copy, Debug)]
enum Operation {
    Send { tag: u64, len: usize },
    Receive { selector: Selector, room: usize },
    ReceiveVec(Selector),
    Probe(Selector),
    Post { selector: Selector, room: usize },
    Test(u8),
    Cancel(u8),
}

fn selector() -> impl Strategy<Value = Selector> {
    let mask = prop_oneof![3 => Just(u64::MAX), 1 => Just(0), 1 => Just(1), 1 => Just(6)];
    (0u64..6, mask).prop_map(|(tag, mask)| Selector { tag, mask })
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![3 => 0usize..40, 3 => 0usize..3000, 1 => 2020usize..2060, 1 => 0usize..20_000]
}

fn room() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(20_000usize), 1 => 0usize..3000]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        10 => (0u64..6, len()).prop_map(|(tag, len)| Operation::Send { tag, len }),
        4 => (selector(), room()).prop_map(|(selector, room)| Operation::Receive { selector, room }),
        2 => selector().prop_map(Operation::ReceiveVec),
        1 => selector().prop_map(Operation::Probe),
        4 => (selector(), room()).prop_map(|(selector, room)| Operation::Post { selector, room }),
        3 => any::<u8>().prop_map(Operation::Test),
        1 => any::<u8>().prop_map(Operation::Cancel),
    ]
}

/// A message in the model.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Message {
    tag: u64,
    len: usize,
    sequence: u32,
}

impl Message {
    fn body(self) -> Vec<u8> {
        content(self.sequence.into(), self.len)
    }
}

/// The state of a posted receive in the model.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Waits,
    Got(Message),
    TooSmall(usize),
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    ticket: Ticket,
    selector: Selector,
    room: usize,
    fate: Fate,
}

#[derive(Default)]
struct Model {
    unexpected: Vec<Message>,
    posted: Vec<Posted>,
}

impl Model {
    fn arrive(&mut self, message: Message) {
        for posted in &mut self.posted {
            if matches!(posted.fate, Fate::Waits) && posted.selector.matches(message.tag) {
                if posted.room >= message.len {
                    posted.fate = Fate::Got(message);
                    return;
                }
                posted.fate = Fate::TooSmall(message.len);
            }
        }
        self.unexpected.push(message);
    }

    fn find(&self, selector: Selector) -> Option<usize> {
        self.unexpected.iter().position(|message| selector.matches(message.tag))
    }

    fn post(&mut self, ticket: Ticket, selector: Selector, room: usize) {
        let fate = match self.find(selector) {
            None => Fate::Waits,
            Some(at) if self.unexpected[at].len > room => Fate::TooSmall(self.unexpected[at].len),
            Some(at) => Fate::Got(self.unexpected.remove(at)),
        };
        self.posted.push(Posted { ticket, selector, room, fate });
    }
}

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let left = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let right = listener.accept().unwrap().0;
    left.set_nodelay(true).unwrap();
    right.set_nodelay(true).unwrap();
    (left, right)
}

/// Runs both ends in one thread, so that it is known which messages have arrived.
fn step_by_step(operations: Vec<Operation>) -> Result<(), TestCaseError> {
    let (left, right) = streams();
    let (left, right) = (Mailbox::from_tcp(left).unwrap(), Mailbox::from_tcp(right).unwrap());
    let mut model = Model::default();
    let (mut sent, mut bytes) = (0u32, 8u64);
    let mut outstanding = 0;
    for operation in operations {
        match operation {
            // More might not fit into the socket's buffers while nobody receives.
            Operation::Send { len, .. } if outstanding + len > 60_000 => {}
            Operation::Send { tag, len } => {
                let message = Message { tag, len, sequence: sent };
                left.send(tag, &message.body()).unwrap();
                (sent, bytes) = (sent + 1, bytes + 16 + len as u64);
                while right.get_ref().extent().unwrap().arrived < bytes {
                    right.get_ref().wait_seek(At::Position(bytes - 1), 1, None).unwrap();
                }
                model.arrive(message);
            }
            Operation::Receive { selector, room } => {
                let mut buffer = vec![0; room];
                match (right.try_recv(selector, &mut buffer), model.find(selector)) {
                    (Ok(None), None) => {}
                    (Err(RecvError::TooSmall { needed, .. }), Some(at)) => {
                        prop_assert!(needed == model.unexpected[at].len && needed > room);
                    }
                    (Ok(Some(envelope)), Some(at)) => {
                        let message = model.unexpected.remove(at);
                        prop_assert_eq!(
                            (envelope.tag, envelope.sequence),
                            (message.tag, message.sequence)
                        );
                        prop_assert!(buffer[..envelope.len] == message.body());
                    }
                    (result, at) => prop_assert!(false, "{result:?}, {at:?}"),
                }
            }
            Operation::ReceiveVec(selector) => {
                if let Some(at) = model.find(selector) {
                    let (envelope, received) = right.recv_vec(selector).unwrap();
                    let message = model.unexpected.remove(at);
                    prop_assert_eq!(
                        (envelope.tag, envelope.sequence),
                        (message.tag, message.sequence)
                    );
                    prop_assert!(received == message.body());
                }
            }
            Operation::Probe(selector) => {
                let envelope = right.probe(selector).unwrap();
                let found =
                    envelope.map(|e| Message { tag: e.tag, len: e.len, sequence: e.sequence });
                prop_assert_eq!(found, model.find(selector).map(|at| model.unexpected[at]));
            }
            Operation::Post { selector, room } => {
                let ticket = right.post(selector, vec![0; room]);
                model.post(ticket, selector, room);
            }
            Operation::Test(which) if !model.posted.is_empty() => {
                let which = usize::from(which) % model.posted.len();
                let posted = model.posted[which];
                match (right.test(posted.ticket), posted.fate) {
                    (Ok(None), Fate::Waits) => {}
                    (Ok(Some(completed)), Fate::Got(message)) => {
                        check(&completed, message, posted.room)?;
                        model.posted.remove(which);
                    }
                    (Err(RecvError::TooSmall { needed, room }), Fate::TooSmall(len)) => {
                        prop_assert_eq!((needed, room), (len, posted.room));
                    }
                    (result, fate) => prop_assert!(false, "{result:?}, {fate:?}"),
                }
            }
            Operation::Cancel(which) if !model.posted.is_empty() => {
                // Probing makes the mailbox look at all messages: otherwise it is unspecified
                // whether a message has been matched.
                prop_assert_eq!(right.probe(NEVER).unwrap(), None);
                let which = usize::from(which) % model.posted.len();
                let posted = model.posted[which];
                let buffer = right.cancel(posted.ticket);
                prop_assert_eq!(buffer.is_none(), matches!(posted.fate, Fate::Got(_)));
                if let Some(buffer) = buffer {
                    prop_assert_eq!(buffer.len(), posted.room);
                    model.posted.remove(which);
                }
            }
            Operation::Test(_) | Operation::Cancel(_) => {}
        }
        outstanding = model.unexpected.iter().map(|message| message.len).sum::<usize>()
            + model
                .posted
                .iter()
                .map(|posted| if let Fate::Got(m) = posted.fate { m.len } else { 0 })
                .sum::<usize>();
    }
    for posted in std::mem::take(&mut model.posted) {
        if let Fate::Got(message) = posted.fate {
            check(&right.wait(posted.ticket).unwrap(), message, posted.room)?;
        } else {
            let _ = right.test(posted.ticket);
            prop_assert!(right.cancel(posted.ticket).is_some());
        }
    }
    left.finish().unwrap();
    for message in model.unexpected {
        prop_assert!(right.recv_vec(Selector::ANY).unwrap().1 == message.body());
    }
    prop_assert!(matches!(right.recv_vec(Selector::ANY), Err(RecvError::Closed)));
    let extent = right.get_ref().extent().unwrap();
    drop(right);
    prop_assert_eq!(extent.arrived, bytes);
    Ok(())
}

fn check(completed: &Completed, message: Message, room: usize) -> Result<(), TestCaseError> {
    let envelope = completed.envelope;
    prop_assert_eq!((envelope.tag, envelope.sequence), (message.tag, message.sequence));
    prop_assert!(completed.bytes() == message.body());
    prop_assert_eq!(completed.buffer.len(), room);
    Ok(())
}

/// A stream that returns fewer bytes than there are, and wakes up spuriously, as the trait allows.
struct Reluctant {
    stream: SeekStream,
    /// Also returns `NoRoom` from waits at random.
    starves: bool,
    random: AtomicU64,
}

impl Reluctant {
    fn new(stream: TcpStream, seed: u64, starves: bool) -> Self {
        Self { stream: SeekStream::new(stream), starves, random: AtomicU64::new(seed | 1) }
    }

    fn random(&self, below: usize) -> usize {
        let next = |x: u64| {
            Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
        };
        let before = self.random.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap();
        (before >> 33) as usize % below
    }
}

impl SeekSocket for Reluctant {
    fn try_seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
    ) -> Result<usize, SeekError> {
        match into.first_mut() {
            Some(first) if options.partial && !first.is_empty() && self.random(2) == 0 => {
                let most = 1 + self.random(first.len().min(40_000));
                self.stream.try_seek(at, &mut [IoSliceMut::new(&mut first[..most])], options)
            }
            _ => self.stream.try_seek(at, into, options),
        }
    }

    fn wait_seek(&self, at: At, len: u64, timeout: Option<Duration>) -> Result<(), SeekError> {
        match self.random(4) {
            1.. if self.starves => Err(SeekError::NoRoom),
            0 if !self.starves => Ok(()),
            1 => Err(seekwire::Errno::INTR.into()),
            _ => self.stream.wait_seek(at, len, timeout),
        }
    }

    fn try_send(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let first = &from[0];
        match self.random(4) {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            1 => self.stream.try_send(&[IoSlice::new(&first[..1 + self.random(first.len())])]),
            _ => self.stream.try_send(from),
        }
    }

    fn make_room(&self) -> Result<(), SeekError> {
        self.stream.make_room()
    }

    fn wait_send(&self, timeout: Option<Duration>) -> io::Result<()> {
        if self.random(4) == 0 { Ok(()) } else { self.stream.wait_send(timeout) }
    }

    fn extent(&self) -> Result<Extent, SeekError> {
        self.stream.extent()
    }
}

/// An action of the receiver while the sender runs by itself.
#[derive(Clone, Copy, Debug)]
enum Want {
    Receive(Selector),
    Try(Selector),
    Post(Selector),
    Wait(u8),
}

fn want() -> impl Strategy<Value = Want> {
    prop_oneof![
        5 => selector().prop_map(Want::Receive),
        2 => selector().prop_map(Want::Try),
        2 => selector().prop_map(Want::Post),
        2 => any::<u8>().prop_map(Want::Wait),
    ]
}

fn script() -> impl Strategy<Value = Vec<(u64, usize)>> {
    let len = prop_oneof![6 => 0usize..100, 2 => 0usize..5000, 2 => 0usize..200_000, 1 => 500_000usize..1_500_000];
    prop::collection::vec((0u64..6, len), 1..200)
}

/// The sender runs ahead or lags behind; which receive gets which message does not depend on that.
fn side_by_side<S: SeekSocket>(
    script: &[(u64, usize)],
    wants: Vec<Want>,
    left: Mailbox<S>,
    right: Mailbox<S>,
) -> Result<(), TestCaseError> {
    const ROOM: usize = 1_500_000;
    let messages: Vec<Message> = script
        .iter()
        .zip(0..)
        .map(|(&(tag, len), sequence)| Message { tag, len, sequence })
        .collect();
    std::thread::scope(|scope| {
        // Dropped if the test fails, so that the sender also ends.
        let right = right;
        let (left, messages) = (&left, &messages);
        let sender = scope.spawn(move || {
            for message in messages {
                left.send(message.tag, &message.body())?;
            }
            left.flush()
        });
        let mut model = Model { unexpected: messages.clone(), posted: Vec::new() };
        let mut buffer = vec![0; ROOM];
        let wants = wants.into_iter().chain((0..script.len()).map(|_| Want::Wait(0)));
        // The remaining messages are received in the order of arrival.
        for want in wants.chain((0..script.len()).map(|_| Want::Receive(Selector::ANY))) {
            let selector = match want {
                Want::Post(selector) => {
                    if model.find(selector).is_some() && model.posted.len() < 20 {
                        model.post(right.post(selector, vec![0; ROOM]), selector, ROOM);
                    }
                    continue;
                }
                Want::Wait(which) => {
                    if model.posted.is_empty() {
                        continue;
                    }
                    let which = usize::from(which) % model.posted.len();
                    let posted = model.posted.remove(which);
                    let Fate::Got(message) = posted.fate else {
                        unreachable!("only those are posted")
                    };
                    loop {
                        match right.wait(posted.ticket) {
                            Ok(completed) => break check(&completed, message, ROOM)?,
                            Err(RecvError::Full { .. }) => one(&right, &mut model)?,
                            Err(other) => panic!("{other}"),
                        }
                    }
                    continue;
                }
                Want::Receive(selector) | Want::Try(selector) => selector,
            };
            while let Some(at) = model.find(selector) {
                let received = match want {
                    Want::Try(_) => right.try_recv(selector, &mut buffer),
                    _ => right.recv(selector, &mut buffer).map(Some),
                };
                match received {
                    Ok(None) => break,
                    Ok(Some(envelope)) => {
                        let message = model.unexpected.remove(at);
                        prop_assert_eq!(
                            (envelope.tag, envelope.sequence),
                            (message.tag, message.sequence)
                        );
                        prop_assert!(buffer[..envelope.len] == message.body());
                        break;
                    }
                    Err(RecvError::Full { .. }) => one(&right, &mut model)?,
                    Err(other) => panic!("{other}"),
                }
            }
        }
        prop_assert!(model.unexpected.is_empty() && model.posted.is_empty());
        sender.join().unwrap().unwrap();
        prop_assert_eq!(right.try_recv(Selector::ANY, &mut buffer).unwrap(), None);
        Ok(())
    })
}

/// Makes room: receives the earliest unexpected message.
fn one<S: SeekSocket>(right: &Mailbox<S>, model: &mut Model) -> Result<(), TestCaseError> {
    let (envelope, bytes) = right.recv_vec(Selector::ANY).unwrap();
    let message = model.unexpected.remove(0);
    prop_assert_eq!((envelope.tag, envelope.sequence), (message.tag, message.sequence));
    prop_assert!(bytes == message.body());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_receive_gets_the_message_that_it_should(
        operations in prop::collection::vec(operation(), 1..150),
    ) {
        step_by_step(operations)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn the_same_messages_are_matched_however_fast_they_come(
        script in script(),
        wants in prop::collection::vec(want(), 0..300),
    ) {
        let (left, right) = streams();
        side_by_side(&script, wants, Mailbox::from_tcp(left).unwrap(), Mailbox::from_tcp(right).unwrap())?;
    }

    #[test]
    fn the_same_messages_are_matched_when_the_buffers_are_tiny(
        script in script(),
        wants in prop::collection::vec(want(), 0..300),
        size in 20_000usize..80_000,
    ) {
        let (left, right) = streams();
        rustix::net::sockopt::set_socket_send_buffer_size(&left, size).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&right, size).unwrap();
        side_by_side(&script, wants, Mailbox::from_tcp(left).unwrap(), Mailbox::from_tcp(right).unwrap())?;
    }

    #[test]
    fn the_same_messages_are_matched_over_a_stream_that_does_as_little_as_it_may(
        script in script(),
        wants in prop::collection::vec(want(), 0..300),
        seed in any::<u64>(),
    ) {
        let (left, right) = streams();
        let reluctant = |stream| Mailbox::new(Reluctant::new(stream, seed, false)).unwrap();
        side_by_side(&script, wants, reluctant(left), reluctant(right))?;
    }

    #[test]
    fn the_same_messages_are_matched_when_there_is_hardly_any_memory(
        script in script(),
        wants in prop::collection::vec(want(), 0..300),
        unexpected in 1usize..100,
    ) {
        let limits = Limits::default().unexpected(unexpected).memory(10_000);
        let (left, right) = streams();
        let right = Mailbox::with_limits(SeekStream::with_memory(right, 600_000), limits).unwrap();
        side_by_side(&script, wants, Mailbox::from_tcp(left).unwrap(), right)?;
    }
}

/// Several threads want the same messages and sometimes give up in the middle of one: every message
/// is received once.
#[test]
fn what_one_receive_gives_up_another_one_gets() {
    const COUNT: usize = 120;
    let (left, right) = streams();
    let left = Mailbox::from_tcp(left).unwrap();
    let right = Mailbox::new(Reluctant::new(right, 7, true)).unwrap();
    let message = |sequence: usize| Message {
        tag: sequence as u64 % 2,
        len: [10, 5_000_000, 3000, 100_000][sequence / 2 % 4],
        sequence: sequence as u32,
    };
    let mut received = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|n| {
                let right = &right;
                scope.spawn(move || {
                    let mut received = Vec::new();
                    let selector = Selector::exact(n % 2);
                    let retry = |error: RecvError| {
                        assert!(
                            matches!(error, RecvError::Full { .. } | RecvError::Io(_)),
                            "{error}"
                        );
                    };
                    while received.len() < COUNT / 4 {
                        let (envelope, bytes) = if n < 2 {
                            match right.recv_vec(selector) {
                                Ok(message) => message,
                                Err(error) => {
                                    retry(error);
                                    continue;
                                }
                            }
                        } else {
                            let ticket = right.post(selector, vec![0; 5_000_000]);
                            let completed = loop {
                                match right.wait(ticket) {
                                    Ok(completed) => break completed,
                                    Err(error) => retry(error),
                                }
                            };
                            (completed.envelope, completed.bytes().to_vec())
                        };
                        let expected = message(envelope.sequence as usize);
                        assert_eq!((envelope.tag, envelope.len), (expected.tag, expected.len));
                        assert!(bytes == expected.body());
                        received.push(envelope.sequence);
                    }
                    received
                })
            })
            .collect();
        for sequence in 0..COUNT {
            left.send(message(sequence).tag, &message(sequence).body()).unwrap();
        }
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    received.sort_unstable();
    assert_eq!(received, (0..COUNT as u32).collect::<Vec<_>>());
}
