//! The two halves of the queue pair and the switch between carriers, in one thread, on real memory.

use std::sync::Mutex;

use crate::common::honest::{self, Operation};
use crate::common::{geometries, report};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn operation() -> impl Strategy<Value = Operation> {
    let end = any::<bool>;
    let len = || prop_oneof![0u16..130, 1000u16..1030, 4000u16..4200, 0u16..20_000];
    prop_oneof![
        2 => end().prop_map(Operation::Ready),
        20 => (end(), len()).prop_map(|(end, len)| Operation::Send(end, len)),
        8 => (end(), len()).prop_map(|(end, len)| Operation::SendMore(end, len)),
        2 => (end(), end()).prop_map(|(end, on)| Operation::Cork(end, on)),
        5 => (end(), len()).prop_map(|(end, len)| Operation::InPlace(end, len)),
        20 => (end(), len()).prop_map(|(end, len)| Operation::Recv(end, len)),
        4 => (end(), len()).prop_map(|(end, len)| Operation::Peek(end, len)),
        3 => (end(), len()).prop_map(|(end, len)| Operation::Discard(end, len)),
        5 => (end(), len()).prop_map(|(end, len)| Operation::Borrow(end, len)),
        1 => end().prop_map(Operation::TcpOnly),
        1 => end().prop_map(Operation::AskRecall),
        2 => end().prop_map(Operation::HandOver),
        1 => end().prop_map(Operation::Withdraw),
        1 => end().prop_map(Operation::KeepAsking),
        2 => (end(), len()).prop_map(|(end, room)| Operation::ServicePeer(end, room)),
        3 => end().prop_map(Operation::Overflow),
        1 => end().prop_map(Operation::Shutdown),
    ]
}

/// Maximum number of times that each pair of geometries is played before each way has been taken
/// often enough: the progress of two ends within one program differs by orders of magnitude.
const ROUNDS: usize = 40;

#[test]
fn what_goes_in_comes_out() {
    let moved = Mutex::new([0; 5]);
    let enough = || {
        let [tcp, ring, back, discarded, hidden] = *moved.lock().unwrap();
        tcp > 100_000 && ring > 100_000 && back > 10_000 && discarded > 1000 && hidden > 20
    };
    for _ in 0..ROUNDS {
        let places = geometries().into_iter().flat_map(|ends| [(ends, false), (ends, true)]);
        for (ends, by_link) in places {
            let config = Config { cases: 40, failure_persistence: None, ..Config::default() };
            TestRunner::new(config)
                .run(&proptest::collection::vec(operation(), 1..300), |operations| {
                    let by = honest::play(ends, by_link, &operations);
                    let mut moved = moved.lock().unwrap();
                    moved.iter_mut().zip(by).for_each(|(moved, by)| *moved += by);
                    Ok(())
                })
                .unwrap();
        }
        if enough() {
            break;
        }
    }
    let [tcp, ring, back, discarded, hidden] = *moved.lock().unwrap();
    report(&format!(
        "switching: {tcp} bytes by TCP, {ring} by the ring, {back} of them recalled, {discarded} discarded from TCP; held back in {hidden} looks"
    ));
    assert!(enough());
}
