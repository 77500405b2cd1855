//! The documents of the repository, and the code in them.

use std::fs;
use std::path::{Path, PathBuf};

/// Every Markdown file for people who read the repository, with its text.
pub(crate) fn documents() -> Vec<(PathBuf, String)> {
    let mut documents = Vec::new();
    let products = ["wire", "flow", "slides", "nic", "lab"].map(|name| root().join(name));
    let directories = products.iter().flat_map(|product| [product.clone(), product.join("docs")]);
    for directory in directories.chain([root()]).filter(|directory| directory.is_dir()) {
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

/// The root of the repository, from any package in it.
pub(crate) fn root() -> PathBuf {
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.find(|directory| directory.join("ARCHITECTURE.md").is_file()).unwrap().to_path_buf()
}

/// The commands in code, split into words, each with the whole line: those in `sh` blocks, in the
/// ExecStart of units, and in code spans.
pub(crate) fn commands(text: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    code(text).into_iter().map(|line| (line, words(line)))
}

fn code(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut language = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), language) {
            (Some(opened), None) => language = Some(opened),
            (Some(_), Some(_)) => language = None,
            (None, Some("sh")) => pieces.push(line.trim()),
            (None, Some("ini")) => pieces.extend(line.strip_prefix("ExecStart=")),
            (None, Some(_)) => {}
            // Between every other pair of backticks.
            (None, None) => pieces.extend(line.split('`').skip(1).step_by(2)),
        }
    }
    pieces
}

/// `line` without what a shell would do before it looks for a program.
fn words(line: &str) -> Vec<&str> {
    let command = line.split(" #").next().unwrap_or_default();
    let words =
        command.split_ascii_whitespace().skip_while(|word| *word == "sudo" || word.contains("=/"));
    words.collect()
}
