//! The queue pair and its lock in memory on the heap, with several threads: Miri can run this, and
//! detects data races, weak memory and undefined behaviour.
#![cfg(not(loom))]

#[path = "common/heap.rs"]
mod heap;

use std::io::{IoSlice, IoSliceMut};
use std::thread;

use heap::{End, Heap, Shared, pair};
use seekwire_protocol::Carrier;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::iov::{Gather, Scatter};
use seekwire_transport::layout::{Geometry, TX_LOCK, TX_POSITION};
use seekwire_transport::lock;
use seekwire_transport::mem::OwnMemory;

const MESSAGES: usize = if cfg!(miri) { 25 } else { 20_000 };
/// All kinds of records, in a few laps of the smallest ring.
const LENGTHS: [usize; 6] = [1, 56, 57, 200, 1016, 1100];

fn smallest() -> Geometry {
    Geometry::new(64, 4096, 8).unwrap()
}

fn send(end: &End, message: &[u8]) {
    let slices = [IoSlice::new(message)];
    let mut from = Gather::new(&slices);
    while from.remaining() > 0 {
        let tx = end.tx();
        assert_eq!(tx.carrier(), Ok(Carrier::Ring));
        if tx.push(&mut from) == Ok(0) {
            drop(tx);
            thread::yield_now();
        }
    }
}

fn recv(end: &End, into: &mut [u8]) {
    let mut slices = [IoSliceMut::new(into)];
    let mut into = Scatter::new(&mut slices);
    while into.remaining() > 0 {
        let rx = end.rx();
        match rx.step().unwrap() {
            RxStep::Ring => {
                assert!(rx.pull(&mut into).unwrap() > 0);
            }
            _ => {
                drop(rx);
                thread::yield_now();
            }
        }
    }
}

#[test]
fn messages_between_two_threads() {
    let (a, b) = pair(smallest());
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                send(&a, &vec![number as u8; LENGTHS[number % LENGTHS.len()]]);
            }
        });
        for number in 0..MESSAGES {
            let mut message = vec![0; LENGTHS[number % LENGTHS.len()]];
            recv(&b, &mut message);
            assert!(message.iter().all(|byte| *byte == number as u8), "message {number}");
        }
    });
}

#[test]
fn several_threads_send_and_receive() {
    let (a, b) = pair(smallest());
    let sum = |from: usize| (from..MESSAGES).step_by(2).map(|number| number as u64).sum::<u64>();
    let received = thread::scope(|scope| {
        for from in 0..2 {
            let a = &a;
            scope.spawn(move || {
                for number in (from..MESSAGES).step_by(2) {
                    send(a, &(number as u64).to_ne_bytes());
                }
            });
        }
        let receivers: Vec<_> = (0..2)
            .map(|from| {
                let b = &b;
                scope.spawn(move || {
                    let mut word = [0; 8];
                    let mut sum = 0;
                    for _ in (from..MESSAGES).step_by(2) {
                        recv(b, &mut word);
                        sum += u64::from_ne_bytes(word);
                    }
                    sum
                })
            })
            .collect();
        receivers.into_iter().map(|receiver| receiver.join().unwrap()).sum::<u64>()
    });
    assert_eq!(received, sum(0) + sum(1));
}

#[test]
fn the_lock_keeps_threads_apart() {
    let memory = Shared(std::sync::Arc::new(Heap::new(smallest())));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..MESSAGES {
                    let _held = lock::acquire(&memory, TX_LOCK);
                    let count = memory.word(TX_POSITION);
                    let value = count.load(std::sync::atomic::Ordering::Relaxed);
                    count.store(value + 1, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(
        memory.word(TX_POSITION).load(std::sync::atomic::Ordering::Relaxed),
        4 * MESSAGES as u64
    );
}
