//! The unmodified C program of the experiments: embedded as source, compiled when first needed.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use sha2::{Digest, Sha256};

use crate::launch::{Error, Mode, Program};

const SOURCE: &str = include_str!("../peer/streambench.c");
const FLAGS: [&str; 2] = ["-std=c11", "-O2"];

/// Path of the compiled program; compiled at most once per process, and kept in the user's cache directory.
///
/// # Errors
///
/// If there is no C compiler (`cc`, or `$CC`), or no directory to keep the program in.
pub(crate) fn path() -> Result<&'static Path> {
    static PATH: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let directory = cache_directory();
        compile_into(&directory).map_err(|error| format!("{error:#}"))
    });
    path.as_deref().map_err(|why| anyhow!("{why}"))
}

fn cache_directory() -> PathBuf {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(|| std::env::temp_dir().join("seekwire-cache"))
        .join("seekwire")
}

fn compile_into(directory: &Path) -> Result<PathBuf> {
    let compiler = std::env::var_os("CC").filter(|name| !name.is_empty()).unwrap_or_else(|| "cc".into());
    let program = directory.join(format!("streambench-{}", fingerprint(&compiler.to_string_lossy())));
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    // Compiled aside and renamed, so that nobody ever starts half a program.
    let work = tempfile::tempdir_in(directory)
        .with_context(|| format!("cannot write into {}", directory.display()))?;
    let (source, compiled) = (work.path().join("streambench.c"), work.path().join("streambench"));
    fs::write(&source, SOURCE).with_context(|| format!("cannot write {}", source.display()))?;
    let compile = Program::new(&compiler, &Mode::Plain)
        .args(FLAGS)
        .arg("-o")
        .arg(&compiled)
        .arg(&source)
        .timeout(Duration::from_secs(120));
    compile.run().map_err(|error| match error {
        Error::NotInstalled { .. } => anyhow!(
            "no C compiler '{}' to build the test program; install one (Debian: gcc) or set CC",
            compiler.to_string_lossy()
        ),
        error => anyhow::Error::new(error).context("cannot compile the test program"),
    })?;
    fs::rename(&compiled, &program).with_context(|| format!("cannot write {}", program.display()))?;
    Ok(program)
}

/// Tells apart what would compile differently.
fn fingerprint(compiler: &str) -> String {
    let mut hash = Sha256::new();
    for part in [compiler, &FLAGS.join(" "), SOURCE] {
        hash.update(part);
        hash.update([0]);
    }
    hash.finalize().iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_once_and_then_found() {
        let cache = tempfile::tempdir().unwrap();
        let program = compile_into(cache.path()).unwrap();
        let first = fs::metadata(&program).unwrap().modified().unwrap();
        assert_eq!(compile_into(cache.path()).unwrap(), program);
        assert_eq!(fs::metadata(&program).unwrap().modified().unwrap(), first);
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn source_compiles_without_warnings() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("streambench.c");
        fs::write(&source, SOURCE).unwrap();
        let flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"];
        Program::new("cc", &Mode::Plain).args(flags).arg(&source).run().unwrap();
    }
}
