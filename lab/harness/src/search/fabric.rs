//! The same messages through a real messaging library: libfabric's tcp provider, tagged.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow};

use super::plan::{SearchPlan, patience};
use crate::compiled::{self, SourceFile};
use crate::launch::{Mode, Program};

const SOURCE: SourceFile<'_> = SourceFile {
    name: "fabricbench",
    text: include_str!("../../peer/fabricbench.c"),
    flags: &["-std=gnu11", "-O2"],
    libraries: &["-lfabric"],
};

/// The sender, on `processor`.
///
/// # Errors
///
/// If libfabric or a C compiler is missing.
pub(super) fn sender(processor: Option<usize>) -> Result<Program> {
    Ok(Program::new(path()?, &Mode::Plain).arg("send").arg(number(processor)))
}

/// The receiver of messages from the sender that listens on `port`.
///
/// # Errors
///
/// As [`sender`].
pub(super) fn receiver(port: u16, plan: SearchPlan, processor: Option<usize>) -> Result<Program> {
    let program = Program::new(path()?, &Mode::Plain).arg("receive").arg(number(processor));
    let numbers = [u64::from(port), plan.size, plan.skip].map(|number| number.to_string());
    Ok(program.args(numbers).timeout(patience(plan)))
}

fn number(processor: Option<usize>) -> String {
    processor.map_or_else(|| "-1".to_owned(), |processor| processor.to_string())
}

fn path() -> Result<&'static Path> {
    static PATH: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let compiled = compiled::path(&SOURCE);
        compiled.context("libfabric is not installed (Debian package: libfabric-dev)").map_err(
            |error| {
                // The compiler's own output would fill a page.
                error.to_string()
            },
        )
    });
    path.as_deref().map_err(|why| anyhow!("{why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_compiles_without_warnings_or_its_absence_is_explained() {
        match path() {
            Ok(_) => crate::compiled::check(&SOURCE).unwrap(),
            Err(error) => assert!(error.to_string().contains("libfabric-dev"), "{error}"),
        }
    }
}
