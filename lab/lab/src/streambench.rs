//! The unmodified C program of the experiments.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Result, anyhow};

use crate::compiled::{self, SourceFile};

const SOURCE: SourceFile<'_> = SourceFile {
    name: "streambench",
    text: include_str!("../peer/streambench.c"),
    flags: &["-std=c11", "-O2"],
    libraries: &[],
};

/// Path of the compiled program; compiled at most once per process, and kept in the user's cache
/// directory.
///
/// # Errors
///
/// If there is no C compiler (`cc`, or `$CC`), or no directory to keep the program in.
pub(crate) fn path() -> Result<&'static Path> {
    static PATH: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let path = PATH.get_or_init(|| compiled::path(&SOURCE).map_err(|error| format!("{error:#}")));
    path.as_deref().map_err(|why| anyhow!("{why}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn source_compiles_without_warnings() {
        crate::compiled::check(&super::SOURCE).unwrap();
    }
}
