//! Programs that could once tell the difference.

use std::path::Path;
use std::process::Command;

#[test]
fn programs_that_once_could_tell_the_difference_cannot() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = home.join("regressions");
    let mut files: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    // What a send leaves to Nagle's algorithm arrives when the last segment is acknowledged, before
    // or after a kill.
    let output = Command::new(home.join("../../../scripts/isolated"))
        .env("QUICKACK", "1")
        .args([env!("CARGO_BIN_EXE_seekwire-differential"), "replay", "--times", "2"])
        .args(&files)
        .output()
        .unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}{errors}");
    println!("{text}");
}
