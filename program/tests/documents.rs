//! The documents name only make targets and files that exist.

#[path = "../shared/documents.rs"]
mod documents;

use std::collections::BTreeSet;
use std::fs;

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
    for (path, text) in documents() {
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let file = path.parent().unwrap().join(target.split('#').next().unwrap());
            assert!(file.exists(), "{}: {target} does not exist", path.display());
            checked += 1;
        }
    }
    assert!(checked > 5, "only {checked} links in the documents");
}
