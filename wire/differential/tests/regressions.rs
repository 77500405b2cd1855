//! Programs that could tell the difference once.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs wait most of the time, so several run at once, as in a random campaign.
const AT_ONCE: usize = 4;

#[test]
fn programs_that_once_could_tell_the_difference_cannot() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut files: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= AT_ONCE);
    std::thread::scope(|scope| {
        let replays: Vec<_> = (0..AT_ONCE)
            .map(|first| files.iter().skip(first).step_by(AT_ONCE))
            .map(|some| scope.spawn(|| replay(some)))
            .collect();
        let failed = replays.into_iter().filter_map(|replay| replay.join().unwrap().err());
        let failed: Vec<String> = failed.collect();
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    });
}

/// Runs these programs one after the other; fails with the output if one can tell the difference.
fn replay<'a>(files: impl Iterator<Item = &'a PathBuf>) -> Result<(), String> {
    // Bytes that a send leaves to Nagle's algorithm arrive when the last segment is acknowledged,
    // before or after a kill.
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/isolated"))
        .env("QUICKACK", "1")
        .args([env!("CARGO_BIN_EXE_seekwire-differential"), "replay", "--times", "2"])
        .args(files)
        .output()
        .unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    if output.status.success() { Ok(()) } else { Err(format!("{text}{errors}")) }
}
