//! Every order of events, within a bound on preemptions, of one end that sends and one that
//! receives.
//!
//! Each model lists the weakenings of the code that it was seen to catch.
#![cfg(loom)]

#[path = "common/heap.rs"]
mod heap;

use std::io::{IoSlice, IoSliceMut};

use heap::{End, Shared, pair};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use seekwire_protocol::Carrier;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::iov::{Gather, Scatter};
use seekwire_transport::layout::Geometry;
use seekwire_transport::mem::OwnMemory;
use seekwire_transport::queue::{RecallOutcome, Tx};

fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// A doorbell: it stays rung until a waiter takes the ring.
#[derive(Default)]
struct Doorbell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Doorbell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// Puts one message on the ring if there is room.
fn try_send(end: &End, message: &[u8]) -> bool {
    let tx = end.tx();
    assert_eq!(tx.carrier(), Ok(Carrier::Ring));
    tx.push(&mut Gather::new(&[IoSlice::new(message)])).unwrap() == message.len()
}

/// Takes up to `N` bytes.
fn try_recv<const N: usize>(end: &End) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let rx = end.rx();
    match rx.step().unwrap() {
        RxStep::Ring => {
            let n = rx.pull(&mut Scatter::new(&mut [IoSliceMut::new(&mut bytes)])).unwrap();
            assert_eq!(n, N, "a message is published whole");
            Some(bytes)
        }
        RxStep::RingEmpty | RxStep::TcpUnbounded => None,
        other => panic!("{other:?}"),
    }
}

/// Publishing and consuming, across the end of a lap, with a ring that is full in between.
///
/// Caught: the header stored relaxed (`Tx::publish`); the consumed position stored relaxed
/// (`Rx::advance`) or loaded relaxed (`Tx::look_at_consumed`); no descriptor kept free for the
/// header that is cleared (`Tx::place_leaving`).
#[test]
fn messages_arrive_whole_and_in_order_across_laps() {
    explore(3, || {
        let (a, b) = pair(Geometry::tiny(4, 64, 2));
        // To the last descriptor but one of the lap.
        assert!(try_send(&a, &[0; 8]));
        assert_eq!(try_recv::<8>(&b), Some([0; 8]));
        let sender = thread::spawn(move || {
            for number in 1..6 {
                while !try_send(&a, &[number; 8]) {
                    thread::yield_now();
                }
            }
        });
        for number in 1..6 {
            let received = loop {
                match try_recv::<8>(&b) {
                    Some(received) => break received,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(received, [number; 8]);
        }
        sender.join().unwrap();
    });
}

/// A payload that looks like the header of a later record, lying where that header will be.
///
/// Caught: the next header not cleared (`Tx::publish`), or cleared after the record is published.
#[test]
fn payload_of_an_earlier_lap_is_never_a_header() {
    explore(4, || {
        let (a, b) = pair(Geometry::tiny(8, 64, 2));
        // After the switch in descriptor 0, this takes 1 and 2; its words 7 is the header of 2, and
        // 2 of the next lap is position 10: inline, one byte.
        let forged = 1u64 << 40 | 1 << 32 | 10;
        let mut message = [9; 64];
        message[56..].copy_from_slice(&forged.to_ne_bytes());
        assert!(try_send(&a, &message));
        assert_eq!(try_recv::<64>(&b), Some(message));
        // Positions 3 to 8.
        for number in 3..9 {
            assert!(try_send(&a, &[number; 8]));
            assert_eq!(try_recv::<8>(&b), Some([number; 8]));
        }
        let sender = thread::spawn(move || {
            assert!(try_send(&a, &[99; 8]));
            a
        });
        let mut received = 0;
        for _ in 0..3 {
            let mut bytes = [0; 16];
            let rx = b.rx();
            if let RxStep::Ring = rx.step().unwrap() {
                received += rx.pull(&mut Scatter::new(&mut [IoSliceMut::new(&mut bytes)])).unwrap();
                assert!(
                    bytes[..received].iter().all(|byte| *byte == 99),
                    "bytes of nobody: {bytes:?}"
                );
            }
        }
        let a = sender.join().unwrap();
        if received == 0 {
            assert_eq!(try_recv::<8>(&b), Some([99; 8]));
        }
        drop(a);
    });
}

/// Segments go there and back and are used again at once.
///
/// Caught: the count of returned segments stored relaxed (`Rx::return_segment`) or loaded relaxed
/// (`Tx::pull_returned`).
#[test]
fn a_segment_is_not_used_again_before_it_is_returned() {
    explore(4, || {
        let geometry = Geometry::tiny(8, 8, 1);
        let (a, b) = pair(geometry);
        let commit = move |a: &End, number: u8| {
            let Ok(segment) = a.tx().reserve() else { return false };
            a.own().write(geometry.segment_at(segment), &[number; 8]);
            a.tx().commit(segment, 8).unwrap();
            true
        };
        assert_eq!(a.tx().carrier(), Ok(Carrier::Ring));
        let sender = thread::spawn(move || {
            for number in 1..4 {
                while !commit(&a, number) {
                    thread::yield_now();
                }
            }
        });
        for number in 1..4 {
            let received = loop {
                match try_recv::<8>(&b) {
                    Some(received) => break received,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(received, [number; 8]);
        }
        sender.join().unwrap();
    });
}

fn send_and_ring(end: &End, message: &[u8], doorbell: &Doorbell) -> bool {
    let sent = try_send(end, message);
    if end.tx().announce() {
        doorbell.ring();
    }
    sent
}

fn recv_asleep(end: &End, doorbell: &Doorbell) -> [u8; 8] {
    loop {
        if let Some(message) = try_recv::<8>(end) {
            return message;
        }
        let mut there = end.arm_data();
        while !there {
            doorbell.wait();
            there = end.rearm_data();
        }
        end.disarm_data();
        if end.has_readers() && end.has_record() {
            doorbell.ring();
        }
    }
}

/// SYNC POINT "data": the receiver is never asleep on a message. A lost wake-up is a deadlock.
///
/// Caught: no fence in `sync::store_fenced`; `has_record` looked at before arming; the arm looked
/// at before publishing.
#[test]
fn nobody_sleeps_on_data() {
    explore(5, || {
        let (a, b) = pair(Geometry::tiny(8, 64, 2));
        let doorbell = Arc::new(Doorbell::default());
        let rung = doorbell.clone();
        let sender = thread::spawn(move || {
            for number in 1..3 {
                assert!(send_and_ring(&a, &[number; 8], &rung));
            }
        });
        for number in 1..3 {
            assert_eq!(recv_asleep(&b, &doorbell), [number; 8]);
        }
        sender.join().unwrap();
    });
}

/// SYNC POINT "data", for a receiver that needs more than the next message: it is not rung for
/// each, and never asleep when all the bytes that it needs are there.
///
/// Caught: a byte more wanted than is needed (`Tx::is_enough`).
#[test]
fn nobody_sleeps_on_enough_data() {
    explore(4, || {
        let (a, b) = pair(Geometry::tiny(64, 64, 2));
        let doorbell = Arc::new(Doorbell::default());
        let rung = doorbell.clone();
        let sender = thread::spawn(move || {
            for number in 1..3 {
                assert!(send_and_ring(&a, &[number; 8], &rung));
            }
        });
        let both = b.published_with(16);
        b.arm_data_for(both);
        while !b.peer_has_published(both) {
            doorbell.wait();
            b.rearm_data_for(both);
        }
        b.disarm_data();
        sender.join().unwrap();
        for number in 1..3 {
            assert_eq!(try_recv::<8>(&b), Some([number; 8]));
        }
    });
}

/// Publishes a message that is held back, unless it is the last one. In a model no time passes: a
/// held record is seen only once it is released.
fn send_held_and_ring(end: &End, message: &[u8], more: bool, doorbell: &Doorbell) {
    let tx = end.tx();
    assert_eq!(tx.carrier(), Ok(Carrier::Ring));
    let slices = [IoSlice::new(message)];
    assert_eq!(tx.push_held(&mut Gather::new(&slices), more, 1000), Ok(message.len()));
    let is_due = tx.announce();
    drop(tx);
    if is_due {
        doorbell.ring();
    }
}

/// SYNC POINT "data", with a part held back: a sleeper knows of the hold, or is rung for, and sees
/// none of the part before the end of the hold, and then all.
///
/// Caught: the hold published after the record (`Tx::begin_hold` after the push); `HELD_FROM`
/// loaded relaxed; no ring for a release (`Tx::is_known_hold` always true); the hold noted before
/// arming.
#[test]
fn nobody_sleeps_on_what_was_held_back() {
    explore(3, || {
        let (a, b) = pair(Geometry::tiny(64, 64, 2));
        let doorbell = Arc::new(Doorbell::default());
        let rung = doorbell.clone();
        let sender = thread::spawn(move || {
            send_held_and_ring(&a, &[1; 8], true, &rung);
            send_held_and_ring(&a, &[2; 8], true, &rung);
            send_held_and_ring(&a, &[3; 8], false, &rung);
        });
        b.arm_data();
        loop {
            let held = b.note_hold();
            if b.has_record() {
                break;
            }
            // A hold does not expire here, so this end is rung for at its end.
            let _ = held;
            doorbell.wait();
            b.rearm_data();
        }
        b.disarm_data();
        // The switch to the ring may be all that is seen before.
        let first = loop {
            match try_recv::<8>(&b) {
                Some(first) => break first,
                None => thread::yield_now(),
            }
        };
        assert_eq!(first, [1; 8]);
        assert_eq!([try_recv::<8>(&b), try_recv::<8>(&b)], [Some([2; 8]), Some([3; 8])]);
        sender.join().unwrap();
    });
}

/// A receiver that does not hold bytes back any more is rung for, although it has noted the hold.
///
/// Caught: the hold stays noted (`QueuePair::note_hold`); no fence after it is not.
#[test]
fn nobody_sleeps_on_what_only_the_sender_holds_back() {
    explore(4, || {
        let (a, b) = pair(Geometry::tiny(64, 64, 2));
        let doorbell = Arc::new(Doorbell::default());
        let rung = doorbell.clone();
        send_held_and_ring(&a, &[1; 8], true, &doorbell);
        b.arm_data();
        // The switch to the ring comes first, and is not held back.
        assert_eq!(try_recv::<8>(&b), None);
        assert!(b.note_hold().is_some() && b.unhold());
        b.disarm_data();
        assert_eq!(try_recv::<8>(&b), Some([1; 8]));
        let sender = thread::spawn(move || send_held_and_ring(&a, &[2; 8], true, &rung));
        let received = loop {
            if let Some(received) = try_recv::<8>(&b) {
                break received;
            }
            b.arm_data();
            assert_eq!(b.note_hold(), None);
            if !b.has_record() {
                doorbell.wait();
            }
            b.disarm_data();
        };
        assert_eq!(received, [2; 8]);
        sender.join().unwrap();
    });
}

/// One waiter leaves while another one of the same end arms.
///
/// Caught: `QueuePair::disarm` storing 0 instead of exchanging its number for it; the arm stored,
/// not exchanged, in `sync::store_fenced`.
#[test]
fn a_waiter_that_leaves_does_not_disarm_another() {
    explore(4, || {
        let (a, b) = pair(Geometry::tiny(8, 64, 2));
        let doorbell = Arc::new(Doorbell::default());
        let b = Arc::new(b);
        assert!(send_and_ring(&a, &[1; 8], &doorbell));
        let leaving = {
            let b = b.clone();
            thread::spawn(move || {
                // It finds the first message there and takes none.
                let _ = b.arm_data();
                b.disarm_data();
            })
        };
        let waiting = {
            let (b, doorbell) = (b.clone(), doorbell.clone());
            thread::spawn(move || {
                assert_eq!(try_recv::<8>(&b), Some([1; 8]));
                assert_eq!(recv_asleep(&b, &doorbell), [2; 8]);
            })
        };
        assert!(send_and_ring(&a, &[2; 8], &doorbell));
        leaving.join().unwrap();
        waiting.join().unwrap();
    });
}

/// SYNC POINT "space": the sender is never asleep on room.
///
/// Caught: the arm looked at before giving back (`Rx::announce`); more waited for than will come
/// (`rearm_space`).
#[test]
fn nobody_sleeps_on_space() {
    explore(5, || {
        let (a, b) = pair(Geometry::tiny(4, 64, 2));
        let doorbell = Arc::new(Doorbell::default());
        let mut sent = 0;
        while try_send(&a, &[sent; 8]) {
            sent += 1;
        }
        let rung = doorbell.clone();
        let receiver = thread::spawn(move || {
            for number in 0..=sent {
                let message = loop {
                    match try_recv::<8>(&b) {
                        Some(message) => break message,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(message, [number; 8]);
                // Once for each message, and never again: another call would make up for a ring
                // that this one missed.
                if b.rx().announce() {
                    rung.ring();
                }
            }
        });
        while !try_send(&a, &[sent; 8]) {
            let mut there = a.arm_space();
            while !there {
                doorbell.wait();
                there = a.rearm_space();
            }
            a.disarm_space();
        }
        receiver.join().unwrap();
    });
}

/// SYNC POINT "unbounded read": bytes that went by TCP after a span on the ring are not taken by a
/// read that began before it.
///
/// Caught: no fence in `sync::store_fenced`; no fence in `Tx::may_use_tcp`; the ring looked at
/// before the read is announced; the end of the read stored relaxed.
#[test]
fn an_unbounded_read_takes_nothing_of_a_later_span() {
    explore(5, || {
        let (a, b) = pair(Geometry::tiny(8, 64, 2));
        // The bytes in TCP; the first span is empty.
        let tcp = Arc::new(AtomicU64::new(0));
        // Held by reads that began in that span; loom reports a read for which the sender does not
        // wait.
        let first_span = Arc::new(UnsafeCell::new(()));
        let (kernel, first_span_over) = (tcp.clone(), first_span.clone());
        let sender = thread::spawn(move || {
            assert!(try_send(&a, &[1; 8]));
            a.set_tcp_only();
            let tx = a.tx();
            assert_eq!(tx.carrier(), Ok(Carrier::Tcp));
            while !tx.may_use_tcp() {
                thread::yield_now();
            }
            first_span_over.with_mut(|_| ());
            kernel.store(2, Ordering::Relaxed);
            tx.sent_by_tcp(1);
        });
        let mut received = Vec::new();
        while received.len() < 2 {
            let mut bytes = [0; 8];
            let rx = b.rx();
            match rx.step().unwrap() {
                RxStep::Ring => {
                    assert_eq!(
                        rx.pull(&mut Scatter::new(&mut [IoSliceMut::new(&mut bytes)])),
                        Ok(8)
                    );
                    received.push(u64::from(bytes[0]));
                }
                RxStep::TcpUnbounded => {
                    let in_first_span = received.is_empty();
                    if rx.begin_unbounded_read() {
                        if in_first_span {
                            first_span.with(|_| ());
                        }
                        match tcp.load(Ordering::Relaxed) {
                            0 => {}
                            byte => received.push(byte),
                        }
                    }
                    rx.end_unbounded_read();
                }
                RxStep::RingEmpty => {}
                other => panic!("{other:?}"),
            }
            drop(rx);
            thread::yield_now();
        }
        assert_eq!(received, [1, 2]);
        sender.join().unwrap();
    });
}

/// SYNC POINT "recall": a receiver that gives up asking and the sender that is asked agree on
/// whether the bytes on the ring are retransmitted, and every byte is taken once, in order,
/// whatever the sender is about to do: here to send one more, on the ring or by TCP.
///
/// Caught: the request not read again after the work is announced (`Tx::recall`); no fence in
/// `Rx::withdraw`, or the peer's word read before the request is gone.
#[test]
fn what_is_recalled_comes_by_tcp_and_the_rest_by_the_ring() {
    explore(4, || {
        let (a, b) = pair(Geometry::tiny(8, 64, 2));
        let tcp = Arc::new(Mutex::new(Vec::new()));
        assert!(try_send(&a, &[1; 8]));
        let kernel = tcp.clone();
        let sender = thread::spawn(move || {
            let tx = a.tx();
            if tx.carrier() == Ok(Carrier::Ring) {
                assert_eq!(tx.push(&mut Gather::new(&[IoSlice::new(&[2; 8])])), Ok(8));
            } else {
                let mut piece = Vec::new();
                loop {
                    tx.to_retransmit(&mut piece).unwrap();
                    if piece.is_empty() {
                        break;
                    }
                    kernel.lock().unwrap().extend(&piece);
                    tx.retransmitted(piece.len());
                }
                kernel.lock().unwrap().extend([2; 8]);
                tx.sent_by_tcp(8);
            }
            drop(tx);
            a
        });
        let rx = b.rx();
        rx.ask_recall();
        let mut answer = rx.answer().unwrap();
        while matches!(answer, RecallOutcome::Pending | RecallOutcome::AtWork) {
            answer = rx.withdraw().unwrap();
            thread::yield_now();
        }
        drop(rx);
        let a = sender.join().unwrap();
        let mut received = Vec::new();
        if answer == RecallOutcome::Taken {
            assert!(!b.has_record(), "the ring is done with");
        } else {
            while let Some(message) = try_recv::<8>(&b) {
                received.extend(message);
            }
        }
        received.extend(tcp.lock().unwrap().iter());
        assert_eq!(received, [[1; 8], [2; 8]].concat());
        assert_eq!(a.to_retransmit(), 0);
    });
}

/// Takes the sending half, and retransmits.
fn retransmit<'a>(end: &'a End, kernel: &Mutex<Vec<u8>>) -> (Tx<'a, Shared, Shared>, Carrier) {
    let tx = end.tx();
    let carrier = tx.carrier().unwrap();
    let mut piece = Vec::new();
    loop {
        tx.to_retransmit(&mut piece).unwrap();
        if piece.is_empty() {
            return (tx, carrier);
        }
        kernel.lock().unwrap().extend(&piece);
        tx.retransmitted(piece.len());
    }
}

/// SYNC POINT "recall": a standing request is served by the sender's next call, and a receiver that
/// takes some bytes off the ring meanwhile is the only one to get these.
///
/// Caught: a send by TCP while the receiver looks (`Tx::serve_request`); the half let
/// go without asking again; a sender that is at work taken for one that has refused (`Rx::resume`).
#[test]
fn a_standing_request_is_served_whoever_takes_the_half_meanwhile() {
    explore(3, || {
        let (a, b) = pair(Geometry::tiny(8, 64, 2));
        let tcp = Arc::new(Mutex::new(Vec::new()));
        assert!(try_send(&a, &[1; 8]));
        let kernel = tcp.clone();
        let sender = thread::spawn(move || {
            let (tx, carrier) = retransmit(&a, &kernel);
            if carrier == Carrier::Ring {
                assert_eq!(tx.push(&mut Gather::new(&[IoSlice::new(&[2; 8])])), Ok(8));
            } else {
                kernel.lock().unwrap().extend([2; 8]);
                tx.sent_by_tcp(8);
            }
            drop(tx);
            a
        });
        let rx = b.rx();
        rx.ask_recall();
        while rx.keep_asking().unwrap() == RecallOutcome::AtWork {
            thread::yield_now();
        }
        drop(rx);
        let mut received: Vec<u8> = try_recv::<4>(&b).into_iter().flatten().collect();
        let a = sender.join().unwrap();
        drop(retransmit(&a, &tcp));
        assert!(!a.is_recall_asked(), "nobody answers");
        assert_eq!(try_recv::<8>(&b), None, "the ring is done with");
        received.extend(tcp.lock().unwrap().iter());
        assert_eq!(received, [[1; 8], [2; 8]].concat());
        assert_eq!((a.to_retransmit(), b.rx().discard_left()), (0, 0));
    });
}

/// SYNC POINT "recall": bytes in the kernel before their turn are retransmitted only to a receiver
/// that knows it, and discards them.
///
/// Caught: no fence in `Rx::keep_asking`; the request read before the work is announced
/// (`Tx::recall`).
#[test]
fn nothing_is_sent_twice_to_who_waits_for_no_answer() {
    explore(3, || {
        let (a, b) = pair(Geometry::tiny(8, 64, 2));
        let tcp = Arc::new(Mutex::new(Vec::new()));
        assert!(try_send(&a, &[1; 8]));
        let tx = a.tx();
        assert_eq!(tx.overflow(), Ok(Carrier::Tcp));
        tx.keep(0, &[2; 8]);
        tx.sent_by_tcp(8);
        drop(tx);
        let kernel = tcp.clone();
        let sender = thread::spawn(move || drop(retransmit(&a, &kernel)));
        let rx = b.rx();
        rx.ask_recall();
        let answer = loop {
            match rx.keep_asking().unwrap() {
                RecallOutcome::AtWork => thread::yield_now(),
                answer => break answer,
            }
        };
        drop(rx);
        sender.join().unwrap();
        let is_sent_again = !tcp.lock().unwrap().is_empty();
        assert_eq!(is_sent_again, answer == RecallOutcome::Taken);
        assert_eq!(b.rx().discard_left(), if is_sent_again { 8 } else { 0 });
    });
}

/// SYNC POINT "data": a send beside a shutdown by another thread is before the end of the stream,
/// or refused.
///
/// Caught: the shutdown looked for before the lock is taken only.
#[test]
fn a_send_beside_a_shutdown_arrives_or_is_refused() {
    explore(4, || {
        let (a, b) = pair(Geometry::tiny(8, 64, 2));
        let a = Arc::new(a);
        assert!(try_send(&a, &[1; 8]));
        let other = a.clone();
        let sender = thread::spawn(move || {
            let tx = other.tx();
            !other.is_shut() && tx.push(&mut Gather::new(&[IoSlice::new(&[2; 8])])) == Ok(8)
        });
        a.tx().shutdown().unwrap();
        let has_sent = sender.join().unwrap();
        let mut received = Vec::new();
        while !b.has_end() {
            received.push(try_recv::<8>(&b).unwrap());
        }
        assert_eq!(received, if has_sent { vec![[1; 8], [2; 8]] } else { vec![[1; 8]] });
    });
}
