//! The example, which `cargo test` builds beside this test.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_longest_lines_are_printed_in_the_order_of_the_files() {
    let test = env::current_exe().unwrap();
    let example = test.parent().and_then(Path::parent).unwrap().join("examples/longest");
    assert!(example.exists(), "run cargo build --package seekwire-flow --examples");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("longest");
    fs::create_dir_all(&directory).unwrap();
    let lines = |longest: usize| -> String {
        let length = |line: usize| if line == 7001 { longest } else { line % 90 };
        (0..9000).map(|line| "x".repeat(length(line)) + "\n").collect()
    };
    fs::write(directory.join("first"), lines(100)).unwrap();
    fs::write(directory.join("second"), lines(120)).unwrap();
    let run = |files: &[&str]| {
        Command::new(&example).args(files).current_dir(&directory).output().unwrap()
    };
    let output = run(&["first", "second"]);
    assert!(output.status.success(), "{output:?}");
    let expected = format!("{}\n{}\n", "x".repeat(100), "x".repeat(120));
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    let output = run(&["none", "first"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("unit 0: filter lines, copy 0: none: No such file"), "{said}");
    assert!(said.contains("1 of 2 files could not be read"), "{said}");
    assert_eq!(output.stdout.len(), 101);
}
