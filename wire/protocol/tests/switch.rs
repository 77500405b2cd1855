//! The carrier switch under random schedules of both ends: the bytes that come out are the bytes
//! that went in, in order, none lost, none twice.

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use seekwire_protocol::Carrier;
use seekwire_protocol::switch::{RxHead, RxStep, RxSwitch, TxConditions, TxStep, TxSwitch};

/// One step of one end. The receiver's unbounded read is two steps, because the sender may run
/// between its look at the ring and its read.
#[derive(Clone, Copy, Debug)]
enum Operation {
    /// Send up to this many bytes on whatever carrier the switch says.
    Send(u8),
    /// The receiver becomes ready to look at its ring.
    Ready,
    /// Whether TCP alone may be used from now on; toggling stands for "any number of times".
    TcpOnly(bool),
    /// Shut the direction down.
    Shutdown,
    /// The sending process dies.
    Die,
    /// Take up to this many bytes.
    Receive(u8),
    /// Begin an unbounded read (if the switch says so) and do not finish it yet.
    BeginRead,
    /// Finish the unbounded read with up to this many bytes.
    FinishRead(u8),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (1u8..60).prop_map(Operation::Send),
        1 => Just(Operation::Ready),
        3 => any::<bool>().prop_map(Operation::TcpOnly),
        8 => (1u8..60).prop_map(Operation::Receive),
        3 => Just(Operation::BeginRead),
        3 => (1u8..60).prop_map(Operation::FinishRead),
    ]
}

/// A record in the ring.
#[derive(Clone, Debug)]
enum Item {
    Data(VecDeque<u8>),
    RingAt(u64),
    Tcp,
    Fin,
}

#[derive(Default)]
struct World {
    tx: TxSwitch,
    rx: RxSwitch,
    conditions: TxConditions,
    ring: VecDeque<Item>,
    published: u64,
    consumed: u64,
    tcp: VecDeque<u8>,
    tcp_closed: bool,
    unbounded_read: bool,
    sent: Vec<u8>,
    received: Vec<u8>,
    shut: bool,
    ended: bool,
    next: u8,
    carriers_used: [u64; 2],
}

impl World {
    fn publish(&mut self, item: Item) {
        self.ring.push_back(item);
        self.published += 1;
    }

    fn produce(&mut self, n: u8) -> Vec<u8> {
        let bytes: Vec<u8> = (0..n).map(|i| self.next.wrapping_add(i)).collect();
        self.next = self.next.wrapping_add(n);
        self.sent.extend(&bytes);
        bytes
    }

    fn send(&mut self, n: u8) {
        if self.shut {
            return;
        }
        loop {
            match self.tx.step(self.conditions) {
                TxStep::EnterRing(at) => {
                    self.publish(Item::RingAt(at));
                    self.tx.entered_ring(self.published);
                }
                TxStep::LeaveRing => {
                    self.publish(Item::Tcp);
                    self.tx.left_ring();
                }
                TxStep::Send(Carrier::Tcp) => {
                    if self.tx.may_use_tcp(self.consumed, self.unbounded_read) {
                        let bytes = self.produce(n);
                        self.tcp.extend(bytes);
                        self.tx.sent_by_tcp(n.into());
                        self.carriers_used[0] += 1;
                    }
                    return;
                }
                TxStep::Send(Carrier::Ring) => {
                    let bytes = self.produce(n);
                    self.publish(Item::Data(bytes.into()));
                    self.carriers_used[1] += 1;
                    return;
                }
            }
        }
    }

    fn head(&self) -> RxHead {
        match self.ring.front() {
            None => RxHead::Empty,
            Some(Item::Data(_)) => RxHead::Data,
            Some(Item::RingAt(x)) => RxHead::RingAt(*x),
            Some(Item::Tcp) => RxHead::Tcp,
            Some(Item::Fin) => RxHead::Fin,
        }
    }

    fn advance(&mut self) {
        self.ring.pop_front();
        self.consumed += 1;
    }

    fn take_tcp(&mut self, n: usize) {
        let n = n.min(self.tcp.len());
        self.received.extend(self.tcp.drain(..n));
        self.rx.received_by_tcp(n as u64);
    }

    /// Returns whether anything could be done.
    fn receive(&mut self, n: u8) -> bool {
        if self.unbounded_read || self.ended {
            return false;
        }
        loop {
            match self.rx.step(self.head()) {
                RxStep::Tcp(bound) => {
                    let before = self.received.len();
                    self.take_tcp(usize::from(n).min(bound as usize));
                    if self.received.len() == before && self.tcp_closed {
                        panic!("TCP ended before the position that RingAt named");
                    }
                    return self.received.len() > before;
                }
                RxStep::TcpUnbounded => {
                    let before = self.received.len();
                    self.take_tcp(n.into());
                    if self.received.len() == before && self.tcp_closed && self.ring.is_empty() {
                        self.ended = true;
                    }
                    return self.received.len() > before;
                }
                RxStep::Ring => {
                    let Some(Item::Data(bytes)) = self.ring.front_mut() else { unreachable!() };
                    let n = usize::from(n).min(bytes.len());
                    self.received.extend(bytes.drain(..n));
                    if bytes.is_empty() {
                        self.advance();
                    }
                    return true;
                }
                RxStep::RingEmpty => {
                    self.ended = self.tcp_closed;
                    return false;
                }
                RxStep::Advance => self.advance(),
                RxStep::End => {
                    self.ended = true;
                    return false;
                }
                RxStep::Violation => panic!("an honest sender was taken for a violator"),
            }
        }
    }

    fn step(&mut self, operation: Operation) {
        match operation {
            Operation::Send(n) => self.send(n),
            Operation::Ready => self.conditions.ready = true,
            Operation::TcpOnly(on) => self.conditions.tcp_only = on,
            Operation::Shutdown => {
                if !self.shut {
                    self.shut = true;
                    if self.tx.carrier == Carrier::Ring {
                        self.publish(Item::Fin);
                    }
                    self.tcp_closed = true;
                }
            }
            Operation::Die => {
                self.shut = true;
                self.tcp_closed = true;
            }
            Operation::Receive(n) => {
                self.receive(n);
            }
            Operation::BeginRead => {
                let unbounded = self.rx.carrier == Carrier::Tcp && self.ring.is_empty();
                self.unbounded_read |= unbounded && !self.ended;
            }
            Operation::FinishRead(n) => {
                if self.unbounded_read {
                    self.take_tcp(n.into());
                    self.unbounded_read = false;
                }
            }
        }
    }

    fn drain(&mut self) {
        self.step(Operation::FinishRead(u8::MAX));
        while !self.ended {
            self.receive(u8::MAX);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn what_goes_in_comes_out(
        operations in proptest::collection::vec(operation(), 1..400),
        death: bool,
    ) {
        let mut world = World::default();
        for operation in operations {
            world.step(operation);
            prop_assert_eq!(&world.sent[..world.received.len()], &world.received[..]);
        }
        world.step(if death { Operation::Die } else { Operation::Shutdown });
        world.drain();
        prop_assert_eq!(world.sent, world.received);
    }
}

#[test]
fn the_schedules_do_use_both_carriers() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut used = [0u64; 2];
    for _ in 0..200 {
        let operations =
            proptest::collection::vec(operation(), 400).new_tree(&mut runner).unwrap().current();
        let mut world = World::default();
        operations.into_iter().for_each(|operation| world.step(operation));
        used[0] += world.carriers_used[0];
        used[1] += world.carriers_used[1];
    }
    assert!(used.iter().all(|count| *count > 1000), "sends by TCP and by ring: {used:?}");
}

#[test]
fn a_sender_that_breaks_the_order_is_a_violation() {
    let mut on_tcp = RxSwitch { carrier: Carrier::Tcp, tcp_bytes: 10 };
    for head in [RxHead::Data, RxHead::Tcp, RxHead::Fin, RxHead::RingAt(9)] {
        assert_eq!(on_tcp.step(head), RxStep::Violation);
    }
    let mut on_ring = RxSwitch { carrier: Carrier::Ring, tcp_bytes: 10 };
    assert_eq!(on_ring.step(RxHead::RingAt(10)), RxStep::Violation);
}
