//! Quantities of claims and summaries, by the names of the rows that have them.

use serde::Deserialize;

use crate::outcome::At;
use crate::record::{Samples, Selector};

/// A quantity in terms of a result.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// The median of a row.
    Median(Place),
    /// A row over the baseline of the experiment, or over another row.
    Ratio(Place),
    /// A quantity that no row has: the words by which [`Experiment::computed`] knows it.
    ///
    /// [`Experiment::computed`]: crate::experiment::Experiment::computed
    Computed(Vec<String>),
}

/// A row of a result, with the names in `raw.csv`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    case: String,
    metric: String,
    variant: String,
    over: Option<Over>,
}

/// The names of another row that differ.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Over {
    case: Option<String>,
    variant: Option<String>,
}

impl Quantity {
    /// Its value in `samples`: a median, or the ratio of two in the same rounds.
    pub(crate) fn of(&self, samples: &Samples) -> Option<f64> {
        fn select<'a>(samples: &Samples, at: At<'a>) -> Option<Selector<'a>> {
            let mut metrics = samples.0.iter().filter_map(|sample| sample.metric);
            let metric = metrics.find(|metric| metric.name == at.metric)?;
            Some(Selector { case: at.case, variant: at.variant, metric })
        }
        match self {
            Self::Median(place) => samples.median(select(samples, place.at())?),
            Self::Ratio(place) => {
                let (these, others) = (place.at(), place.over()?);
                let ratio = samples.ratio(select(samples, these)?, select(samples, others)?)?;
                Some(ratio.value)
            }
            Self::Computed(_) => None,
        }
    }

    /// The row whose number it is, where a row has it.
    pub(crate) fn place(&self) -> Option<At<'_>> {
        match self {
            Self::Median(place) | Self::Ratio(place) => Some(place.at()),
            Self::Computed(_) => None,
        }
    }
}

impl Place {
    /// The row.
    pub(crate) fn at(&self) -> At<'_> {
        At { case: &self.case, variant: &self.variant, metric: &self.metric }
    }

    /// The row for comparison, if there is one.
    pub(crate) fn over(&self) -> Option<At<'_>> {
        let Over { case, variant } = self.over.as_ref()?;
        let at = self.at();
        Some(At {
            case: case.as_deref().unwrap_or(at.case),
            variant: variant.as_deref().unwrap_or(at.variant),
            ..at
        })
    }
}
