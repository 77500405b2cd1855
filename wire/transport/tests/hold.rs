//! Bytes that are held back until more follow, with every way of looking at the ring.

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::ring_pair;
use seekwire_protocol::Carrier;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::iov::{Gather, Scatter};
use seekwire_transport::layout::{self, Geometry};
use seekwire_transport::mem::OwnMemory;
use seekwire_transport::ring::{Ring, Wait};
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::poll::{self, Deadline, Events};

type Act = fn(&Ring);

const SEGMENT: usize = 3000;
const LIMIT: Duration = Duration::from_millis(200);

/// Two ends, of which the first is on the ring.
fn ends() -> (Ring, Ring) {
    let (a, b) = ring_pair(Geometry::default(), Geometry::default());
    a.queue.tx().carrier().unwrap();
    let rx = b.queue.rx();
    rx.step().unwrap();
    drop(rx);
    (a, b)
}

/// Returns whether the doorbell has to be rung.
fn send(from: &Ring, bytes: &[u8], more: bool) -> bool {
    let tx = from.queue.tx();
    let slices = [IoSlice::new(bytes)];
    let sent = tx.push_held(&mut Gather::new(&slices), more, SEGMENT).unwrap();
    assert_eq!(sent, bytes.len());
    tx.announce()
}

fn received(to: &Ring) -> usize {
    let mut bytes = vec![0; 100_000];
    let rx = to.queue.rx();
    match rx.step().unwrap() {
        RxStep::Ring => rx.pull(&mut Scatter::new(&mut [IoSliceMut::new(&mut bytes)])).unwrap(),
        RxStep::RingEmpty => 0,
        other => panic!("{other:?}"),
    }
}

/// The number of bytes that all ways of looking have seen, which must be the same.
fn seen(to: &Ring) -> usize {
    let q = &to.queue;
    let mut bytes = vec![0; 100_000];
    let rx = q.rx();
    let peeked = rx.peek(&mut Scatter::new(&mut [IoSliceMut::new(&mut bytes)])).unwrap();
    let is_there = peeked > 0;
    assert_eq!(q.unread(), peeked);
    assert_eq!((q.has_record(), q.has_data(), rx.has_more()), (is_there, is_there, is_there));
    assert_eq!(rx.head_bytes().unwrap().is_some(), is_there);
    assert_eq!(rx.arrived().unwrap().1, peeked as u64);
    assert!(q.peer_has_published(q.published_with(peeked as u64)));
    assert!(q.peer_is_full() || !q.peer_has_published(q.published_with(peeked as u64 + 1)));
    let mut at = [0];
    let looked = rx.look(peeked as u64, 1, &mut Scatter::new(&mut [IoSliceMut::new(&mut at)]));
    assert_eq!(looked, Ok(seekwire_transport::seek::LookAhead::Missing));
    peeked
}

/// Sets the end of the hold that the receiver sees.
fn set_end_of_hold(sender: &Ring, nanoseconds: u64) {
    sender.queue.own().store(layout::HELD_UNTIL, nanoseconds, Ordering::Relaxed);
}

#[test]
fn what_is_held_back_is_not_seen_before_it_is_released() {
    let (a, b) = ends();
    send(&a, b"seen", false);
    let marks = (b.queue.published_mark(), b.queue.data_mark());
    send(&a, b"held", true);
    send(&a, b"held, too", true);
    assert_eq!(seen(&b), 4);
    assert_eq!((b.queue.published_mark(), b.queue.data_mark()), marks);
    assert_eq!(received(&b), 4);
    assert_eq!(seen(&b), 0);
    send(&a, b"!", false);
    assert_eq!(seen(&b), 14);
    assert_ne!(b.queue.published_mark(), marks.0);
    assert_ne!(b.queue.data_mark(), marks.1);
    assert_eq!(received(&b), 14);
}

#[test]
fn full_segments_are_seen_and_what_is_left_of_them_is_not() {
    let (a, b) = ends();
    a.queue.tx().set_corked(true);
    send(&a, &[1; SEGMENT - 1], false);
    assert_eq!(seen(&b), 0);
    send(&a, &[1; 1], false);
    assert_eq!(seen(&b), SEGMENT);
    send(&a, &[1; 3 * SEGMENT + 7], false);
    assert_eq!(seen(&b), 4 * SEGMENT);
    send(&a, &[1; SEGMENT], false);
    assert_eq!(seen(&b), 5 * SEGMENT);
    assert!(a.queue.tx().release());
    assert_eq!(received(&b), 5 * SEGMENT + 7);
}

/// Without a cork, the acknowledgement of the segments lets TCP send the rest.
#[test]
fn without_a_cork_the_rest_of_full_segments_is_seen() {
    let (a, b) = ends();
    send(&a, &[1; SEGMENT - 1], true);
    assert_eq!(seen(&b), 0);
    send(&a, &[1; 8], true);
    assert_eq!(received(&b), SEGMENT + 7);
    send(&a, b"held", true);
    assert_eq!(seen(&b), 0);
}

#[test]
fn a_cork_holds_what_is_sent_without_more() {
    let (a, b) = ends();
    a.queue.tx().set_corked(true);
    send(&a, b"corked", false);
    send(&a, b"", false);
    assert_eq!(seen(&b), 0);
    a.queue.tx().set_corked(false);
    assert_eq!(seen(&b), 0, "it is for the caller to release");
    assert!(a.queue.tx().release());
    assert_eq!(received(&b), 6);
    assert!(!a.queue.holds());
}

#[test]
fn a_sleeper_wakes_when_the_time_is_over_and_nobody_has_rung() {
    for (published, during) in [(0, false), (0, true), (4, false), (4, true)] {
        let (a, b) = ends();
        if !during {
            send(&a, b"held", true);
        }
        let wait = Wait { published, ..Wait::for_data(Fd::new(-1), Deadline::after(None)) };
        let ready =
            || if published == 0 { b.queue.has_record() } else { b.queue.peer_has_published(4) };
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| b.sleep(&wait, ready, || false));
            if during {
                while !b.queue.has_readers() {
                    std::thread::yield_now();
                }
                a.send_with(|tx, _| {
                    let slices = [IoSlice::new(b"held")];
                    tx.push_held(&mut Gather::new(&slices), true, SEGMENT).unwrap();
                });
            }
            sleeper.join().unwrap().unwrap();
        });
        assert_eq!(received(&b), 4);
        // A later hold is another one.
        send(&a, b"again", true);
        assert_eq!(seen(&b), 0);
    }
}

#[test]
fn whoever_sleeps_is_rung_for_once_for_a_hold_and_once_for_its_end() {
    let (a, b) = ends();
    let q = &b.queue;
    q.arm_data();
    assert_eq!(q.note_hold(), None);
    assert!(send(&a, b"first", true), "the sleeper does not know of the hold");
    q.rearm_data();
    assert!(q.note_hold().is_some_and(|left| left <= LIMIT));
    assert!(!send(&a, b"second", true));
    assert!(!send(&a, b"third", true));
    assert!(send(&a, b"last", false));
    q.rearm_data();
    assert_eq!(q.note_hold(), None);
    assert!(send(&a, b"another hold", true));
    q.rearm_data();
    assert!(q.note_hold().is_some());
    assert!(a.queue.tx().release());
    assert!(a.queue.tx().announce());
}

#[test]
fn a_second_sleeper_may_know_nothing_of_the_hold() {
    let (a, b) = ends();
    let q = &b.queue;
    q.arm_data();
    q.arm_data();
    assert!(send(&a, b"first", true));
    q.rearm_data();
    assert!(q.note_hold().is_some());
    assert!(send(&a, b"second", true));
}

/// Such as an epoll set and a receive.
#[test]
fn an_answer_that_ends_a_hold_wakes_all_who_know_of_it() {
    let is_rung = |ring: &Ring| poll::look(ring.doorbell.fd(), Events::READ).unwrap().read;
    for readers in [1, 2] {
        let (a, b) = ends();
        b.queue.tx().carrier().unwrap();
        assert!(!send(&a, b"held", true));
        (0..readers).for_each(|_| b.arm(Events::READ));
        (0..readers).for_each(|_| assert!(b.queue.note_hold().is_some()));
        b.send_with(|tx, _| tx.push(&mut Gather::new(&[IoSlice::new(b"answer")])).unwrap());
        assert!(is_rung(&b), "{readers} readers");
        assert_eq!(received(&b), 4);
    }
}

/// Such as an epoll set that has not looked when another waiter silences the doorbell.
#[test]
fn a_sleeper_that_does_not_know_of_the_hold_is_woken_again() {
    let is_rung = |ring: &Ring| poll::look(ring.doorbell.fd(), Events::READ).unwrap().read;
    let (a, b) = ends();
    b.arm(Events::READ);
    assert!(send(&a, b"held", true));
    b.doorbell.ring();
    b.silence(Events::default(), || false);
    assert!(is_rung(&b));
    assert!(b.queue.note_hold().is_some());
    b.silence(Events::default(), || false);
    assert!(!is_rung(&b));
}

#[test]
fn what_the_receiver_does_not_hold_is_rung_for() {
    let (a, b) = ends();
    let q = &b.queue;
    q.arm_data();
    assert!(send(&a, b"first", true));
    q.rearm_data();
    assert!(q.note_hold().is_some());
    // As if the clocks of the two ends differed.
    set_end_of_hold(&a, u64::MAX);
    assert_eq!(seen(&b), 5);
    q.rearm_data();
    assert_eq!(q.note_hold(), None);
    assert!(send(&a, b"second", true));
}

#[test]
fn a_hold_without_a_sound_end_is_none() {
    let (a, b) = ends();
    send(&a, b"held", true);
    assert_eq!(seen(&b), 0);
    let end = a.queue.own().word(layout::HELD_UNTIL).load(Ordering::Relaxed);
    let longer = LIMIT.as_nanos() as u64 * 2;
    for lie in [0, end - longer, end + longer, u64::MAX] {
        set_end_of_hold(&a, lie);
        assert_eq!(seen(&b), 4, "{lie}");
        assert_eq!(b.queue.note_hold(), None);
    }
}

/// As if the receiver were in another time namespace, by whose clock the hold would last longer.
#[test]
fn what_was_seen_is_not_hidden_as_time_passes() {
    let (a, b) = ends();
    send(&a, b"held", true);
    let end = a.queue.own().word(layout::HELD_UNTIL).load(Ordering::Relaxed);
    set_end_of_hold(&a, end + LIMIT.as_nanos() as u64);
    assert_eq!(seen(&b), 4);
    set_end_of_hold(&a, end);
    assert_eq!(seen(&b), 4);
    send(&a, b"more", true);
    assert_eq!(received(&b), 8);
}

#[test]
fn what_an_answer_has_shown_is_not_hidden_by_a_cork() {
    let (a, b) = ends();
    b.queue.tx().carrier().unwrap();
    send(&a, b"more", true);
    send(&b, b"answer", false);
    assert_eq!(seen(&b), 4);
    a.queue.tx().set_corked(true);
    assert_eq!(seen(&b), 4);
    send(&a, b"corked", false);
    assert_eq!(seen(&b), 4);
    assert_eq!(received(&b), 4);
}

/// One hold expires, and the next one begins while the receiver looks.
#[test]
fn what_was_seen_is_not_hidden_by_the_next_hold() {
    let (a, b) = ends();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200_000 {
                send(&a, b"x", true);
                set_end_of_hold(&a, 0);
                while a.queue.unsent() > 1 {
                    std::thread::yield_now();
                }
            }
        });
        let (mut all, mut hidden) = (0, 0);
        while all < 200_000 {
            if b.queue.has_record() {
                hidden += (0..20).filter(|_| !b.queue.has_record()).count();
                all += received(&b);
            } else {
                std::thread::yield_now();
            }
        }
        assert_eq!(hidden, 0);
    });
}

#[test]
fn a_ring_without_room_holds_nothing_back() {
    let (a, b) = ends();
    let mut sent = 0;
    while a.queue.has_room() {
        assert_eq!(received(&b), 0);
        send(&a, b"x", true);
        sent += 1;
    }
    assert!(sent < SEGMENT);
    assert_eq!(seen(&b), sent);
    // As few as those that do not fit any more.
    let tx = a.queue.tx();
    let slices = [IoSlice::new(&[0; 4 << 20])];
    let pushed = tx.push_held(&mut Gather::new(&slices), true, SEGMENT).unwrap();
    assert!(pushed < 4 << 20);
    drop(tx);
    assert_eq!(b.queue.unread(), sent + pushed);
}

#[test]
fn nothing_is_held_back_by_an_end_that_ends_or_leaves() {
    let acts: [(&str, Act); 5] = [
        ("ended", |a| a.queue.tx().shutdown().unwrap()),
        ("ended by a handler", |a| a.queue.set_shut()),
        ("closed", |a| a.queue.set_closed()),
        ("left", |a| assert_eq!(a.queue.tx().overflow(), Ok(Carrier::Tcp))),
        ("died", |a| a.queue.own().store(layout::TX_LOCK, 0x3fff_ffff, Ordering::SeqCst)),
    ];
    for (act, go) in acts {
        let (a, b) = ends();
        send(&a, b"held", true);
        assert_eq!(received(&b), 0);
        go(&a);
        if act == "died" {
            drop(a.queue.tx());
        }
        assert_eq!(received(&b), 4, "{act}");
    }
}

#[test]
fn a_receiver_whose_peer_has_gone_holds_nothing() {
    let (a, b) = ends();
    assert!(!b.queue.unhold());
    send(&a, b"held", true);
    assert_eq!(received(&b), 0);
    assert!(b.queue.unhold());
    assert_eq!(received(&b), 4);
    assert!(!b.queue.unhold());
}

/// A receiver that found nothing, and then the end of TCP, has bytes to look for although none are
/// held back any more.
#[test]
fn a_hold_may_end_before_the_peer_is_known_to_have_gone() {
    let (a, b) = ends();
    send(&a, b"held", true);
    assert_eq!(received(&b), 0);
    set_end_of_hold(&a, 0);
    assert!(b.queue.unhold());
    assert_eq!(received(&b), 4);
}

#[test]
fn what_the_receiver_sends_ends_a_hold_for_more_and_no_cork() {
    let (a, b) = ends();
    b.queue.tx().carrier().unwrap();
    send(&a, b"more", true);
    assert_eq!(seen(&b), 0);
    send(&b, b"held", true);
    assert_eq!(seen(&b), 0, "what is held back itself ends nothing");
    send(&b, b"answer", false);
    assert_eq!(received(&b), 4);
    // More bytes begin another hold.
    send(&a, b"again", true);
    assert_eq!(received(&b), 0);
    send(&b, b"answer", false);
    assert_eq!(received(&b), 5);
    a.queue.tx().set_corked(true);
    send(&a, b"corked", false);
    assert_eq!(seen(&b), 0);
    send(&b, b"answer", false);
    b.queue.tx().sent_by_tcp(1);
    b.queue.tx().shutdown().unwrap();
    assert_eq!(seen(&b), 0);
}

#[test]
fn whatever_the_receiver_sends_ends_a_hold_for_more() {
    let acts: [Act; 3] = [
        |b| _ = send(b, b"answer", false),
        |b| b.queue.tx().sent_by_tcp(1),
        |b| b.queue.tx().shutdown().unwrap(),
    ];
    for act in acts {
        let (a, b) = ends();
        b.queue.tx().carrier().unwrap();
        send(&a, b"more", true);
        assert_eq!(received(&b), 0);
        act(&b);
        assert_eq!(received(&b), 4);
    }
}

#[test]
fn a_record_that_ended_does_not_wait_for_the_next_one() {
    let (a, b) = ends();
    a.queue.tx().set_corked(true);
    send(&a, b"one", true);
    a.queue.tx().end_record();
    assert_eq!(seen(&b), 0);
    send(&a, b"two", true);
    assert_eq!(received(&b), 3);
    send(&a, b"still two", true);
    assert_eq!(seen(&b), 0);
}

/// Other threads of its own end may sleep until the hold ends.
#[test]
fn whoever_ends_a_hold_by_a_send_wakes_the_others_of_its_end() {
    let (a, b) = ends();
    b.queue.tx().carrier().unwrap();
    send(&a, b"more", true);
    let (begin, long) = (Instant::now(), Duration::from_secs(60));
    let wait = Wait::for_data(Fd::new(-1), Deadline::after(Some(long)));
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| b.sleep(&wait, || b.queue.has_record(), || false));
        while !b.queue.has_readers() {
            std::thread::yield_now();
        }
        b.send_with(|tx, _| tx.push(&mut Gather::new(&[IoSlice::new(b"answer")])).unwrap());
        sleeper.join().unwrap().unwrap();
    });
    assert!(begin.elapsed() < long);
    assert_eq!(received(&b), 4);
}
