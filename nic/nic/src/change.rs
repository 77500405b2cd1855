//! Carries out a plan, and reports the result.

use serde::Serialize;

use crate::dependencies;
use crate::error::Error;
use crate::interface::Interface;
use crate::plan::{Fate, Item, Plan};
use crate::request_order::{self, Device};
use crate::saved_state::Saved;
use crate::setting::{Group, Key, SideEffect, Value};

/// The result of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The present name of the interface, which may have been renamed.
    #[serde(skip)]
    pub interface: String,
    /// One for each key of the plan.
    pub outcomes: Vec<KeyOutcome>,
    /// Other keys that changed.
    pub along: Vec<SideEffect>,
    /// After a restoration: keys that others have changed since, which are left alone. `before` is
    /// the saved value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<SideEffect>,
}

/// The result of one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyOutcome {
    /// The key.
    pub key: Key,
    /// The value before; `None` if the interface does not have the key.
    pub before: Option<Value>,
    /// The requested value.
    pub target: Value,
    /// The value now.
    pub after: Option<Value>,
    /// The outcome for the key.
    pub result: ChangeResult,
    /// True if the plan fails when the interface does not have the key.
    #[serde(skip)]
    required: bool,
}

/// The outcome for one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeResult {
    /// The key was changed.
    Changed,
    /// The key had the requested value already.
    AlreadySo,
    /// The driver does not allow changes of the key.
    Fixed,
    /// The interface does not have the key.
    Absent,
    /// The kernel or the driver did not change the key, with the reason.
    Refused(String),
}

impl Report {
    /// True if every key has its requested value. Keys of a profile that the interface does not
    /// have do not count.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing().next().is_none()
    }

    /// The keys that do not have their requested values.
    pub fn missing(&self) -> impl Iterator<Item = &Key> {
        let missing = self.outcomes.iter().filter(|outcome| match outcome.result {
            ChangeResult::Changed | ChangeResult::AlreadySo => false,
            ChangeResult::Absent => outcome.required,
            ChangeResult::Fixed | ChangeResult::Refused(_) => true,
        });
        missing.map(|outcome| &outcome.key)
    }

    /// Adds the changes of a further attempt.
    fn extend(&mut self, further: Self) {
        for mut outcome in further.outcomes {
            if let Some(same) = self.outcomes.iter_mut().find(|same| same.key == outcome.key) {
                (same.after, same.result) = (outcome.after, outcome.result);
                continue;
            }
            let along = self.along.iter().position(|along| along.key == outcome.key);
            if let Some(along) = along.map(|along| self.along.remove(along)) {
                if outcome.after == Some(along.before) {
                    continue;
                }
                outcome.before = Some(along.before);
            }
            self.outcomes.push(outcome);
        }
        for along in further.along {
            match self.along.iter_mut().find(|same| same.key == along.key) {
                Some(same) => same.after = along.after,
                None => self.along.push(along),
            }
        }
        self.along.retain(|along| along.before != along.after);
        self.interface = further.interface;
    }
}

/// Makes the requests of a plan, and reads the resulting state of the interface.
pub(crate) fn apply(
    device: &mut impl Device,
    before: &Interface,
    plan: &Plan,
) -> Result<Report, Error> {
    let refusals = request_order::order(device, before, plan);
    let mut after = device.read(before)?;
    if request_order::again(device, &after, plan, &refusals) {
        after = device.read(before)?;
    }
    let outcome = |item: &Item| {
        let is = after.value(&item.key);
        let result = match &item.fate {
            Fate::AlreadySo if is == Some(item.target) => ChangeResult::AlreadySo,
            Fate::Fixed => ChangeResult::Fixed,
            Fate::Absent => ChangeResult::Absent,
            Fate::Unfit(reason) => ChangeResult::Refused(reason.clone()),
            Fate::Change | Fate::AlreadySo if is == Some(item.target) => ChangeResult::Changed,
            Fate::Change | Fate::AlreadySo => {
                let said = refusals.get(&item.key).cloned();
                ChangeResult::Refused(said.unwrap_or_else(|| unsaid(item, &after)))
            }
        };
        KeyOutcome {
            key: item.key.clone(),
            before: item.before,
            target: item.target,
            after: is,
            result,
            required: item.required,
        }
    };
    let outcomes: Vec<KeyOutcome> = plan.items.iter().map(outcome).collect();
    let is_planned = |key: &Key| plan.items.iter().any(|item| item.key == *key);
    let along = before.values().filter(|(key, _)| !is_planned(key)).filter_map(|(key, was)| {
        let is = after.value(&key).filter(|is| *is != was)?;
        Some(SideEffect { key, before: was, after: is })
    });
    let along = along.collect();
    Ok(Report { interface: after.name.clone(), outcomes, along, others: Vec::new() })
}

/// Restores a saved state. The keys that the first attempt did not restore get a second one, and so
/// do those that it changed as a consequence: one setting may have detached the device, which then
/// refuses the next, and a driver may reset numbers when adaptive coalescing is switched.
pub(crate) fn restore(
    device: &mut impl Device,
    now: &Interface,
    saved: &Saved,
) -> Result<Report, Error> {
    let mut report = apply(device, now, &Plan::back_to(now, saved))?;
    let mut saved = saved.clone();
    let unchanged = saved.unchanged(now);
    let along = report.along.iter().map(|along| &along.key);
    saved.note(along.filter(|key| unchanged.contains(key)).map(|key| (key, false)));
    let mut after = device.read(now)?;
    let rest = Plan::back_to(&after, &saved);
    if !rest.is_idle() {
        report.extend(apply(device, &after, &rest)?);
        after = device.read(&after)?;
    }
    report.others = saved.others(&after);
    Ok(report)
}

/// The reason why a key does not have its requested value although the kernel did not refuse it.
fn unsaid(item: &Item, after: &Interface) -> String {
    if item.key.group == Group::Feature && item.target == Value::Switch(true) {
        let on = |name: &str| after.feature(name).is_some_and(|feature| feature.active);
        if let Some(needs) = dependencies::missing(&item.key.name, on) {
            return format!("it needs {}, which is off", needs.join(" or "));
        }
    }
    match after.value(&item.key) {
        Some(is) if Some(is) == item.before => format!("the driver keeps it {is}"),
        Some(is) => format!("the driver has made it {is}"),
        None => "the interface no longer has it".to_owned(),
    }
}
