//! Where results go: a directory that must be ours, and files that appear complete or not at all.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustix::fs::OFlags;
use serde::Deserialize;

/// The file that marks a directory as one of ours.
pub const RESULT: &str = "result.json";
/// The readings, as they are measured.
pub const RAW: &str = "raw.csv";
/// The same in a packed result.
pub const PACKED_RAW: &str = "raw.csv.gz";

/// Even a result of several million readings is smaller.
const LARGEST: u64 = 64 << 20;

/// Free space that a directory must have before anything is measured. Most results are smaller.
const ROOM: usize = 1 << 20;

/// A directory that may be written to.
#[derive(Debug)]
pub struct Destination(PathBuf);

impl Destination {
    /// Makes the directory, or takes over one that holds an earlier result. Checked before anything
    /// is measured.
    pub fn prepare(directory: &Path) -> Result<Self> {
        Self::prepare_marked(directory, RESULT, is_result)
    }

    /// The same for a directory that is ours if it has the file `mark`.
    pub fn prepare_marked(
        directory: &Path,
        mark: &str,
        is_ours: fn(&Path) -> bool,
    ) -> Result<Self> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
        let mut entries = fs::read_dir(directory)
            .with_context(|| format!("cannot look into {}", directory.display()))?;
        if entries.next().is_some() && !is_ours(&directory.join(mark)) {
            bail!(
                "{} holds files that are not from this laboratory; name another directory with --out",
                directory.display()
            );
        }
        room_in(directory).map_err(|error| {
            let hint = hint(&error);
            let context = format!("cannot write into {}{hint}", directory.display());
            anyhow::Error::new(error).context(context)
        })?;
        Ok(Self(directory.to_owned()))
    }

    /// Writes one file; readers see the old contents or the new ones, never a partial file.
    pub fn write(&self, name: &str, contents: &str) -> Result<PathBuf> {
        write_file(&self.0, name, contents)
    }

    /// Removes one file, if it is there.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.0.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Removes the figures of the result that is here.
    pub fn remove_figures(&self) -> Result<()> {
        #[derive(Default, Deserialize)]
        struct Shown {
            #[serde(default)]
            figures: Vec<Named>,
        }
        #[derive(Deserialize)]
        struct Named {
            file: String,
        }
        let text = read_file(&self.0.join(RESULT)).unwrap_or_default();
        let shown: Shown = serde_json::from_str(&text).unwrap_or_default();
        // The result may come from anyone.
        let is_here = |file: &&String| Path::new(file).file_name() == Some(file.as_ref());
        shown
            .figures
            .iter()
            .map(|figure| &figure.file)
            .filter(is_here)
            .try_for_each(|file| self.remove(file))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Fails unless there is room for [`ROOM`] bytes.
fn room_in(directory: &Path) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(directory)?;
    // Written, not reserved: not every file system can reserve, and some compress zeros away.
    let some: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(ROOM).collect();
    file.write_all(&some)?;
    // Some file systems report only now that they are full.
    file.sync_data()
}

/// Advice on an error, appended to the failed action.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free some space and run it again",
        ErrorKind::PermissionDenied => "; choose a directory of your own with --out",
        _ => "",
    }
}

/// Writes one file of a directory; readers see the old contents or the new ones, never a partial
/// file.
pub fn write_file(directory: &Path, name: &str, contents: &str) -> Result<PathBuf> {
    copy_file(directory, name, &mut contents.as_bytes())
}

/// The same with the contents of `source`. A link of that name is replaced, not followed.
pub fn copy_file(directory: &Path, name: &str, source: &mut impl Read) -> Result<PathBuf> {
    let path = directory.join(name);
    let mut write = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(".seekwire-")
            // The umask applies, as for any other file.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory)?;
        std::io::copy(source, &mut file)?;
        file.persist(&path)?;
        Ok(())
    };
    write().map_err(|error| {
        let hint = hint(&error);
        anyhow::Error::new(error).context(format!("cannot write {}{hint}", path.display()))
    })?;
    Ok(path)
}

/// The text of a file that may come from anyone.
///
/// # Errors
///
/// If it cannot be read, is larger than any result, or is not a regular file: reading a pipe would
/// block.
pub fn read_file(path: &Path) -> io::Result<String> {
    read_text(open_file(path)?)
}

/// The whole of a text that is not larger than any result.
pub fn read_text(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    source.take(LARGEST + 1).read_to_string(&mut text)?;
    match text.len() as u64 > LARGEST {
        true => {
            Err(io::Error::new(ErrorKind::InvalidInput, format!("larger than {LARGEST} bytes")))
        }
        false => Ok(text),
    }
}

/// Opens a file that may come from anyone.
pub fn open_file(path: &Path) -> io::Result<File> {
    let without_waiting = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "not a file")),
    }
}

fn is_result(path: &Path) -> bool {
    #[derive(Deserialize)]
    struct Mark {
        #[serde(rename = "experiment")]
        _experiment: String,
    }
    read_file(path).is_ok_and(|text| serde_json::from_str::<Mark>(&text).is_ok())
}

/// Whether a directory has the result of a run that was not a quick one.
pub fn is_thorough(directory: &Path) -> bool {
    #[derive(Deserialize)]
    struct Mark {
        parameters: Parameters,
    }
    #[derive(Deserialize)]
    struct Parameters {
        quick: bool,
    }
    let text = read_file(&directory.join(RESULT)).unwrap_or_default();
    serde_json::from_str::<Mark>(&text).is_ok_and(|mark| !mark.parameters.quick)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole_and_leave_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("a/b");
        let destination = Destination::prepare(&out).unwrap();
        destination.write(RESULT, r#"{"experiment":"x"}"#).unwrap();
        destination.write(RESULT, r#"{"experiment":"y"}"#).unwrap();
        assert_eq!(fs::read_to_string(out.join(RESULT)).unwrap(), r#"{"experiment":"y"}"#);
        assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
        Destination::prepare(&out).expect("an earlier result may be replaced");
    }

    #[test]
    fn foreign_files_are_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(RESULT), "{}").unwrap();
        let error = Destination::prepare(directory.path()).unwrap_err().to_string();
        assert!(error.contains("--out"), "{error}");
    }

    #[test]
    fn errors_name_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let destination = Destination::prepare(&directory.path().join("gone")).unwrap();
        fs::remove_dir(destination.path()).unwrap();
        let error = format!("{:#}", destination.write("raw.csv", "").unwrap_err());
        assert!(error.contains("raw.csv"), "{error}");
    }
}
