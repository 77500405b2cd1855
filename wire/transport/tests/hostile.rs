//! A peer that writes anything anywhere: no panic, no access outside the mappings, no endless loop.

use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::hostile::{self, Operation};
use crate::common::{geometries, joined, memory, report};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use seekwire_protocol::Carrier;
use seekwire_protocol::record::Record;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::iov::{Gather, Scatter};
use seekwire_transport::layout::{CONTROL, Geometry, RECALL_FROM, control};
use seekwire_transport::mem::{OwnMemory, Peer, PeerMemory};
use seekwire_transport::queue::{QueuePair, RecallOutcome, Violation};

/// Small numbers, numbers near a power of two or the end, and any number.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..200,
        1 => (0u32..64).prop_map(|bit| 1 << bit),
        1 => (0u64..200).prop_map(|n| u64::MAX - n),
        2 => any::<u64>(),
    ]
}

fn length() -> impl Strategy<Value = u16> {
    prop_oneof![0u16..130, 1000u16..1030, 4000u16..4200, any::<u16>()]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        15 => proptest::collection::vec(length(), 0..4).prop_map(Operation::Send),
        10 => length().prop_map(Operation::Recv),
        3 => length().prop_map(Operation::Peek),
        2 => length().prop_map(Operation::Discard),
        2 => Just(Operation::HeadBytes),
        2 => Just(Operation::Step),
        2 => Just(Operation::Counts),
        1 => Just(Operation::Arm),
        1 => Just(Operation::Disarm),
        2 => Just(Operation::Reserve),
        2 => length().prop_map(Operation::Commit),
        1 => Just(Operation::Cancel),
        1 => Just(Operation::Shutdown),
        1 => Just(Operation::TcpOnly),
        1 => Just(Operation::UnboundedRead),
        10 => (length(), any::<bool>()).prop_map(|(len, peek)| Operation::SeekRecv { len, peek }),
        20 => (length(), prop_oneof![Just(0u16), length()], length(), any::<(bool, bool, bool)>())
            .prop_map(|(offset, skip, len, (peek, partial, bulk))| {
                Operation::Seek { offset, skip, len, peek, partial, bulk }
            }),
        8 => (length(), length()).prop_map(|(offset, len)| Operation::Lend { offset, len }),
        6 => any::<u8>().prop_map(Operation::ReturnLoan),
        1 => Just(Operation::Drain),
        2 => Just(Operation::Extent),
        2 => (0u32..9000, length()).prop_map(|(ahead, len)| Operation::Look { ahead, len }),
        1 => (0u32..9000, length()).prop_map(|(ahead, len)| Operation::Release { ahead, len }),
        1 => (length(), any::<(bool, bool)>()).prop_map(|(len, (was_released, is_lent))| {
            Operation::Pass { len, was_released, is_lent }
        }),
        2 => Just(Operation::Recall),
        1 => Just(Operation::AskRecall),
        8 => length().prop_map(Operation::PeerSends),
        8 => length().prop_map(Operation::PeerReceives),
        2 => (any::<u32>(), word()).prop_map(|(offset, value)| Operation::Word(offset, value)),
        1 => (0u64..300).prop_map(|consumed| Operation::Known(2, consumed)),
        2 => (any::<u8>(), word()).prop_map(|(which, value)| Operation::Known(which, value)),
        5 => (any::<u8>(), 0u8..4, prop_oneof![0u32..1100, any::<u32>()])
            .prop_map(|(kind, after, len)| Operation::Header(kind, after, len)),
        2 => (0u8..3, 0u64..8).prop_map(|(more, segment)| Operation::Returned(more, segment)),
        2 => (0u8..8, 0u16..300).prop_map(|(after, lasts)| Operation::Holds(after, lasts)),
        1 => (0u8..4, word()).prop_map(|(more, segment)| Operation::Returned(more, segment)),
        2 => proptest::collection::vec((0u8..6, word()), 1..8).prop_map(Operation::During),
    ]
}

#[test]
fn no_peer_can_break_an_honest_end() {
    let (played, noticed) = (AtomicU64::new(0), AtomicU64::new(0));
    let places = geometries().into_iter().flat_map(|ends| [(ends, false), (ends, true)]);
    for (ends, by_link) in places {
        let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
        TestRunner::new(config)
            .run(&proptest::collection::vec(operation(), 1..100), |operations| {
                let violations = hostile::play(ends, by_link, &operations);
                played.fetch_add(operations.len() as u64, Ordering::Relaxed);
                noticed.fetch_add(u64::from(violations > 0), Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
    }
    let (played, noticed) = (played.into_inner(), noticed.into_inner());
    report(&format!(
        "hostile: {played} operations; a violation was noticed in {noticed} sequences of 1600"
    ));
    assert!(noticed > 400, "the peer was not hostile enough");
}

/// Claims of each record that is read that the sender changes its carrier there, without end.
struct Circles {
    memory: Peer,
    geometry: Geometry,
    looked_for: Cell<u64>,
}

impl PeerMemory for Circles {
    fn load(&self, offset: usize, order: Ordering) -> u64 {
        let (here, next) = (self.looked_for.get(), self.looked_for.get() + 1);
        assert!(next < 10 * self.geometry.cells() as u64, "endless");
        let header = |position| {
            let record = if position % 2 == 0 { Record::RingAt } else { Record::Tcp };
            record.encode(position)
        };
        if offset == self.geometry.cell_at(next) {
            self.looked_for.set(next);
            header(next)
        } else if offset == self.geometry.cell_at(here) {
            header(here)
        } else {
            // Nothing has gone by TCP.
            self.memory.load(offset, order)
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        self.memory.read(offset, into);
    }
}

#[test]
fn a_sender_that_changes_its_carrier_without_end_leads_no_peek_in_circles() {
    let geometry = Geometry::new(64, 4096, 8).unwrap();
    let ((a, _), (_, b_fd)) = (memory(geometry), memory(geometry));
    let memory = Peer::attach(b_fd.as_fd(), Geometry::MAX_BYTES).unwrap();
    let circles = Circles { memory, geometry, looked_for: Cell::new(0) };
    let honest = QueuePair::new(a, geometry, circles, geometry);
    let mut bytes = [0; 10];
    let mut into = [IoSliceMut::new(&mut bytes)];
    assert!(honest.rx().peek_both(&mut Scatter::new(&mut into), || &[]).is_err());
}

#[test]
fn bytes_that_nobody_counted_are_not_overtaken_and_no_violation() {
    for is_received in [false, true] {
        let geometry = Geometry::new(64, 4096, 8).unwrap();
        let ((a, a_fd), (b, b_fd)) = (memory(geometry), memory(geometry));
        let (a, b) = (joined(a, geometry, &b_fd), joined(b, geometry, &a_fd));
        b.set_ready();
        let tx = a.tx();
        assert_eq!(tx.carrier(), Ok(Carrier::Ring));
        assert_eq!(tx.push(&mut Gather::new(&[IoSlice::new(&[1; 40])])), Ok(40));
        a.set_tcp_only();
        assert_eq!(tx.carrier(), Ok(Carrier::Tcp));
        tx.stop_counting().unwrap();
        drop(tx);
        let rx = b.rx();
        assert!(matches!(rx.step(), Ok(RxStep::Ring)));
        if is_received {
            assert_eq!(rx.discard(1000), Ok(40));
            assert!(matches!(rx.step(), Ok(RxStep::TcpUnbounded)));
            rx.end_unbounded_read();
            rx.received_by_tcp(10);
        }
        rx.ask_recall();
        assert_eq!(a.tx().recall(), Ok(()));
        assert_eq!(
            rx.answer(),
            Ok(if is_received { RecallOutcome::Taken } else { RecallOutcome::Refused })
        );
    }
}

/// A peer that asks for its bytes back names their beginning: the middle of a record is not a
/// record, whatever the application sent.
#[test]
fn bytes_are_recalled_from_a_record_on_or_not_at_all() {
    let (inline, segment) = (1 << 32, 2 << 32);
    for (header, word) in
        [(1 << 40 | segment, u64::MAX), (1 << 40 | segment, 8), (1016 << 40 | inline, 0)]
    {
        let geometry = Geometry::new(64, 4096, 8).unwrap();
        let ((a, a_fd), (b, b_fd)) = (memory(geometry), memory(geometry));
        let (a, b) = (joined(a, geometry, &b_fd), joined(b, geometry, &a_fd));
        b.set_ready();
        let mut last = [0; 120];
        // The switch is at 0. Other records lead to the last two descriptors of the lap.
        let position = 63u64;
        last[56..64].copy_from_slice(&(header | position).to_ne_bytes());
        last[64..72].copy_from_slice(&word.to_ne_bytes());
        for message in std::iter::repeat_n(&[1; 40][..], 61).chain([&last[..]]) {
            let tx = a.tx();
            assert_eq!(tx.carrier(), Ok(Carrier::Ring));
            assert_eq!(tx.push(&mut Gather::new(&[IoSlice::new(message)])), Ok(message.len()));
            let rx = b.rx();
            assert!(matches!(rx.step(), Ok(RxStep::Ring)));
            assert_eq!(rx.discard(1000), Ok(message.len()));
        }
        b.own().word(RECALL_FROM).store(position << 32, Ordering::SeqCst);
        b.own().word(CONTROL).fetch_or(control::RECALL, Ordering::SeqCst);
        assert_eq!(a.tx().recall(), Err(Violation));
    }
}
