//! The blocks that a page can request, in JSON.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow, bail, ensure};
use seekwire_program::table::wrap;
use serde::Deserialize;
use serde_json::Value;

use super::cases::{Pattern, magnitude};
use super::table::{cell, escape, nothing, table};
use crate::claim::{Claim, ClaimSource, Judgement};
use crate::experiments;
use crate::outcome::ResultFile;
use crate::record::{Better, Row, Samples};
use crate::site::read::{ResultContents, ResultEntry, ResultTree};
use crate::stats::{Mean, Ratio, Spread};
use crate::text;
use crate::verdict::judge;

/// Directory of the pages of experiments, relative to BENCHMARKING.md.
const PAGES: &str = "lab/experiments";

/// Contents that a page shows of results, which are named by their directories.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PageBlock {
    /// Commit, rounds and machine.
    Setting(String),
    /// Claims, by papers and by this project, and their verdicts.
    Claims(String),
    Medians(Medians),
    Grid(Grid),
    Table(Stored),
    /// The goals of this project, in all results.
    Goals,
    /// Every experiment and its question.
    Experiments,
}

/// Medians, with a line for each case and a column for each variant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Medians {
    of: String,
    metrics: Vec<String>,
    /// Pattern of the cases. The value of its first name is shown.
    cases: String,
    /// Those of the cases that are shown, as they are shown; all if there are none.
    #[serde(default)]
    only: Vec<String>,
    variants: Vec<String>,
    /// Variants whose ratios to the baseline are also shown.
    #[serde(default)]
    ratios: Vec<String>,
}

/// A number for each case; the values of a pattern in the names of cases make the lines and
/// columns.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grid {
    of: String,
    metric: String,
    variant: String,
    show: Shown,
    /// Pattern of the cases.
    cases: String,
    /// Names of the pattern.
    lines: Vec<String>,
    /// A name of the pattern, or `x` for the value of the case on the x axis.
    columns: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Shown {
    /// Ratio to the baseline.
    Ratio,
    /// Savings against another variant, in percent.
    SavedAgainst(String),
}

/// A table that the result has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    of: String,
    title: String,
    /// Columns that are shown; all if there are none.
    #[serde(default)]
    columns: Vec<String>,
    /// Lines that are shown, by their first cell; all if there are none.
    #[serde(default)]
    lines: Vec<String>,
}

/// Results by the names of their directories.
#[derive(Debug, Default)]
pub(super) struct Results(BTreeMap<String, ResultEntry>);

impl Results {
    pub(super) fn new(tree: ResultTree) -> Self {
        Self(tree.entries.into_iter().map(|entry| (entry.name.clone(), entry)).collect())
    }

    fn get(&self, name: &str) -> Result<&ResultContents> {
        let Some(entry) = self.0.get(name) else { bail!("there is no result `{name}`") };
        entry.contents.as_ref().map_err(|why| anyhow!("the result `{name}`: {why}"))
    }
}

impl PageBlock {
    /// The text between the markers.
    pub(super) fn text(&self, results: &Results) -> Result<String> {
        match self {
            Self::Setting(name) => Ok(setting(results.get(name)?)),
            Self::Claims(name) => claims(results.get(name)?),
            Self::Medians(medians) => medians.text(&results.get(&medians.of)?.result),
            Self::Grid(grid) => grid.text(results.get(&grid.of)?),
            Self::Table(stored) => stored.text(&results.get(&stored.of)?.result),
            Self::Goals => goals(results),
            Self::Experiments => Ok(all_experiments()),
        }
    }
}

fn paragraph(text: &str) -> String {
    wrap(text, 120).join("\n") + "\n"
}

fn setting(contents: &ResultContents) -> String {
    let result = &contents.result;
    let machine = &result.machine;
    let rounds = result.parameters.get("rounds").and_then(Value::as_u64);
    let rounds = rounds.map_or_else(String::new, |rounds| format!(", {rounds} rounds"));
    let cpu = machine.cpu.as_deref().unwrap_or("unknown processor");
    let kernel = machine.kernel.as_deref().unwrap_or("unknown");
    let congestion = machine.congestion_control.as_deref().unwrap_or("unknown");
    let processors = if machine.cores == 1 { "processor" } else { "processors" };
    let quick = if result.is_quick() { " A quick run, not to be quoted." } else { "" };
    paragraph(&format!(
        "`{}` on commit {}{rounds}; {} {processors} ({}), Linux {}, TCP congestion control {}.{quick}",
        escape(&result.experiment),
        escape(&result.commit),
        machine.cores,
        escape(cpu),
        escape(kernel),
        escape(congestion),
    ))
}

fn claims(contents: &ResultContents) -> Result<String> {
    let judgements = judge(contents.experiment(), &contents.result).judgements;
    ensure!(!judgements.is_empty(), "no claims are made about `{}`", contents.result.experiment);
    let line = |(claim, judgement): &(&Claim, Judgement)| {
        let source = match &claim.source {
            ClaimSource::Paper(paper) | ClaimSource::Expectation(paper) => escape(paper),
            ClaimSource::Goal => "goal".to_owned(),
        };
        let mut cells = vec![escape(&claim.measure)];
        cells.extend(judged(claim, judgement));
        cells.push(source);
        cells
    };
    let columns = ["what is measured", "here (95 %)", "wanted", "verdict", "source"];
    Ok(table(&columns.map(str::to_owned), &judgements.iter().map(line).collect::<Vec<_>>()))
}

/// Number, criterion and verdict.
fn judged(claim: &Claim, judgement: &Judgement) -> [String; 3] {
    let unit = escape(&claim.unit_after());
    let here = judgement.estimate.as_ref().map(|estimate| {
        let ends = [estimate.value, estimate.low, estimate.high].map(text::three_digits);
        format!("{} ({} to {}){unit}", ends[0], ends[1], ends[2])
    });
    [
        here.unwrap_or_else(nothing),
        format!("{}{unit}", claim.criterion),
        judgement.verdict.name(&claim.source).to_owned(),
    ]
}

fn link(experiment: &str) -> String {
    format!("[`{experiment}`]({PAGES}/{experiment}.md)")
}

fn goals(results: &Results) -> Result<String> {
    let mut lines = Vec::new();
    for experiment in experiments() {
        for name in results.0.keys() {
            let contents = results.get(name)?;
            if contents.result.experiment != experiment.name() {
                continue;
            }
            let mut which = link(experiment.name());
            if name != experiment.name() {
                // A result of another machine.
                which += &format!(", {} processors", contents.result.machine.cores);
            }
            let goals =
                experiment.claims().iter().filter(|claim| claim.source == ClaimSource::Goal);
            lines.extend(goals.map(|claim| {
                let mut cells = vec![which.clone(), escape(&claim.measure)];
                cells.extend(judged(claim, &experiment.judge(claim, &contents.result)));
                cells
            }));
        }
    }
    let columns = ["experiment", "what is measured", "here (95 %)", "goal", "verdict"];
    Ok(table(&columns.map(str::to_owned), &lines))
}

fn all_experiments() -> String {
    let lines =
        experiments().iter().map(|one| vec![link(one.name()), escape(&one.file().question)]);
    table(&["name", "question"].map(str::to_owned), &lines.collect::<Vec<_>>())
}

impl Medians {
    fn text(&self, result: &ResultFile) -> Result<String> {
        let pattern = Pattern::parse(&self.cases)?;
        // A line for each case and metric: the shown part of the case, and a row of it.
        let mut lines: Vec<(String, &Row)> = Vec::new();
        for row in result.rows.iter().filter(|row| self.metrics.contains(&row.metric)) {
            let Some(values) = pattern.values(&row.case) else { continue };
            let shown = values[0].to_owned();
            let is_new =
                !lines.iter().any(|(_, line)| line.case == row.case && line.metric == row.metric);
            if is_new && (self.only.is_empty() || self.only.contains(&shown)) {
                lines.push((shown, row));
            }
        }
        lines.sort_by(|(one, _), (other, _)| magnitude(one).total_cmp(&magnitude(other)));
        let Some((_, first)) = lines.first() else { bail!("no case of `{}`", self.cases) };

        let has_metrics = self.metrics.len() > 1;
        let mut columns: Vec<String> = pattern.names().take(1).map(escape).collect();
        if has_metrics {
            columns.push("metric".to_owned());
        }
        columns.extend(self.variants.iter().map(|variant| escape(variant)));
        let baseline = result.rows.iter().find_map(|row| row.baseline.as_deref());
        let baseline = baseline.unwrap_or("the baseline");
        let ratios = self.ratios.iter().map(|variant| format!("{variant} / {baseline}"));
        columns.extend(ratios.map(|heading| escape(&heading)));
        let find = |line: &Row, variant: &str| {
            let is = |row: &&Row| {
                row.variant == variant && row.case == line.case && row.metric == line.metric
            };
            result.rows.iter().find(is)
        };
        let rows = lines.iter().map(|(shown, line)| {
            let mut cells = vec![escape(shown)];
            if has_metrics {
                cells.push(with_unit(line));
            }
            let spread = |variant| find(line, variant)?.spread.map(median);
            cells.extend(self.variants.iter().map(|one| spread(one).unwrap_or_else(nothing)));
            let of = |variant| find(line, variant)?.widened_ratio().map(interval);
            cells.extend(self.ratios.iter().map(|one| of(one).unwrap_or_else(nothing)));
            cells
        });
        let what = if has_metrics { String::new() } else { with_unit(first) + ": " };
        let ratios = if self.ratios.is_empty() { "" } else { "; ratios with their 95 % intervals" };
        let caption = format!("{what}medians of the rounds, quartiles in brackets{ratios}.");
        Ok(paragraph(&upper(&caption)) + "\n" + &table(&columns, &rows.collect::<Vec<_>>()))
    }
}

fn with_unit(row: &Row) -> String {
    let unit = if row.unit.is_empty() { String::new() } else { format!(", {}", row.unit) };
    let less = if row.better == Better::Lower { ", less is better" } else { "" };
    escape(&format!("{}{unit}{less}", row.metric))
}

/// With a capital.
fn upper(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters).collect()
}

fn median(spread: Spread) -> String {
    let [median, q1, q3] = [spread.median, spread.q1, spread.q3].map(text::three_digits);
    format!("{median} ({q1}–{q3})")
}

fn interval(ratio: Ratio) -> String {
    let [value, low, high] = [ratio.value, ratio.low, ratio.high].map(text::three_digits);
    format!("{value} ({low}–{high})")
}

impl Grid {
    fn text(&self, contents: &ResultContents) -> Result<String> {
        let pattern = Pattern::parse(&self.cases)?;
        let names: Vec<&str> = pattern.names().collect();
        let index_of = |wanted: &String| {
            let position = names.iter().position(|name| name == wanted);
            position.ok_or_else(|| anyhow!("`{}` has no name `{wanted}`", self.cases))
        };
        let indices: Vec<usize> = self.lines.iter().map(index_of).collect::<Result<_>>()?;
        let column = if self.columns == "x" { None } else { Some(index_of(&self.columns)?) };

        let numbers = self.numbers(contents)?;
        let mut cells: BTreeMap<(Vec<&str>, String), &str> = BTreeMap::new();
        for row in &contents.result.rows {
            let Some(values) = pattern.values(&row.case) else { continue };
            let Some(number) = numbers.get(&row.case) else { continue };
            let heading = match column {
                Some(index) => values[index].to_owned(),
                None => row.x.map(text::short).unwrap_or_default(),
            };
            let line = indices.iter().map(|&index| values[index]).collect();
            cells.insert((line, heading), number);
        }
        ensure!(!cells.is_empty(), "no case of `{}` was measured", self.cases);
        let mut lines: Vec<&Vec<&str>> = cells.keys().map(|(line, _)| line).collect();
        let sizes = |line: &[&str]| line.iter().map(|name| magnitude(name)).collect::<Vec<_>>();
        lines.sort_by(|one, other| sizes(one).partial_cmp(&sizes(other)).unwrap_or(one.cmp(other)));
        lines.dedup();
        let mut headings: Vec<&String> = cells.keys().map(|(_, heading)| heading).collect();
        headings.sort_by(|one, other| magnitude(one).total_cmp(&magnitude(other)));
        headings.dedup();

        let mut columns: Vec<String> = self.lines.iter().map(|name| escape(name)).collect();
        columns.extend(headings.iter().map(|heading| match column {
            Some(_) if magnitude(heading).to_string() == **heading => {
                escape(&format!("{} = {heading}", self.columns))
            }
            _ => escape(heading),
        }));
        let rows = lines.iter().map(|line| {
            let of = |heading: &&String| cells.get(&((*line).clone(), (*heading).clone()));
            let numbers = headings
                .iter()
                .map(|heading| of(heading).map_or_else(nothing, |number| (*number).to_owned()));
            line.iter().map(|name| escape(name)).chain(numbers).collect()
        });
        let of = format!("{} of {}", self.metric, self.variant);
        let caption = match &self.show {
            Shown::Ratio => format!("{of} over the baseline, with 95 % intervals."),
            Shown::SavedAgainst(other) => format!(
                "Savings of {} in {} against {other}, %: mean of the rounds ± standard error.",
                self.variant, self.metric
            ),
        };
        Ok(paragraph(&upper(&escape(&caption)))
            + "\n"
            + &table(&columns, &rows.collect::<Vec<_>>()))
    }

    /// The shown numbers, by case.
    fn numbers(&self, contents: &ResultContents) -> Result<BTreeMap<String, String>> {
        let of_variant = |row: &&Row| row.variant == self.variant && row.metric == self.metric;
        match &self.show {
            Shown::Ratio => {
                let rows = contents.result.rows.iter().filter(of_variant);
                let ratio = |row: &Row| Some((row.case.clone(), interval(row.widened_ratio()?)));
                Ok(rows.filter_map(ratio).collect())
            }
            Shown::SavedAgainst(other) => {
                let raw = contents.raw.as_deref().ok_or_else(|| {
                    anyhow!("savings are computed from the readings of a packed result; run `seekwire lab pack` first")
                })?;
                let samples = Samples::of_csv(raw, &BTreeMap::new()).map_err(anyhow::Error::msg)?;
                let pairs = samples.pairs_by_case(&self.metric, &self.variant, other);
                let saved = pairs.into_iter().filter_map(|(case, pairs)| {
                    let percent: Vec<f64> =
                        pairs.iter().map(|(this, other)| 100.0 * (1.0 - this / other)).collect();
                    Mean::of(&percent).map(|mean| (case, with_error(mean)))
                });
                Ok(saved.collect())
            }
        }
    }
}

fn with_error(mean: Mean) -> String {
    let value = text::signed(&format!("{:.1}", mean.value));
    match mean.standard_error {
        Some(error) => format!("{value} ± {error:.1}"),
        None => value,
    }
}

impl Stored {
    fn text(&self, result: &ResultFile) -> Result<String> {
        let stored = result.tables.iter().find(|table| table.title == self.title);
        let Some(stored) = stored else { bail!("`{}` has no table `{}`", self.of, self.title) };
        let index_of = |wanted: &String| {
            let position = stored.columns.iter().position(|column| column == wanted);
            position.ok_or_else(|| anyhow!("`{}` has no column `{wanted}`", self.title))
        };
        let indices: Vec<usize> = match &self.columns[..] {
            [] => (0..stored.columns.len()).collect(),
            columns => columns.iter().map(index_of).collect::<Result<_>>()?,
        };
        let is_shown = |row: &&Vec<Value>| {
            let first = row.first().map(cell).unwrap_or_default();
            self.lines.is_empty() || self.lines.iter().any(|line| escape(line) == first)
        };
        let cells = |row: &Vec<Value>| {
            indices.iter().map(|&index| row.get(index).map_or_else(nothing, cell)).collect()
        };
        let rows: Vec<Vec<String>> = stored.rows.iter().filter(is_shown).map(cells).collect();
        ensure!(!rows.is_empty(), "`{}` has none of these lines", self.title);
        let columns: Vec<String> =
            indices.iter().map(|&index| escape(&stored.columns[index])).collect();
        let caption = format!("{}. {}", stored.title, stored.note);
        Ok(paragraph(&escape(caption.trim())) + "\n" + &table(&columns, &rows))
    }
}
