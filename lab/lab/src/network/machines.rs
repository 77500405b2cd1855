//! Two machines with a link between them, made of one: network namespaces that share a file, as
//! virtual machines share a device.

use std::ffi::OsString;
use std::fs::Permissions;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use anyhow::{Context as _, Result};
use seekwire_link::{Access, Link, Map, map};
use seekwire_testbed::{Side, Testbed};
use tempfile::{NamedTempFile, TempDir};

use crate::bench::LinkedHosts;
use crate::launch::Registry;

/// The name of the link in both maps.
const LINK: &str = "pair";
/// Bytes of the region: a connection has less than 4 MiB of each half, and a pair of programs has
/// one after the other. Containers often have 64 MiB for all such files.
const REGION: u64 = 32 << 20;

/// Two machines that are attached to the link between them. Everything it created is removed when
/// this is dropped; programs must have ended by then.
#[derive(Debug)]
pub(crate) struct Machines {
    testbed: Arc<Testbed>,
    near: Machine,
    far: Machine,
    /// The memory that both map.
    _region: NamedTempFile,
}

/// The private part of one machine. It includes a registry, so that programs on two machines find
/// no other memory to share than the link's.
#[derive(Debug)]
struct Machine {
    registry: Registry,
    map: PathBuf,
    /// Holds the map, and the state of the link.
    _directory: TempDir,
}

impl Machines {
    /// Attaches both ends of `testbed` to a new region.
    ///
    /// # Errors
    ///
    /// If there is no room for the region or for the machines' files, or it cannot be attached.
    pub(crate) fn new(testbed: Arc<Testbed>) -> Result<Self> {
        let region = region().context("cannot make a file that two machines share")?;
        let attach = |half, other| {
            let other = testbed.end(other).address();
            Machine::attach(region.path(), half, other)
                .with_context(|| format!("cannot attach the {half} side of a link"))
        };
        let near = attach("first", Side::Far)?;
        let far = attach("second", Side::Near)?;
        Ok(Self { testbed, near, far, _region: region })
    }

    /// For programs that are to connect over the link.
    pub(crate) fn linked_hosts(&self) -> LinkedHosts {
        LinkedHosts {
            testbed: Arc::clone(&self.testbed),
            near: self.near.variables(),
            far: self.far.variables(),
        }
    }
}

impl Machine {
    /// `half` is as in a map, and `other` is the address of the other machine.
    fn attach(region: &Path, half: &str, other: Ipv4Addr) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("seekwire-machine-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()?;
        let text = format!(
            "link {LINK} file {} {half}\nstate {}\n{other} {LINK}\n",
            region.display(),
            directory.path().join("state").display()
        );
        let read = Map::parse(&text)?;
        let link = read.get(LINK).context("the map has no such link")?;
        Link::attach(link, read.state(), Access { mode: 0o600, group: None })?;
        let map = directory.path().join("links");
        fs::write(&map, text)?;
        Ok(Self { registry: Registry::new()?, map, _directory: directory })
    }

    fn variables(&self) -> Vec<(&'static str, OsString)> {
        let (registry, map) = (self.registry.path().into(), self.map.clone().into());
        vec![("SEEKWIRE_DIR", registry), (map::VARIABLE, map)]
    }
}

/// Creates the region in memory, where that is allowed, so that no disk is measured.
fn region() -> io::Result<NamedTempFile> {
    let mut named = tempfile::Builder::new();
    named.prefix("seekwire-region-");
    let file = named.tempfile_in("/dev/shm").or_else(|_| named.tempfile())?;
    file.as_file().set_len(REGION)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::hosts::namespaces_if_permitted;

    #[test]
    fn each_machine_finds_the_other_and_nothing_stays_behind() {
        let Some(testbed) = namespaces_if_permitted().map(Arc::new) else { return };
        let machines = Machines::new(Arc::clone(&testbed)).unwrap();
        for (machine, other) in [(&machines.near, Side::Far), (&machines.far, Side::Near)] {
            let map = Map::read(&machine.map).unwrap();
            let definition = map.of_address(testbed.end(other).address().into()).unwrap();
            let link = Link::open(definition, map.state()).unwrap();
            assert!(link.peer().is_some() && !link.is_detached(), "{other:?}");
        }
        let files = [&machines.near, &machines.far].map(|machine| machine.map.clone());
        let region = machines._region.path().to_owned();
        drop(machines);
        assert!(!region.exists() && files.iter().all(|map| !map.parent().unwrap().exists()));
    }
}
