//! The map of this machine: its file, and its words.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use seekwire_link::{Definition, Map, Provider};

/// The map of this machine, and its file.
pub(super) fn read_map() -> Result<(PathBuf, Map)> {
    let path = Map::path();
    let map = Map::read(&path)?;
    Ok((path, map))
}

/// The link of this name; if it does not exist, the error lists the names that do.
pub(super) fn find<'m>(map: &'m Map, path: &Path, name: &str) -> Result<&'m Definition> {
    map.get(name).ok_or_else(|| {
        let names: Vec<&str> = map.links().iter().map(|link| link.name.as_str()).collect();
        if names.is_empty() {
            anyhow!("there is no link {name:?}: {} defines none", path.display())
        } else {
            anyhow!("there is no link {name:?}: {} has {}", path.display(), names.join(", "))
        }
    })
}

/// The words that the map uses for a provider.
pub(super) fn provider(provider: &Provider) -> (&'static str, String) {
    match provider {
        Provider::File(path) => ("file", path.display().to_string()),
        Provider::Memory(socket) => ("memory", socket.display().to_string()),
        Provider::Ivshmem(address) => ("ivshmem", address.clone()),
        Provider::Xen { domain, length } => ("xen", format!("{domain}/{}M", length >> 20)),
    }
}
