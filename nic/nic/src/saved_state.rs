//! Saves the state of an interface to a file before it is first changed.
//!
//! Each interface has one file, `netns-COOKIE-if-INDEX.json`, in `/run/seekwire/nic` or another
//! [`private`](crate::private) directory. `/run` belongs to the host, not to a user, and is emptied
//! when the host starts, when the settings of interfaces are also lost. The kernel never reuses the
//! cookie of a namespace; it gives an index to another interface only on request, and renaming
//! keeps the index.
//!
//! A second file, `..-held.json`, exists while a session holds an interface that an earlier session
//! has changed permanently: the end of the hold restores the permanent changes.
//!
//! A file is written atomically and synced to the disk before anything is changed. It keeps the
//! state before the first change until that has been restored.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, libc, sockopt_impl};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::interface::{Interface, Parameter};
use crate::private_directory::Directory;
use crate::setting::{Group, Key, SideEffect, Value};

/// Version of the file format. Files of another version are refused.
const LAYOUT: u32 = 1;

/// How long to wait between two attempts to take a lock.
const GLANCE: Duration = Duration::from_millis(20);

/// Prefix of all file names.
const PREFIX: &str = "netns-";

/// Longest file that is read, in bytes; every saved state is shorter.
const LARGEST: u64 = 1 << 20;

sockopt_impl!(
    /// SO_NETNS_COOKIE (Linux 5.14), 64 bits: which network namespace a socket belongs to.
    NamespaceCookie,
    GetOnly,
    libc::SOL_SOCKET,
    libc::SO_NETNS_COOKIE,
    u64
);

/// The changeable settings of an interface, as they were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    layout: u32,
    /// Its name when it was saved.
    pub interface: String,
    /// Its index.
    pub index: u32,
    /// Its hardware address then, and whether that is the permanent one.
    address: Option<String>,
    #[serde(default)]
    has_permanent_address: bool,
    /// The boot in which this state is valid (`/proc/sys/kernel/random/boot_id`).
    boot: String,
    /// The process that restores the state when it ends; `None` if the changes stay until
    /// [`restore`](crate::restore).
    pub process: Option<u32>,
    /// Features that can be changed.
    pub(crate) features: BTreeMap<String, SavedFeature>,
    coalescing: BTreeMap<String, Value>,
    rings: BTreeMap<String, Value>,
    private_flags: BTreeMap<String, Value>,
    /// The keys that this crate has changed since, and whether each was requested or changed as a
    /// consequence. Only these are restored. `None`: all (a state of an earlier version).
    #[serde(default)]
    own: Option<BTreeMap<String, bool>>,
    /// None: a state of an earlier version.
    #[serde(default)]
    device: Option<Identity>,
}

/// Properties that identify a device besides its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    kind: Option<String>,
    driver: Option<String>,
    bus: Option<String>,
}

impl Identity {
    fn of(interface: &Interface) -> Self {
        Self {
            kind: interface.kind.clone(),
            driver: interface.driver.clone(),
            bus: interface.bus.clone(),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        // Without /sys the driver is unknown.
        let is_driver =
            self.driver.is_none() || other.driver.is_none() || self.driver == other.driver;
        self.kind == other.kind && self.bus == other.bus && is_driver
    }
}

/// Both states of a feature: a wanted one is inactive while a feature that it needs is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedFeature {
    pub(crate) wanted: bool,
    pub(crate) active: bool,
}

impl Saved {
    /// Takes the present values of the changeable settings.
    #[must_use]
    pub fn of(interface: &Interface, process: Option<u32>) -> Self {
        let values = |parameters: &[Parameter]| {
            parameters.iter().map(|parameter| (parameter.name.clone(), parameter.value)).collect()
        };
        let changeable = interface.features.iter().filter(|feature| feature.changeable);
        let features = changeable
            .map(|one| (one.name.clone(), SavedFeature { wanted: one.wanted, active: one.active }))
            .collect();
        Self {
            layout: LAYOUT,
            interface: interface.name.clone(),
            index: interface.index,
            address: interface.address.clone(),
            has_permanent_address: interface.has_permanent_address,
            boot: boot(),
            process,
            features,
            coalescing: values(&interface.coalescing),
            rings: values(&interface.rings),
            private_flags: values(&interface.private_flags),
            own: None,
            device: Some(Identity::of(interface)),
        }
    }

    /// Takes the state before any change, so that no key of it has to be restored yet.
    pub(crate) fn before_changes(interface: &Interface, process: Option<u32>) -> Self {
        Self { own: Some(BTreeMap::new()), ..Self::of(interface, process) }
    }

    /// Notes changed keys, each with whether the change was requested. Returns true if that adds
    /// anything.
    pub(crate) fn note<'a>(&mut self, keys: impl IntoIterator<Item = (&'a Key, bool)>) -> bool {
        let Some(own) = &mut self.own else { return false };
        let mut is_new = false;
        for (key, is_asked) in keys {
            let is_listed = own.entry(key.to_string()).or_insert_with(|| {
                is_new = true;
                is_asked
            });
            is_new |= is_asked && !*is_listed;
            *is_listed |= is_asked;
        }
        is_new
    }

    /// Notes the keys of a state on top of this one whose changes stay.
    pub(crate) fn note_all_of(&mut self, top: &Self) -> bool {
        let before = self.own.clone();
        match (&mut self.own, &top.own) {
            (Some(own), Some(top)) => {
                for (key, is_asked) in top {
                    *own.entry(key.clone()).or_default() |= is_asked;
                }
            }
            // The state on top restores all keys.
            (own, None) => *own = None,
            (None, _) => {}
        }
        self.own != before
    }

    /// True if a key is to be restored. If a feature changed only as a consequence and its wanted
    /// state now differs, another program has changed it.
    pub(crate) fn owns(&self, key: &Key, now: &Interface) -> bool {
        let Some(own) = &self.own else { return true };
        let is_wanted_as_then = || {
            let features = key.group == Group::Feature;
            let then = self.features.get(&key.name).filter(|_| features);
            let now = now.feature(&key.name);
            then.zip(now).is_none_or(|(then, now)| then.wanted == now.wanted)
        };
        own.get(&key.to_string()).is_some_and(|is_asked| *is_asked || is_wanted_as_then())
    }

    /// The keys whose values differ from the saved ones and that are not to be restored.
    pub(crate) fn others(&self, now: &Interface) -> Vec<SideEffect> {
        let features = self
            .features
            .iter()
            .map(|(name, then)| (Key::feature(name.clone()), Value::Switch(then.active)));
        let differing = features.chain(self.parameters()).filter_map(|(key, before)| {
            let after = now.value(&key).filter(|after| *after != before)?;
            (!self.owns(&key, now)).then_some(SideEffect { key, before, after })
        });
        differing.collect()
    }

    /// True if it is the state of this device. The kernel does not reuse an index, except on
    /// request.
    pub(crate) fn is_of(&self, interface: &Interface) -> bool {
        let is_same_address = self.address == interface.address;
        let is_permanent = self.has_permanent_address && interface.has_permanent_address;
        // An address that is not permanent can be changed, and so can the name.
        let is_similar = is_same_address || !is_permanent && self.interface == interface.name;
        let identity = Identity::of(interface);
        let is_same = self.device.as_ref().is_none_or(|device| device.is_same(&identity));
        self.index == interface.index && is_similar && is_same
    }

    /// All saved values except features.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (Key, Value)> {
        let groups = [
            (Group::PrivateFlag, &self.private_flags),
            (Group::Ring, &self.rings),
            (Group::Coalescing, &self.coalescing),
        ];
        groups.into_iter().flat_map(|(group, values)| {
            values.iter().map(move |(name, value)| (Key::new(group, name.clone()), *value))
        })
    }
}

fn boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.trim().to_owned()
}

/// The directory of saved states.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
    /// Suffix of the file name after the index of the interface.
    layer: &'static str,
    /// How long to wait for a lock.
    patience: Duration,
    /// Called when the wait begins.
    waiting: fn(&Error),
}

/// A lock that keeps other processes from changing the interface through this crate. The kernel
/// releases it when the process dies.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // A child that another thread has forked keeps the file open until its exec.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Default for Store {
    /// In the directory that the environment variable [`Store::VARIABLE`] names, else in
    /// [`Store::DEFAULT`].
    fn default() -> Self {
        let named = std::env::var_os(Self::VARIABLE).filter(|directory| !directory.is_empty());
        Self::at(named.unwrap_or_else(|| Self::DEFAULT.into()))
    }
}

impl Store {
    /// The default directory.
    pub const DEFAULT: &str = "/run/seekwire/nic";
    /// The environment variable that names another directory.
    pub const VARIABLE: &str = "SEEKWIRE_NIC_STATE";
    /// How long to wait for a lock by default: longer than the slowest driver takes for a change.
    pub const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

    /// A store in `directory`, which is created when needed.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            layer: "",
            patience: Self::LOCK_TIMEOUT,
            waiting: |_| {},
        }
    }

    /// Waits up to `patience` for another process that changes the interface, and calls `waiting`
    /// when the wait begins.
    #[must_use]
    pub fn waiting(self, patience: Duration, waiting: fn(&Error)) -> Self {
        Self { patience, waiting, ..self }
    }

    /// The store for sessions that hold on top of permanent changes.
    pub(crate) fn held(&self) -> Self {
        Self { layer: "-held", ..self.clone() }
    }

    /// The file of an interface of this thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::State`]: the namespace has no cookie (Linux before 5.14).
    pub fn file(&self, interface: &Interface) -> Result<PathBuf, Error> {
        let cookie =
            UnixDatagram::unbound().and_then(|socket| Ok(getsockopt(&socket, NamespaceCookie)?));
        let cookie = cookie.map_err(|error| self.failure(&self.directory, error))?;
        Ok(self
            .directory
            .join(format!("{PREFIX}{cookie}-if-{}{}.json", interface.index, self.layer)))
    }

    /// The saved state of an interface, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Damaged`], [`Error::State`].
    pub fn load(&self, interface: &Interface) -> Result<Option<Saved>, Error> {
        let path = self.file(interface)?;
        let Some(directory) = self.open()? else { return Ok(None) };
        let bytes =
            directory.read(name(&path), LARGEST).map_err(|error| self.closed(&path, error))?;
        let Some(bytes) = bytes else { return Ok(None) };
        // Bytes that are not UTF-8 become an empty text, which is refused.
        let text = String::from_utf8(bytes).unwrap_or_default();
        let saved =
            understand(&text, interface).map_err(|reason| Error::Damaged { path, reason })?;
        // The settings of an earlier boot are lost.
        Ok(Some(saved).filter(|saved| saved.boot == boot()))
    }

    /// Writes a state; with `is_first`, only if there is none. The caller must have the lock.
    pub(crate) fn write(
        &self,
        interface: &Interface,
        saved: &Saved,
        is_first: bool,
    ) -> Result<(), Error> {
        let path = self.file(interface)?;
        let directory = self.make()?;
        let write = || -> io::Result<()> {
            if is_first && directory.has(name(&path))? {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let mut text = serde_json::to_vec_pretty(saved)?;
            text.push(b'\n');
            directory.write(name(&path), &text)
        };
        write().map_err(|error| self.failure(&path, error))
    }

    pub(crate) fn remove(&self, interface: &Interface) -> Result<(), Error> {
        let path = self.file(interface)?;
        let Some(directory) = self.open()? else { return Ok(()) };
        directory.remove(name(&path)).map_err(|error| self.failure(&path, error))
    }

    /// Locks an interface, waiting for another holder of the lock. Creates the directory.
    pub(crate) fn lock(&self, interface: &Interface) -> Result<Lock, Error> {
        let until = Instant::now() + self.patience;
        let mut is_told = false;
        loop {
            match self.try_lock(interface) {
                Err(busy @ Error::Busy { .. }) if Instant::now() < until => {
                    if !std::mem::replace(&mut is_told, true) {
                        (self.waiting)(&busy);
                    }
                    std::thread::park_timeout(GLANCE);
                }
                locked => return locked,
            }
        }
    }

    /// Locks an interface without waiting.
    pub(crate) fn try_lock(&self, interface: &Interface) -> Result<Lock, Error> {
        let path = self.file(interface)?.with_extension("lock");
        // It is never removed, or two processes could lock two files of the same name.
        let file =
            self.make()?.lock_file(name(&path)).map_err(|error| self.failure(&path, error))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let process = |store: &Self| store.load(interface).ok()??.process;
                let process = process(&self.held()).or_else(|| process(self));
                Err(Error::Busy { name: interface.name.clone(), process })
            }
            Err(error) => Err(self.failure(&path, error.into())),
        }
    }

    fn open(&self) -> Result<Option<Directory>, Error> {
        Directory::open(&self.directory).map_err(|error| self.closed(&self.directory, error))
    }

    fn closed(&self, path: &Path, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Error::Closed(path.to_owned()),
            _ => self.failure(path, error),
        }
    }

    fn make(&self) -> Result<Directory, Error> {
        Directory::make(&self.directory).map_err(|error| self.failure(&self.directory, error))
    }

    fn failure(&self, path: &Path, source: io::Error) -> Error {
        Error::State { path: path.to_owned(), source }
    }
}

/// The file name without the directory.
fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn understand(text: &str, interface: &Interface) -> Result<Saved, String> {
    let saved: Saved = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if saved.layout != LAYOUT {
        return Err(format!(
            "layout {} instead of {LAYOUT}: written by another version",
            saved.layout
        ));
    }
    if saved.index != interface.index {
        return Err(format!("it is of interface number {}, not {}", saved.index, interface.index));
    }
    if saved.boot == boot() && !saved.is_of(interface) {
        let address = saved.address.as_deref().unwrap_or("without an address");
        return Err(format!(
            "it is of another device, {} ({address}), whose number this one has",
            saved.interface
        ));
    }
    Ok(saved)
}

#[cfg(test)]
mod tests {
    use seekwire_testbed::{Error as NoTestbed, Side};

    use super::*;
    use crate::interface::sample;

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path().join("made/when/needed"));
        (directory, store)
    }

    #[test]
    fn a_state_comes_back_as_it_went() {
        let (_directory, store) = store();
        assert_eq!(store.load(&sample()).unwrap(), None);
        let _lock = store.lock(&sample()).unwrap();
        let saved = Saved::of(&sample(), Some(17));
        store.write(&sample(), &saved, true).unwrap();
        assert_eq!(store.load(&sample()).unwrap(), Some(saved.clone()));
        assert_eq!(saved.features.len(), 8, "only what can be changed");
        assert_eq!(saved.parameters().count(), 6);
        store.remove(&sample()).unwrap();
        store.remove(&sample()).unwrap();
        assert_eq!(store.load(&sample()).unwrap(), None);
    }

    #[test]
    fn a_network_namespace_has_files_of_its_own() {
        let (_directory, store) = store();
        let file = || store.file(&sample()).unwrap();
        assert_eq!(file(), file());
        match seekwire_testbed::Testbed::new() {
            Ok(testbed) => {
                let [near, far] =
                    [Side::Near, Side::Far].map(|side| testbed.end(side).run(file).unwrap());
                assert!(near != far && near != file() && far != file(), "{near:?}, {far:?}");
            }
            Err(NoTestbed::NotPermitted { .. } | NoTestbed::Unsupported { .. }) => {}
            Err(why) => panic!("{why}"),
        }
    }

    #[test]
    fn the_first_state_is_not_written_over() {
        let (_directory, store) = store();
        let _lock = store.lock(&sample()).unwrap();
        store.write(&sample(), &Saved::of(&sample(), None), true).unwrap();
        let mut changed = sample();
        changed.features[0].active = false;
        store.write(&changed, &Saved::of(&changed, None), true).unwrap_err();
        assert_eq!(store.load(&sample()).unwrap(), Some(Saved::of(&sample(), None)));
    }

    #[test]
    fn a_state_of_an_earlier_start_does_not_count() {
        let (_directory, store) = store();
        let _lock = store.lock(&sample()).unwrap();
        let saved = Saved { boot: "another".to_owned(), ..Saved::of(&sample(), None) };
        store.write(&sample(), &saved, true).unwrap();
        assert_eq!(store.load(&sample()).unwrap(), None);
    }

    #[test]
    fn a_state_is_of_one_device_whatever_that_is_called() {
        let (_directory, store) = store();
        let _lock = store.lock(&sample()).unwrap();
        store.write(&sample(), &Saved::of(&sample(), None), true).unwrap();
        let renamed = Interface { name: "uplink".to_owned(), ..sample() };
        assert!(store.load(&renamed).unwrap().is_some());
        let other = Interface { address: Some("02:00:00:00:00:08".to_owned()), ..sample() };
        let error = store.load(&other).unwrap_err().to_string();
        assert!(error.contains("another device, eth7 (02:00:00:00:00:07)"), "{error}");
        // A non-permanent address may change, and so may the name, but not both.
        let made_up = |name: &str, address: &str| Interface {
            name: name.to_owned(),
            address: Some(address.to_owned()),
            has_permanent_address: false,
            ..sample()
        };
        let saved = Saved::of(&made_up("one", "a"), None);
        assert!(saved.is_of(&made_up("one", "b")) && saved.is_of(&made_up("two", "a")));
        assert!(!saved.is_of(&made_up("two", "b")));
    }

    #[test]
    fn one_process_at_a_time() {
        let (_directory, store) = store();
        let lock = store.lock(&sample()).unwrap();
        store.write(&sample(), &Saved::of(&sample(), Some(17)), true).unwrap();
        let error = store.try_lock(&sample()).unwrap_err().to_string();
        assert!(error.contains("(17) holds the settings of eth7"), "{error}");
        drop(lock);
        store.lock(&sample()).unwrap();
    }

    #[test]
    fn damage_is_said_with_what_to_do() {
        let (_directory, store) = store();
        let _lock = store.lock(&sample()).unwrap();
        let path = store.file(&sample()).unwrap();
        let good = serde_json::to_string(&Saved::of(&sample(), None)).unwrap();
        for (text, reason) in [
            (String::new(), "EOF"),
            (good[..good.len() / 2].to_owned(), "EOF"),
            ("\u{0}\u{1}".to_owned(), "expected value"),
            (good.replace("\"layout\":1", "\"layout\":2"), "layout 2 instead of 1"),
            (good.replace("\"index\":7", "\"index\":8"), "number 8"),
            (good.replace("\"wanted\":true", "\"wanted\":7"), "expected a boolean"),
            (good.replace("\"rings\"", "\"rungs\""), "rungs"),
        ] {
            fs::write(&path, &text).unwrap();
            let error = store.load(&sample()).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{text}");
            let error = error.to_string();
            assert!(
                error.contains(reason) && error.contains("remove this file"),
                "{text}: {error}"
            );
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(store.load(&sample()), Err(Error::Damaged { .. })));
    }
}
