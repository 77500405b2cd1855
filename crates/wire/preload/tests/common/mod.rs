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
        let path = profile.join("libseekwire.so");
        assert!(
            is_current(&path),
            "no libseekwire.so of these sources in {}: build it first, with \
             cargo build -p seekwire-preload",
            profile.display()
        );
        path
    });
    library.clone()
}

/// Whether a library is newer than every source that it was built from, in whatever crate: cargo
/// lists them in a file beside it.
fn is_current(library: &Path) -> bool {
    let modified = |path: &Path| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    let Ok(list) = std::fs::read_to_string(library.with_extension("d")) else { return false };
    let (Some(built), Some((_, sources))) = (modified(library), list.trim_end().split_once(": "))
    else {
        return false;
    };
    // A blank within a path has a backslash before it.
    let sources = sources.replace("\\ ", "\0");
    let mut sources = sources.split(' ').map(|path| path.replace('\0', " ")).peekable();
    sources.peek().is_some()
        && sources.all(|path| modified(Path::new(&path)).is_some_and(|changed| changed <= built))
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
