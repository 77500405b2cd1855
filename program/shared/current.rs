//! Whether what a test runs was built from the sources as they are. Cargo does not build it for the test.

use std::path::Path;
use std::time::SystemTime;

/// Whether a file is newer than every source that it was built from, in whatever crate: cargo lists them in a file
/// `list` beside it.
pub(crate) fn is_current(built: &Path, list: &Path) -> bool {
    let modified = |path: &Path| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    let Ok(list) = std::fs::read_to_string(list) else { return false };
    let (Some(built), Some((_, sources))) = (modified(built), list.trim_end().split_once(": "))
    else {
        return false;
    };
    // A blank within a path has a backslash before it.
    let sources = sources.replace("\\ ", "\0");
    let mut sources = sources.split(' ').map(|path| path.replace('\0', " ")).peekable();
    sources.peek().is_some()
        && sources.all(|path| modified(Path::new(&path)).is_some_and(|changed| changed <= built))
}
