//! Experiments, and what they get to work with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use seekwire_program::library;
use serde_json::Value;

use crate::claim::{Claim, Comparison};
use crate::launch::{Mode, Registry};
use crate::network::options as network;
use crate::outcome::{Findings, Outcome, Recorded, ResultFile};
use crate::progress::Progress;

/// Something that can be measured.
pub trait Experiment: Sync {
    /// The name by which users ask for it, and the name of its directory.
    fn name(&self) -> &'static str;

    /// What it measures, in a sentence or two.
    fn about(&self) -> &'static str;

    /// What is asked, in a line.
    fn question(&self) -> &'static str {
        let about = self.about();
        about.split_once(". ").map_or(about, |(first, _)| first)
    }

    /// The paper and figures that it follows, if any.
    fn paper_reference(&self) -> Option<&'static str>;

    /// What it can support or not, the most important first; reports judge it by the result.
    fn claims(&self) -> &'static [Claim] {
        &[]
    }

    /// Published numbers beside those of `result`, for reports.
    fn comparisons(&self, result: &ResultFile) -> Vec<Comparison> {
        let _ = result;
        Vec::new()
    }

    /// About how long it takes on a machine with two processors, for those who wait.
    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 45 } else { 600 })
    }

    /// Why it cannot run on this machine, if it cannot; what to do about it belongs there, too.
    fn unavailable(&self, options: &Options) -> Option<String> {
        let _ = options;
        None
    }

    /// Options of `seekwire lab run` that not all experiments have, and it has; without the dashes.
    fn own_options(&self) -> &'static [&'static str] {
        &[]
    }

    /// Measures. What cannot be measured here is a sample with an error, not a failure of the
    /// experiment.
    ///
    /// # Errors
    ///
    /// If nothing at all can be measured, or the user interrupts. [`Unavailable`] where it turns out
    /// only now that it cannot run on this machine.
    fn run(&self, context: &Context<'_>) -> Result<Outcome>;

    /// What follows from what was measured: now, or when a result is read that was kept without.
    /// Parameters and readings may be those of an earlier version, or damaged.
    fn findings(&self, recorded: Recorded<'_>) -> Findings;
}

/// Something that an experiment needs is not on this machine and could not be fetched. What can be
/// told without trying to is for [`Experiment::unavailable`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// How experiments are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fewer sizes, fewer rounds, shorter runs: to see whether everything works, not to draw
    /// conclusions.
    pub quick: bool,
    /// Each experiment writes into a directory of its name below this one.
    pub out: PathBuf,
    /// Number of rounds, if not the experiment's own.
    pub rounds: Option<usize>,
    /// Number of connections behind each value of a message search, if not the experiment's own.
    pub repetitions: Option<u64>,
    /// Bytes that each of these values moves at most, if not the experiment's own number.
    pub most_bytes: Option<u64>,
    /// `libseekwire.so`, if not the one that [`library::find`] finds.
    pub library: Option<PathBuf>,
    /// The program that plays the `lab-peer` role (see [`crate::peer`]), if not the running one.
    pub peer: Option<PathBuf>,
    /// Hosts of network tests.
    pub network: network::Options,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            quick: false,
            out: PathBuf::from("out/lab"),
            rounds: None,
            repetitions: None,
            most_bytes: None,
            library: None,
            peer: None,
            network: network::Options::default(),
        }
    }
}

/// Rounds below which intervals are not to be relied on.
const ENOUGH_ROUNDS: usize = 5;

impl Options {
    /// What to tell somebody who wants so few rounds of a thorough run.
    pub(crate) fn caution(&self) -> Option<String> {
        let few = self.rounds.filter(|rounds| !self.quick && *rounds < ENOUGH_ROUNDS);
        few.map(|rounds| {
            let rounds = if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") };
            format!("{rounds}: intervals need at least {ENOUGH_ROUNDS}; take these numbers for a first look")
        })
    }

    /// See [`Context::peer`].
    pub(crate) fn program(&self) -> Result<PathBuf> {
        match &self.peer {
            Some(peer) => Ok(peer.clone()),
            None => Ok(std::env::current_exe()?),
        }
    }
}

/// What an experiment gets to work with.
#[derive(Debug)]
pub struct Context<'a> {
    options: &'a Options,
    progress: Progress,
    library: Result<PathBuf, String>,
    registry: Registry,
}

impl<'a> Context<'a> {
    /// A context for one experiment, reporting to `progress`.
    ///
    /// # Errors
    ///
    /// If no temporary directory can be made.
    pub fn new(options: &'a Options, progress: Progress) -> Result<Self> {
        let library = match &options.library {
            Some(library) => {
                library.canonicalize().map_err(|error| format!("{}: {error}", library.display()))
            }
            None => library::find().map_err(|error| error.to_string()),
        };
        let registry =
            Registry::new().context("cannot make a directory for the registry of the children")?;
        Ok(Self { options, progress, library, registry })
    }

    /// How to start an accelerated program.
    ///
    /// # Errors
    ///
    /// If the library was not found.
    pub fn accelerated(&self) -> Result<Mode> {
        let library = self.library.clone().map_err(|why| anyhow!("{why}"))?;
        Ok(Mode::Accelerated { library, registry: self.registry.clone() })
    }

    /// How to start a program that uses Seekwire itself.
    pub fn linked(&self) -> Mode {
        Mode::Linked { registry: self.registry.clone() }
    }

    /// Whether to be quick rather than thorough.
    pub fn quick(&self) -> bool {
        self.options.quick
    }

    /// One of two values, by [`Context::quick`].
    pub fn pick<T>(&self, quick: T, thorough: T) -> T {
        if self.options.quick { quick } else { thorough }
    }

    /// Number of rounds: as the user wishes, else one of these two.
    pub fn rounds(&self, quick: usize, thorough: usize) -> usize {
        self.options.rounds.unwrap_or(self.pick(quick, thorough)).max(1)
    }

    /// Number of connections behind each value of a message search, if the user wishes for one.
    pub fn repetitions(&self) -> Option<u64> {
        self.options.repetitions
    }

    /// Bytes that a value of a message search moves at most: as the user wishes, else one of these
    /// two.
    pub fn most_bytes(&self, quick: u64, thorough: u64) -> u64 {
        self.options.most_bytes.unwrap_or(self.pick(quick, thorough))
    }

    /// Hosts of network tests.
    pub fn network(&self) -> &network::Options {
        &self.options.network
    }

    /// Where to report progress.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The program that plays the `lab-peer` role.
    ///
    /// # Errors
    ///
    /// If the path of the running program cannot be learnt.
    pub fn peer(&self) -> Result<PathBuf> {
        self.options.program()
    }

    /// Parameters that every result names: rounds, thoroughness, and settings the accelerated
    /// programs inherited.
    pub(crate) fn parameters(&self, rounds: usize) -> BTreeMap<String, Value> {
        let inherited: BTreeMap<String, Value> = std::env::vars()
            .filter(|(name, _)| name.starts_with("SEEKWIRE_"))
            .map(|(name, value)| (name, value.into()))
            .collect();
        BTreeMap::from([
            ("rounds".to_owned(), rounds.into()),
            ("quick".to_owned(), self.options.quick.into()),
            ("environment".to_owned(), Value::Object(inherited.into_iter().collect())),
        ])
    }
}

/// What a reader is told about an experiment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Description {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) paper_reference: Option<&'static str>,
}

impl Description {
    pub(crate) fn of(experiment: &dyn Experiment) -> Self {
        let (name, about, paper_reference) =
            (experiment.name(), experiment.about(), experiment.paper_reference());
        Self { name, about, paper_reference }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rounds_are_said_to_be_few_where_it_matters() {
        let caution = |rounds, quick| Options { rounds, quick, ..Options::default() }.caution();
        let one = "1 round: intervals need at least 5; take these numbers for a first look";
        assert_eq!(caution(Some(1), false).as_deref(), Some(one));
        assert!(caution(Some(4), false).unwrap().starts_with("4 rounds: "));
        assert_eq!(
            [caution(Some(5), false), caution(None, false), caution(Some(1), true)],
            [None, None, None]
        );
    }
}
