//! Carries out a plan, and reports the result.

use serde::Serialize;

use crate::dependence;
use crate::error::Error;
use crate::interface::Interface;
use crate::order::{self, Device};
use crate::plan::{Along, Fate, Item, Plan};
use crate::setting::{Group, Key, Value};

/// What came of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The interface, by the name that it has now: it may have been given another one.
    #[serde(skip)]
    pub interface: String,
    /// One for each key of the plan.
    pub outcomes: Vec<Outcome>,
    /// Everything else that is not as it was.
    pub along: Vec<Along>,
    /// Of a restoration: what somebody else has changed meanwhile, which is left alone. `before`
    /// is what was saved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Along>,
}

/// What came of one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The key.
    pub key: Key,
    /// What it was; none: the interface does not have it.
    pub before: Option<Value>,
    /// What it should become.
    pub target: Value,
    /// What it is.
    pub after: Option<Value>,
    /// What was done.
    pub result: Verdict,
    /// Whether the plan has failed where the interface does not have the key.
    #[serde(skip)]
    required: bool,
}

/// What was done about a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It was changed.
    Changed,
    /// It was as it should be.
    AlreadySo,
    /// The driver does not let it be changed.
    Fixed,
    /// The interface does not have it.
    Absent,
    /// The kernel or the driver did not do it: why.
    Refused(String),
}

impl Report {
    /// Whether all is as it should be. What a profile names and the interface does not have does
    /// not count.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing().next().is_none()
    }

    /// The keys that are not as they should be.
    pub fn missing(&self) -> impl Iterator<Item = &Key> {
        let missing = self.outcomes.iter().filter(|outcome| match outcome.result {
            Verdict::Changed | Verdict::AlreadySo => false,
            Verdict::Absent => outcome.required,
            Verdict::Fixed | Verdict::Refused(_) => true,
        });
        missing.map(|outcome| &outcome.key)
    }
}

/// Makes the requests of a plan, and reads what has become of the interface.
pub(crate) fn apply(
    device: &mut impl Device,
    before: &Interface,
    plan: &Plan,
) -> Result<Report, Error> {
    let refusals = order::order(device, before, plan);
    let mut after = device.read(before)?;
    if order::again(device, &after, plan, &refusals) {
        after = device.read(before)?;
    }
    let outcome = |item: &Item| {
        let is = after.value(&item.key);
        let result = match &item.fate {
            Fate::AlreadySo if is == Some(item.target) => Verdict::AlreadySo,
            Fate::Fixed => Verdict::Fixed,
            Fate::Absent => Verdict::Absent,
            Fate::Unfit(reason) => Verdict::Refused(reason.clone()),
            Fate::Change | Fate::AlreadySo if is == Some(item.target) => Verdict::Changed,
            Fate::Change | Fate::AlreadySo => {
                let said = refusals.get(&item.key).cloned();
                Verdict::Refused(said.unwrap_or_else(|| unsaid(item, &after)))
            }
        };
        Outcome {
            key: item.key.clone(),
            before: item.before,
            target: item.target,
            after: is,
            result,
            required: item.required,
        }
    };
    let outcomes: Vec<Outcome> = plan.items.iter().map(outcome).collect();
    let is_planned = |key: &Key| plan.items.iter().any(|item| item.key == *key);
    let along = before.values().filter(|(key, _)| !is_planned(key)).filter_map(|(key, was)| {
        let is = after.value(&key).filter(|is| *is != was)?;
        Some(Along { key, before: was, after: is })
    });
    let along = along.collect();
    Ok(Report { interface: after.name.clone(), outcomes, along, others: Vec::new() })
}

/// Why a key is not what it was set to, though the kernel did not refuse.
fn unsaid(item: &Item, after: &Interface) -> String {
    if item.key.group == Group::Feature && item.target == Value::Switch(true) {
        let on = |name: &str| after.feature(name).is_some_and(|feature| feature.active);
        if let Some(needs) = dependence::missing(&item.key.name, on) {
            return format!("it needs {}, which is off", needs.join(" or "));
        }
    }
    match after.value(&item.key) {
        Some(is) if Some(is) == item.before => format!("the driver keeps it {is}"),
        Some(is) => format!("the driver has made it {is}"),
        None => "the interface has it no more".to_owned(),
    }
}
