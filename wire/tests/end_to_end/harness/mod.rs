//! Code shared by the scenarios: a stage with its own addresses and registry, children that never
//! outlive their test, and the library's counters.

mod child;
mod stage;
mod stats;

pub(crate) use child::{Child, Finished};
pub(crate) use stage::{Mode, Stage, example, in_mode, library_directory, program, seekwire};
pub(crate) use stats::Stats;

use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long anything may take before the test says that it hangs. Far beyond what it takes on a
/// loaded machine.
pub(crate) const HANG_AFTER: Duration = Duration::from_secs(60);

/// Runs each scenario, a function of a [`Stage`], in every mode, as three tests.
macro_rules! in_every_mode {
    ($($scenario:ident),+ $(,)?) => {
        $(mod $scenario {
            use crate::harness::{Mode, in_mode};

            #[test]
            fn plain() {
                in_mode(Mode::Plain, super::$scenario);
            }

            #[test]
            fn accelerated() {
                in_mode(Mode::Accelerated, super::$scenario);
            }

            #[test]
            fn taken_back() {
                in_mode(Mode::TakenBack, super::$scenario);
            }
        })+
    };
}
pub(crate) use in_every_mode;

/// A file of wire/tests/programs.
pub(crate) fn source(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/programs").join(name)
}

/// An installed program; the servers' directory is not in everybody's PATH.
pub(crate) fn installed(name: &str) -> PathBuf {
    perhaps_installed(name)
        .unwrap_or_else(|| panic!("{name} is not installed: run scripts/deps test"))
}

/// A program that scripts/deps does not install.
pub(crate) fn perhaps_installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    directories.map(|directory| directory.join(name)).find(|candidate| candidate.is_file())
}

/// A program that scripts/deps puts beside what is built, because distributions have another
/// version of it.
pub(crate) fn installed_apart(place: &Path) -> PathBuf {
    let programs =
        library_directory().parent().expect("the directory of all that is built").join("programs");
    let path = programs.join(place);
    assert!(path.exists(), "{} is not there: run scripts/deps test", path.display());
    path
}

/// The first of several programs that is installed.
pub(crate) fn either(names: &[&str]) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|directory| names.iter().map(move |name| directory.join(name)))
        .find(|candidate| candidate.is_file());
    found.unwrap_or_else(|| panic!("none of {names:?} is installed: run scripts/deps test"))
}

/// Debian's Python where there is one: the first in PATH may be a wrapper script.
pub(crate) fn python() -> PathBuf {
    let debian = PathBuf::from("/usr/bin/python3");
    if debian.exists() { debian } else { installed("python3") }
}

/// SHA-256 of a file, as sha256sum(1) prints it.
pub(crate) fn sha256(file: &Path) -> String {
    let output =
        std::process::Command::new("sha256sum").arg("--").arg(file).output().expect("sha256sum");
    assert!(output.status.success(), "sha256sum {}", file.display());
    let text = String::from_utf8(output.stdout).expect("ASCII");
    text.trim_start_matches('\\').split(' ').next().unwrap_or_default().to_owned()
}
