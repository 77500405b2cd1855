//! Simulates a pipeline: a link and copies with linear costs.

use super::*;
use crate::policy::sizes::Sizes;

const ALL: SizeBounds = SizeBounds { least: 64, most: 1 << 22, record: 1 };

fn micros(of: f64) -> Duration {
    Duration::from_secs_f64(of / 1e6)
}

/// Passes blocks to `copies` after one link. Returns the final size, and how often it changed.
fn play(copy: Cost, link: Option<Cost>, copies: usize, noise: f64) -> (usize, usize) {
    let process = link.map(|_| 7);
    let mut tuner = Tuner::new(ALL, usize::MAX, vec![process; copies], Aim::Throughput);
    let sizes = Sizes::new(ALL, usize::MAX);
    let mut random = fastrand::Rng::with_seed(5);
    let mut changes = 0;
    let mut fit = Fit::of_link();
    for number in 0..20_000 {
        let size = sizes.next();
        let error = 1.0 + noise * (random.f64() - 0.5);
        let took = Duration::from_secs_f64(copy.of(size as f64) * error);
        tuner.served(number % copies, 1, size, took);
        let took = Duration::from_secs_f64(link.unwrap_or_default().of(size as f64));
        fit.add(1, size as u64, took);
        if tuner.is_time() {
            if let Some(decision) = tuner.think(process.map(|to| (to, fit.cost())).into_iter()) {
                assert_eq!(decision.from, sizes.get());
                sizes.set(decision.to);
                changes += 1;
            }
        }
    }
    (sizes.get(), changes)
}

#[test]
fn a_unit_has_blocks_for_all_copies() {
    let free = Path { link: None, copy: Cost { block: 1e-3, byte: 1e-10 } };
    let choose = |unit| choose(&[free; 4], 0.0, ALL, Aim::Throughput, unit);
    assert_eq!(choose(None), Some((ALL.most, SizeReason::Most)));
    assert_eq!(choose(Some(1e6)), Some((32_768, SizeReason::Unit)));
    assert_eq!(choose(Some(1.0)), Some((ALL.least, SizeReason::Least)));
}

/// From the paper: a link of 47.5 us and 510 Mb/s, and 18 ns for a byte: 20.5 KB; of 9.5 us and 763
/// Mb/s: 1264 B. There, a link is occupied while a block is on its way.
#[test]
fn the_papers_sizes_come_out_of_its_links() {
    for (alpha, megabits, expected) in [(47.5e-6, 510.0, 20_500.0), (9.5e-6, 763.0, 1264.0)] {
        let link = Cost { block: alpha, byte: 8.0 / (megabits * 1e6) };
        let copy = Cost { block: 0.0, byte: 18e-9 };
        let bounds = SizeBounds { least: 1, most: 1 << 20, record: 1 };
        let perfect = link.block / (copy.byte - link.byte);
        let paths = [Path { link: Some((1, link)), copy }];
        let (size, reason) = choose(&paths, 0.0, bounds, Aim::Throughput, None).unwrap();
        let overhead = link.block / (OVERHEAD * (link.byte + copy.byte));
        // The second is so small that the fixed cost of blocks decides.
        let (expected, of) = match reason {
            SizeReason::Pipelining => (expected, perfect),
            _ => (overhead, overhead),
        };
        assert!((0.8..1.25).contains(&(size as f64 / expected)), "{size} {reason:?} {of}");
        assert!(size as f64 >= 0.8 * perfect);
    }
}

#[test]
fn the_size_is_found_and_kept() {
    let copy = Cost { block: 2e-6, byte: 1e-9 };
    // 16 times 2 us / 1 ns.
    let (size, changes) = play(copy, None, 3, 0.3);
    assert!((20_000..=50_000).contains(&size), "{size}");
    assert!(changes < 12, "{changes} changes");
}

#[test]
fn a_link_that_cannot_keep_up_asks_for_larger_blocks() {
    let copy = Cost { block: 0.0, byte: 10e-9 };
    let link = Cost { block: 40e-6, byte: 8e-9 };
    let (size, _) = play(copy, Some(link), 1, 0.1);
    assert!((16_000..=50_000).contains(&size), "{size}");
    // If the link is the bottleneck at any size, the fixed cost of blocks still has to be small.
    let slow = Cost { block: 40e-6, byte: 80e-9 };
    let (size, _) = play(copy, Some(slow), 1, 0.1);
    assert!((5_000..=10_000).contains(&size), "{size}");
}

#[test]
fn costly_bytes_make_small_blocks_and_free_ones_the_largest() {
    assert_eq!(play(Cost { block: 1e-9, byte: 1e-6 }, None, 2, 0.1).0, ALL.least);
    assert_eq!(play(Cost { block: 1e-3, byte: 0.0 }, None, 2, 0.1).0, ALL.most);
}

#[test]
fn a_pause_says_little() {
    let mut fit = Fit::of_copy();
    let add = |fit: &mut Fit, number: usize| {
        let size = size_of(PROBES + number, 16_384, ALL);
        fit.add(1, size as u64, micros(10.0 + size as f64 / 1000.0));
    };
    (0..64).for_each(|number| add(&mut fit, number));
    fit.add(1, 16_384, Duration::from_millis(200));
    (0..16).for_each(|number| add(&mut fit, number));
    let Cost { block, byte } = fit.cost().unwrap();
    assert!((5e-6..15e-6).contains(&block) && (0.7e-9..1.5e-9).contains(&byte), "{block} {byte}");
}

#[test]
fn nothing_is_divided_by_nothing() {
    let mut fit = Fit::of_copy();
    for _ in 0..100 {
        fit.add(1, 0, Duration::ZERO);
        fit.add(0, 1, Duration::ZERO);
    }
    assert_eq!(fit.cost(), None);
    for _ in 0..100 {
        fit.add(1, 1000, Duration::ZERO);
    }
    assert_eq!(fit.cost(), Some(Cost::default()));
    let free = Path { link: Some((1, Cost::default())), copy: Cost::default() };
    assert_eq!(
        choose(&[free], 0.0, ALL, Aim::Throughput, None),
        Some((ALL.least, SizeReason::Least))
    );
    assert_eq!(choose(&[], 1.0, ALL, Aim::Throughput, None), None);
}

#[test]
fn sizes_stay_within_their_bounds() {
    let bounds = SizeBounds { least: 1000, most: 5000, record: 1 };
    let sizes = Sizes::new(bounds, usize::MAX);
    for _ in 0..100 {
        assert!((1000..=5000).contains(&sizes.next()));
    }
    let narrow = SizeBounds { least: 77, most: 77, record: 1 };
    assert_eq!(Sizes::new(narrow, usize::MAX).next(), 77);
    let records = SizeBounds { least: 100, most: 5000, record: 24 };
    for room in [usize::MAX, 500, 120] {
        let sizes = Sizes::new(records, room);
        for _ in 0..400 {
            let size = sizes.next();
            assert!(size % 24 == 0 && (120..=room.min(5000)).contains(&size), "{size}");
        }
    }
    assert_eq!(records.needed(), 120);
    assert!(!SizeBounds { least: 100, most: 119, record: 24 }.is_sound());
    assert!(!SizeBounds { record: 0, ..records }.is_sound());
}

#[test]
fn a_remote_sender_has_its_own_link_and_gets_the_rest_reported() {
    let mut tuner = Tuner::new(ALL, usize::MAX, Vec::new(), Aim::Throughput);
    tuner.set_reported(Cost { block: 0.0, byte: 10e-9 });
    let mut fit = Fit::of_link();
    let mut size = first(ALL);
    for number in 1..200 {
        let bytes = size_of(number, size, ALL) as u64;
        fit.add(1, bytes, Duration::from_secs_f64(40e-6 + 8e-9 * bytes as f64));
        tuner.counts(number as u64 * OFTEN[1]);
        assert!(tuner.is_time());
        let links = std::iter::once((0, fit.cost()));
        size = tuner.think(links).map_or(size, |decision| decision.to);
    }
    // 16 times 40 us / 18 ns.
    assert!((25_000..=45_000).contains(&size), "{size}");
}

#[test]
fn a_guarantee_makes_blocks_smaller_and_no_smaller_than_it_needs() {
    let link = Cost { block: 10e-6, byte: 2e-9 };
    let paths = [Path { link: Some((1, link)), copy: Cost { block: 2e-6, byte: 18e-9 } }; 3];
    let choose = |aim, unit| choose(&paths, 1e-6, ALL, aim, unit).unwrap();
    let (usual, reason) = choose(Aim::Throughput, None);
    assert!(usual > 8 << 10, "{usual} {reason:?}");
    // One millisecond for each of four blocks on two streams: 125 us, of which 12 us are the
    // block's.
    let latency = Aim::of(Some(Guarantee::Latency(Duration::from_millis(1))), 2);
    let (size, reason) = choose(latency, None);
    assert_eq!(reason, SizeReason::Latency);
    assert!((4800..=6500).contains(&size), "{size}");
    // A guarantee that limits nothing changes nothing.
    let long = Aim::of(Some(Guarantee::Latency(Duration::from_secs(10))), 2);
    assert_eq!(choose(long, None), (usual, choose(Aim::Throughput, None).1));
    // 16 MiB take 100 ms at 6 ns for each byte: five in a second need little.
    let rate = |rate| Aim::of(Some(Guarantee::Rate(rate)), 2);
    let (size, reason) = choose(rate(5.0), Some(16e6));
    assert_eq!(reason, SizeReason::Rate);
    let bytes = size as f64;
    for (cost, copies) in [(paths[0].copy, 3.0), (link, 1.0)] {
        let rate = copies * bytes / cost.of(bytes) / 16e6;
        assert!(rate >= 5.0, "{rate}");
    }
    assert!(size < usual / 4, "{size} {usual}");
    // The size of a unit is unknown, or no size is enough: the same as without a guarantee.
    assert_eq!(choose(rate(5.0), None).0, usual);
    assert_eq!(choose(rate(50.0), Some(16e6)).0, usual);
}
