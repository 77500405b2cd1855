//! Files that are sent, and how they are verified.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::{Latencies, Member, Violation, digest, repeat};

/// Bytes of a file in one message.
pub const CHUNK: usize = 64 << 10;

/// Announces a file before it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Bytes of the file.
    pub length: u64,
    /// SHA-256, in hexadecimal.
    pub sha256: String,
}

impl Header {
    /// The header of the file at `path`.
    ///
    /// # Errors
    ///
    /// Those of reading it.
    pub fn of(path: &Path) -> Result<Self> {
        Ok(Self { length: path.metadata()?.len(), sha256: digest(path)? })
    }
}

/// Creates an empty file at `path` for the arriving one, in place of an old one.
///
/// The old one is removed and not truncated: ext4 treats new contents of an old file as something
/// that must not be lost, sends them to the disk when the file is closed, and makes the next one
/// wait for that. On a busy disk a hundred files then take many seconds.
///
/// # Errors
///
/// Those of removing and creating a file.
pub fn create(path: &Path) -> Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => File::create_new(path),
    }
    .with_context(|| format!("cannot write {}", path.display()))
}

/// Checks that the file at `path` is the one that was announced.
///
/// # Errors
///
/// [`Violation`], if it is not; those of reading it.
pub fn verify(header: &Header, path: &Path) -> Result<()> {
    let arrived = Header::of(path)?;
    ensure!(
        arrived == *header,
        Violation(format!("a file arrived as {arrived:?} instead of {header:?}"))
    );
    Ok(())
}

/// Sends the first bytes of the file, as many as messages have, and then the whole file, each again
/// and again. `send` sends a file and returns how long it took until it was stored. Returns these
/// times of the small file, and the bytes per second of the whole one.
///
/// # Errors
///
/// Those of `send`, and of reading and writing files.
pub fn transfer(
    order: &Member,
    mut send: impl FnMut(&Path, &Header) -> Result<Duration>,
) -> Result<(Latencies, f64)> {
    let small = small_file(order)?;
    let header = Header::of(small.path())?;
    let (latencies, _) = repeat(order.time(), |_| send(small.path(), &header))?;

    let header = Header::of(&order.file)?;
    let (mut bytes, mut time) = (0, Duration::ZERO);
    while bytes == 0 || time < order.time() {
        time += send(&order.file, &header)?;
        bytes += header.length;
    }
    Ok((latencies, bytes as f64 / time.as_secs_f64()))
}

fn small_file(order: &Member) -> Result<NamedTempFile> {
    let whole =
        File::open(&order.file).with_context(|| format!("cannot open {}", order.file.display()))?;
    let mut small = NamedTempFile::new()?;
    std::io::copy(&mut whole.take(order.size as u64), &mut small)?;
    Ok(small)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_file_has_the_first_bytes_and_the_rate_is_that_of_the_whole() {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abcdef").unwrap();
        let (address, path) = (String::new(), file.path().to_owned());
        let model = crate::messaging::Model::File;
        let order = Member {
            model,
            address,
            rank: 0,
            clients: 0,
            members: 1,
            size: 4,
            milliseconds: 1,
            file: path,
        };
        let mut sent = Vec::new();
        let (latencies, rate) = transfer(&order, |path, header| {
            verify(header, path)?;
            sent.push(std::fs::read_to_string(path)?);
            Ok(Duration::from_micros(500))
        })
        .unwrap();
        assert!(latencies.count() > 0 && sent.contains(&"abcd".to_owned()));
        assert_eq!(
            sent[sent.len() - 3..],
            ["abcd", "abcdef", "abcdef"],
            "two of them make the time"
        );
        assert!((rate - 6.0 / 500e-6).abs() < 1e-6, "{rate}");
    }

    #[test]
    fn a_file_that_arrives_is_a_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("received");
        create(&path).unwrap();
        let mut first = File::open(&path).unwrap();
        std::fs::write(&path, "old").unwrap();
        create(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        let mut text = String::new();
        first.read_to_string(&mut text).unwrap();
        assert_eq!(text, "old", "nothing was truncated, which would have to reach the disk");
        assert!(create(directory.path()).is_err());
    }

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
