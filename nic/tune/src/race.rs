//! A race: decides which candidate is measured next, which is dropped, and when the race ends.
//! All candidates run round by round, and one that seems worse than the leader is dropped. After O.
//! Maron and A. Moore, "Hoeffding Races", NIPS 1994, with the paired test of M. Birattari and
//! others, "A Racing Algorithm for Configuring Metaheuristics", GECCO 2002.
//!
//! There are two kinds of intervals. To drop a candidate, a single interval of the search's
//! confidence is enough, because losing a good candidate is a pity but not an error. To claim that
//! one is better than the original settings, intervals that hold simultaneously are needed.

use crate::alpha_spending::{Look, Looks};
use crate::interval::Interval;

/// Candidates whose ratio is significantly within this factor count as equally good.
const MARGIN: f64 = 1.02;

/// A race, without clock and I/O. Candidate 0 is the reference for all others and runs to the end.
#[derive(Debug)]
pub(crate) struct Race {
    looks: Looks,
    runners: Vec<Runner>,
    round: usize,
    /// Candidates that have not run in this round yet; the next one is last.
    waiting: Vec<usize>,
    is_decided: bool,
    /// How many candidates may still join.
    more: usize,
}

#[derive(Debug, Default)]
struct Runner {
    /// Round and score; larger is better.
    scores: Vec<(usize, f64)>,
    is_out: bool,
    has_failed: bool,
}

impl Race {
    /// A race of `count` candidates in which up to `more` may join.
    pub(crate) fn new(count: usize, more: usize) -> Self {
        let looks = Looks::new((count + more).saturating_sub(1));
        let runners = (0..count).map(|_| Runner::default()).collect();
        Self { looks, runners, round: 0, waiting: Vec::new(), is_decided: false, more }
    }

    /// Adds a candidate from the next round on. Returns `None` when the limit is reached: the
    /// simultaneous intervals depend on the number of candidates.
    pub(crate) fn add(&mut self) -> Option<usize> {
        self.more = self.more.checked_sub(1)?;
        self.is_decided = false;
        self.runners.push(Runner::default());
        Some(self.runners.len() - 1)
    }

    /// The candidate to measure next. Returns `None` when the race is decided.
    pub(crate) fn next(&mut self) -> Option<usize> {
        if self.is_decided {
            return None;
        }
        if self.waiting.is_empty() {
            self.judge();
            let running = self.running();
            if self.is_decided || running.is_empty() {
                self.is_decided = true;
                return None;
            }
            self.round += 1;
            self.waiting = running;
            self.waiting.insert(0, 0);
            // The order alternates, so that a drift affects all candidates equally. The very first
            // measurement is of the original settings: a failure can be blamed on other settings
            // only if these work.
            if self.round % 2 != 0 {
                self.waiting.reverse();
            }
        }
        self.waiting.pop()
    }

    /// Records the score of `candidate`: a positive number, larger is better.
    pub(crate) fn record(&mut self, candidate: usize, score: f64) {
        self.runners[candidate].scores.push((self.round, score));
    }

    /// Removes `candidate`, which cannot be measured.
    pub(crate) fn fail(&mut self, candidate: usize) {
        let runner = &mut self.runners[candidate];
        (runner.is_out, runner.has_failed) = (true, true);
        self.waiting.retain(|waiting| *waiting != candidate);
    }

    /// Number of rounds that have begun.
    pub(crate) fn rounds(&self) -> usize {
        self.round
    }

    /// How often `candidate` was measured.
    pub(crate) fn measured(&self, candidate: usize) -> usize {
        self.runners[candidate].scores.len()
    }

    /// True if `candidate` was dropped because it seemed to be worse.
    pub(crate) fn is_worse(&self, candidate: usize) -> bool {
        let runner = &self.runners[candidate];
        runner.is_out && !runner.has_failed
    }

    /// True if `candidate` could not be measured.
    pub(crate) fn has_failed(&self, candidate: usize) -> bool {
        self.runners[candidate].has_failed
    }

    /// How much better `candidate` is than candidate 0, with an interval that holds simultaneously
    /// with all others. `None` if they have too few common rounds.
    pub(crate) fn gain(&self, candidate: usize) -> Option<Interval> {
        self.interval(candidate, 0, |look| look.of_all)
    }

    /// How much better `one` is than `other`, with a single interval.
    fn apart(&self, one: usize, other: usize) -> Option<Interval> {
        self.interval(one, other, |look| look.single)
    }

    fn interval(&self, one: usize, other: usize, quantile: fn(Look) -> f64) -> Option<Interval> {
        let pairs = self.pairs(one, other);
        let look = self.looks.last(pairs.len())?;
        Interval::of(&pairs[..look.rounds], quantile(look))
    }

    /// The running candidate with the largest gain over candidate 0 after enough rounds, or 0 if no
    /// candidate gains.
    pub(crate) fn leader(&self) -> usize {
        let gains = self.running().into_iter().filter_map(|candidate| {
            let pairs = self.pairs(candidate, 0);
            let mean = pairs.iter().map(|(one, other)| (one / other).ln()).sum::<f64>()
                / pairs.len() as f64;
            (pairs.len() >= Looks::rounds(0)).then_some((candidate, mean))
        });
        gains.fold((0, 0.0), |best, gain| if gain.1 > best.1 { gain } else { best }).0
    }

    /// The final choice: the running candidate with the largest significant gain over candidate 0,
    /// because one that joined late can lead by luck. If no running candidate has a significant
    /// gain, the best dropped one that has: a late candidate may have displaced it without time to
    /// become significant itself. If there is none either, the leader.
    pub(crate) fn choice(&self) -> usize {
        let surest = |candidates: Vec<usize>| {
            let gains = candidates.into_iter().filter_map(|candidate| {
                let gain = self.gain(candidate).filter(Interval::is_above)?;
                Some((candidate, gain.low))
            });
            gains.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(candidate, _)| candidate)
        };
        let has_left =
            || (1..self.runners.len()).filter(|candidate| self.is_worse(*candidate)).collect();
        surest(self.running()).or_else(|| surest(has_left())).unwrap_or_else(|| self.leader())
    }

    /// True if `candidate` is significantly better than the original settings.
    pub(crate) fn is_better(&self, candidate: usize) -> bool {
        candidate != 0 && self.gain(candidate).is_some_and(|gain| gain.is_above())
    }

    /// The running candidates, without 0.
    fn running(&self) -> Vec<usize> {
        (1..self.runners.len()).filter(|candidate| !self.runners[*candidate].is_out).collect()
    }

    fn pairs(&self, one: usize, other: usize) -> Vec<(f64, f64)> {
        let others = &self.runners[other].scores;
        let partner =
            |round: usize| others.iter().find(|(at, _)| *at == round).map(|(_, score)| *score);
        let scores = self.runners[one].scores.iter();
        scores.filter_map(|(round, score)| Some((*score, partner(*round)?))).collect()
    }

    fn judge(&mut self) {
        self.looks.reach(self.round);
        let leader = self.leader();
        let mut is_decided = true;
        for candidate in
            self.running().into_iter().chain([0]).filter(|candidate| *candidate != leader)
        {
            match self.apart(leader, candidate) {
                // Candidate 0 stays as the reference; only a simultaneous interval beats it.
                Some(interval) if interval.is_above() && candidate == 0 => {
                    is_decided &= self.is_better(leader)
                }
                Some(interval) if interval.is_above() => self.runners[candidate].is_out = true,
                Some(interval) if interval.is_within(MARGIN) => {}
                _ => is_decided = false,
            }
        }
        self.is_decided = is_decided;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs until it is decided, or for `most` rounds; a score follows from candidate and round.
    fn run(race: &mut Race, most: usize, score: impl Fn(usize, usize) -> f64) {
        while let Some(candidate) = race.next() {
            if race.rounds() > most {
                return;
            }
            race.record(candidate, score(candidate, race.rounds()));
        }
    }

    /// Noise of some per cent that has nothing to do with the candidate's quality.
    fn noise(candidate: usize, round: usize) -> f64 {
        [1.0, 1.03, 0.96, 1.01, 0.99, 1.04, 0.97]
            [(candidate * 3 + round * 5 + candidate * round) % 7]
    }

    #[test]
    fn the_better_one_wins_and_the_worse_leave_early() {
        let mut race = Race::new(4, 1);
        run(&mut race, 100, |candidate, round| {
            [100.0, 130.0, 50.0, 101.0][candidate] * noise(candidate, round)
        });
        assert_eq!(race.leader(), 1);
        assert!(race.rounds() < 20, "{}", race.rounds());
        assert!(race.is_worse(2) && race.is_worse(3) && !race.is_worse(1) && !race.is_worse(0));
        assert_eq!(race.measured(2), 4);
        let gain = race.gain(1).unwrap();
        assert!(gain.is_above() && gain.low < 1.3 && gain.high > 1.3, "{gain:?}");
        assert_eq!(race.next(), None);
    }

    #[test]
    fn what_was_found_can_win() {
        let mut race = Race::new(3, 1);
        run(&mut race, 100, |candidate, round| {
            [100.0, 80.0, 60.0][candidate] * noise(candidate, round)
        });
        assert!(race.leader() == 0 && race.rounds() < 20);
        assert!(race.is_worse(1) && race.is_worse(2));
    }

    #[test]
    fn equals_are_found_to_be_equal() {
        let mut race = Race::new(2, 1);
        run(&mut race, 1000, |candidate, round| 100.0 * (1.0 + 0.001 * noise(candidate, round)));
        assert!(race.rounds() < 10 && !race.is_worse(1));
    }

    #[test]
    fn noise_alone_decides_nothing() {
        let mut race = Race::new(2, 1);
        run(
            &mut race,
            50,
            |candidate, round| if (candidate + round) % 2 == 0 { 150.0 } else { 100.0 },
        );
        assert_eq!(race.rounds(), 51);
        assert!(!race.gain(1).unwrap().is_above() && !race.is_worse(1));
    }

    #[test]
    fn the_surest_of_equals_is_chosen() {
        let mut race = Race::new(2, 1);
        run(&mut race, 20, |candidate, round| [100.0, 200.0][candidate] * noise(candidate, round));
        let late = race.add().unwrap();
        // It leads, but by a few rounds that are far apart.
        let begin = race.rounds();
        run(&mut race, begin + 9, |candidate, round| {
            let luck = if round % 2 == 0 { 1.2 } else { 0.95 };
            [100.0, 200.0, 200.0 * luck][candidate] * noise(candidate, round)
        });
        assert!(race.leader() == late && !race.is_worse(1));
        assert!(race.gain(late).unwrap().is_above());
        assert_eq!(race.choice(), 1);
    }

    #[test]
    fn a_sure_gain_is_not_lost_to_one_that_had_no_time_to_become_sure() {
        let mut race = Race::new(2, 10);
        run(&mut race, 20, |candidate, round| [100.0, 130.0][candidate] * noise(candidate, round));
        assert!(race.is_better(1));
        let late = race.add().unwrap();
        let begin = race.rounds();
        run(&mut race, begin + 4, |candidate, round| {
            let luck = if round % 2 == 0 { 1.1 } else { 0.91 };
            [100.0, 130.0, 195.0 * luck][candidate]
        });
        assert!(race.leader() == late && race.is_worse(1) && !race.is_better(late));
        assert_eq!(race.choice(), 1);
        assert!(race.is_better(1));
    }

    #[test]
    fn the_leader_is_chosen_where_nobody_gains() {
        let mut race = Race::new(2, 1);
        run(
            &mut race,
            50,
            |candidate, round| if (candidate + round) % 2 == 0 { 150.0 } else { 100.0 },
        );
        assert_eq!(race.choice(), race.leader());
    }

    #[test]
    fn the_order_alternates() {
        let mut race = Race::new(3, 1);
        let mut order = Vec::new();
        for _ in 0..6 {
            let candidate = race.next().unwrap();
            race.record(candidate, 1.0);
            order.push(candidate);
        }
        assert_eq!(order, [0, 1, 2, 2, 1, 0]);
    }

    #[test]
    fn one_that_fails_runs_no_more() {
        let mut race = Race::new(3, 1);
        assert_eq!(race.next(), Some(0));
        race.record(0, 1.0);
        assert_eq!(race.next(), Some(1));
        race.fail(1);
        race.fail(2);
        assert_eq!(race.next(), None);
        assert!(race.has_failed(1) && !race.is_worse(1) && race.leader() == 0);
    }

    #[test]
    fn one_that_joins_late_is_compared_in_shared_rounds() {
        let mut race = Race::new(2, 1);
        // The machine becomes ten times as fast afterwards.
        run(&mut race, 100, |candidate, round| [100.0, 120.0][candidate] * noise(candidate, round));
        assert_eq!(race.leader(), 1);
        let late = race.add().unwrap();
        run(&mut race, 100, |candidate, round| {
            [1000.0, 1200.0, 1500.0][candidate] * noise(candidate, round)
        });
        assert_eq!(race.leader(), late);
        assert!(race.is_worse(1));
        let gain = race.gain(late).unwrap();
        assert!(
            gain.low < 1.5 && gain.high > 1.5 && gain.rounds <= race.measured(late),
            "{gain:?}"
        );
    }
}
