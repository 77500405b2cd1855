//! Numbers of the summary with their error, and the point where they were found.

use crate::experiment_file::ExperimentFile;
use crate::outcome::SummaryValue;
use crate::search::reduction::Reduction;

/// Of an extreme: the number, its error, and where it was found.
pub(super) fn with_point(
    file: &'static ExperimentFile,
    name: &'static str,
    reduction: Option<&Reduction>,
) -> Vec<SummaryValue> {
    let point = |reduction: &Reduction| {
        let plan = &reduction.plan;
        [
            ("bytes", "its message size, bytes", Some(plan.size as f64)),
            ("N", "its N, messages skipped or unexpected", Some(plan.skip as f64)),
            ("tags", "its number of tags", plan.tags.map(|tags| tags as f64)),
        ]
    };
    let mut keys = alone(file, name, reduction);
    keys.extend(reduction.into_iter().flat_map(point).filter_map(|(what, meaning, value)| {
        SummaryValue::measured(format!("{name}_{what}"), meaning, value)
    }));
    keys
}

/// Of a point that is named by the key: the number and its error.
pub(super) fn alone(
    file: &'static ExperimentFile,
    name: &'static str,
    reduction: Option<&Reduction>,
) -> Vec<SummaryValue> {
    let Some(Reduction { percent, .. }) = reduction else { return Vec::new() };
    let number = SummaryValue::measured(name, file.meaning(name), Some(percent.value));
    let name = format!("{name}_standard_error");
    let error = SummaryValue::measured(name, "its standard error", percent.standard_error);
    number.into_iter().chain(error).collect()
}
