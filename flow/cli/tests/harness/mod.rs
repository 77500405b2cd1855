//! Helpers shared by the tests of pipelines.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

pub(crate) fn flow(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seekwire-flow"));
    command.arg("flow").args(arguments).current_dir(directory);
    command.output().expect("the program starts")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A chain of filters, with the same options for each stream.
pub(crate) fn chain(filters: &[(&str, &str)], stream: &str) -> String {
    let mut file = String::new();
    for (name, options) in filters {
        file += &format!("[filter.{name}]\n{options}\n");
    }
    for pair in filters.windows(2) {
        file +=
            &format!("[[stream]]\nfrom = \"{}\"\nto = \"{}\"\n{stream}\n", pair[0].0, pair[1].0);
    }
    file
}

pub(crate) fn write_pipeline(name: &str, content: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(name), content).unwrap();
    directory
}
