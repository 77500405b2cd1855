//! The machine of the second side: learns which pages the other domain grants it, and stores that
//! in a file of the state directory.
//!
//! The file has four words: [`MAGIC`], the token, the number of the domain and the length of the
//! region. Then follow the references of the region's pages, of 32 bits each.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use seekwire_transport::mem::granted::read_grants;
use seekwire_transport::sys::file;
use seekwire_transport::sys::grants::{Grants, MAPPER};

use super::error::{XenError, not_taken};
use super::grant_lists::{self, pages_of};
use super::store::{self, Store};
use crate::access::{Access, give_access_at, replace};
use crate::holder::HolderError;

const MAGIC: u64 = u64::from_ne_bytes(*b"SWTAKEN\0");
const WORDS: usize = 4;
const MODULE: &str = "xen-gntdev";

fn path_of(name: &str, state: &Path) -> PathBuf {
    state.join(format!("{name}.grants"))
}

/// Looks up the granted pages, and stores them for programs.
pub(super) fn take(
    name: &str,
    domain: u16,
    length: u64,
    state: &Path,
    access: Access,
) -> Result<(), XenError> {
    try_mapper()?;
    let place = store::of_domain(domain, name);
    let not_offered = |why: String| XenError::NotOffered { domain, name: name.to_owned(), why };
    let of_store = |error| XenError::io(store::DEVICE.as_ref(), error);
    let store = Store::open().map_err(of_store)?;
    let value = store.read(&place).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
            not_offered(format!("xenstore has no {place} for this domain"))
        }
        _ => of_store(error),
    })?;
    let (root, token) = store::read_offer(&value)
        .ok_or_else(|| not_offered(format!("{place} in xenstore is from another version")))?;

    let path = path_of(name, state);
    let of_path = |error| XenError::io(&path, error);
    if read(name, domain, length, state).is_ok_and(|(stored, _)| stored == token) {
        give_access_at(&path, access).map_err(of_path)?;
    } else {
        let pages = |references: &[u32]| {
            let grants = Grants::new(domain, references)
                .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput));
            grants.and_then(|grants| read_grants(&grants)).map_err(|source| match source.kind() {
                io::ErrorKind::InvalidInput => {
                    not_offered("the pages named in xenstore are no longer granted".to_owned())
                }
                _ => XenError::Map { domain, source },
            })
        };
        let lists = grant_lists::read_root(&pages(&[root])?, token, length)
            .ok_or_else(|| not_offered(format!("its memory does not have {} MiB", length >> 20)))?;
        let references = grant_lists::read(&pages(&lists)?, length)
            .ok_or_else(|| not_offered("it names too few pages".to_owned()))?;
        replace(&path, &written(token, domain, length, &references), access).map_err(of_path)?;
    }
    match access.group {
        Some(_) => give_access_at(MAPPER.as_ref(), access)
            .map_err(|error| XenError::io(MAPPER.as_ref(), error)),
        None => Ok(()),
    }
}

fn written(token: u64, domain: u16, length: u64, references: &[u32]) -> Vec<u8> {
    let words = [MAGIC, token, domain.into(), length].map(u64::to_ne_bytes);
    let mut bytes = words.concat();
    bytes.extend(references.iter().flat_map(|reference| reference.to_ne_bytes()));
    bytes
}

/// The token of the region, and the references of its pages, if they belong to this domain and have
/// this length.
pub(super) fn read(
    name: &str,
    domain: u16,
    length: u64,
    state: &Path,
) -> Result<(u64, Vec<u32>), XenError> {
    let path = path_of(name, state);
    let bytes = file::read(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => not_taken(domain, name),
        _ => refused(&path, error),
    })?;
    parse(&bytes, domain, length).ok_or_else(|| not_taken(domain, name))
}

fn parse(bytes: &[u8], domain: u16, length: u64) -> Option<(u64, Vec<u32>)> {
    let (words, references) = bytes.split_at_checked(WORDS * 8)?;
    let word = |at: usize| {
        let word = words[at * 8..at * 8 + 8].try_into();
        word.map(u64::from_ne_bytes).unwrap_or_default()
    };
    let is_it = word(0) == MAGIC && word(2) == u64::from(domain) && word(3) == length;
    let pages = pages_of(length);
    let references = (is_it && references.len() == pages * 4).then_some(references)?;
    Some((word(1), grant_lists::numbers(references, pages)?))
}

/// Checks that pages of other domains can be mapped at all.
pub(super) fn try_mapper() -> Result<(), XenError> {
    match file::open(MAPPER.as_ref(), OFlags::RDWR, 0) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(refused(MAPPER.as_ref(), error))
        }
        Err(error) => Err(XenError::device(MAPPER, MODULE, error)),
    }
}

fn refused(path: &Path, error: io::Error) -> XenError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            HolderError::Permission { path: path.display().to_string() }.into()
        }
        _ => XenError::io(path, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: u64 = 1 << 20;

    #[test]
    fn what_is_kept_is_of_one_domain_and_length() {
        let state = tempfile::tempdir().unwrap();
        let references: Vec<u32> = (0..256).map(|at| at * 3 + 1).collect();
        let access = Access { mode: 0o600, group: None };
        let path = path_of("a", state.path());
        let stored = |domain, length| read("a", domain, length, state.path());
        assert!(matches!(stored(3, LENGTH), Err(XenError::NotTaken { .. })));
        replace(&path, &written(5, 3, LENGTH, &references), access).unwrap();
        assert_eq!(stored(3, LENGTH).unwrap(), (5, references.clone()));
        for (domain, length) in [(4, LENGTH), (3, LENGTH * 2)] {
            let said = stored(domain, length).unwrap_err().to_string();
            assert!(said.ends_with("; as root: seekwire vm attach a"), "{said}");
        }
        let whole = written(5, 3, LENGTH, &references);
        for wrong in [&whole[..whole.len() - 1], &whole[1..], &whole[..WORDS * 8], b""] {
            assert_eq!(parse(wrong, 3, LENGTH), None, "{} bytes", wrong.len());
        }
        assert_eq!(parse(&[&whole[..], &[0; 4]].concat(), 3, LENGTH), None);
    }

    #[test]
    fn a_machine_without_xen_is_told_what_it_lacks() {
        if Path::new(MAPPER).exists() {
            return;
        }
        let said = try_mapper().unwrap_err().to_string();
        assert!(
            said.starts_with("this machine has no /dev/xen/gntdev; as root: modprobe"),
            "{said}"
        );
    }
}
