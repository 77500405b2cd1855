//! The files that a unit of work reads and writes in this process, so that none is both: what is
//! written from its beginning is lost for who reads it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use seekwire_flow::{FilterError, UnitId};

use super::files::named;

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
}

impl Uses {
    fn of(unit: UnitId) -> MutexGuard<'static, Uses> {
        static USES: LazyLock<Mutex<Uses>> = LazyLock::new(Mutex::default);
        let mut uses = USES.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.unit != Some(unit) {
            *uses = Uses { unit: Some(unit), all: HashMap::new() };
        }
        uses
    }

    /// False if it is used in the other way.
    fn note(&mut self, identity: Identity, how: Use) -> bool {
        identity.is_none_or(|identity| *self.all.entry(identity).or_insert(how) == how)
    }
}

fn identity(file: &File) -> io::Result<Identity> {
    let metadata = file.metadata()?;
    Ok(metadata.is_file().then_some((metadata.dev(), metadata.ino())))
}

/// The unit reads this file.
///
/// # Errors
/// It writes it.
pub(super) fn reads(unit: UnitId, file: &File, path: &Path) -> Result<(), FilterError> {
    match Uses::of(unit).note(identity(file).map_err(named(path))?, Use::Read) {
        true => Ok(()),
        false => Err(format!("{}: what the unit writes cannot be read", path.display()).into()),
    }
}

/// The unit writes this file, which begins anew.
///
/// # Errors
/// It reads it; the file is as it was.
pub(super) fn writes(unit: UnitId, file: &File, path: &Path) -> Result<(), FilterError> {
    let identity = identity(file).map_err(named(path))?;
    if !Uses::of(unit).note(identity, Use::Written) {
        let error = format!("{}: what the unit reads cannot be written", path.display());
        return Err(error.into());
    }
    if identity.is_some() {
        file.set_len(0).map_err(named(path))?;
    }
    Ok(())
}
