//! Experiments, and what they get to work with.

use std::time::Duration;

use anyhow::Result;

pub use crate::context::{Context, Description, Options};

use crate::claim::{Claim, Comparison};
use crate::outcome::{Findings, Outcome, Recorded, ResultFile};

/// Something that can be measured.
pub trait Experiment: Sync {
    /// The name under which users ask for it, and the name of its directory.
    fn name(&self) -> &'static str;

    /// The quantities that it measures, in a sentence or two.
    fn about(&self) -> &'static str;

    /// The question that it answers, in a line.
    fn question(&self) -> &'static str {
        let about = self.about();
        about.split_once(". ").map_or(about, |(first, _)| first)
    }

    /// The paper and figures that it follows, if any.
    fn paper_reference(&self) -> Option<&'static str>;

    /// Claims that it can support or not, the most important first; reports judge them by the
    /// result.
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

    /// Why it cannot run on this machine, if so, and what to do about it.
    fn unavailable(&self, options: &Options) -> Option<String> {
        let _ = options;
        None
    }

    /// Options of `seekwire lab run` that not all experiments have, and it has; without the dashes.
    fn own_options(&self) -> &'static [&'static str] {
        &[]
    }

    /// Measures. A reading that cannot be taken here is a sample with an error, not a failure of
    /// the experiment.
    ///
    /// # Errors
    ///
    /// If nothing at all can be measured, or the user interrupts. [`Unavailable`] if it turns out
    /// only now that it cannot run on this machine.
    fn run(&self, context: &Context<'_>) -> Result<Outcome>;

    /// Findings from the readings: now, or when a result is read that was kept without them.
    /// Parameters and readings may be those of an earlier version, or damaged.
    fn findings(&self, recorded: Recorded<'_>) -> Findings;
}

/// Something that an experiment needs is missing on this machine and could not be fetched.
/// [`Experiment::unavailable`] reports what can be detected without trying.
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
