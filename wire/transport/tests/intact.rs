//! Two ends in memory that others can write: they notice when the shared content is invalid, and
//! only then.

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;

use crate::common::places::Place;
use crate::common::{linked, linked_pair};
use seekwire_transport::iov::{Gather, Scatter};
use seekwire_transport::layout::{
    CONSUMED, Geometry, MAGIC_WORD, PUBLISHED, PUBLISHED_BYTES, TX_POSITION,
};
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{QueuePair, Start};

type Queue = QueuePair<Own, Peer>;

const BYTES: usize = 4 << 20;

fn geometry() -> Geometry {
    Geometry::new(64, 4096, 8).unwrap()
}

/// Two ends, the first one's memory first, that have entered the ring.
fn ends() -> ([Queue; 2], Place) {
    let (memories, place) = linked(geometry(), geometry());
    let queues = memories.map(|(own, peer)| QueuePair::new(own, geometry(), peer, geometry()));
    for queue in &queues {
        queue.start(Start::default());
        queue.set_ready();
    }
    for queue in &queues {
        queue.tx().carrier().unwrap();
    }
    (queues, place)
}

fn send(queue: &Queue, length: usize) -> usize {
    let tx = queue.tx();
    let bytes = vec![7; length];
    let buffers = [IoSlice::new(&bytes)];
    let sent = tx.push(&mut Gather::new(&buffers)).unwrap();
    let _ = tx.announce();
    sent
}

fn receive(queue: &Queue, most: usize) -> usize {
    let rx = queue.rx();
    rx.step().unwrap();
    let mut bytes = vec![0; most];
    let received = rx.pull(&mut Scatter::new(&mut [IoSliceMut::new(&mut bytes)])).unwrap();
    let _ = rx.announce();
    assert!(rx.is_intact());
    received
}

#[test]
fn ends_that_keep_to_the_rules_are_intact_at_any_time() {
    let ([one, other], _place) = ends();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut left = BYTES;
            for turn in 0.. {
                if left == 0 {
                    break;
                }
                left -= send(&one, left.min(1 + turn * 37 % 9000));
                assert!(one.tx().is_intact());
            }
        });
        let mut received = 0;
        for turn in 0.. {
            if received == BYTES {
                break;
            }
            received += receive(&other, 1 + turn * 53 % 7000);
            assert!(other.tx().is_intact());
        }
    });
    assert!(!one.has_undelivered());
    one.tx().shutdown().unwrap();
    assert!(!one.has_undelivered() && one.tx().is_intact());
}

#[test]
fn a_record_that_is_not_taken_is_looked_after() {
    let ([one, other], _place) = ends();
    for queue in [&one, &other] {
        receive(queue, 1);
    }
    for length in [10, 1000, 4000] {
        assert_eq!(send(&one, length), length);
        assert!(one.has_undelivered() && !other.has_undelivered());
        assert_eq!(receive(&other, length), length);
        assert!(!one.has_undelivered());
    }
}

/// Whether an end considers its ring intact after these words of the region were written.
fn after(value: u64, words: impl Fn(&Place) -> Vec<usize>) -> bool {
    let ([one, other], place) = ends();
    assert_eq!(receive(&other, 1), 0);
    for length in [100, 3000, 100] {
        assert_eq!(send(&one, length), length);
    }
    assert!(one.tx().is_intact());
    for word in words(&place) {
        place.word(word).store(value, Ordering::Relaxed);
    }
    one.tx().is_intact()
}

#[test]
fn words_that_are_written_over_are_noticed_by_who_waits() {
    let behind = geometry().shown_bytes();
    // All words that one of the two shows.
    assert!(!after(0, |_| (0..behind).step_by(8).collect()));
    assert!(!after(0, |_| (behind..2 * behind).step_by(8).collect()));
    // One word of this end, or of the other one.
    for word in [MAGIC_WORD, PUBLISHED, PUBLISHED_BYTES, TX_POSITION] {
        assert!(!after(1 << 40, |_| vec![word]), "{word:#x}");
    }
    for word in [MAGIC_WORD, CONSUMED] {
        assert!(!after(1 << 40, |_| vec![behind + word]), "{word:#x}");
    }
    // The header of the second record.
    let header = geometry().cell_at(3);
    assert!(!after(0, |_| vec![header]));
    // Bytes may be wrong, as those of any peer.
    assert!(after(0, |_| vec![geometry().segment_at(0), geometry().segment_at(7)]));
}

#[test]
fn an_end_of_which_nothing_can_be_written_is_always_intact() {
    let [one, _other] = crate::common::queues(false, geometry(), geometry());
    assert!(one.tx().is_intact() && one.rx().is_intact());
    let (one, _other) = linked_pair(geometry(), geometry());
    assert!(one.queue.tx().is_intact() && one.queue.rx().is_intact());
}
