//! Plans and reports as text, as JSON and as an exit status.

use std::process::ExitCode;

use anyhow::Result;
use seekwire_nic::{ChangeResult, Fate, Item, KeyOutcome, Plan, Report, SideEffect};
use seekwire_program::table::{self, Align};
use serde::Serialize;
use serde_json::{Value, json};

/// Exit status: something was refused, the rest was applied.
const INCOMPLETE: u8 = 3;

const COLUMNS: [(&str, Align); 4] = [
    ("KEY", Align::Left),
    ("BEFORE", Align::Left),
    ("AFTER", Align::Left),
    ("RESULT", Align::Left),
];

pub(crate) fn foreseen(plan: &Plan) -> String {
    let fate = |item: &Item| match (&item.fate, &item.needed_by) {
        (Fate::Change, Some(by)) => format!("would be changed: {by} needs it"),
        (Fate::Change, None) => "would be changed".to_owned(),
        (Fate::AlreadySo, _) => "already so".to_owned(),
        (Fate::Fixed, _) => format!("fixed by the driver, cannot be {}", item.target),
        (Fate::Absent, _) => "absent: this interface does not have it".to_owned(),
        (Fate::Unfit(reason), _) => format!("would be refused: {reason}"),
    };
    let rows = plan.items.iter().map(|item| {
        vec![item.key.to_string(), shown(item.before.as_ref()), item.target.to_string(), fate(item)]
    });
    table::layout(
        &COLUMNS,
        &rows.chain(along(&plan.along, "would change along")).collect::<Vec<_>>(),
    )
}

pub(crate) fn report(name: &str, report: &Report) -> String {
    let verdict = |outcome: &KeyOutcome| match &outcome.result {
        ChangeResult::Changed => "changed".to_owned(),
        ChangeResult::AlreadySo => "already so".to_owned(),
        ChangeResult::Fixed => format!("fixed by the driver, cannot be {}", outcome.target),
        ChangeResult::Absent => "absent: this interface does not have it".to_owned(),
        ChangeResult::Refused(reason) => format!("refused: {reason}"),
    };
    let rows = report.outcomes.iter().map(|outcome| {
        let key = outcome.key.to_string();
        vec![key, shown(outcome.before.as_ref()), shown(outcome.after.as_ref()), verdict(outcome)]
    });
    let rows = rows.chain(along(&report.along, "changed along"));
    let others = along(&report.others, "left: changed by somebody else");
    let rows: Vec<_> = rows.chain(others).collect();
    if rows.is_empty() {
        return format!("{name}: nothing to change\n");
    }
    table::layout(&COLUMNS, &rows)
}

fn along<'a>(along: &'a [SideEffect], word: &'a str) -> impl Iterator<Item = Vec<String>> + 'a {
    along.iter().map(move |one| {
        vec![one.key.to_string(), one.before.to_string(), one.after.to_string(), word.to_owned()]
    })
}

fn shown<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), T::to_string)
}

/// A report with the interface that it is about.
#[derive(Serialize)]
pub(crate) struct Reported<'a> {
    pub(crate) interface: &'a str,
    #[serde(flatten)]
    pub(crate) report: &'a Report,
}

pub(crate) fn report_json(interface: &str, report: &Report) -> Result<String> {
    Ok(serde_json::to_string_pretty(&Reported { interface, report })? + "\n")
}

pub(crate) fn foreseen_json(interface: &str, plan: &Plan) -> Result<String> {
    let outcome = |item: &Item| -> Value {
        let result = match &item.fate {
            Fate::Change => json!("change"),
            Fate::AlreadySo => json!("already-so"),
            Fate::Fixed => json!("fixed"),
            Fate::Absent => json!("absent"),
            Fate::Unfit(reason) => json!({ "unfit": reason }),
        };
        let after = if item.fate == Fate::Change { Some(item.target) } else { item.before };
        json!({ "key": item.key, "before": item.before, "target": item.target, "after": after, "result": result })
    };
    let outcomes: Vec<Value> = plan.items.iter().map(outcome).collect();
    let foreseen = json!({ "interface": interface, "outcomes": outcomes, "along": plan.along });
    Ok(serde_json::to_string_pretty(&foreseen)? + "\n")
}

pub(crate) fn status(report: &Report) -> ExitCode {
    if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) }
}
