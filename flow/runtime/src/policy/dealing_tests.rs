//! Simulates copies of given speeds, in virtual time.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;

use super::{Backlog, Dealer, DealingPolicy};

/// Nanoseconds that a copy takes for a block begun at that time.
type Speed = Box<dyn Fn(u64) -> u64>;

/// When all blocks are processed if all are there at the beginning, and how many each copy got.
fn play(policy: DealingPolicy, blocks: usize, speeds: &[Speed]) -> (u64, Vec<usize>) {
    let mut dealer = Dealer::new(policy, speeds.len());
    let mut queues = vec![0; speeds.len()];
    let mut undealt = 0;
    for _ in 0..blocks {
        match dealer.deal() {
            Some(copy) => queues[copy] += 1,
            None => undealt += 1,
        }
    }
    let (mut now, mut done) = (0, vec![0; speeds.len()]);
    let mut busy = vec![false; speeds.len()];
    let mut ends: BinaryHeap<Reverse<(u64, usize, u64)>> = BinaryHeap::new();
    loop {
        let mut idle: Vec<usize> = (0..speeds.len()).filter(|copy| !busy[*copy]).collect();
        dealer.by_speed(&mut idle);
        for copy in idle {
            let backlog = Backlog { blocks: undealt, is_last: true };
            if queues[copy] == 0 && dealer.may_take(copy, backlog) {
                dealer.assigned(copy, 1);
                undealt -= 1;
                queues[copy] += 1;
            }
            if queues[copy] > 0 {
                queues[copy] -= 1;
                dealer.began(copy, 1);
                busy[copy] = true;
                let takes = speeds[copy](now);
                ends.push(Reverse((now + takes, copy, takes)));
            }
        }
        let Some(Reverse((time, copy, took))) = ends.pop() else { break };
        now = time;
        busy[copy] = false;
        done[copy] += 1;
        dealer.done(copy, 1, 1, Duration::from_nanos(took));
    }
    assert_eq!(done.iter().sum::<usize>(), blocks, "no block is forgotten");
    (now, done)
}

fn steady(takes: &[u64]) -> Vec<Speed> {
    takes.iter().copied().map(|takes| Box::new(move |_| takes) as Speed).collect()
}

/// The work divided by the sum of the speeds: no dealing can be faster.
fn oracle(blocks: usize, takes: &[u64]) -> f64 {
    blocks as f64 / takes.iter().map(|takes| 1.0 / *takes as f64).sum::<f64>()
}

const MS: u64 = 1_000_000;

#[test]
fn every_policy_is_listed_once_under_its_own_name() {
    let read = |at: usize| postcard::from_bytes::<DealingPolicy>(&[at as u8]);
    let all: Vec<_> = (0..).map_while(|at| read(at).ok()).collect();
    assert_eq!(all.len(), DealingPolicy::ALL.len());
    for policy in all {
        let same = |other: &&DealingPolicy| other.name() == policy.name();
        assert_eq!(DealingPolicy::ALL.iter().filter(same).collect::<Vec<_>>(), [&policy]);
        let deals_at_once = Dealer::new(policy, 2).deal().is_some();
        assert_ne!(policy.binds_late(), deals_at_once, "{policy:?}");
    }
}

#[test]
fn in_turn_the_slowest_copy_decides() {
    let takes = [MS, MS, 8 * MS];
    let (end, done) = play(DealingPolicy::RoundRobin, 300, &steady(&takes));
    assert_eq!((end, done), (800 * MS, vec![100, 100, 100]));
}

#[test]
fn adaptive_comes_close_to_the_sum_of_speeds() {
    for takes in [vec![MS, MS, 2 * MS], vec![MS, MS, 10 * MS], vec![MS, 3 * MS, 7 * MS, 10 * MS]] {
        let (end, _) = play(DealingPolicy::Adaptive, 1000, &steady(&takes));
        let ratio = end as f64 / oracle(1000, &takes);
        assert!(ratio < 1.02, "{takes:?}: {ratio}");
    }
}

/// Copies that take `factor` times as long for this percentage of the blocks: the same blocks,
/// whichever copy gets them; and the sum of all times.
fn drawn(copies: usize, percent: u64, factor: u64) -> (Vec<Speed>, Rc<Cell<u64>>) {
    let (next, sum) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0)));
    let copy = |_| {
        let (next, sum) = (Rc::clone(&next), Rc::clone(&sum));
        let speed = move |_| {
            let block = next.replace(next.get() + 1);
            let is_slow = (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 100 < percent;
            let takes = if is_slow { factor * MS } else { MS };
            sum.set(sum.get() + takes);
            takes
        };
        Box::new(speed) as Speed
    };
    ((0..copies).map(copy).collect(), sum)
}

#[test]
fn speeds_that_change_from_block_to_block_cost_adaptive_little() {
    for factor in [2, 4, 10] {
        for percent in [0, 10, 20, 50, 80, 100] {
            let (speeds, sum) = drawn(3, percent, factor);
            let (end, _) = play(DealingPolicy::Adaptive, 1000, &speeds);
            let ratio = end as f64 / (sum.get() as f64 / 3.0);
            assert!(ratio < 1.03, "{percent} %, factor {factor}: {ratio}");
        }
    }
}

#[test]
fn one_pause_does_not_banish_a_copy() {
    let paused = |now| if (100 * MS..101 * MS).contains(&now) { 200 * MS } else { MS };
    let speeds: Vec<Speed> = vec![Box::new(|_| MS), Box::new(|_| MS), Box::new(paused)];
    let (_, done) = play(DealingPolicy::Adaptive, 3000, &speeds);
    // Of 3000 blocks in about 1067 ms, it missed those of 200 ms, and at most two more.
    assert!((865..=868).contains(&done[2]), "{done:?}");
}

#[test]
fn what_was_slow_once_is_fast_again() {
    let speeds: Vec<Speed> =
        vec![Box::new(|_| MS), Box::new(|now| if now < 500 * MS { 20 * MS } else { MS })];
    let (end, _) = play(DealingPolicy::Adaptive, 1000, &speeds);
    // 525 blocks in the first 500 ms, and two a millisecond after that.
    assert!(end < 760 * MS, "{end}");
}

#[test]
fn a_batch_is_short_and_leaves_most_to_the_others() {
    let mut dealer = Dealer::new(DealingPolicy::Adaptive, 3);
    let batch =
        |dealer: &Dealer, copy, blocks, is_last| dealer.batch(copy, Backlog { blocks, is_last });
    assert_eq!(batch(&dealer, 0, 1000, false), 1, "nobody knows how long it takes");
    for (copy, each) in [(0, 1_000), (1, 10_000), (2, MS)] {
        dealer.assigned(copy, 2);
        dealer.began(copy, 2);
        dealer.done(copy, 2, 2, Duration::from_nanos(2 * each));
    }
    let [first, second, third] = [0, 1, 2].map(|copy| batch(&dealer, copy, 1000, false));
    assert_eq!((first, second, third), (30, 3, 1));
    assert_eq!(batch(&dealer, 0, 30, false), 10);
    assert_eq!(batch(&dealer, 0, 30, true), 2);
    assert_eq!(batch(&dealer, 0, 11, true), 1);
    // Blocks that it did not process are no evidence about it.
    dealer.assigned(2, 5);
    dealer.began(2, 5);
    dealer.done(2, 5, 0, Duration::ZERO);
    assert_eq!(batch(&dealer, 2, 1000, false), 1);
}

#[test]
fn demand_evens_out_the_queues() {
    let mut dealer = Dealer::new(DealingPolicy::Demand, 3);
    let dealt: VecDeque<_> = (0..6).map(|_| dealer.deal().unwrap()).collect();
    assert_eq!(dealt, [0, 1, 2, 0, 1, 2]);
    dealer.began(1, 1);
    assert_eq!(dealer.deal(), Some(1));
    dealer.dropped(2);
    assert_eq!(dealer.deal(), Some(2));
}

proptest! {
    /// Even with arbitrary speeds, it finishes at most one block later than dealing in turn.
    #[test]
    fn adaptive_is_never_slower_than_in_turn(
        takes in prop::collection::vec(1..20u64, 1..6),
        blocks in 1..200usize,
    ) {
        let takes: Vec<u64> = takes.into_iter().map(|takes| takes * MS).collect();
        let (in_turn, _) = play(DealingPolicy::RoundRobin, blocks, &steady(&takes));
        let (adaptive, _) = play(DealingPolicy::Adaptive, blocks, &steady(&takes));
        let slowest = takes.iter().max().unwrap();
        prop_assert!(adaptive <= in_turn + slowest, "{adaptive} {in_turn}");
        let bound = oracle(blocks, &takes) + 2.0 * *slowest as f64;
        prop_assert!(adaptive as f64 <= bound, "{adaptive} {bound}");
    }
}
