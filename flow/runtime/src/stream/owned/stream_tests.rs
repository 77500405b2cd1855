//! Simulates copies that take batches, without threads.

use std::time::Duration;

use super::*;
use crate::memory::batch::Batch;
use crate::memory::block::Queued;
use crate::memory::wakeup::Wakeup;
use crate::policy::cut::OVERHEAD;
use crate::stream::report::Failure;
use crate::stream::unit::{Unit, Units};
use crate::stream::unit_queue::GROUP_ENTRIES;
use crate::stream::work::NextWork;

/// Room that a block takes of the limit.
const HELD: usize = 10;

struct Scene {
    units: Units,
    unit: Arc<Open>,
    stream: Stream,
    batches: Vec<Batch>,
    wakeup: Arc<Wakeup>,
}

impl Scene {
    /// A scene with this many blocks, and copies that take a nanosecond for each.
    fn new(copies: usize, is_ordered: bool, blocks: usize) -> Self {
        let units = Units::default();
        let unit = units.begin(Unit::default(), vec![1]);
        let ends = [1, copies];
        let remote = Remote { local_producers: 1, ..Remote::default() };
        let stream = Stream::new(
            "test".into(),
            1 << 20,
            DealingPolicy::Adaptive,
            is_ordered,
            ends,
            false,
            remote,
        );
        let batches = (0..copies).map(|_| Batch::new(stream.ledger)).collect();
        let mut scene = Self { units, unit, stream, batches, wakeup: Arc::default() };
        scene.send(blocks + copies);
        for copy in 0..copies {
            assert_eq!(scene.take(copy), 1, "nobody knows how long it takes");
            assert_eq!(scene.process(copy, 1), [copy as u64]);
        }
        scene
    }

    fn send(&self, blocks: usize) {
        for _ in 0..blocks {
            assert!(self.stream.ledger.reserve(HELD, usize::MAX));
            self.stream.send(&self.unit, 0, (0, 0), Queued::new(bytes::Bytes::new(), HELD));
        }
    }

    /// How many blocks the copy gets.
    fn take(&mut self, copy: usize) -> usize {
        match self.stream.take(copy, &self.wakeup, &mut self.batches[copy]) {
            Some(NextWork::Blocks) => self.batches[copy].size(),
            _ => 0,
        }
    }

    fn is_notified(&mut self, copy: usize) -> bool {
        let work = self.stream.take(copy, &self.wakeup, &mut self.batches[copy]);
        matches!(work, Some(NextWork::End(_)))
    }

    /// Processes some of the copy's blocks, and leaves the rest. Returns their numbers.
    fn process(&mut self, copy: usize, blocks: usize) -> Vec<u64> {
        let batch = &mut self.batches[copy];
        let processed: Vec<u64> =
            (0..blocks).filter_map(|_| batch.next()).map(|block| block.sequence()).collect();
        self.stream.done(copy, batch, processed.len(), Duration::from_nanos(blocks as u64));
        processed
    }

    fn held(&self) -> usize {
        self.stream.ledger.held().0 / HELD
    }
}

#[test]
fn a_batch_leaves_as_much_for_the_others_and_its_rest_is_theirs() {
    let mut scene = Scene::new(2, false, 100);
    assert_eq!((scene.take(0), scene.take(1)), (50, 25));
    assert_eq!(scene.process(0, 3), [2, 3, 4]);
    assert_eq!(scene.process(1, 2), [52, 53]);
    assert_eq!(scene.held(), 95);
    // In their order again.
    let mut rest = Vec::new();
    for copy in [1, 0].repeat(20) {
        let work = scene.take(copy);
        if work > 0 {
            rest.extend(scene.process(copy, work));
        }
    }
    assert!(rest.iter().copied().eq((5..52).chain(54..102)), "{rest:?}");
    assert_eq!(scene.held(), 0);
}

#[test]
fn the_end_is_announced_when_no_batch_can_put_back() {
    let mut scene = Scene::new(2, false, 4);
    assert_eq!(scene.take(0), 2);
    assert_eq!(scene.take(1), 1);
    assert_eq!(scene.process(1, 1).len(), 1);
    assert_eq!(scene.take(1), 1);
    assert_eq!(scene.process(1, 1).len(), 1);
    scene.stream.end(&scene.unit.clone(), 0, 0);
    assert!(!scene.is_notified(1), "the other one has a block that it has not begun");
    assert_eq!(scene.process(0, 1), [2]);
    assert!(!scene.stream.state().consumers[1].is_idle, "it is woken");
    assert_eq!(scene.take(1), 1);
    assert_eq!(scene.process(1, 1), [3]);
    assert!(scene.is_notified(0) && scene.is_notified(1));
}

#[test]
fn what_all_wait_for_goes_alone() {
    assert_eq!(Scene::new(2, true, 100).take(0), 1);
    // A single copy need not wait for others.
    assert_eq!(Scene::new(1, true, 100).take(0), 64);
}

#[test]
fn what_is_left_of_a_unit_that_has_ended_is_given_back() {
    let mut scene = Scene::new(2, false, 100);
    assert_eq!(scene.take(0), 50);
    assert!(scene.units.end_early(scene.unit.rank.unit, Failure::Cancelled));
    scene.stream.forget(&scene.unit.clone());
    assert_eq!(scene.held(), 50, "what a copy has");
    assert_eq!(scene.process(0, 1), [2]);
    assert_eq!(scene.held(), 0);
    scene.send(1);
    assert_eq!(scene.held(), 0);
    assert_eq!(scene.take(1), 0);
}

#[test]
fn what_is_left_to_a_faster_copy_that_stands_still_is_taken_after_all() {
    let mut scene = Scene::new(2, false, 0);
    for _ in 0..5 {
        scene.send(1);
        assert_eq!(scene.take(1), 1);
        scene.batches[1].next();
        scene.stream.done(1, &mut scene.batches[1], 1, Duration::from_millis(1));
    }
    scene.send(2);
    assert_eq!(scene.take(0), 1);
    scene.stream.end(&scene.unit.clone(), 0, 0);
    assert_eq!(scene.take(1), 0, "the other one would be done with it sooner");
    assert!(scene.batches[1].look_again.is_some());
    while scene.take(1) == 0 {
        assert!(scene.batches[1].look_again.is_some());
    }
    assert_eq!(scene.process(1, 1).len(), 1);
}

#[test]
fn groups_that_cannot_all_be_under_way_are_noticed() {
    let units = Units::default();
    let unit = units.begin(Unit::default(), vec![1]);
    let stream = |is_ordered, is_replayed| {
        let remote = Remote { local_producers: 2, is_replayed, ..Remote::default() };
        Stream::new(
            "test".into(),
            1 << 20,
            DealingPolicy::Adaptive,
            is_ordered,
            [2, 1],
            false,
            remote,
        )
    };
    for (is_ordered, is_replayed) in [(true, false), (false, true)] {
        let stream = stream(is_ordered, is_replayed);
        assert!((1..20_000).all(|group| stream.end_group(&unit, group)), "they follow each other");
        let mut apart = (0..1 << 19).map(|group| stream.end_group(&unit, 200_000 + 2 * group));
        assert!(apart.any(|is_bounded| !is_bounded));
    }
}

/// A slow copy holds the first block, and another one has finished all others.
#[test]
fn finished_groups_that_wait_for_a_slow_one_are_no_violation() {
    let (_units, unit, stream) = ordered(1 << 30);
    for group in 1..=GROUP_ENTRIES as u64 + 1 {
        assert!(stream.ledger.reserve(OVERHEAD, usize::MAX));
        let block = Queued::new(bytes::Bytes::from_static(b""), OVERHEAD);
        stream.send(&unit, 1, (group, 0), block);
        assert!(stream.end_group(&unit, group), "group {group}");
    }
}

/// A slow copy has half of the blocks that its stream can hold, and another one has finished each
/// between them without output.
#[test]
fn as_many_gaps_as_there_can_be_blocks_are_no_violation() {
    let blocks = 2 * GROUP_ENTRIES;
    let remote = Remote { local_producers: 2, input_blocks: blocks, ..Remote::default() };
    let (_units, unit, stream) = ordered_with(1 << 20, remote);
    assert!((0..=blocks as u64).all(|at| stream.end_group(&unit, 1 + 2 * at)));
    assert!(!stream.end_group(&unit, 4 * blocks as u64));
}

/// A stream with two sending copies.
fn ordered(limit: usize) -> (Units, Arc<Open>, Stream) {
    ordered_with(limit, Remote { local_producers: 2, ..Remote::default() })
}

fn ordered_with(limit: usize, remote: Remote) -> (Units, Arc<Open>, Stream) {
    let units = Units::default();
    let unit = units.begin(Unit::default(), vec![1]);
    let stream =
        Stream::new("s".into(), limit, DealingPolicy::Adaptive, true, [2, 1], false, remote);
    (units, unit, stream)
}

#[test]
fn what_is_lent_is_for_whom_all_wait_and_ends_with_the_turn_or_the_unit() {
    const LIMIT: usize = 1 << 20;
    let (units, unit, stream) = ordered(LIMIT);
    let id = unit.rank.unit;
    stream.ledger.lend((id, 2), 1000);
    assert_eq!(stream.most(&unit, 0), LIMIT + 1000);
    assert_eq!(stream.most(&unit, 2), LIMIT - LIMIT / 4);
    assert_eq!(stream.largest(), LIMIT / 4);
    stream.end_group(&unit, 0);
    assert_eq!(stream.most(&unit, 1), LIMIT + 1000);
    stream.end_group(&unit, 1);
    assert_eq!(stream.most(&unit, 2), LIMIT);
    stream.ledger.lend((id, 7), 1000);
    assert_eq!(stream.report().limit, LIMIT);
    assert!(units.end_early(id, Failure::Cancelled));
    stream.forget(&unit);
    assert_eq!((stream.ledger.most(), stream.ledger.held()), (LIMIT, (2000, 2000)));
}

#[test]
fn no_block_is_larger_than_its_length_can_be_written() {
    let (_, _, mut stream) = ordered(64 << 30);
    assert_eq!(stream.largest(), 16 << 30);
    stream.goes_elsewhere = true;
    assert_eq!(stream.largest(), u32::MAX as usize + 128);
    assert_eq!(stream.share(), u32::MAX as usize + 128);
}
