//! The files that a unit of work reads here, and those that it writes here or in processes that see
//! the same files, so that no file is both: rewriting a file destroys it for its reader.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::fd::AsFd;
use rustix::fs::{FileType, fstat};
use seekwire_flow::{FilterError, UnitId};

use super::files::{expanded, named};
use super::tree::Tree;
use crate::argument;

/// Device and inode; `None` for a pipe or a device.
pub(crate) type Identity = Option<(u64, u64)>;

#[derive(Clone, Copy, Eq, PartialEq)]
enum Use {
    Read,
    Written,
}

/// The uses of one unit: units run one after the other.
#[derive(Default)]
struct Uses {
    unit: Option<UnitId>,
    all: HashMap<(u64, u64), Use>,
    /// Trees whose files are read one by one.
    trees: Vec<Tree>,
}

impl Uses {
    fn of(unit: UnitId) -> MutexGuard<'static, Uses> {
        static USES: LazyLock<Mutex<Uses>> = LazyLock::new(Mutex::default);
        let mut uses = USES.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.unit != Some(unit) {
            let all = throughout().iter().map(|identity| (*identity, Use::Written)).collect();
            *uses = Uses { unit: Some(unit), all, trees: Vec::new() };
        }
        uses
    }

    /// False if the file is already used in the other way.
    fn note(&mut self, identity: Identity, how: Use) -> bool {
        identity.is_none_or(|identity| *self.all.entry(identity).or_insert(how) == how)
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

pub(crate) fn identity(file: impl AsFd) -> io::Result<Identity> {
    let status = fstat(file)?;
    let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
    Ok(is_file.then_some((status.st_dev, status.st_ino)))
}

/// Files that are written as long as this process runs, in all units.
fn throughout() -> MutexGuard<'static, HashSet<(u64, u64)>> {
    static THROUGHOUT: LazyLock<Mutex<HashSet<(u64, u64)>>> = LazyLock::new(Mutex::default);
    THROUGHOUT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on no unit reads this file: it would read its own output forever.
pub(crate) fn written_throughout(file: Identity) {
    throughout().extend(file);
}

/// The option `path` of each filter that writes in a process in which a path leads to the same
/// file.
fn elsewhere() -> MutexGuard<'static, Vec<String>> {
    static ELSEWHERE: Mutex<Vec<String>> = Mutex::new(Vec::new());
    ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on no unit reads what another process writes to that path.
pub(crate) fn written_elsewhere(path: &str) {
    elsewhere().push(path.to_owned());
}

/// The existing files that other processes are going to write for this unit.
fn written_by_others(unit: UnitId, argument: &str) -> Vec<Metadata> {
    let paths = elsewhere().clone();
    let numbered = paths.iter().filter_map(|path| expanded(path, unit, argument).ok());
    let there = numbered.filter_map(|path| fs::metadata(argument::of_text(&path)).ok());
    there.filter(Metadata::is_file).collect()
}

/// Notes that the unit reads this file.
///
/// # Errors
/// The unit or another process writes the file.
pub(super) fn reads(
    (unit, argument): (UnitId, &str),
    file: impl AsFd,
    path: &Path,
) -> Result<(), FilterError> {
    let identity = identity(file).map_err(named(path))?;
    let is_others =
        |identity| written_by_others(unit, argument).iter().any(|other| number(other) == identity);
    if !Uses::of(unit).note(identity, Use::Read) || identity.is_some_and(is_others) {
        let path = path.display();
        let error =
            format!("{path}: the unit cannot read a file that it writes; write to another file");
        return Err(error.into());
    }
    Ok(())
}

/// Notes that the unit reads the files of this tree.
///
/// # Errors
/// Another process writes one of them, or the tree cannot be read.
pub(super) fn reads_tree((unit, argument): (UnitId, &str), tree: Tree) -> Result<(), FilterError> {
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

/// Notes that the unit writes this file, and truncates it.
///
/// # Errors
/// The unit reads the file, which is left as it was, or a tree cannot be read.
pub(super) fn writes(unit: UnitId, file: &File, path: &Path) -> Result<(), FilterError> {
    let identity = identity(file).map_err(named(path))?;
    let mut uses = Uses::of(unit);
    let mut is_read = !uses.note(identity, Use::Written);
    if let Some(identity) = identity.filter(|_| !is_read) {
        // An empty file has nothing to lose, and trees can be large.
        let length = file.metadata().map_err(named(path))?.len();
        is_read = length > 0 && uses.is_in_trees(identity)?;
    }
    drop(uses);
    if is_read {
        let error = format!(
            "{}: the unit cannot write a file that it reads; write to another file",
            path.display()
        );
        return Err(error.into());
    }
    if identity.is_some() {
        file.set_len(0).map_err(named(path))?;
    }
    Ok(())
}
