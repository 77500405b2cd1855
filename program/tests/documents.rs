//! The documents name only make targets and files that exist, and all of them are in the book.

#[path = "../shared/documents.rs"]
mod documents;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use documents::{commands, documents, root};

#[test]
fn make_targets_in_the_documents_exist() {
    let targets = |directory: &str| -> BTreeSet<String> {
        let makefile = fs::read_to_string(root().join(directory).join("Makefile")).unwrap();
        makefile.lines().filter_map(|line| Some(line.split_once(":")?.0.to_owned())).collect()
    };
    let mut checked = 0;
    for (path, text) in documents() {
        for (line, words) in commands(&text) {
            let (directory, target) = match words[..] {
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

#[test]
fn links_in_the_documents_lead_somewhere() {
    let mut checked = 0;
    for (path, text) in documents().into_iter().chain(experiments()) {
        for target in links(&text).filter(|target| !target.contains("://")) {
            let file = path.parent().unwrap().join(target.split('#').next().unwrap());
            assert!(file.exists(), "{}: {target} does not exist", path.display());
            checked += 1;
        }
    }
    assert!(checked > 5, "only {checked} links in the documents");
}

#[test]
fn the_book_has_every_document() {
    let book = root().join("book");
    let summary = fs::read_to_string(book.join("SUMMARY.md")).unwrap();
    let chapter =
        |link| fs::canonicalize(book.join(link)).unwrap_or_else(|e| panic!("{link}: {e}"));
    let chapters: BTreeSet<PathBuf> = links(&summary).map(chapter).collect();
    for (path, _) in documents().into_iter().chain(experiments()) {
        let is_in_it = chapters.contains(&fs::canonicalize(&path).unwrap());
        assert!(is_in_it, "{} is not in book/SUMMARY.md", path.display());
    }
}

/// The pages of the experiments, with their texts.
fn experiments() -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(root().join("lab/experiments")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let pages = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// Names of others, and those that sources put together.
const NOT_IN_SOURCES: [&str; 4] =
    ["seekwire_slides_", "test_NAME", "msg_seek", "credential_process"];

#[test]
fn names_in_the_documents_are_in_the_sources() {
    let files = Command::new("git").arg("ls-files").current_dir(root()).output().unwrap().stdout;
    let files = String::from_utf8(files).unwrap();
    let others = |path: &&str| !path.ends_with(".md") && !path.starts_with("lab/measurements/");
    let sources = files.lines().filter(others);
    let sources = sources.filter_map(|path| fs::read_to_string(root().join(path)).ok());
    let sources: String = sources.collect();
    let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let known: BTreeSet<&str> = sources.split(is_other).filter(|word| word.contains('_')).collect();
    let is_foreign = |word: &str| NOT_IN_SOURCES.iter().any(|known| word.starts_with(known));
    let mut checked = 0;
    for (path, text) in documents() {
        for code in text.split('`').skip(1).step_by(2).filter(|code| !code.contains("//")) {
            let names = code.trim_end_matches("()").split("::");
            for name in names.filter(|name| name.contains('_') && !name.contains(is_other)) {
                let is_known = known.contains(name) || is_foreign(name);
                assert!(is_known, "{}: no source has `{code}`", path.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "only {checked} names in the documents");
}
