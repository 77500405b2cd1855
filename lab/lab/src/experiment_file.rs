//! The file that describes an experiment, `lab/experiments/NAME.toml`: its texts, its claims, and
//! the numbers of its summary. It is a part of the program. A key without a field here, or in
//! [`Claim`], is an error.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::claim::Claim;
use crate::outcome::SummaryValue;
use crate::published::RatioComparison;
use crate::quantity::Quantity;
use crate::record::Samples;
use crate::view::{Column, Parts, View};
use crate::words::{some_words, words};

/// The contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentFile {
    /// The question that the experiment answers, in a line.
    #[serde(deserialize_with = "words")]
    pub question: String,
    /// The quantities that it measures, and how.
    #[serde(deserialize_with = "words")]
    pub about: String,
    /// The paper and figures that it follows, if any.
    #[serde(default, deserialize_with = "some_words")]
    pub follows: Option<String>,
    /// About how long it takes.
    pub seconds: Seconds,
    /// Options of `seekwire lab run` that not all experiments have, and it has; without the dashes.
    #[serde(default)]
    pub own_options: Vec<String>,
    /// Published ratios beside ours.
    pub comparison: Option<RatioComparison>,
    /// Claims that it can support or not, the most important first; reports judge them by the
    /// result.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    /// The few numbers that matter.
    #[serde(default)]
    pub summary: Vec<SummaryNumber>,
    /// Lists of variants, by name, for views and parts.
    #[serde(default)]
    pub(crate) variants: BTreeMap<String, Vec<String>>,
    /// Tables and figures by message size.
    #[serde(default, rename = "view")]
    pub(crate) views: Vec<View>,
    /// Tables by message size of the parts of numbers.
    #[serde(default)]
    pub(crate) parts: Vec<Parts>,
    /// Published numbers by message size.
    #[serde(default)]
    pub(crate) published: BTreeMap<String, Vec<Column>>,
}

/// A number of the summary.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummaryNumber {
    /// Its name in `result.json`.
    name: String,
    /// Its meaning, and whether higher or lower is better.
    #[serde(deserialize_with = "words")]
    meaning: String,
    /// The number in terms of the readings; without it, code computes the number. Ratios are of
    /// two rows, by round.
    value: Option<Quantity>,
}

/// Duration of an experiment on a machine with two processors, for those who wait.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seconds {
    quick: u64,
    thorough: u64,
}

impl ExperimentFile {
    /// Parses the file of the experiment `name`.
    ///
    /// # Panics
    ///
    /// If it is wrong, with the place. It is a part of the program, and a test reads all files.
    pub fn parse(name: &str, text: &str) -> Self {
        toml::from_str(text).unwrap_or_else(|error| panic!("lab/experiments/{name}.toml: {error}"))
    }

    /// The summary of `samples`. `computed`: the numbers that code computes, by name.
    pub(crate) fn summary(
        &'static self,
        samples: &Samples,
        computed: &[(&str, Option<f64>)],
    ) -> Vec<SummaryValue> {
        let number = |SummaryNumber { name, meaning, value }: &'static SummaryNumber| {
            let of_code = || computed.iter().find(|(other, _)| other == name)?.1;
            let value = value.as_ref().map_or_else(of_code, |value| value.of(samples));
            SummaryValue::measured(name, meaning, value)
        };
        self.summary.iter().filter_map(number).collect()
    }

    /// The meaning of a number of the summary.
    pub(crate) fn meaning(&'static self, name: &str) -> &'static str {
        let number = self.summary.iter().find(|number| number.name == name);
        number.map_or("", |number| &number.meaning)
    }
}

impl Seconds {
    /// The one or the other.
    pub fn of(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { self.quick } else { self.thorough })
    }
}

/// The methods of an `Experiment` that give its name and its file.
macro_rules! experiment_file {
    ($name:literal) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn file(&self) -> &'static $crate::experiment_file::ExperimentFile {
            use std::sync::LazyLock;

            use $crate::experiment_file::ExperimentFile;

            const TEXT: &str = include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../experiments/",
                $name,
                ".toml"
            ));
            static FILE: LazyLock<ExperimentFile> =
                LazyLock::new(|| ExperimentFile::parse($name, TEXT));
            &FILE
        }
    };
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::experiments::experiments;
    use crate::pack;

    const START: &str = "question = 'How?'
about = '''
A
line.'''
seconds = { quick = 1, thorough = 2 }
";
    const CLAIM: &str = "[[claim]]
title = 'a'
statement = 'b'
measure = 'c'
value.median = { case = 'd', metric = 'e', variant = 'f' }
criterion.above = 1
";

    #[test]
    fn every_file_can_be_parsed() {
        let claims = experiments().iter().map(|experiment| experiment.file().claims.len());
        assert!(claims.sum::<usize>() > 50);
    }

    #[test]
    fn the_rows_that_a_file_names_are_in_the_kept_result() {
        // These have no recorded result yet.
        let new = ["set-up", "tiles of five channels, 16 connections"];
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../measurements");
        for experiment in experiments() {
            let result = pack::read(&kept.join(experiment.name())).unwrap().result;
            let claims = experiment.claims().iter().map(|claim| (&claim.title, &claim.value, true));
            let numbers = experiment.file().summary.iter();
            let numbers =
                numbers.filter_map(|number| Some((&number.name, number.value.as_ref()?, false)));
            for (name, quantity, is_claim) in claims.chain(numbers) {
                let name = format!("{}.toml: '{name}'", experiment.name());
                let (place, has_over) = match quantity {
                    Quantity::Median(place) => (place, Some(false)),
                    // The baseline is known only where claims are judged.
                    Quantity::Ratio(place) => (place, (!is_claim).then_some(true)),
                    Quantity::Computed(words) => {
                        let words: Vec<&str> = words.iter().map(String::as_str).collect();
                        let is_known = experiment.computed(&words, &result).is_some();
                        assert!(is_known, "{name}: nothing computes {words:?}");
                        continue;
                    }
                };
                let over = place.over();
                assert!(has_over.is_none_or(|has| has == over.is_some()), "{name}: over");
                for at in [Some(place.at()), over].into_iter().flatten() {
                    let is_there = new.contains(&at.case) || result.row(at).is_ok();
                    assert!(is_there, "{name} names {at}");
                }
            }
        }
    }

    #[test]
    fn lines_are_joined() {
        assert_eq!(ExperimentFile::parse("a", START).about, "A line.");
    }

    #[test]
    fn a_mistake_is_reported_with_its_key() {
        let error = |text: String| toml::from_str::<ExperimentFile>(&text).unwrap_err().to_string();
        assert_eq!(ExperimentFile::parse("a", &format!("{START}{CLAIM}")).claims.len(), 1);
        let unknown = error(format!("{START}{CLAIM}titel = 'a'\n"));
        assert!(unknown.contains("line 12") && unknown.contains("titel"), "{unknown}");
        for (wrong, why) in [
            (CLAIM.replace("title = 'a'\n", ""), "title"),
            (CLAIM.replace("above", "beyond"), "beyond"),
            (CLAIM.replace("case", "cases"), "cases"),
            (format!("{CLAIM}source.book = 'g'\n"), "book"),
        ] {
            let error = error(format!("{START}{wrong}"));
            assert!(error.contains(why), "{error}");
        }
    }
}
