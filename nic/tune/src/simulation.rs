//! Simulates whole searches with made-up scores, to count how often they are wrong.

use crate::candidate::NEIGHBOURS;
use crate::race::Race;

/// Number of candidates at the beginning of a search, including the original settings.
const FIRST: usize = 5;

/// Pseudorandom numbers from a seed (xorshift64*, S. Vigna, "An experimental exploration of
/// Marsaglia's xorshift generators, scrambled", 2016).
struct Random(u64);

impl Random {
    /// Uniform in (0, 1].
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal (Box and Muller).
    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A measurement of a true value of 1, with noise of some per cent. With probability
    /// `disturbances`, something else takes the processor or the link for a while.
    fn measurement(&mut self, disturbances: f64) -> f64 {
        let disturbed =
            if self.uniform() < disturbances { 0.4 + 0.5 * self.uniform() } else { 1.0 };
        disturbed * (0.05 * self.normal()).exp()
    }
}

/// The recommendation of a search with time for `measurements` measurements, where `worth` gives
/// the true value of a candidate.
fn recommended(
    random: &mut Random,
    measurements: usize,
    disturbances: f64,
    worth: impl Fn(usize) -> f64,
) -> usize {
    let mut race = Race::new(FIRST, NEIGHBOURS);
    // Other load affects a whole round.
    let (mut round, mut load) = (0, 1.0);
    let mut run = |race: &mut Race, measurements: &mut usize, left: usize| {
        while *measurements > left {
            let Some(candidate) = race.next() else { return };
            if race.rounds() != round {
                (round, load) = (race.rounds(), (0.2 * random.normal()).exp());
            }
            race.record(candidate, load * worth(candidate) * random.measurement(disturbances));
            *measurements -= 1;
        }
    };
    let mut left = measurements;
    run(&mut race, &mut left, measurements * (NEIGHBOURS + 2) / (FIRST + NEIGHBOURS + 2));
    while race.add().is_some() {}
    run(&mut race, &mut left, 0);
    let choice = race.choice();
    if race.is_better(choice) { choice } else { 0 }
}

/// The number of measurements that a search plans.
const PLANNED: usize = 12 * (FIRST + NEIGHBOURS + 2);

#[test]
fn what_is_no_better_is_recommended_less_often_than_promised() {
    let mut random = Random(0x5eec_0001);
    // Without disturbances the intervals are exact; longer searches have more looks.
    for (searches, measurements, disturbances) in
        [(900, PLANNED, 0.04), (900, PLANNED, 0.0), (150, 4 * PLANNED, 0.0)]
    {
        let is_wrong = |_: &i32| recommended(&mut random, measurements, disturbances, |_| 1.0) != 0;
        let wrong = (0..searches).filter(is_wrong).count();
        let promised = f64::from(searches) * (1.0 - crate::Interval::CONFIDENCE);
        // Plus three standard deviations of the count.
        assert!(
            (wrong as f64) < promised + 3.0 * promised.sqrt(),
            "{wrong} of {searches}, {promised} promised"
        );
    }
}

#[test]
fn what_is_much_better_is_recommended_nearly_always() {
    let mut random = Random(0x5eec_0002);
    // A candidate from the beginning, and one that joins.
    for better in [2, FIRST + 3] {
        let worth = |candidate| if candidate == better { 1.3 } else { 1.0 };
        let searches = 200;
        let count = (0..searches)
            .filter(|_| recommended(&mut random, PLANNED, 0.04, worth) == better)
            .count();
        assert!(count * 10 >= searches * 8, "{better}: {count} of {searches}");
    }
}
