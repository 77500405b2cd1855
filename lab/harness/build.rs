//! Embeds the commit, so that an installed binary can still report what it was built from.

use std::path::Path;
use std::process::Command;

fn main() {
    // Anything that changes a measured crate must refresh the "-dirty" mark. Not the whole checkout, of
    // which every build changes the directory `target`.
    for folder in ["flow", "lab", "nic", "program", "slides", "wire"] {
        println!("cargo::rerun-if-changed=../../{folder}");
    }
    for name in ["HEAD", "logs/HEAD", "packed-refs"] {
        // Cargo takes a file that does not exist, as packed-refs may not, for one that has changed.
        if let Some(path) =
            git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists())
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-env-changed=SEEKWIRE_COMMIT");

    let commit = std::env::var("SEEKWIRE_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty())
        .or_else(|| git(&["describe", "--always", "--dirty", "--tags", "--abbrev=12"]))
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=LAB_COMMIT={commit}");
}

/// First line of what git prints, or `None` outside a checkout or without git.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().filter(|line| !line.is_empty()).map(str::to_owned)
}
