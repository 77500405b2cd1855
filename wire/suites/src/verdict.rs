//! Compares a suite's outcomes with those on plain TCP.

use serde::{Deserialize, Serialize};

use crate::outcome::{Outcomes, TestOutcome};

/// How often a test that differs is repeated, each way.
pub(crate) const REPEATS: usize = 3;

/// A test that passed plain and did not pass accelerated, with all runs of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Difference {
    pub(crate) test: String,
    /// Runs in which it did not pass accelerated, of [`Difference::runs`].
    pub(crate) accelerated: usize,
    /// Runs in which it did not pass plain, of as many.
    pub(crate) plain: usize,
    pub(crate) runs: usize,
}

impl Difference {
    /// It passes plain, always, and fails accelerated, not just once.
    pub(crate) fn is_ours(&self) -> bool {
        self.plain == 0 && self.accelerated > 1
    }
}

/// Tests that passed plain and not accelerated, including those that were not reached because the
/// suite died.
pub(crate) fn suspects<'a>(plain: &'a Outcomes, accelerated: &Outcomes) -> Vec<&'a str> {
    plain
        .iter()
        .filter(|(test, outcome)| {
            **outcome == TestOutcome::Passed && accelerated.get(*test) != Some(&TestOutcome::Passed)
        })
        .map(|(test, _)| test.as_str())
        .collect()
}

/// Judges `suspects` by their repeats.
pub(crate) fn judge(
    suspects: &[&str],
    plain: &[Outcomes],
    accelerated: &[Outcomes],
) -> Vec<Difference> {
    let bad = |runs: &[Outcomes], test: &str| {
        runs.iter().filter(|run| run.get(test) != Some(&TestOutcome::Passed)).count()
    };
    suspects
        .iter()
        .map(|test| Difference {
            test: (*test).to_owned(),
            // The first run of each kind is why it is a suspect.
            accelerated: 1 + bad(accelerated, test),
            plain: bad(plain, test),
            runs: 1 + accelerated.len(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(list: &[(&str, TestOutcome)]) -> Outcomes {
        list.iter().map(|(test, outcome)| ((*test).to_owned(), *outcome)).collect()
    }

    #[test]
    fn what_passes_plain_and_not_accelerated_is_suspect() {
        use TestOutcome::{Failed, Passed, Skipped};
        let plain =
            outcomes(&[("a", Passed), ("b", Passed), ("c", Failed), ("d", Passed), ("e", Passed)]);
        let accelerated = outcomes(&[("a", Passed), ("b", Failed), ("c", Failed), ("d", Skipped)]);
        assert_eq!(suspects(&plain, &accelerated), ["b", "d", "e"]);
    }

    #[test]
    fn a_test_that_fails_again_accelerated_only_is_ours() {
        use TestOutcome::{Failed, Passed};
        let good = outcomes(&[("a", Passed), ("b", Passed), ("c", Failed)]);
        let bad = outcomes(&[("a", Failed), ("b", Passed), ("c", Failed)]);
        let plain = [good.clone(), good.clone(), good];
        let accelerated = [bad.clone(), bad.clone(), bad];
        let judged = judge(&["a", "b", "c"], &plain, &accelerated);
        let ours: Vec<_> =
            judged.iter().filter(|one| one.is_ours()).map(|one| one.test.as_str()).collect();
        assert_eq!(ours, ["a"]);
        assert_eq!((judged[1].accelerated, judged[1].plain, judged[1].runs), (1, 0, 4));
    }
}
