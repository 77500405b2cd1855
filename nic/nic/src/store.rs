//! Saves the state of an interface to a file before it is first changed.
//!
//! Each interface has one file, `netns-COOKIE-if-INDEX.json`, in `/run/seekwire/nic` or another
//! directory that is [private](crate::private_directory). `/run` belongs to the host, not to a user,
//! and is emptied when the host starts, when the settings of interfaces are also lost. The kernel
//! never reuses the cookie of a namespace; it gives an index to another interface only on request,
//! and renaming keeps the index. A device that leaves the namespace and comes back may get another
//! index. Then its file is found by its permanent address, and renamed before anything is changed.
//!
//! A second file, `..-held.json`, exists while a session holds an interface that an earlier session
//! has changed permanently: the end of the hold restores the permanent changes.
//!
//! A file is written atomically and synced to the disk before anything is changed. It keeps the
//! state before the first change until that has been restored.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, libc, sockopt_impl};
use rustix::fs::FlockOperation;

use crate::error::Error;
use crate::interface::Interface;
use crate::private_directory::Directory;
use crate::saved_state::Saved;

/// How long to wait between two attempts to take a lock.
const GLANCE: Duration = Duration::from_millis(20);

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
    gives_up: GivesUp,
}

/// Whether a wait for a lock is to end at once.
#[derive(Clone)]
struct GivesUp(Arc<dyn Fn() -> bool + Send + Sync>);

impl fmt::Debug for GivesUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GivesUp")
    }
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
            gives_up: GivesUp(Arc::new(|| false)),
        }
    }

    /// Waits up to `patience` for another process that changes the interface, and calls `waiting`
    /// when the wait begins.
    #[must_use]
    pub fn waiting(self, patience: Duration, waiting: fn(&Error)) -> Self {
        Self { patience, waiting, ..self }
    }

    /// Ends a wait for a lock, as if its time was over, once `gives_up` returns true.
    #[must_use]
    pub fn unless(self, gives_up: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { gives_up: GivesUp(Arc::new(gives_up)), ..self }
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
        self.file_at(interface.index)
    }

    fn file_at(&self, index: u32) -> Result<PathBuf, Error> {
        Ok(self.directory.join(format!("{}{index}{}.json", self.prefix()?, self.layer)))
    }

    /// Prefix of all file names of this thread's network namespace.
    fn prefix(&self) -> Result<String, Error> {
        let cookie =
            UnixDatagram::unbound().and_then(|socket| Ok(getsockopt(&socket, NamespaceCookie)?));
        let cookie = cookie.map_err(|error| self.failure(&self.directory, error))?;
        Ok(format!("netns-{cookie}-if-"))
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
        let Some(bytes) = bytes else {
            return Ok(self.renumbered(interface)?.map(|(_, saved)| saved));
        };
        // Bytes that are not UTF-8 become an empty text, which is refused.
        let text = String::from_utf8(bytes).unwrap_or_default();
        let saved =
            understand(&text, interface).map_err(|reason| Error::Damaged { path, reason })?;
        // The settings of an earlier boot are lost.
        Ok(Some(saved).filter(Saved::is_of_this_boot))
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
        self.remove_at(interface.index)
    }

    fn remove_at(&self, index: u32) -> Result<(), Error> {
        let path = self.file_at(index)?;
        let Some(directory) = self.open()? else { return Ok(()) };
        directory.remove(name(&path)).map_err(|error| self.failure(&path, error))
    }

    /// True if the state of an interface of that name is saved.
    pub(crate) fn knows(&self, interface: &str) -> bool {
        let states = self.states();
        states.is_ok_and(|states| states.iter().any(|(_, saved)| saved.interface == interface))
    }

    /// Renames the file of a device that has a new index. The caller must have the locks.
    pub(crate) fn renumber(&self, interface: &Interface) -> Result<(), Error> {
        match self.renumbered(interface)? {
            Some((former, saved)) => {
                self.write(interface, &saved, false)?;
                self.remove_at(former)
            }
            None => Ok(()),
        }
    }

    /// The state of a device that was saved under another index, and that index.
    fn renumbered(&self, interface: &Interface) -> Result<Option<(u32, Saved)>, Error> {
        let states = self.states()?;
        if states.iter().any(|(index, _)| *index == interface.index) {
            return Ok(None);
        }
        let mut states = states.iter();
        Ok(states.find_map(|(former, saved)| Some((*former, saved.renumbered(interface)?))))
    }

    /// All states of this namespace that can be read, with the indices of their file names.
    fn states(&self) -> Result<Vec<(u32, Saved)>, Error> {
        let Some(directory) = self.open()? else { return Ok(Vec::new()) };
        let prefix = self.prefix()?;
        let suffix = format!("{}.json", self.layer);
        let read = |name: String| {
            let index = name.strip_prefix(&prefix)?.strip_suffix(&suffix)?.parse().ok()?;
            let bytes = directory.read(&name, LARGEST).ok()??;
            let saved = Saved::parse(&String::from_utf8(bytes).ok()?).ok()?;
            Some((index, saved)).filter(|(_, saved)| saved.is_of_this_boot())
        };
        let names = directory.names().map_err(|error| self.closed(&self.directory, error))?;
        Ok(names.into_iter().filter_map(read).collect())
    }

    /// Locks an interface, waiting for another holder of the lock. Creates the directory.
    pub(crate) fn lock(&self, interface: &Interface) -> Result<Vec<Lock>, Error> {
        let until = Instant::now() + self.patience;
        let mut is_told = false;
        loop {
            match self.try_lock(interface) {
                Err(busy @ Error::Busy { .. })
                    if Instant::now() < until && !(self.gives_up.0)() =>
                {
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
    pub(crate) fn try_lock(&self, interface: &Interface) -> Result<Vec<Lock>, Error> {
        let mut locks = vec![self.try_lock_at(interface.index, interface)?];
        // A process may still hold the device under its former index.
        if let Some((former, _)) = self.renumbered(interface)? {
            locks.push(self.try_lock_at(former, interface)?);
        }
        Ok(locks)
    }

    fn try_lock_at(&self, index: u32, interface: &Interface) -> Result<Lock, Error> {
        let path = self.file_at(index)?.with_extension("lock");
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
    let saved = Saved::parse(text)?;
    if saved.index != interface.index {
        return Err(format!("it is of interface number {}, not {}", saved.index, interface.index));
    }
    if saved.is_of_this_boot() && !saved.is_of(interface) {
        return Err(format!("it is of another device, {saved}, whose number this one has"));
    }
    Ok(saved)
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let mut saved = Saved::of(&sample(), None);
        saved.boot = "another".to_owned();
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
    fn a_device_with_another_index_is_found_by_its_permanent_address() {
        let (_directory, store) = store();
        let locks = store.lock(&sample()).unwrap();
        let saved = Saved::of(&sample(), Some(17));
        store.write(&sample(), &saved, true).unwrap();
        let back = Interface { index: 9, name: "uplink".to_owned(), ..sample() };
        assert_eq!(store.load(&back).unwrap().unwrap().index, 9);
        assert!(store.knows("eth7") && !store.knows("uplink") && !store.held().knows("eth7"));
        for other in [
            Interface { has_permanent_address: false, ..back.clone() },
            Interface { address: Some("02:00:00:00:00:08".to_owned()), ..back.clone() },
            Interface { bus: Some("pci/0000:02:00.0".to_owned()), ..back.clone() },
        ] {
            assert_eq!(store.load(&other).unwrap(), None, "{other:?}");
            store.try_lock(&other).unwrap();
        }
        // The process that saved it may still hold it.
        let error = store.try_lock(&back).unwrap_err().to_string();
        assert!(error.contains("(17) holds the settings of uplink"), "{error}");
        drop(locks);
        let _locks = store.lock(&back).unwrap();
        store.renumber(&back).unwrap();
        store.renumber(&back).unwrap();
        assert!(store.file(&back).unwrap().exists() && !store.file(&sample()).unwrap().exists());
        assert_eq!(store.load(&back).unwrap().unwrap().features, saved.features);
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
