//! The files that a unit of work reads and writes in this process, so that none is both: what is
//! written from its beginning is lost for who reads it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::fd::AsFd;
use rustix::fs::{FileType, fstat};
use seekwire_flow::{FilterError, UnitId};

use super::files::named;
use super::tree::Tree;

/// Device and inode; none for a pipe or a device.
type Identity = Option<(u64, u64)>;

#[derive(Clone, Copy, Eq, PartialEq)]
enum Use {
    Read,
    Written,
}

/// Those of one unit: units come one after the other.
#[derive(Default)]
struct Uses {
    unit: Option<UnitId>,
    all: HashMap<(u64, u64), Use>,
    /// Trees whose files are read one after another.
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

    /// False if it is used in the other way.
    fn note(&mut self, identity: Identity, how: Use) -> bool {
        identity.is_none_or(|identity| *self.all.entry(identity).or_insert(how) == how)
    }

    /// Whether a file is one of a tree, which the unit may not have come to yet.
    fn is_in_trees(&self, identity: (u64, u64)) -> Result<bool, FilterError> {
        for mut tree in self.trees.iter().cloned() {
            while let Some(path) = tree.next()? {
                let metadata = path.metadata().map_err(named(&path))?;
                if (metadata.dev(), metadata.ino()) == identity {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

fn identity(file: impl AsFd) -> io::Result<Identity> {
    let status = fstat(file)?;
    let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
    Ok(is_file.then_some((status.st_dev, status.st_ino)))
}

/// Files that are written while this process runs, whichever unit is under way.
fn throughout() -> MutexGuard<'static, HashSet<(u64, u64)>> {
    static THROUGHOUT: LazyLock<Mutex<HashSet<(u64, u64)>>> = LazyLock::new(Mutex::default);
    THROUGHOUT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on no unit reads this file: it would read for ever what it makes.
pub(crate) fn written_throughout(file: impl AsFd) {
    // What is closed cannot be read, either.
    throughout().extend(identity(file).ok().flatten());
}

/// The unit reads this file.
///
/// # Errors
/// It is written.
pub(super) fn reads(unit: UnitId, file: impl AsFd, path: &Path) -> Result<(), FilterError> {
    let identity = identity(file).map_err(named(path))?;
    if Uses::of(unit).note(identity, Use::Read) {
        return Ok(());
    }
    let path = path.display();
    Err(format!("{path}: what the unit writes cannot be read; write to another file").into())
}

/// The unit reads the files of this tree.
pub(super) fn reads_tree(unit: UnitId, tree: Tree) {
    Uses::of(unit).trees.push(tree);
}

/// The unit writes this file, which begins anew.
///
/// # Errors
/// It reads it; the file is as it was. That a tree cannot be read.
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
            "{}: what the unit reads cannot be written; write to another file",
            path.display()
        );
        return Err(error.into());
    }
    if identity.is_some() {
        file.set_len(0).map_err(named(path))?;
    }
    Ok(())
}
