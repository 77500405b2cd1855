//! C and C++ programs of the experiments: embedded as source, compiled when first needed.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use sha2::{Digest, Sha256};

use crate::launch::{Error, Mode, Program};

/// A program as source.
#[derive(Debug)]
pub struct SourceFile<'a> {
    /// The beginning of its file name.
    pub name: &'a str,
    /// Its source.
    pub text: &'a str,
    /// The compiler's options.
    pub flags: &'a [&'a str],
    /// Options that name libraries; they follow the source.
    pub libraries: &'a [&'a str],
}

/// Path of the compiled program, which is kept in the user's cache directory.
///
/// # Errors
///
/// If there is no C compiler (`cc`, or `$CC`), if it refuses, or if there is no directory to keep
/// the program in.
pub fn path(source: &SourceFile<'_>) -> Result<PathBuf> {
    compile_into(&cache_directory(), source)
}

fn cache_directory() -> PathBuf {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(|| std::env::temp_dir().join("seekwire-cache"))
        .join("seekwire")
}

fn compile_into(directory: &Path, source: &SourceFile<'_>) -> Result<PathBuf> {
    let compiler =
        std::env::var_os("CC").filter(|name| !name.is_empty()).unwrap_or_else(|| "cc".into());
    let fingerprint = fingerprint(&compiler.to_string_lossy(), source);
    let program = directory.join(format!("{}-{fingerprint}", source.name));
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    // Compiled aside and renamed, so that nobody ever starts a partial program.
    let work = tempfile::tempdir_in(directory)
        .with_context(|| format!("cannot write into {}", directory.display()))?;
    let (text, compiled) = (work.path().join("program.c"), work.path().join("program"));
    fs::write(&text, source.text).with_context(|| format!("cannot write {}", text.display()))?;
    let compile = Program::new(&compiler, &Mode::Plain)
        .args(source.flags)
        .arg("-o")
        .arg(&compiled)
        .arg(&text)
        .args(source.libraries)
        .timeout(Duration::from_secs(120));
    compile.run().map_err(|error| match error {
        Error::NotInstalled { .. } => anyhow!(
            "no C compiler '{}' to build the test program; install one (Debian: gcc) or set CC",
            compiler.to_string_lossy()
        ),
        error => anyhow::Error::new(error).context("cannot compile the test program"),
    })?;
    fs::rename(&compiled, &program)
        .with_context(|| format!("cannot write {}", program.display()))?;
    Ok(program)
}

/// Distinguishes programs that would compile differently.
fn fingerprint(compiler: &str, source: &SourceFile<'_>) -> String {
    let mut hash = Sha256::new();
    for part in [compiler, &source.flags.join(" "), &source.libraries.join(" "), source.text] {
        hash.update(part);
        hash.update([0]);
    }
    hash.finalize().iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Checks that the compiler reports no warnings.
///
/// # Errors
///
/// Its warnings and errors.
pub fn check(source: &SourceFile<'_>) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let text = directory.path().join("program.c");
    fs::write(&text, source.text)?;
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"];
    Program::new("cc", &Mode::Plain).args(source.flags).args(strict).arg(&text).run()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_once_and_then_found() {
        let source = SourceFile {
            name: "nothing",
            text: "int main(void) { return 0; }",
            flags: &["-O1"],
            libraries: &[],
        };
        let cache = tempfile::tempdir().unwrap();
        let program = compile_into(cache.path(), &source).unwrap();
        let first = fs::metadata(&program).unwrap().modified().unwrap();
        assert_eq!(compile_into(cache.path(), &source).unwrap(), program);
        assert_eq!(fs::metadata(&program).unwrap().modified().unwrap(), first);
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 1, "nothing is left behind");
    }
}
