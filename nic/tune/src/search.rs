//! The search: applies settings and measures them, in turns.

use std::time::{Duration, Instant};

use seekwire_gauge::{Client, Reading, Test};
use seekwire_nic::{Interface, Plan, Session};
use serde::Serialize;

use crate::candidate::{self, Candidate, NEIGHBOURS};
use crate::error::Error;
use crate::goal::{Figures, Goal};
use crate::interval::Interval;
use crate::link_file::LinkFile;
use crate::persistent::Lasting;
use crate::race::Race;

/// Number of rounds for which the time is divided, for the first candidates and for those that
/// join.
const ROUNDS: u32 = 12;
/// Shortest and longest duration of one test.
const SLOT: [Duration; 2] = [Duration::from_millis(40), Duration::from_secs(1)];

/// Goal, duration and parameters of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchOptions {
    /// The quantity to improve.
    pub goal: Goal,
    /// Time for all measurements together. Only the last measurement may exceed it.
    pub time: Duration,
    /// Message sizes in bytes; if empty, those of the goal.
    pub sizes: Vec<usize>,
    /// As in [`Test::congestion`].
    pub congestion: Option<String>,
    /// How long to wait for the link after a change, even beyond `time`. A candidate that keeps the
    /// link down for half as long is dropped. If the link does not come back with the original
    /// settings, the search fails. [`seekwire_gauge::LINK_RETURN`] is enough for every link.
    pub patience: Duration,
}

/// Progress of a search.
#[derive(Debug)]
pub enum Progress<'a> {
    /// Candidates join the search.
    Trying(Vec<String>),
    /// A candidate was measured.
    Measured {
        /// Its name.
        name: String,
        /// The round, counted from 1.
        round: usize,
        /// The measured figures.
        figures: &'a Figures,
    },
    /// The peer does not answer with the settings of a candidate; the measurement is retried.
    Waiting {
        /// Its name.
        name: String,
        /// Why.
        error: &'a seekwire_gauge::Error,
        /// Maximum duration of the retries, in seconds.
        seconds: u64,
    },
    /// A candidate cannot be measured.
    Failed {
        /// Its name.
        name: String,
        /// Why.
        error: &'a seekwire_gauge::Error,
    },
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SearchResult {
    /// The interface.
    pub interface: String,
    /// The quantity to improve.
    pub goal: Goal,
    /// Number of rounds that have begun.
    pub rounds: usize,
    /// Duration of the search in seconds.
    pub seconds: f64,
    /// True if the race was decided, false if the time ran out.
    pub is_decided: bool,
    /// [`Interval::CONFIDENCE`].
    pub confidence: f64,
    /// All candidates; the first one has the original settings.
    pub candidates: Vec<CandidateReport>,
    /// Number of the best candidate: among those still running, the one with the largest
    /// significant gain; if none has one, a dropped candidate that has.
    pub best: usize,
    /// Number of the candidate to use: the best one if it is significantly better than the original
    /// settings, else 0.
    pub recommended: usize,
    /// How to make the recommended settings last; `None` if they are the original ones.
    pub lasting: Option<Lasting>,
}

/// One candidate and its result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CandidateReport {
    /// The names of the candidate.
    pub name: String,
    /// Differences from the original settings, as KEY=VALUE for `seekwire nic apply`.
    pub changes: Vec<String>,
    /// Changes that the driver refused, and why.
    pub refused: Vec<String>,
    /// How often it was measured.
    pub rounds: usize,
    /// The median of each figure.
    pub figures: Figures,
    /// Ratio to the original settings; above 1 is better. `None` if it was not measured often
    /// enough.
    pub against_found: Option<Interval>,
    /// How the race ended for the candidate.
    pub end: CandidateResult,
}

/// How the race ended for a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CandidateResult {
    /// The candidate is the best one.
    Best,
    /// The candidate cannot be distinguished from the best one, at least not yet.
    Open,
    /// The candidate was dropped because it seemed worse than the leader at that time, with a
    /// single 99 % interval. For the original settings: the best candidate is significantly better.
    Worse,
    /// The candidate could not be measured.
    Failed,
}

/// The names of the first candidates of a search, and their changes as KEY=VALUE.
#[must_use]
pub fn candidates(original: &Interface) -> Vec<(String, Vec<String>)> {
    candidate::first(original)
        .iter()
        .map(|candidate| (candidate.name(), changes(candidate)))
        .collect()
}

/// Searches for the best settings of the session's interface. It leaves the interface in the state
/// of some candidate, so the session should be one that holds.
///
/// # Errors
///
/// [`Error::Interrupted`] soon after `interrupted`, called about every 100 ms, returns true;
/// [`Error::Lost`], [`Error::Peer`], [`Error::Interface`], [`Error::Nothing`].
pub fn search(
    session: &mut Session<'_>,
    client: &mut Client,
    options: &SearchOptions,
    interrupted: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&Progress<'_>),
) -> Result<SearchResult, Error> {
    let original = session.now()?;
    let candidates = candidate::first(&original);
    // Candidates that join run together with the best one and the original settings.
    let [first, late] =
        [candidates.len(), NEIGHBOURS + 2].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    let turn = options.time / (ROUNDS * (first + late));
    let mut tests = options.goal.tests(&options.sizes, slot(options, turn));
    for test in &mut tests {
        test.congestion.clone_from(&options.congestion);
    }
    let mut search = Search {
        race: Race::new(candidates.len(), NEIGHBOURS),
        figures: vec![Vec::new(); candidates.len()],
        candidates,
        original,
        goal: options.goal,
        tests,
        start: Instant::now(),
        patience: options.patience,
        changed: None,
    };
    tell(&Progress::Trying(search.candidates.iter().map(Candidate::name).collect()));
    // The remaining time is for the neighbours of the best candidate, if it has any.
    search.run(session, client, turn * ROUNDS * first, interrupted, tell)?;
    search.widen(tell);
    let is_decided = search.run(session, client, options.time, interrupted, tell)?;
    search.outcome(is_decided)
}

/// True if the error does not depend on the settings.
fn is_of_all(error: &seekwire_gauge::Error) -> bool {
    use seekwire_gauge::Error::{Busy, Interrupted, Refused, Test};
    matches!(error, Busy(_) | Interrupted | Refused(_) | Test(_))
}

/// Duration of one test if a candidate's turn takes `turn`.
fn slot(options: &SearchOptions, turn: Duration) -> Duration {
    let tests = options.goal.tests(&options.sizes, SLOT[1]).len();
    (turn / u32::try_from(tests).unwrap_or(u32::MAX).max(1)).clamp(SLOT[0], SLOT[1])
}

struct Search {
    original: Interface,
    candidates: Vec<Candidate>,
    race: Race,
    /// Measured figures by candidate.
    figures: Vec<Vec<Figures>>,
    goal: Goal,
    tests: Vec<Test>,
    start: Instant,
    patience: Duration,
    /// The last candidate that was applied, other than the original settings.
    changed: Option<usize>,
}

impl Search {
    /// Runs the race until it is decided (true) or `budget` is spent (false).
    fn run(
        &mut self,
        session: &mut Session<'_>,
        client: &mut Client,
        budget: Duration,
        interrupted: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<bool, Error> {
        while self.start.elapsed() < budget {
            let Some(number) = self.race.next() else { return Ok(true) };
            self.set(session, number)?;
            let name = self.candidates[number].name();
            let readings = match self.measure(number, client, interrupted, tell) {
                Ok(readings) => readings,
                Err(error) => {
                    // The original settings work, so these settings caused the failure.
                    if number == 0 || is_of_all(&error) {
                        return Err(self.lost(error));
                    }
                    tell(&Progress::Failed { name, error: &error });
                    self.race.fail(number);
                    self.set(session, 0)?;
                    // Other candidates must not fail because the link is still coming back.
                    let again = client.persist(&self.tests[0], self.patience, interrupted);
                    again.map_err(|error| self.lost(error))?;
                    continue;
                }
            };
            let figures = Figures::of(&readings);
            tell(&Progress::Measured { name, round: self.race.rounds(), figures: &figures });
            // After too few ticks there is no CPU time to compare.
            if let Some(score) = self.goal.score(&figures) {
                self.race.record(number, score);
                self.figures[number].push(figures);
            }
        }
        Ok(false)
    }

    /// Runs all tests with the present settings. The wait for the link is shorter for candidates
    /// than for the original settings.
    fn measure(
        &self,
        number: usize,
        client: &mut Client,
        interrupted: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Vec<Reading>, seekwire_gauge::Error> {
        let patience = |error: &seekwire_gauge::Error| match error {
            // If the peer is busy with another client, no candidate is to blame.
            seekwire_gauge::Error::Busy(_) => self.patience,
            _ if number == 0 => self.patience,
            _ => self.patience / 2,
        };
        let mut measure = |test| match client.run_unless(test, interrupted) {
            Err(error) if error.is_passing() => {
                let (name, patience) = (self.candidates[number].name(), patience(&error));
                tell(&Progress::Waiting { name, error: &error, seconds: patience.as_secs() });
                client.persist(test, patience, interrupted)
            }
            measured => measured,
        };
        self.tests.iter().map(&mut measure).collect()
    }

    /// The error of a search whose original settings cannot be measured.
    fn lost(&self, reason: seekwire_gauge::Error) -> Error {
        if !reason.is_passing() || matches!(reason, seekwire_gauge::Error::Busy(_)) {
            return reason.into();
        }
        match self.changed {
            Some(number) => {
                let after = self.candidates[number].name();
                Error::Lost { after, seconds: self.patience.as_secs(), reason }
            }
            None => reason.into(),
        }
    }

    /// Brings the interface into the state of a candidate.
    fn set(&mut self, session: &mut Session<'_>, number: usize) -> Result<(), Error> {
        if number != 0 {
            self.changed = Some(number);
        }
        let candidate = &self.candidates[number];
        let mut outcomes = Vec::new();
        for settings in candidate::steps(&self.original, candidate, &self.candidates) {
            let plan = Plan::new(&session.now()?, &settings)?;
            outcomes = session.apply(&plan)?.outcomes;
        }
        self.candidates[number].learn(&outcomes);
        Ok(())
    }

    /// Lets the neighbours of the leader join.
    fn widen(&mut self, tell: &mut dyn FnMut(&Progress<'_>)) {
        let base = &self.candidates[self.race.leader()];
        let neighbours = candidate::neighbours(&self.original, base, &self.candidates);
        if !neighbours.is_empty() {
            tell(&Progress::Trying(neighbours.iter().map(Candidate::name).collect()));
        }
        for neighbour in neighbours {
            if self.race.add().is_some() {
                self.candidates.push(neighbour);
                self.figures.push(Vec::new());
            }
        }
    }

    fn outcome(self, is_decided: bool) -> Result<SearchResult, Error> {
        if self.figures[0].is_empty() {
            return Err(Error::Nothing);
        }
        let best = self.race.choice();
        let recommended = if self.race.is_better(best) { best } else { 0 };
        let tried = |number: usize| {
            let candidate = &self.candidates[number];
            CandidateReport {
                name: candidate.name(),
                changes: changes(candidate),
                refused: candidate.refused.clone(),
                rounds: self.race.measured(number),
                figures: Figures::median(&self.figures[number]),
                against_found: self.race.gain(number).filter(|_| number != 0),
                end: self.end(number, best),
            }
        };
        let changes = &self.candidates[recommended].changes;
        Ok(SearchResult {
            interface: self.original.name.clone(),
            goal: self.goal,
            rounds: self.race.rounds(),
            seconds: self.start.elapsed().as_secs_f64(),
            is_decided,
            confidence: Interval::CONFIDENCE,
            candidates: (0..self.candidates.len()).map(tried).collect(),
            best,
            recommended,
            lasting: (!changes.is_empty()).then(|| {
                Lasting::of(&self.original, changes, LinkFile::of(&self.original).as_ref())
            }),
        })
    }

    fn end(&self, number: usize, best: usize) -> CandidateResult {
        match number {
            _ if number == best => CandidateResult::Best,
            _ if self.race.has_failed(number) => CandidateResult::Failed,
            _ if self.race.is_worse(number) || number == 0 && self.race.is_better(best) => {
                CandidateResult::Worse
            }
            _ => CandidateResult::Open,
        }
    }
}

fn changes(candidate: &Candidate) -> Vec<String> {
    candidate.changes.iter().map(|(key, value)| format!("{key}={value}")).collect()
}
