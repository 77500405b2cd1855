//! Races of sizes, in which a function gives the time for a byte.

use super::*;

const BOUNDS: SizeBounds = SizeBounds { least: 1 << 10, most: 1 << 20, record: 1 };
const UNIT: usize = 8 << 20;

/// A simulated stream.
struct Played {
    race: Race,
    now: Duration,
    size: usize,
    changes: usize,
    random: fastrand::Rng,
}

impl Played {
    fn new(size: usize) -> Self {
        let race = Race::new(BOUNDS, 4 << 20);
        let random = fastrand::Rng::with_seed(3);
        Self { race, now: Duration::ZERO, size, changes: 0, random }
    }

    /// Passes units of this many bytes, in which a byte takes `of(size)` nanoseconds, plus at most
    /// the fraction `noise` of that.
    fn units(&mut self, units: usize, bytes: usize, guess: usize, noise: f64, of: fn(f64) -> f64) {
        for _ in 0..units {
            let mut passed = 0;
            let mut is_unit = true;
            while passed < bytes || is_unit {
                let step = if is_unit { 0 } else { 128 << 10 };
                passed += step;
                let size = self.race.trial().unwrap_or(self.size);
                let each = of(size as f64) * (1.0 + noise * self.random.f64());
                self.now += Duration::from_secs_f64(step as f64 * each / 1e9);
                let result = self.race.passed(step, is_unit, self.now, [self.size, guess]);
                if let Some(result) = result {
                    self.size = result.size;
                    self.changes += 1;
                }
                is_unit = false;
            }
        }
    }
}

/// Blocks have a fixed cost, and large ones leave the cache.
fn valley(size: f64) -> f64 {
    1.0 + 4096.0 / size + size / (512.0 * 1024.0)
}

#[test]
fn the_best_of_units_and_of_the_midst_of_long_ones_is_found_and_kept() {
    for bytes in [1 << 20, UNIT, usize::MAX / 2] {
        for guess in [2 << 10, 256 << 10] {
            let mut played = Played::new(guess);
            let units = if bytes > UNIT { 1 } else { (4 << 30) / bytes };
            played.units(units, bytes.min(4 << 30), guess, 0.2, valley);
            // 46 KiB is best, and both of its neighbours are nearly as good.
            assert!((32 << 10..=64 << 10).contains(&played.size), "{bytes} {}", played.size);
            assert!(played.changes <= 3, "{}", played.changes);
        }
    }
}

#[test]
fn where_sizes_make_no_difference_the_guess_stays() {
    let mut played = Played::new(16 << 10);
    played.units(400, UNIT, 16 << 10, 0.0, |_| 1.0);
    assert_eq!((played.size, played.changes), (16 << 10, 0));
    assert!(played.race.has_begun());
}

#[test]
fn where_bytes_take_another_time_all_sizes_run_again() {
    let mut played = Played::new(16 << 10);
    played.units(200, UNIT, 16 << 10, 0.1, valley);
    played.units(400, UNIT, 16 << 10, 0.1, |size| 1.0 + 1e6 / size);
    assert_eq!(played.size, 1 << 20);
}

#[test]
fn sizes_are_whole_records_and_within_bounds() {
    for (least, most, record) in [(1000, 5000, 24), (77, 77, 1), (1, usize::MAX, 1)] {
        let bounds = SizeBounds { least, most, record };
        let mut race = Race::new(bounds, 1);
        for number in 0..3000_u32 {
            let now = Duration::from_millis(10) * number;
            race.passed(2 << 20, true, now, [bounds.nearest(1), bounds.nearest(usize::MAX)]);
            let size = race.trial().unwrap_or(bounds.nearest(1));
            assert!(size % record == 0 && (least..=most).contains(&size), "{size}");
        }
    }
}
