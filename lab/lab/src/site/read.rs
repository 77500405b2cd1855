//! Contents of the directories of results. Anyone may have written them: a result that cannot be
//! read is an entry with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result};

use crate::experiment::Experiment;
use crate::experiments::experiments;
use crate::journal::Journal;
use crate::outcome::ResultFile;
use crate::output::{PACKED_RAW, RAW, RESULT};
use crate::pack::{self, Kept, experiment_of};
use crate::programs::DEMO;

/// All results below a directory.
#[derive(Debug)]
pub(crate) struct ResultTree {
    pub(crate) entries: Vec<ResultEntry>,
    /// Why experiments have no new result, as a run of all recorded it, by name.
    pub(crate) reasons: BTreeMap<String, String>,
}

/// A directory with a result.
#[derive(Debug)]
pub(crate) struct ResultEntry {
    /// As readers see it: the name of the directory.
    pub(crate) name: String,
    /// The same for file names.
    pub(crate) slug: String,
    pub(crate) directory: PathBuf,
    /// `Err`: why it cannot be read.
    pub(crate) contents: Result<ResultContents, String>,
}

#[derive(Debug)]
pub(crate) struct ResultContents {
    pub(crate) result: ResultFile,
    /// The readings, of a packed result.
    pub(crate) raw: Option<String>,
    /// Outcome of the last run of all, if it did not replace this result.
    pub(crate) outdated: Option<String>,
}

impl ResultEntry {
    pub(crate) fn page(&self) -> String {
        format!("{}.html", self.slug)
    }
}

impl ResultContents {
    /// Its experiment, if this program knows it.
    pub(crate) fn experiment(&self) -> Option<&'static dyn Experiment> {
        experiment_of(&self.result)
    }
}

/// Reads the result that `directory` holds itself, and those of the directories below it, one level
/// or two.
pub(crate) fn read(directory: &Path) -> Result<ResultTree> {
    let mut reasons = BTreeMap::new();
    let mut add = |path: &Path| {
        let when = modified(&path.join(Journal::FILE));
        reasons.extend(
            Journal::read(path).reasons().into_iter().map(|(name, why)| (name, (why, when))),
        );
    };
    let mut directories = Vec::new();
    if holds_result(directory) {
        // The whole path provides a name, even for `.`.
        directories.push(directory.canonicalize().with_context(|| cannot_look_into(directory))?);
    }
    for child in children(directory)? {
        match holds_result(&child) {
            true => directories.push(child),
            // A directory that cannot be read is not a result.
            false => {
                for grandchild in children(&child).unwrap_or_default() {
                    if holds_result(&grandchild) {
                        directories.push(grandchild);
                    }
                }
                add(&child);
            }
        }
    }
    add(directory);

    let mut used = BTreeSet::from(["index".to_owned()]);
    let mut entries: Vec<ResultEntry> = directories
        .into_iter()
        .map(|directory| {
            let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let slug = slug(&name, &mut used);
            let contents = contents(&directory).map(|contents| {
                let reason = reasons.get(&contents.result.experiment);
                let is_older = |when| modified(&directory.join(RESULT)) <= when;
                let outdated =
                    reason.filter(|(_, when)| is_older(*when)).map(|(why, _)| why.clone());
                ResultContents { outdated, ..contents }
            });
            ResultEntry { name, slug, directory, contents }
        })
        .collect();
    entries.sort_by_key(order);
    let reasons = reasons.into_iter().map(|(name, (why, _))| (name, why)).collect();
    Ok(ResultTree { entries, reasons })
}

/// Known experiments as they are listed; then unknown ones; then results that cannot be read.
fn order(entry: &ResultEntry) -> (usize, String) {
    let all = experiments();
    let position = match &entry.contents {
        Ok(contents) if contents.result.experiment == DEMO => all.len(),
        Ok(contents) => all
            .iter()
            .position(|experiment| experiment.name() == contents.result.experiment)
            .unwrap_or(all.len() + 1),
        Err(_) => all.len() + 2,
    };
    (position, entry.name.clone())
}

fn cannot_look_into(directory: &Path) -> String {
    format!("cannot look into {}", directory.display())
}

fn children(directory: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || cannot_look_into(directory);
    let mut children = Vec::new();
    for entry in fs::read_dir(directory).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        let is_hidden =
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if !is_hidden && path.is_dir() {
            children.push(path);
        }
    }
    children.sort();
    Ok(children)
}

fn modified(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|metadata| metadata.modified()).ok()
}

fn holds_result(directory: &Path) -> bool {
    // Raw data without a result: it was lost.
    [RESULT, RAW, PACKED_RAW].iter().any(|name| directory.join(name).exists())
}

/// A name that is safe in files and addresses, and that no other page has.
fn slug(name: &str, used: &mut BTreeSet<String>) -> String {
    let is_safe =
        |character: char| character.is_ascii_alphanumeric() || character == '-' || character == '_';
    let safe: String = name.chars().map(|c| if is_safe(c) { c } else { '_' }).take(80).collect();
    let mut slug = safe.clone();
    let mut number = 1;
    while !used.insert(slug.clone()) {
        number += 1;
        slug = format!("{safe}-{number}");
    }
    slug
}

fn contents(directory: &Path) -> Result<ResultContents, String> {
    let Kept { result, raw } = pack::read(directory)?;
    Ok(ResultContents { result, raw, outdated: None })
}
