//! C programs that are run with and without the library.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that belongs to this build.
pub(crate) fn library() -> PathBuf {
    // target/PROFILE/deps/this-test
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let profile = deps.parent().unwrap();
    [profile.join("libseekwire.so"), deps.join("libseekwire.so")]
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| {
            panic!(
                "no libseekwire.so in {}: build it first, with cargo build -p seekwire-preload",
                profile.display()
            )
        })
}

/// Compiles a program of `tests/c`, where it is one file, or all those in a directory.
pub(crate) fn compile(name: &str, directory: &Path, arguments: &[&str]) -> PathBuf {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = crate_directory.join("tests/c").join(name);
    let sources: Vec<PathBuf> = match place.read_dir() {
        Ok(files) => files
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|kind| kind == "c"))
            .collect(),
        Err(_) => vec![place.with_extension("c")],
    };
    let program = directory.join(name);
    let output = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-D_FORTIFY_SOURCE=2", "-pthread", "-o"])
        .arg(&program)
        .args(&sources)
        .arg("-I")
        .arg(crate_directory.join("../../../include"))
        .args(arguments)
        .output()
        .expect("cc runs");
    assert!(output.status.success(), "{name}.c: {}", String::from_utf8_lossy(&output.stderr));
    program
}
