//! The files that a unit of work reads here, and those that were written here or are written in
//! processes that see the same files. No file is both, and none is written twice: beginning a file
//! anew destroys it for its reader, or what another filter, unit or block has written.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::fd::AsFd;
use rustix::fs::{FileType, fstat};
use seekwire_flow::{FilterError, UnitId};

use super::directory_walk::{Tree, named};
use super::file_writers::{Writer, Writers};
use crate::unit_argument;

/// Device and inode; `None` for a pipe or a device.
pub(crate) type FileId = Option<(u64, u64)>;

#[derive(Default)]
struct Uses {
    /// The unit that reads: units run one after the other.
    unit: Option<UnitId>,
    /// Files that it reads.
    read: HashSet<(u64, u64)>,
    /// Trees whose files it reads one by one.
    trees: Vec<Tree>,
    /// The first writer of each file in this process.
    written: Writers,
}

impl Uses {
    fn all() -> MutexGuard<'static, Uses> {
        static USES: LazyLock<Mutex<Uses>> = LazyLock::new(Mutex::default);
        USES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(unit: UnitId) -> MutexGuard<'static, Uses> {
        let mut uses = Self::all();
        uses.turn_to(unit);
        uses
    }

    /// A filter of an earlier unit, which has failed, may still be under way.
    fn turn_to(&mut self, unit: UnitId) {
        if self.unit < Some(unit) {
            self.unit = Some(unit);
            self.read.clear();
            self.trees.clear();
        }
    }

    /// Whether a file belongs to one of the trees, even if the unit has not reached it yet.
    fn is_in_trees(&self, identity: (u64, u64)) -> Result<bool, FilterError> {
        for mut tree in self.trees.iter().cloned() {
            while let Some(path) = tree.next()? {
                let metadata = path.metadata().map_err(named(&path))?;
                if number(&metadata) == identity {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

pub(crate) fn number(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

pub(crate) fn identity(file: impl AsFd) -> io::Result<FileId> {
    let status = fstat(file)?;
    let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
    Ok(is_file.then_some((status.st_dev, status.st_ino)))
}

/// Files that are written as long as this process runs, in all units.
fn throughout() -> MutexGuard<'static, HashSet<(u64, u64)>> {
    static THROUGHOUT: LazyLock<Mutex<HashSet<(u64, u64)>>> = LazyLock::new(Mutex::default);
    THROUGHOUT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on no unit reads this file, because it would read its own output forever, and no filter
/// begins it anew.
pub(crate) fn written_throughout(file: FileId) {
    throughout().extend(file);
}

/// Whether the file is one of these.
pub(crate) fn is_written_throughout(file: FileId) -> bool {
    file.is_some_and(|file| throughout().contains(&file))
}

/// The option `path` of each filter that writes in a process in which a path leads to the same
/// file.
fn elsewhere() -> MutexGuard<'static, Vec<String>> {
    static ELSEWHERE: Mutex<Vec<String>> = Mutex::new(Vec::new());
    ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on no unit reads or writes what another process writes to that path.
pub(crate) fn written_elsewhere(path: &str) {
    elsewhere().push(path.to_owned());
}

/// The existing files that other processes are going to write for this unit.
fn written_by_others(unit: UnitId, argument: &str) -> Vec<Metadata> {
    let paths = elsewhere().clone();
    let numbered =
        paths.iter().filter_map(|path| unit_argument::expanded(path, unit, argument, None).ok());
    let there = numbered.filter_map(|path| fs::metadata(unit_argument::of_text(&path)).ok());
    there.filter(Metadata::is_file).collect()
}

/// Notes that the unit reads this file.
///
/// # Errors
/// The unit or another process writes the file.
pub(super) fn reads(
    unit: UnitId,
    argument: &str,
    file: impl AsFd,
    path: &Path,
) -> Result<(), FilterError> {
    let Some(identity) = identity(file).map_err(named(path))? else { return Ok(()) };
    let mut uses = Uses::of(unit);
    let is_written = throughout().contains(&identity)
        || uses.written.get(identity).is_some_and(|writer| writer.unit == unit)
        || written_by_others(unit, argument).iter().any(|other| number(other) == identity);
    if is_written {
        let path = path.display();
        let error =
            format!("{path}: the unit cannot read a file that it writes; write to another file");
        return Err(error.into());
    }
    uses.read.insert(identity);
    Ok(())
}

/// Notes that the unit reads the files of this tree.
///
/// # Errors
/// Another process writes one of them, or the tree cannot be read.
pub(super) fn reads_tree(unit: UnitId, argument: &str, tree: Tree) -> Result<(), FilterError> {
    let mut uses = Uses::of(unit);
    uses.trees.push(tree);
    // An empty file has nothing to lose before its turn comes, and trees can be large.
    let others = written_by_others(unit, argument);
    for other in others.iter().filter(|other| other.len() > 0) {
        if uses.is_in_trees(number(other))? {
            let error =
                "the unit cannot read a file that another process writes; write to another file";
            return Err(error.into());
        }
    }
    Ok(())
}

/// Opens a file for writing, and creates it if needed. It is not truncated: the unit may read it.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut uses = Uses::all();
    if let Ok(file) = File::options().write(true).create_new(true).open(path) {
        // A file of the same number was written before, and has been removed.
        if let Some(identity) = identity(&file)? {
            uses.written.remove(identity);
        }
        return Ok(file);
    }
    // It may be a pipe, and opening it wait for a reader.
    drop(uses);
    File::options().write(true).create(true).truncate(false).open(path)
}

/// Notes that the file is written, and truncates it.
///
/// # Errors
/// The unit reads the file, or it is written by anything else; it is left as it was. Or a tree
/// cannot be read.
pub(super) fn writes(
    writer: &Writer,
    argument: &str,
    file: &File,
    path: &Path,
) -> Result<(), FilterError> {
    let Some(identity) = identity(file).map_err(named(path))? else { return Ok(()) };
    let mut uses = Uses::of(writer.unit);
    // An empty file has nothing to lose, and trees can be large.
    let length = file.metadata().map_err(named(path))?.len();
    let why = if uses.read.contains(&identity) || length > 0 && uses.is_in_trees(identity)? {
        Some("the unit cannot write a file that it reads; write to another file".to_owned())
    } else if throughout().contains(&identity) {
        Some("it is standard output or the trace; write to another file".to_owned())
    } else if let Some(before) = uses.written.get(identity) {
        Some(writer.after(before))
    } else {
        let others = written_by_others(writer.unit, argument);
        let is_others = others.iter().any(|other| number(other) == identity);
        is_others.then(|| "another process also writes it; write to another file".to_owned())
    };
    if let Some(why) = why {
        return Err(format!("{}: {why}", path.display()).into());
    }
    uses.written.insert(identity, writer.clone());
    drop(uses);
    file.set_len(0).map_err(named(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_of_an_earlier_unit_makes_nothing_forgotten() {
        let [first, second, third] =
            ["0", "1", "2"].map(|unit| serde_json::from_str(unit).unwrap());
        let mut uses = Uses::default();
        uses.turn_to(first);
        uses.read.insert((0, 1));
        uses.turn_to(second);
        assert!(uses.read.is_empty());
        uses.read.insert((0, 2));
        uses.turn_to(first);
        uses.turn_to(second);
        assert!(uses.read.contains(&(0, 2)));
        uses.turn_to(third);
        assert!(uses.read.is_empty());
    }
}
