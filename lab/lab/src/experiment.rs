//! Experiments, and what they get to work with.

use anyhow::Result;

pub use crate::context::{Context, Description, Options};

use crate::claim::{Claim, Estimate, Evidence, Judgement, PublishedComparison, Verdict};
use crate::experiment_file::ExperimentFile;
use crate::outcome::{At, Findings, Outcome, Recorded, ResultFile};
use crate::quantity::Quantity;

/// Something that can be measured.
pub trait Experiment: Sync {
    /// The name under which users ask for it, and the name of its directory.
    fn name(&self) -> &'static str;

    /// Its texts and claims.
    fn file(&self) -> &'static ExperimentFile;

    /// Claims that it can support or not.
    fn claims(&self) -> &'static [Claim] {
        &self.file().claims
    }

    /// The number of a claim that no row of `result` has, by the words of the claim; `None` if they
    /// name nothing.
    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        let _ = (words, result);
        None
    }

    /// Why a row is missing, where the experiment knows more about that than the result.
    fn reason(&self, result: &ResultFile, at: At<'_>) -> Option<String> {
        let _ = (result, at);
        None
    }

    /// Published numbers beside those of `result`, for reports.
    fn comparisons(&self, result: &ResultFile) -> Vec<PublishedComparison> {
        let _ = result;
        Vec::new()
    }

    /// Why it cannot run on this machine, if so, and what to do about it.
    fn unavailable(&self, options: &Options) -> Option<String> {
        let _ = options;
        None
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
        let ExperimentFile { about, follows, .. } = self.file();
        Description { name: self.name(), about, paper_reference: follows.as_deref() }
    }

    /// Judges one of its claims by `result`. What only some of the runs achieved, and others failed
    /// to do, is no success.
    pub(crate) fn judge(&self, claim: &Claim, result: &ResultFile) -> Judgement {
        let judgement = claim.judge(self.evidence(claim, result));
        let is_success = matches!(judgement.verdict, Verdict::Reproduced | Verdict::ImprovedUpon);
        let lost = claim.value.place().filter(|_| is_success).and_then(|at| result.lost(at));
        match lost {
            Some(why) => Judgement { verdict: Verdict::Undecided, why, ..judgement },
            None => judgement,
        }
    }

    /// The number of one of its claims.
    pub(crate) fn evidence(&self, claim: &Claim, result: &ResultFile) -> Evidence {
        if let Some(violation) = &result.violation {
            return Err(format!("the run ended with an error: {violation}"));
        }
        let reason = |at| self.reason(result, at);
        match &claim.value {
            Quantity::Computed(words) => {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                self.computed(&words, result)
                    .unwrap_or_else(|| Err(format!("nothing computes {words:?}")))
            }
            Quantity::Median(place) => {
                let at = place.at();
                Estimate::median(result, at).map_err(|why| reason(at).unwrap_or(why))
            }
            Quantity::Ratio(place) => match (place.at(), place.over()) {
                (at, None) => Estimate::ratio(result, at).map_err(|why| reason(at).unwrap_or(why)),
                (at, Some(over)) => Estimate::ratio_of_medians(result, at, over)
                    .map_err(|why| reason(at).or_else(|| reason(over)).unwrap_or(why)),
            },
        }
    }

    /// All published numbers beside those of `result`.
    pub(crate) fn published(&self, result: &ResultFile) -> Vec<PublishedComparison> {
        let of_claim = |title: &str| {
            let claim = self.claims().iter().find(|claim| claim.title == title);
            self.evidence(claim.ok_or_else(|| format!("no claim is '{title}'"))?, result)
        };
        let ratios = self.file().comparison.as_ref().map(|ratios| ratios.beside(of_claim));
        ratios.into_iter().chain(self.comparisons(result)).collect()
    }
}
