//! Experiments, and what they get to work with.

use std::time::Duration;

use anyhow::Result;

pub use crate::context::{Context, Description, Options};

use crate::claim::{Claim, Comparison};
use crate::outcome::{Findings, Outcome, Recorded, ResultFile};

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

impl dyn Experiment + '_ {
    /// Its description for readers.
    pub(crate) fn description(&self) -> Description {
        let (name, about, paper_reference) = (self.name(), self.about(), self.paper_reference());
        Description { name, about, paper_reference }
    }
}
