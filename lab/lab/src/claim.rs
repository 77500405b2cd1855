//! Claims of papers, and whether they hold here, judged by the measurements.
//!
//! A claim names the number that decides (its evidence, with an interval) and the criterion. The
//! verdict follows from the two, every time a report is made; where the interval contains the
//! criterion, nothing can be concluded. Some claims are about a drawback, such as a loss or a dip:
//! they also name the direction in which the number improves, and where it misses the criterion on
//! that side, the claim is improved upon.

use serde::Deserialize;

pub use crate::estimate::{Estimate, Evidence};
use crate::outcome::Table;
use crate::plot::Figure;
use crate::quantity::Quantity;
use crate::record::Better;
use crate::stats::FEWEST_ROUNDS;
use crate::text;
use crate::words::words;

/// A statement that an experiment can support or not: a `[[claim]]` of the experiment's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// A few words, for lists.
    pub title: String,
    /// The claim, in a sentence of our own.
    #[serde(deserialize_with = "words")]
    pub statement: String,
    /// The origin of the claim; by default this project.
    #[serde(default)]
    pub source: ClaimSource,
    /// The published number as text with its unit; empty if there is none.
    #[serde(default)]
    pub published: String,
    /// The quantity that is compared with the criterion, in words.
    #[serde(deserialize_with = "words")]
    pub measure: String,
    /// Unit of that quantity; empty for ratios.
    #[serde(default)]
    pub unit: String,
    /// The same quantity in terms of a result.
    pub value: Quantity,
    /// Condition that the number must meet.
    pub criterion: Criterion,
    /// The direction in which the number improves, where missing the criterion on that side is
    /// better than the claim.
    pub better: Option<Better>,
    /// Explanation of a number that does not meet it.
    #[serde(default = "not_reached", deserialize_with = "words")]
    pub otherwise: String,
}

fn not_reached() -> String {
    "it is not reached on this machine".to_owned()
}

/// The origin of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimSource {
    /// A publication: authors, title, and section, figure or table.
    Paper(String),
    /// The same, but it only expects the result, and leaves measuring it to others.
    Expectation(String),
    /// This project, about itself.
    #[default]
    Goal,
}

/// A condition on a number.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// More than this.
    Above(f64),
    /// Less than this.
    Below(f64),
    /// From the first to the second.
    Between(f64, f64),
    /// Anything but this.
    Differs(f64),
}

/// Outcome of judging a claim by a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval fulfils the criterion.
    Reproduced,
    /// No part of the interval does, and all of it is better than the claim.
    ImprovedUpon,
    /// No part of the interval does.
    NotReproduced,
    /// A part of it does.
    Undecided,
    /// The number is missing.
    NotMeasured,
}

/// A verdict and its grounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The number that was judged.
    pub estimate: Option<Estimate>,
    /// Why, in a sentence.
    pub why: String,
}

/// Published numbers beside ours.
#[derive(Clone, Debug)]
pub struct PublishedComparison {
    /// Where the published numbers are found.
    pub source: &'static str,
    /// The numbers as curves; the paper's is one series and ours another. `None` if they are too
    /// few to draw.
    pub figure: Option<Figure>,
    /// The numbers.
    pub table: Table,
}

impl Claim {
    /// Judges the claim by its number.
    pub fn judge(&self, number: Evidence) -> Judgement {
        let estimate = match number {
            Ok(estimate) => estimate,
            Err(why) => return Judgement { verdict: Verdict::NotMeasured, estimate: None, why },
        };
        let Estimate { low, high, rounds, .. } = estimate;
        let unit = self.unit_after();
        let verdict = match rounds < FEWEST_ROUNDS {
            true => Verdict::Undecided,
            false => self.criterion.judge(&estimate, self.better),
        };
        let why = match verdict {
            Verdict::Reproduced => format!("the whole interval is {}{unit}", self.criterion),
            Verdict::NotReproduced | Verdict::ImprovedUpon => self.otherwise.clone(),
            Verdict::Undecided if rounds < FEWEST_ROUNDS => {
                "one complete round has no interval; run more".to_owned()
            }
            Verdict::Undecided | Verdict::NotMeasured => format!(
                "only a part of the interval, {} to {}{unit}, is {}; more rounds make it narrower",
                text::significant(low),
                text::significant(high),
                self.criterion
            ),
        };
        Judgement { verdict, estimate: Some(estimate), why }
    }

    /// The claim and a judgement of it in a line, for terminals.
    pub(crate) fn line(&self, judgement: &Judgement) -> String {
        let verdict = judgement.verdict.name(&self.source);
        match &judgement.estimate {
            Some(estimate) => {
                let unit = self.unit_after();
                format!(
                    "{}: {verdict}: {estimate}{unit}, wanted {}{unit}",
                    self.title, self.criterion
                )
            }
            None => format!("{}: {verdict}: {}", self.title, judgement.why),
        }
    }

    /// The unit as it follows a number.
    pub(crate) fn unit_after(&self) -> String {
        if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) }
    }
}

impl Criterion {
    /// Whether all, nothing or a part of the interval fulfils it; `better`: the side on which it
    /// may be missed.
    fn judge(self, estimate: &Estimate, better: Option<Better>) -> Verdict {
        let Estimate { low, high, .. } = *estimate;
        let (all, too_low, too_high) = match self {
            Self::AtLeast(bound) => (low >= bound, high < bound, false),
            Self::Above(bound) => (low > bound, high <= bound, false),
            Self::AtMost(bound) => (high <= bound, false, low > bound),
            Self::Below(bound) => (high < bound, false, low >= bound),
            Self::Between(least, most) => (low >= least && high <= most, high < least, low > most),
            // An interval around the value never shows that there is no difference.
            Self::Differs(bound) => (low > bound || high < bound, false, false),
        };
        match (all, better) {
            (true, _) => Verdict::Reproduced,
            (false, Some(Better::Higher)) if too_high => Verdict::ImprovedUpon,
            (false, Some(Better::Lower)) if too_low => Verdict::ImprovedUpon,
            (false, _) if too_low || too_high => Verdict::NotReproduced,
            (false, _) => Verdict::Undecided,
        }
    }
}

impl std::fmt::Display for Criterion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "at least {}", text::short(*bound)),
            Self::AtMost(bound) => write!(f, "at most {}", text::short(*bound)),
            Self::Above(bound) => write!(f, "more than {}", text::short(*bound)),
            Self::Below(bound) => write!(f, "less than {}", text::short(*bound)),
            Self::Between(least, most) => {
                write!(f, "{} to {}", text::short(*least), text::short(*most))
            }
            Self::Differs(bound) => write!(f, "other than {}", text::short(*bound)),
        }
    }
}

impl Verdict {
    /// As readers see it: what papers measured is reproduced, what they expect is confirmed, goals
    /// are met.
    pub fn name(self, source: &ClaimSource) -> &'static str {
        match (self, source) {
            (Self::Reproduced, ClaimSource::Paper(_)) => "reproduced",
            (Self::Reproduced, ClaimSource::Goal) => "met",
            (Self::NotReproduced, ClaimSource::Paper(_)) => "not reproduced",
            (Self::Reproduced, ClaimSource::Expectation(_)) => "confirmed",
            (Self::NotReproduced, ClaimSource::Expectation(_)) => "not confirmed",
            (Self::NotReproduced, ClaimSource::Goal) => "not met",
            (Self::ImprovedUpon, _) => "improved upon",
            (Self::Undecided, _) => "inconclusive",
            (Self::NotMeasured, _) => "not measured",
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::machine::Machine;
    use crate::outcome::{At, ResultFile};
    use crate::record::{Better, Metric, Row, Sample, Samples};
    use crate::stats::{Ratio, Spread};

    /// A claim with these keys of a file.
    pub(crate) fn claim(title: &str, keys: &str) -> Claim {
        let rest = "statement = 'It is.'\nmeasure = 'its size'\notherwise = 'it is not'\nvalue.computed = []";
        toml::from_str(&format!("title = '{title}'\n{keys}\n{rest}")).unwrap()
    }

    fn estimate(low: f64, high: f64) -> Estimate {
        Estimate { value: (low + high) / 2.0, low, high, rounds: 5 }
    }

    #[test]
    fn only_whole_intervals_are_verdicts() {
        let cases = [
            (Criterion::AtLeast(4.0), 4.0, 5.0, Verdict::Reproduced),
            (Criterion::AtLeast(4.0), 3.0, 5.0, Verdict::Undecided),
            (Criterion::AtLeast(4.0), 1.0, 3.9, Verdict::NotReproduced),
            (Criterion::Above(0.0), 0.0, 1.0, Verdict::Undecided),
            (Criterion::Above(0.0), -1.0, 0.0, Verdict::NotReproduced),
            (Criterion::AtMost(0.35), 0.1, 0.35, Verdict::Reproduced),
            (Criterion::AtMost(0.35), 0.36, 0.4, Verdict::NotReproduced),
            (Criterion::Below(1.0), 0.5, 1.5, Verdict::Undecided),
            (Criterion::Below(1.0), 1.0, 1.5, Verdict::NotReproduced),
            (Criterion::Between(0.9, 1.1), 0.9, 1.0, Verdict::Reproduced),
            (Criterion::Between(0.9, 1.1), 0.5, 2.0, Verdict::Undecided),
            (Criterion::Between(0.9, 1.1), 1.2, 2.0, Verdict::NotReproduced),
            (Criterion::Differs(0.0), -2.0, -1.0, Verdict::Reproduced),
            (Criterion::Differs(0.0), -2.0, 1.0, Verdict::Undecided),
        ];
        for (criterion, low, high, verdict) in cases {
            assert_eq!(
                criterion.judge(&estimate(low, high), None),
                verdict,
                "{criterion}: {low} to {high}"
            );
        }
    }

    #[test]
    fn what_is_better_than_claimed_improves_upon_it() {
        use Better::{Higher, Lower};
        let cases = [
            // A claimed loss, and a saving instead.
            (Criterion::Below(0.0), Higher, 1.0, 2.0, Verdict::ImprovedUpon),
            (Criterion::Below(0.0), Higher, -1.0, 2.0, Verdict::Undecided),
            (Criterion::Below(0.0), Higher, -2.0, -1.0, Verdict::Reproduced),
            // A claimed dip, and none.
            (Criterion::Above(0.0), Lower, -2.0, -1.0, Verdict::ImprovedUpon),
            (Criterion::Above(0.0), Lower, -2.0, 1.0, Verdict::Undecided),
            // The other side of a range is not better.
            (Criterion::Between(0.9, 1.1), Lower, 0.5, 0.8, Verdict::ImprovedUpon),
            (Criterion::Between(0.9, 1.1), Lower, 1.2, 1.5, Verdict::NotReproduced),
            // Nor is a number that falls short.
            (Criterion::AtLeast(4.0), Higher, 1.0, 2.0, Verdict::NotReproduced),
            (Criterion::AtMost(0.5), Lower, 0.6, 0.7, Verdict::NotReproduced),
            (Criterion::Differs(0.0), Higher, -1.0, 1.0, Verdict::Undecided),
        ];
        for (criterion, better, low, high, verdict) in cases {
            assert_eq!(
                criterion.judge(&estimate(low, high), Some(better)),
                verdict,
                "{criterion}, {better:?} is better: {low} to {high}"
            );
        }
    }

    /// A result of a baseline, and of a variant that had a reading in each of five rounds.
    fn result(ratio: Ratio) -> ResultFile {
        let row = |variant: &str, ratio: Option<Ratio>| Row {
            case: "64 B".to_owned(),
            x: None,
            variant: variant.to_owned(),
            metric: "rate".to_owned(),
            unit: "1/s".to_owned(),
            better: Better::Higher,
            spread: Spread::of(&[1.0, 2.0, 3.0, 4.0, 5.0]),
            ratio,
            baseline: ratio.map(|_| "plain".to_owned()),
            ring_bytes: None,
            tcp_bytes: None,
            failures: 0,
            error: None,
        };
        let rows = vec![row("plain", None), row("accelerated", Some(ratio))];
        ResultFile::new("connections", Machine::describe(), BTreeMap::new(), rows)
    }

    #[test]
    fn a_ratio_is_judged_by_the_rounds_in_which_both_were_measured() {
        let claim = claim("rate", "criterion.above = 1");
        let judge = |pairs| {
            let result = result(Ratio { value: 2.0, low: 1.8, high: 2.2, pairs });
            let at = At { case: "64 B", variant: "accelerated", metric: "rate" };
            claim.judge(Estimate::ratio(&result, at))
        };
        let rounds = |judgement: &Judgement| judgement.estimate.unwrap().rounds;
        for pairs in [Some(5), None] {
            let all = judge(pairs);
            assert_eq!((all.verdict, rounds(&all)), (Verdict::Reproduced, 5));
        }
        // Of five rounds one of the two failed in three: the rest is far too few for so narrow an
        // interval.
        let two = judge(Some(2));
        assert_eq!((two.verdict, rounds(&two)), (Verdict::Undecided, 2));
        let Estimate { low, high, .. } = two.estimate.unwrap();
        assert!(low < 1.0 && high > 3.0, "{two:?}");
        for (pairs, few) in [(Some(1), 1), (Some(0), 0)] {
            let judgement = judge(pairs);
            assert_eq!((judgement.verdict, rounds(&judgement)), (Verdict::Undecided, few));
            assert!(judgement.why.contains("run more"), "{judgement:?}");
        }
        let line = claim.line(&judge(Some(5)));
        assert!(line.starts_with("rate: met: 2.000 (") && line.ends_with("), wanted more than 1"));
        assert_eq!(rounds(&judge(Some(usize::MAX))), 5, "there are no more pairs than readings");
    }

    #[test]
    fn pairs_of_rounds_are_counted_where_measurements_failed() {
        let sample = |variant: &str, round, outcome: Option<f64>| Sample {
            outcome: outcome.ok_or_else(|| "hung".to_owned()),
            ..Sample::new("64 B", variant, Metric::higher("rate", "1/s"), round, 0.0)
        };
        // The baseline failed in the last three of five rounds.
        let samples = (1..=5).flat_map(|round| {
            let time = f64::from(round as u32);
            [
                sample("plain", round, Some(1.0 + time / 100.0).filter(|_| round <= 2)),
                sample("accelerated", round, Some(2.0)),
            ]
        });
        let mut result = result(Ratio { value: 1.0, low: 1.0, high: 1.0, pairs: None });
        result.rows = Samples(samples.collect()).rows("plain");
        let at = At { case: "64 B", variant: "accelerated", metric: "rate" };
        assert_eq!(result.row(at).unwrap().spread.unwrap().n, 5);
        assert_eq!(Estimate::ratio(&result, at).unwrap().rounds, 2);
    }
}
