//! The directory of the registry, before anything is put there.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

use crate::proc;

/// Why processes cannot find each other in a directory, and advice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    pub(crate) why: String,
    pub(crate) advice: String,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why, self.advice)
    }
}

const CHOOSE: &str = "set SEEKWIRE_DIR to a directory on a local file system that belongs to you and \
                      that only Seekwire uses, or to one that does not exist yet";

/// Whether the directory exists; if not, it can be created.
pub(crate) fn look_at(path: &Path) -> Result<bool, Unusable> {
    let shown = path.display();
    let unusable = |why: String, advice: String| Err(Unusable { why, advice });
    match proc::is_private_directory(path) {
        Ok(true) if is_writable(path) => Ok(true),
        Ok(true) => unusable(
            format!("{shown} is not writable"),
            "is its file system mounted read-only?".to_owned(),
        ),
        Ok(false) if !path.is_dir() => {
            unusable(format!("{shown} is not a directory"), CHOOSE.to_owned())
        }
        Ok(false) => {
            let why = format!("{shown} is not a directory of this user with mode 0700");
            let owner = fs::symlink_metadata(path).map(|metadata| metadata.uid());
            unusable(why, repair(path, owner.is_ok_and(|owner| owner == geteuid().as_raw())))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(parent) if parent.is_dir() && is_writable(parent) => Ok(false),
            _ => {
                unusable(format!("{shown} does not exist and cannot be created"), CHOOSE.to_owned())
            }
        },
        Err(error) => unusable(format!("{shown}: {error}"), CHOOSE.to_owned()),
    }
}

/// A directory that serves another purpose must not be repaired, and one of another user, who may
/// have made it before Seekwire did, cannot be.
fn repair(path: &Path, is_own: bool) -> String {
    if is_own && is_of_seekwire(path) {
        format!("chmod 700 {}; or {CHOOSE}", path.display())
    } else {
        CHOOSE.to_owned()
    }
}

/// Judged by its name.
fn is_of_seekwire(path: &Path) -> bool {
    path.file_name().map(OsStr::as_bytes).is_some_and(|name| name.starts_with(b"seekwire"))
}

fn is_writable(path: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, path, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_registry_directory_must_be_private() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("registry");
        assert_eq!(look_at(&path), Ok(false), "can be made");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(look_at(&path).is_err(), "open to others");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(look_at(&path), Ok(true));
        assert!(look_at(&parent.path().join("missing/registry")).is_err(), "no parent");
    }

    #[test]
    fn nobody_is_told_to_repair_what_is_not_seekwires() {
        let parent = tempfile::tempdir().unwrap();
        let advice = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o1777)).unwrap();
            look_at(&path).unwrap_err().advice
        };
        assert!(!advice("tmp").contains("chmod"));
        assert!(advice("seekwire-1000").contains("chmod 700"));
        let of_another_user = repair(Path::new("/dev/shm/seekwire-1000"), false);
        assert!(!of_another_user.contains("chmod") && of_another_user.contains("SEEKWIRE_DIR"));
        fs::write(parent.path().join("file"), "").unwrap();
        let file = look_at(&parent.path().join("file")).unwrap_err();
        assert!(file.why.ends_with("is not a directory") && !file.advice.contains("chmod"));
    }
}
