//! A peer that writes anything anywhere: no panic, no access outside the mappings, no endless loop.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use common::hostile::{self, Operation};
use common::{geometries, report};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

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
        2 => Just(Operation::Front),
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
        8 => length().prop_map(Operation::PeerSends),
        8 => length().prop_map(Operation::PeerReceives),
        2 => (any::<u32>(), word()).prop_map(|(offset, value)| Operation::Word(offset, value)),
        1 => (0u64..300).prop_map(|consumed| Operation::Known(2, consumed)),
        2 => (any::<u8>(), word()).prop_map(|(which, value)| Operation::Known(which, value)),
        5 => (any::<u8>(), 0u8..4, prop_oneof![0u32..1100, any::<u32>()])
            .prop_map(|(kind, after, len)| Operation::Header(kind, after, len)),
        2 => (0u8..3, 0u64..8).prop_map(|(more, segment)| Operation::Returned(more, segment)),
        1 => (0u8..4, word()).prop_map(|(more, segment)| Operation::Returned(more, segment)),
        2 => proptest::collection::vec((0u8..6, word()), 1..8).prop_map(Operation::During),
    ]
}

#[test]
fn no_peer_can_break_an_honest_end() {
    let (played, noticed) = (AtomicU64::new(0), AtomicU64::new(0));
    for ends in geometries() {
        let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
        TestRunner::new(config)
            .run(&proptest::collection::vec(operation(), 1..100), |operations| {
                let violations = hostile::play(ends, &operations);
                played.fetch_add(operations.len() as u64, Ordering::Relaxed);
                noticed.fetch_add(u64::from(violations > 0), Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
    }
    let (played, noticed) = (played.into_inner(), noticed.into_inner());
    report(&format!("hostile: {played} operations; a violation was noticed in {noticed} sequences of 800"));
    assert!(noticed > 200, "the peer was not hostile enough");
}
