//! Files that are sent, and how they are verified.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::{Member, Violation, digest};

/// Bytes of a file that go into one message.
pub const CHUNK: usize = 64 << 10;

/// What is said about a file before it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Bytes of it.
    pub length: u64,
    /// SHA-256, in hexadecimal.
    pub sha256: String,
}

impl Header {
    /// Of the file at `path`.
    ///
    /// # Errors
    ///
    /// Those of reading it.
    pub fn of(path: &Path) -> Result<Self> {
        Ok(Self { length: path.metadata()?.len(), sha256: digest(path)? })
    }
}

/// Whether the file at `path` is the one that was announced.
///
/// # Errors
///
/// [`Violation`], if it is not; those of reading it.
pub fn verify(header: &Header, path: &Path) -> Result<()> {
    let arrived = Header::of(path)?;
    ensure!(arrived == *header, Violation(format!("a file arrived as {arrived:?} instead of {header:?}")));
    Ok(())
}

/// A file of the first bytes of the one to send, as many as messages have.
///
/// # Errors
///
/// Those of reading the one and writing the other.
pub fn small_file(order: &Member) -> Result<NamedTempFile> {
    let whole = File::open(&order.file).with_context(|| format!("cannot open {}", order.file.display()))?;
    let mut small = NamedTempFile::new()?;
    std::io::copy(&mut whole.take(order.size as u64), &mut small)?;
    Ok(small)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_and_short_files_are_violations() {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        let header = Header::of(file.path()).unwrap();
        verify(&header, file.path()).unwrap();
        for wrong in ["abd", "ab"] {
            std::fs::write(file.path(), wrong).unwrap();
            let error = verify(&header, file.path()).unwrap_err();
            assert!(error.downcast_ref::<Violation>().is_some(), "{wrong}");
        }
    }
}
