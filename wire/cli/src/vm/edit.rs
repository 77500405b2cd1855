//! `seekwire vm map add` and `remove`: adds or removes one line of the map; all others stay as they
//! are.
//!
//! The file is replaced by one that is complete, so a reader finds the old map or the new one. A
//! text that is not a valid map is never written.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use seekwire_link::Map;

use super::map_file::find;
use super::output::say;

/// Adds an address of the machine at the other end of a link.
///
/// # Errors
///
/// The reason why the map stays as it is.
pub(super) fn add(address: IpAddr, link: &str) -> Result<()> {
    let address = address.to_canonical();
    let path = Map::path();
    let Some(original) = Original::open(&path)? else {
        bail!(
            "{} does not exist, so there is no link {link:?}; `seekwire vm plan` says what to write \
             there",
            path.display()
        );
    };
    let link = &find(&original.map, &path, link)?.name;
    match original.map.of_address(address) {
        Some(other) if other.name == *link => {
            say(format_args!("{address} belongs to {link} already"));
            return Ok(());
        }
        Some(other) => bail!(
            "{address} belongs to the link {} in {}; remove it first: seekwire vm map remove {address}",
            other.name,
            path.display()
        ),
        None => {}
    }
    let text = with(&original.text, address, link);
    // Parsing finds an address that is invalid in itself.
    let map =
        Map::parse(&text).map_err(|error| anyhow!("{address} cannot be added: {}", error.what))?;
    ensure!(map.of_address(address).is_some(), "{address} cannot be added");
    original.replace(&text)?;
    say(format_args!("{address} belongs to {link}"));
    Ok(())
}

/// Removes an address.
///
/// # Errors
///
/// The reason why the map stays as it is.
pub(super) fn remove(address: IpAddr) -> Result<()> {
    let address = address.to_canonical();
    let path = Map::path();
    let none = || anyhow!("{} does not have {address}; seekwire vm map shows it", path.display());
    let original = Original::open(&path)?.ok_or_else(none)?;
    let link = original.map.of_address(address).ok_or_else(none)?.name.clone();
    let text = without(&original.text, address);
    let map = Map::parse(&text)
        .map_err(|error| anyhow!("{address} cannot be removed: {}", error.what))?;
    ensure!(map.of_address(address).is_none(), "{address} cannot be removed");
    original.replace(&text)?;
    say(format_args!("{address} no longer belongs to {link}"));
    Ok(())
}

/// The file as it is, while nobody else edits it.
struct Original {
    path: PathBuf,
    file: File,
    text: String,
    map: Map,
    _lock: Lock,
}

impl Original {
    /// `None`: there is no file.
    fn open(path: &Path) -> Result<Option<Self>> {
        // Reports errors with the name of the file.
        Map::read(path)?;
        let cannot_read = || format!("cannot read {}", path.display());
        // A symbolic link stays one; its target is replaced.
        let resolved = match fs::canonicalize(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.with_context(cannot_read)?,
        };
        let lock = Lock::of(&resolved)
            .with_context(|| format!("cannot lock {} against other edits", path.display()))?;
        let mut file = File::open(&resolved).with_context(cannot_read)?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(cannot_read)?;
        let map = Map::parse(&text)?;
        Ok(Some(Self { path: resolved, file, text, map, _lock: lock }))
    }

    fn replace(&self, text: &str) -> Result<()> {
        self.write(text).with_context(|| format!("cannot replace {}", self.path.display()))
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let about = self.file.metadata()?;
        let mut new = tempfile::Builder::new().prefix(".links.").tempfile_in(directory)?;
        new.write_all(text.as_bytes())?;
        let made = new.as_file().metadata()?;
        if (made.uid(), made.gid()) != (about.uid(), about.gid()) {
            fchown(new.as_file(), Some(about.uid()), Some(about.gid()))?;
        }
        new.as_file().set_permissions(about.permissions())?;
        new.as_file().sync_all()?;
        new.persist(&self.path)?;
        File::open(directory)?.sync_all()
    }
}

/// A locked file beside the map, until this is dropped. Only its owner can open it: a user who may
/// only read the map cannot keep it locked.
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    fn of(map: &Path) -> io::Result<Self> {
        let mut name = OsString::from(".");
        name.extend([map.file_name().unwrap_or_default(), ".lock".as_ref()]);
        let path = map.with_file_name(name);
        loop {
            let file =
                File::options().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                seekwire_program::tell(format_args!(
                    "seekwire: waits for another process that has {} locked",
                    path.display()
                ));
                flock(&file, FlockOperation::LockExclusive)?;
            }
            // The process that had it locked has removed it.
            let held = file.metadata()?;
            if fs::metadata(&path).is_ok_and(|named| named.ino() == held.ino()) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // One that stays is used the next time.
        let _ = fs::remove_file(&self.path);
    }
}

/// The address and the name of a line that has both.
fn mapping(line: &str) -> Option<(IpAddr, &str)> {
    let mut fields = line.split('#').next()?.split_whitespace();
    let address: IpAddr = fields.next()?.parse().ok()?;
    Some((address.to_canonical(), fields.next()?))
}

/// The text with one more line: after the other addresses of the link, or at the end.
fn with(text: &str, address: IpAddr, link: &str) -> String {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_of_link = |line: &&str| mapping(line).is_some_and(|(_, name)| name == link);
    let at = lines.iter().rposition(is_of_link).map_or(lines.len(), |last| last + 1);
    let before = at.checked_sub(1).and_then(|last| lines.get(last));
    let needs_end = before.is_some_and(|line| !line.ends_with('\n'));
    let new = format!("{}{address}  {link}\n", if needs_end { "\n" } else { "" });
    lines.insert(at, &new);
    lines.concat()
}

/// The text without the line of an address.
fn without(text: &str, address: IpAddr) -> String {
    let is_other = |line: &&str| mapping(line).is_none_or(|(found, _)| found != address);
    text.split_inclusive('\n').filter(is_other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "# ours\nlink a file /a first\n10.0.0.2\ta # db\n\n10.0.0.3 b\n# end";

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_line_comes_behind_those_of_its_link_and_nothing_else_changes() {
        let text = with(MAP, address("fd00::2"), "a");
        assert_eq!(
            text,
            "# ours\nlink a file /a first\n10.0.0.2\ta # db\nfd00::2  a\n\n10.0.0.3 b\n# end"
        );
    }

    #[test]
    fn the_first_address_of_a_link_comes_last() {
        assert_eq!(with(MAP, address("::1"), "c"), format!("{MAP}\n::1  c\n"));
        assert_eq!(with("", address("::1"), "c"), "::1  c\n");
    }

    #[test]
    fn a_line_goes_however_its_address_is_written() {
        let text = without(MAP, address("10.0.0.2"));
        assert_eq!(text, "# ours\nlink a file /a first\n\n10.0.0.3 b\n# end");
        let mapped = without("::ffff:10.0.0.2 a\n", address("10.0.0.2"));
        assert_eq!(mapped, "");
        assert_eq!(without(MAP, address("10.0.0.9")), MAP);
    }
}
