//! Options, and the context that an experiment gets.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow};
use seekwire_program::library;
use serde_json::Value;

use crate::launch::{Mode, Registry};
use crate::network;
use crate::progress::Progress;

/// Settings of all experiments.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fewer sizes, fewer rounds, shorter runs: to see whether everything works, not to draw
    /// conclusions.
    pub quick: bool,
    /// Each experiment writes into a directory of its name below this one.
    pub out: PathBuf,
    /// Number of rounds, if not the experiment's own.
    pub rounds: Option<usize>,
    /// Number of connections for each value of a message search, if not the experiment's own.
    pub repetitions: Option<u64>,
    /// Maximum number of bytes that each of these values moves, if not the experiment's own.
    pub most_bytes: Option<u64>,
    /// `libseekwire.so`, if not the one that [`library::find`] finds.
    pub library: Option<PathBuf>,
    /// The program that plays the `lab-peer` role (see [`crate::peer`]), if not the running one.
    pub peer: Option<PathBuf>,
    /// Hosts of network tests.
    pub network: network::NetworkOptions,
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
            network: network::NetworkOptions::default(),
        }
    }
}

/// Rounds below which intervals are not to be relied on.
const ENOUGH_ROUNDS: usize = 5;

impl Options {
    /// A warning where a thorough run has too few rounds for intervals.
    pub fn caution(&self) -> Option<String> {
        let few = self.rounds.filter(|rounds| !self.quick && *rounds < ENOUGH_ROUNDS);
        few.map(|rounds| {
            let rounds = if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") };
            format!("{rounds}: intervals need at least {ENOUGH_ROUNDS}; take these numbers for a first look")
        })
    }

    /// See [`Context::peer`].
    pub fn program(&self) -> Result<PathBuf> {
        match &self.peer {
            Some(peer) => Ok(peer.clone()),
            None => Ok(std::env::current_exe()?),
        }
    }
}

/// Options, library and progress of one experiment.
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
    /// If no temporary directory can be created.
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

    /// Number of connections for each value of a message search, if the user gives one.
    pub fn repetitions(&self) -> Option<u64> {
        self.options.repetitions
    }

    /// Maximum number of bytes that a value of a message search moves: as the user wishes, else one
    /// of these two.
    pub fn most_bytes(&self, quick: u64, thorough: u64) -> u64 {
        self.options.most_bytes.unwrap_or(self.pick(quick, thorough))
    }

    /// Hosts of network tests.
    pub fn network(&self) -> &network::NetworkOptions {
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
    /// If the path of the running program cannot be determined.
    pub fn peer(&self) -> Result<PathBuf> {
        self.options.program()
    }

    /// Parameters that every result names: rounds, thoroughness, and settings the accelerated
    /// programs inherited.
    pub fn parameters(&self, rounds: usize) -> BTreeMap<String, Value> {
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

/// An experiment, described for readers.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The name under which users ask for it.
    pub name: &'static str,
    /// The quantities that it measures, in a sentence or two.
    pub about: &'static str,
    /// The paper and figures that it follows, if any.
    pub paper_reference: Option<&'static str>,
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
