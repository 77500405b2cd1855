//! Tests that the command and the Makefile understand what the documents tell people to type.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;
use clap::error::ErrorKind;

use crate::definitions::definitions;

/// Every Markdown file of the repository, by path and content.
fn documents() -> Vec<(PathBuf, String)> {
    let root = root();
    let mut documents = Vec::new();
    for directory in [root.clone(), root.join("docs")] {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).unwrap();
                documents.push((path, text));
            }
        }
    }
    assert!(documents.len() > 4, "only {} documents", documents.len());
    documents
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines of `sh` blocks, what units start, and the code spans of the text.
fn code(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut language = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), language) {
            (Some(opened), None) => language = Some(opened),
            (Some(_), Some(_)) => language = None,
            (None, Some("sh")) => found.push(line.trim()),
            (None, Some("ini")) => found.extend(line.strip_prefix("ExecStart=")),
            (None, Some(_)) => {}
            // Between every other pair of backticks.
            (None, None) => found.extend(line.split('`').skip(1).step_by(2)),
        }
    }
    found
}

/// `line` without what a shell would do before it looks for a program.
fn words(line: &str) -> Vec<&str> {
    let command = line.split(" #").next().unwrap_or_default();
    let words =
        command.split_ascii_whitespace().skip_while(|word| *word == "sudo" || word.contains("=/"));
    words.collect()
}

#[test]
fn commands_in_the_documents_are_understood() {
    let mut checked = 0;
    for (path, text) in documents() {
        for line in code(&text) {
            let words = words(line);
            let words = match words[..] {
                ["seekwire", _, ..] => words,
                [program, ..] if program.ends_with("/seekwire") => {
                    [&["seekwire"], &words[1..]].concat()
                }
                _ => continue,
            };
            checked += 1;
            // It stands for a name that the reader chooses.
            let words = words.into_iter().filter(|word| *word != "NAME");
            // The text may mention an option without a program to go with it, and a command that
            // has others below it.
            let harmless = [
                ErrorKind::DisplayHelp,
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
                ErrorKind::MissingRequiredArgument,
            ];
            if let Err(error) = definitions().try_get_matches_from(words) {
                if !harmless.contains(&error.kind()) {
                    panic!("{}: {line}\n{error}", path.display());
                }
            }
        }
    }
    assert!(checked > 15, "only {checked} commands in the documents");
}

#[test]
fn make_targets_in_the_documents_exist() {
    let targets = |directory: &str| -> BTreeSet<String> {
        let makefile = fs::read_to_string(root().join(directory).join("Makefile")).unwrap();
        makefile.lines().filter_map(|line| Some(line.split_once(":")?.0.to_owned())).collect()
    };
    let mut checked = 0;
    for (path, text) in documents() {
        for line in code(&text) {
            let (directory, target) = match words(line)[..] {
                ["make", "-C", _] => continue,
                ["make", "-C", directory, target, ..] => (directory, target),
                ["make", target, ..] => (".", target),
                _ => continue,
            };
            assert!(
                targets(directory).contains(target),
                "{}: no target for `{line}`",
                path.display()
            );
            checked += 1;
        }
    }
    assert!(checked > 5, "only {checked} make commands in the documents");
}

/// Of a command and all below it.
fn help(mut command: Command) -> String {
    let own = command.render_long_help().to_string();
    command.get_subcommands().cloned().map(help).fold(own, |all, one| all + &one)
}

#[test]
fn variables_in_the_documents_are_explained_by_the_help() {
    let help = help(definitions());
    // For tests of the project itself.
    let internal = ["SEEKWIRE_FALLBACK_AFTER", "SEEKWIRE_TEST_REGION"];
    // Constants for programs in C begin alike.
    let header = fs::read_to_string(root().join("include/seekwire.h")).unwrap();
    let is_constant = |name: &str| header.contains(&format!("#define {name} "));
    for (path, text) in documents() {
        let names = text
            .split(|c: char| !c.is_ascii_uppercase() && c != '_')
            .filter(|word| word.starts_with("SEEKWIRE_"));
        let is_other = |name: &&str| internal.contains(name) || is_constant(name);
        for name in names.filter(|name| !is_other(name) && *name != "SEEKWIRE_") {
            assert!(help.contains(name), "{}: {name} is in no help of seekwire", path.display());
        }
    }
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    for (path, text) in documents() {
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let file = path.parent().unwrap().join(target.split('#').next().unwrap());
            assert!(file.exists(), "{}: {target} does not exist", path.display());
        }
    }
}
