//! The two halves of the queue pair and the switch between carriers, in one thread, on real memory.

use std::io::IoSlice;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::common::honest::{self, Operation};
use crate::common::{geometries, queues, report};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use seekwire_protocol::Carrier;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::iov::Gather;
use seekwire_transport::layout::{AT_WORK, RECALLED};
use seekwire_transport::mem::OwnMemory;
use seekwire_transport::queue::RecallOutcome;

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

/// The peer may lose its processor while it decides.
#[test]
fn what_a_peer_at_work_sends_again_is_not_also_taken_off_the_ring() {
    let geometry = geometries()[0].0;
    let [from, to] = queues(false, geometry, geometry);
    to.set_ready();
    let tx = from.tx();
    assert_eq!(tx.carrier(), Ok(Carrier::Ring));
    assert_eq!(tx.push(&mut Gather::new(&[IoSlice::new(&[7; 10])])), Ok(10));
    drop(tx);
    let rx = to.rx();
    assert_eq!(rx.step(), Ok(RxStep::Ring));
    let answer = |answer| from.own().word(RECALLED).store(answer, Ordering::SeqCst);
    answer(AT_WORK);
    rx.ask_standing_recall();
    assert_eq!(rx.keep_asking(), Ok(RecallOutcome::AtWork));
    // The caller does not wait any longer.
    drop(rx);
    answer(0);
    assert_eq!(from.tx().carrier(), Ok(Carrier::Tcp));
    assert_eq!(from.to_retransmit(), 10);
    assert_eq!(to.rx().step(), Ok(RxStep::TcpUnbounded));
}
