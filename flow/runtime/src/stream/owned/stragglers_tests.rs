//! Simulates three copies in other processes, without the processes.

use bytes::Bytes;

use super::*;
use crate::memory::block::Queued;
use crate::policy::dealing::DealingPolicy;
use crate::policy::fit::Cost;
use crate::stream::elsewhere::{ConsumerLink, ToConsumer};
use crate::stream::owned::Remote;
use crate::stream::unit::{Open, Unit, Units};

/// Room that a block takes of the limit.
const HELD: usize = 10;

/// Blocks that were done before.
const DONE: u64 = 20;

struct Scene {
    unit: Arc<Open>,
    stream: Stream,
    /// The copies that had the block first and second, and the one that did not get it.
    first: usize,
    second: usize,
    third: usize,
}

/// Leads nowhere.
struct NoLink(u32);

impl ConsumerLink for NoLink {
    fn process(&self) -> u32 {
        self.0
    }

    fn cost(&self) -> Option<Cost> {
        None
    }

    fn send(&self, all: &mut Vec<ToConsumer>) {
        all.clear();
    }
}

fn process(copy: usize) -> (u32, u16) {
    (copy as u32 + 1, copy as u16)
}

impl Scene {
    /// A scene with a block that two copies have.
    fn new() -> Self {
        let unit = Units::default().begin(Unit::default(), vec![1]);
        let consumers =
            [0, 1, 2].map(|copy| Some(RemoteCopy::new(Arc::new(NoLink(process(copy).0)), 1 << 20)));
        let remote = Remote {
            consumers: Vec::from(consumers),
            is_redealt: true,
            local_producers: 1,
            ..Remote::default()
        };
        let ends = [1, 3];
        let stream = Stream::new(
            "test".into(),
            1 << 20,
            DealingPolicy::Adaptive,
            false,
            ends,
            false,
            remote,
        );
        let stream = stream.hedged(Some(100), false);
        let mut scene = Self { unit, stream, first: 0, second: 0, third: 0 };
        for sequence in 0..DONE {
            scene.send();
            let copy = scene.holders()[0];
            scene.is_done(copy, sequence);
        }
        scene.send();
        scene.first = scene.holders()[0];
        while scene.holders().len() < 2 {
            let (ended, next) = scene.stream.look();
            assert!(ended.is_empty() && (next.is_some() || scene.holders().len() == 2));
        }
        let is_second = |copy: &usize| *copy != scene.first;
        scene.second = scene.holders().into_iter().find(is_second).unwrap();
        scene.third = 3 - scene.first - scene.second;
        assert_eq!(scene.hedges(), (1, 0));
        scene
    }

    fn send(&self) {
        assert!(self.stream.ledger.reserve(HELD, usize::MAX));
        self.stream.send(&self.unit, 0, (0, 0), Queued::new(Bytes::from_static(b"x"), HELD));
    }

    fn holders(&self) -> Vec<usize> {
        let state = self.stream.state();
        let has_any =
            |one: &Option<RemoteCopy>| one.as_ref().is_some_and(|one| one.unfinished() > 0);
        (0..3).filter(|copy| has_any(&state.remote_copies[*copy])).collect()
    }

    fn is_done(&self, copy: usize, sequence: u64) {
        let (unit, sequences) = (self.unit.rank.unit, [sequence]);
        let times = [Duration::ZERO; 3];
        let (process, copy) = process(copy);
        self.stream.remote_done(process, copy, unit, &sequences, times).unwrap();
        self.stream.dropped(process, copy, unit, &sequences, true).unwrap();
    }

    fn end(&self) {
        self.stream.end(&self.unit, 0, 0);
    }

    fn is_through(&self, copy: usize) {
        let (process, copy) = process(copy);
        self.stream.through(process, copy, self.unit.rank.unit).unwrap();
    }

    /// The copies for which the unit has newly ended, done or not.
    fn over_for(&self) -> Vec<usize> {
        self.stream.look().0.iter().map(|ended| ended.copy).collect()
    }

    fn hedges(&self) -> (u64, u64) {
        let report = self.stream.report();
        (report.hedged, report.hedges_won)
    }

    fn held(&self) -> usize {
        self.stream.ledger.held().0
    }
}

#[test]
fn who_is_first_counts_and_the_unit_is_over_without_the_other_one() {
    for wins in [false, true] {
        let scene = Scene::new();
        let (winner, loser) = match wins {
            true => (scene.second, scene.first),
            false => (scene.first, scene.second),
        };
        scene.is_done(winner, DONE);
        assert_eq!((scene.hedges(), scene.held()), ((1, u64::from(wins)), HELD));
        scene.end();
        assert_eq!(scene.over_for(), [loser]);
        scene.is_through(winner);
        scene.is_through(scene.third);
        assert_eq!(scene.over_for(), [winner, scene.third]);
        // It was late, and reports only now: it is no longer awaited.
        scene.is_through(loser);
        scene.is_done(loser, DONE);
        assert!(scene.over_for().is_empty());
        assert_eq!((scene.hedges(), scene.held()), ((1, u64::from(wins)), 0));
        assert!(scene.holders().is_empty());
    }
}

#[test]
fn either_can_be_lost() {
    for is_first in [true, false] {
        let scene = Scene::new();
        let (lost, left) = match is_first {
            true => (scene.first, scene.second),
            false => (scene.second, scene.first),
        };
        scene.stream.lose(process(lost).0);
        assert_eq!((scene.holders(), scene.held()), (vec![left], HELD));
        scene.end();
        scene.is_done(left, DONE);
        assert_eq!(scene.held(), 0);
        scene.is_through(left);
        assert_eq!(scene.over_for(), [left]);
    }
}

#[test]
fn what_both_have_lost_is_dealt_again_once() {
    let scene = Scene::new();
    scene.stream.lose(process(scene.first).0);
    assert_eq!(scene.holders(), [scene.second]);
    scene.stream.lose(process(scene.second).0);
    assert_eq!((scene.holders(), scene.held()), (vec![scene.third], HELD));
    scene.end();
    scene.is_done(scene.third, DONE);
    assert_eq!(scene.held(), 0);
}

#[test]
fn a_block_that_comes_back_leaves_the_other_copy_with_it() {
    let scene = Scene::new();
    let (unit, sequences) = (scene.unit.rank.unit, [DONE]);
    let (process, copy) = process(scene.first);
    scene.stream.dropped(process, copy, unit, &sequences, false).unwrap();
    assert_eq!((scene.holders(), scene.held()), (vec![scene.second], HELD));
    scene.end();
    scene.is_done(scene.second, DONE);
    assert_eq!(scene.held(), 0);
    [0, 1, 2].into_iter().for_each(|copy| scene.is_through(copy));
    assert_eq!(scene.over_for(), [0, 1, 2]);
}
