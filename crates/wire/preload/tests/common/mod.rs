//! C programs that are run with and without the library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The library that belongs to this build. Cargo does not build it for the tests.
pub(crate) fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        // target/PROFILE/deps/this-test
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let profile = deps.parent().unwrap();
        let places = [profile.join("libseekwire.so"), deps.join("libseekwire.so")];
        let found = places.into_iter().find(|path| path.exists());
        let changed = ["preload", "endpoint", "transport", "protocol"].map(|part| {
            newest(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(part).join("src"))
        });
        found
            .filter(|path| changed.iter().all(|changed| *changed <= modified(path)))
            .unwrap_or_else(|| {
                panic!(
                    "no libseekwire.so of these sources in {}: build it first, with \
                     cargo build -p seekwire-preload",
                    profile.display()
                )
            })
    });
    library.clone()
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().unwrap().modified().unwrap()
}

/// When a file below `directory` was changed last.
fn newest(directory: &Path) -> SystemTime {
    let entries = directory.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let changed = |path: PathBuf| if path.is_dir() { newest(&path) } else { modified(&path) };
    entries.map(changed).max().unwrap_or(SystemTime::UNIX_EPOCH)
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
