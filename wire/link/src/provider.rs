//! Providers of regions.
//!
//! `ivshmem` is QEMU's shared memory device ivshmem-plain (docs/specs/ivshmem-spec.rst in QEMU's
//! source): its BAR 2 is the memory, which sysfs offers as the file `resource2`. No kernel module
//! is needed. `memory` and `xen` have modules of their own.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fd::AsFd;
use rustix::fs::{FileType, Mode, OFlags};
use seekwire_transport::mem::Region;
use seekwire_transport::sys::fd::{LibraryFd, PrivateFd};
use seekwire_transport::sys::file;

use crate::holder::{self, HolderError};
use crate::map::{Definition, Provider};
use crate::memory;
use crate::xen::{self, Granted, XenError};

const VENDOR: u32 = 0x1af4;
const DEVICE: u32 = 0x1110;

/// Why a region could not be opened. Each message names a remedy.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The file does not exist.
    #[error(
        "{}: there is no such file; create it, with one size for both sides, before they attach",
        .0.display()
    )]
    NoFile(PathBuf),
    /// The path is not a regular file.
    #[error("{}: this is not a regular file, so it cannot be shared", .0.display())]
    NotAFile(PathBuf),
    /// The device does not exist.
    #[error(
        "there is no PCI device {address}; {}; give this machine an ivshmem-plain device (seekwire \
         vm plan shows how), or correct the address in the map", these(.present)
    )]
    NoDevice {
        /// The address.
        address: String,
        /// The addresses of the existing shared memory devices.
        present: Vec<String>,
    },
    /// A device of another kind has this address.
    #[error(
        "the PCI device {address} is {vendor:04x}:{device:04x}, not shared memory (1af4:1110); {}; \
         correct the address in the map", these(.present)
    )]
    OtherDevice {
        /// The address.
        address: String,
        /// Its vendor ID.
        vendor: u32,
        /// Its device ID.
        device: u32,
        /// The addresses of the existing shared memory devices.
        present: Vec<String>,
    },
    /// The device has no memory.
    #[error("the PCI device {0} has no memory (no resource2); give it a memdev in QEMU")]
    NoMemory(String),
    /// The device is disabled, and this process may not enable it.
    #[error(
        "the PCI device is switched off; as root: seekwire vm attach, or: echo 1 >{}",
        .0.display()
    )]
    SwitchedOff(PathBuf),
    /// The error of memory that another process holds.
    #[error(transparent)]
    Holder(#[from] HolderError),
    /// The error of memory from Xen.
    #[error(transparent)]
    Xen(#[from] XenError),
    /// The file's group may use it, and this process is not a member.
    #[error(
        "{path}: permission denied; its group {group} may use it: as root, usermod --append --groups \
         {group} USER, and then log in again as that user"
    )]
    OtherGroup {
        /// The file.
        path: String,
        /// The group ID.
        group: u32,
    },
    /// No group may use the device.
    #[error(
        "{path}: permission denied; as root: seekwire vm attach --group GROUP, where GROUP is a \
         group of this user"
    )]
    NoGroup {
        /// The file.
        path: String,
    },
    /// This process may not use the file.
    #[error(
        "{path}: permission denied; as root: chgrp GROUP {path} && chmod 0660 {path}, where GROUP \
         is a group of this user"
    )]
    Permission {
        /// The file, quoted for a shell.
        path: String,
    },
    /// A system call failed.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
}

impl ProviderError {
    /// True if this machine could use the memory, but has not attached it yet.
    #[must_use]
    pub fn is_not_attached(&self) -> bool {
        matches!(self, Self::Xen(XenError::NotTaken { .. }))
    }
}

fn these(present: &[String]) -> String {
    match present {
        [] => "this machine has no ivshmem device".to_owned(),
        _ => format!("the ivshmem devices are: {}", present.join(", ")),
    }
}

/// A region that is open for reading and writing, but not yet mapped.
#[derive(Debug)]
pub struct Memory(Kind);

#[derive(Debug)]
enum Kind {
    /// A whole file or device, with its length in bytes.
    File(LibraryFd, u64),
    /// A whole sealed file without a name, with its length in bytes.
    Held(PrivateFd, u64),
    /// Pages that one Xen domain grants to the other.
    Xen(Granted),
}

impl Memory {
    /// Length of the region in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match &self.0 {
            Kind::File(_, length) | Kind::Held(_, length) => *length,
            Kind::Xen(granted) => granted.length,
        }
    }

    /// The file or device that forms the whole region.
    pub(crate) fn file(&self) -> Option<&LibraryFd> {
        match &self.0 {
            Kind::File(file, _) => Some(file),
            Kind::Held(..) | Kind::Xen(_) => None,
        }
    }

    /// Numbers that identify the region.
    pub(crate) fn identity(&self) -> io::Result<(u64, u64)> {
        /// No device has this number.
        const XEN: u64 = u64::MAX;
        let metadata = match &self.0 {
            Kind::File(file, _) => rustix::fs::fstat(file)?,
            Kind::Held(file, _) => rustix::fs::fstat(file)?,
            Kind::Xen(granted) => return Ok((XEN, granted.token)),
        };
        Ok((metadata.st_dev, metadata.st_ino))
    }

    pub(crate) fn map(&self, len: usize) -> io::Result<Region> {
        match &self.0 {
            Kind::File(file, _) => Region::of_file(file.as_fd(), len),
            Kind::Held(file, _) => Region::of_file(file.as_fd(), len),
            Kind::Xen(granted) => granted.map(len),
        }
    }
}

/// Opens the region of a link on a machine that keeps its state in the directory `state`.
///
/// # Errors
/// [`ProviderError`].
pub fn open(definition: &Definition, state: &Path) -> Result<Memory, ProviderError> {
    open_within(definition, state, holder::COMMANDS)
}

/// Like [`open`], but waits at most `patience` for a process that holds the region.
pub(crate) fn open_within(
    definition: &Definition,
    state: &Path,
    patience: Duration,
) -> Result<Memory, ProviderError> {
    let (file, length) = match &definition.provider {
        Provider::File(path) => open_named(path)?,
        Provider::Ivshmem(address) => open_device("/sys/bus/pci/devices".as_ref(), address)?,
        Provider::Memory(socket) => {
            let (file, length) = memory::open(&definition.name, socket, patience)?;
            return Ok(Memory(Kind::Held(file, length)));
        }
        Provider::Xen { domain, length } => {
            let granted = xen::open(definition, *domain, *length, state, patience)?;
            return Ok(Memory(Kind::Xen(granted)));
        }
    };
    Ok(Memory(Kind::File(file, length)))
}

/// Opens a file, and returns it with its length in bytes.
fn open_named(path: &Path) -> Result<(LibraryFd, u64), ProviderError> {
    let file = open_file(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ProviderError::NoFile(path.to_owned()),
        io::ErrorKind::IsADirectory => ProviderError::NotAFile(path.to_owned()),
        _ => refused(path, error),
    })?;
    measured(path, file)
}

fn open_file(path: &Path) -> io::Result<LibraryFd> {
    // Never blocks: a file on which open(2) blocks is not a region.
    file::open(path, OFlags::RDWR.union(OFlags::NONBLOCK).union(OFlags::NOCTTY), 0)
}

fn refused(path: &Path, source: io::Error) -> ProviderError {
    let path = path.display().to_string();
    if source.kind() != io::ErrorKind::PermissionDenied {
        return ProviderError::Io { path, source };
    }
    match foreign_group(path.as_ref()) {
        Some(group) => ProviderError::OtherGroup { path, group },
        None => ProviderError::Permission { path },
    }
}

/// The group whose members may use a file, if this process is not a member.
fn foreign_group(path: &Path) -> Option<u32> {
    let metadata = rustix::fs::stat(path).ok()?;
    let group = rustix::process::Gid::from_raw(metadata.st_gid);
    let own = rustix::process::getgroups().ok()?;
    let is_own = group == rustix::process::getegid() || own.contains(&group);
    let both = Mode::RGRP.union(Mode::WGRP);
    let is_given = Mode::from_raw_mode(metadata.st_mode).contains(both) && !group.is_root();
    (is_given && !is_own).then_some(metadata.st_gid)
}

fn measured(path: &Path, file: LibraryFd) -> Result<(LibraryFd, u64), ProviderError> {
    let metadata = rustix::fs::fstat(&file).map_err(|error| refused(path, error.into()))?;
    if FileType::from_raw_mode(metadata.st_mode) != FileType::RegularFile {
        return Err(ProviderError::NotAFile(path.to_owned()));
    }
    Ok((file, u64::try_from(metadata.st_size).unwrap_or(0)))
}

fn open_device(devices: &Path, address: &str) -> Result<(LibraryFd, u64), ProviderError> {
    let directory = devices.join(address);
    let Some((vendor, device)) = kind(&directory) else {
        return Err(ProviderError::NoDevice { address: address.to_owned(), present: all(devices) });
    };
    if (vendor, device) != (VENDOR, DEVICE) {
        let (address, present) = (address.to_owned(), all(devices));
        return Err(ProviderError::OtherDevice { address, vendor, device, present });
    }
    switch_on(&directory.join("enable"))?;
    let path = directory.join("resource2");
    let file = open_file(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ProviderError::NoMemory(address.to_owned()),
        _ => match refused(&path, error) {
            // The files in sysfs are new after each boot.
            ProviderError::Permission { path } => ProviderError::NoGroup { path },
            other => other,
        },
    })?;
    measured(&path, file)
}

/// A device without a driver does not decode its addresses yet: loads return all ones.
fn switch_on(enable: &Path) -> Result<(), ProviderError> {
    match file::read(enable) {
        Ok(text) if text.trim_ascii() == b"0" => {}
        _ => return Ok(()),
    }
    let switched = file::open(enable, OFlags::WRONLY, 0)
        .and_then(|file| Ok(rustix::io::retry_on_intr(|| rustix::io::write(&file, b"1"))?));
    match switched {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(ProviderError::SwitchedOff(enable.to_owned()))
        }
        Err(error) => Err(refused(enable, error)),
    }
}

/// Vendor and device ID; `None` if there is no device.
fn kind(directory: &Path) -> Option<(u32, u32)> {
    let number = |name| {
        let text = file::read(&directory.join(name)).ok()?;
        let text = std::str::from_utf8(text.trim_ascii()).ok()?;
        u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    Some((number("vendor")?, number("device")?))
}

/// The addresses of all shared memory devices.
fn all(devices: &Path) -> Vec<String> {
    let names = file::names(devices).unwrap_or_default().into_iter();
    let mut devices: Vec<String> = names
        .filter(|name| kind(&devices.join(name)) == Some((VENDOR, DEVICE)))
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    devices.sort_unstable();
    devices
}

/// The tests use a fake sysfs, because the code reads only text there. wire/tests/vm tests a real
/// device.
#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ADDRESS: &str = "0000:00:04.0";

    fn sysfs() -> tempfile::TempDir {
        let sysfs = tempfile::tempdir().unwrap();
        add(&sysfs, ADDRESS, "0x1af4", "0x1110");
        add(&sysfs, "0000:00:05.0", "0x1af4", "0x1110");
        add(&sysfs, "0000:00:01.0", "0x8086", "0x7000");
        sysfs
    }

    fn device(sysfs: &tempfile::TempDir, address: &str) -> PathBuf {
        sysfs.path().join("bus/pci/devices").join(address)
    }

    fn add(sysfs: &tempfile::TempDir, address: &str, vendor: &str, kind: &str) {
        let directory = device(sysfs, address);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("vendor"), format!("{vendor}\n")).unwrap();
        fs::write(directory.join("device"), format!("{kind}\n")).unwrap();
        fs::write(directory.join("enable"), "0\n").unwrap();
        fs::File::create(directory.join("resource2")).unwrap().set_len(1 << 20).unwrap();
    }

    fn open(sysfs: &tempfile::TempDir, address: &str) -> Result<(LibraryFd, u64), ProviderError> {
        open_device(&sysfs.path().join("bus/pci/devices"), address)
    }

    #[test]
    fn a_device_is_switched_on_once_and_measured() {
        let sysfs = sysfs();
        let enable = device(&sysfs, ADDRESS).join("enable");
        assert_eq!(open(&sysfs, ADDRESS).unwrap().1, 1 << 20);
        assert_eq!(fs::read(&enable).unwrap(), b"1\n");
        fs::write(&enable, "2\n").unwrap();
        open(&sysfs, ADDRESS).unwrap();
        assert_eq!(fs::read(&enable).unwrap(), b"2\n", "others use it");
    }

    #[test]
    fn a_wrong_address_is_told_with_the_right_ones() {
        let sysfs = sysfs();
        let error = open(&sysfs, "0000:00:09.0").unwrap_err().to_string();
        assert!(error.contains("no PCI device 0000:00:09.0"), "{error}");
        assert!(error.contains("0000:00:04.0, 0000:00:05.0; give"), "{error}");
        let error = open(&sysfs, "0000:00:01.0").unwrap_err().to_string();
        assert!(error.contains("is 8086:7000") && error.contains("0000:00:05.0"), "{error}");
        let none = tempfile::tempdir().unwrap();
        let error = open(&none, ADDRESS).unwrap_err().to_string();
        assert!(error.contains("this machine has no ivshmem device"), "{error}");
    }

    #[test]
    fn a_device_without_memory_is_told() {
        let sysfs = sysfs();
        fs::remove_file(device(&sysfs, ADDRESS).join("resource2")).unwrap();
        assert!(matches!(open(&sysfs, ADDRESS), Err(ProviderError::NoMemory(_))));
        fs::write(device(&sysfs, ADDRESS).join("vendor"), "what").unwrap();
        assert!(matches!(open(&sysfs, ADDRESS), Err(ProviderError::NoDevice { .. })));
    }

    #[test]
    fn who_lacks_permission_is_told_what_to_do() {
        let path = Path::new("/a/resource2");
        let error = || io::Error::from(io::ErrorKind::PermissionDenied);
        let error = refused(path, error()).to_string();
        assert!(error.contains("chgrp GROUP /a/resource2 && chmod 0660 /a/resource2"), "{error}");
        let path = "/a/resource2".to_owned();
        let error = ProviderError::NoGroup { path: path.clone() }.to_string();
        assert!(error.contains("seekwire vm attach --group GROUP"), "{error}");
        let error = ProviderError::OtherGroup { path, group: 996 }.to_string();
        assert!(error.contains("usermod --append --groups 996 USER"), "{error}");
        let error = ProviderError::SwitchedOff("/a/enable".into()).to_string();
        assert!(error.contains("seekwire vm attach, or: echo 1 >/a/enable"), "{error}");
    }

    #[test]
    fn only_a_regular_file_is_a_region() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("region");
        assert!(matches!(open_named(&path), Err(ProviderError::NoFile(_))));
        fs::File::create(&path).unwrap().set_len(8192).unwrap();
        assert_eq!(open_named(&path).unwrap().1, 8192);
        for other in [dir.path(), "/dev/null".as_ref()] {
            assert!(matches!(open_named(other), Err(ProviderError::NotAFile(_))), "{other:?}");
        }
    }
}
