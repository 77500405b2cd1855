//! C programs that are run with and without the library.

#[path = "../../../../../tests/current.rs"]
mod current;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use current::is_current;

/// The library that belongs to this build. Cargo does not build it for the tests.
pub(crate) fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        // target/PROFILE/deps/this-test
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let profile = deps.parent().unwrap();
        let path = profile.join("libseekwire.so");
        assert!(
            is_current(&path, &path.with_extension("d")),
            "no libseekwire.so of these sources in {}: build it first, with \
             cargo build -p seekwire-preload",
            profile.display()
        );
        path
    });
    library.clone()
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
