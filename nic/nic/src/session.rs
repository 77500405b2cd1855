//! A session: changes an interface and restores it.

use crate::change::{self, Report};
use crate::error::Error;
use crate::interface::Interface;
use crate::kernel::Kernel;
use crate::plan::{Fate, Plan};
use crate::saved::{Lock, Saved, Store};
use crate::setting::Key;

/// For how long settings shall stay, and what is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// True: until the session ends, however it ends. False: until [`restore`].
    pub hold: bool,
    /// Whether an interface may be changed that carries the default route.
    pub default_route: bool,
}

/// The right to change one interface, and the duty to put it back. The state before is on the disk
/// as soon as there is a session. One process has a session with an interface at a time.
///
/// With [`Terms::hold`] dropping it restores what it found, in a panic, too; if the process is
/// killed, the saved state stays, and [`left_behind`] tells the next one.
pub struct Session<'a> {
    kernel: &'a mut Kernel,
    found: Interface,
    /// The state before the changes, to which a session that holds goes back.
    base: Saved,
    /// Where that is.
    file: Store,
    /// Whether it was not there before, and nothing has been changed since.
    is_unused: bool,
    hold: bool,
    _lock: Lock,
}

impl<'a> Session<'a> {
    /// Locks the interface and saves its state, unless an earlier one is saved already.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchInterface`], [`Error::DefaultRoute`], [`Error::NotPermitted`],
    /// [`Error::Busy`], [`Error::Damaged`], [`Error::State`], [`Error::Kernel`]. Nothing has been
    /// changed then.
    pub fn begin(
        kernel: &'a mut Kernel,
        store: &'a Store,
        name: &str,
        terms: Terms,
    ) -> Result<Self, Error> {
        let found = kernel.interface(name)?;
        if found.default_route && !terms.default_route {
            return Err(Error::DefaultRoute(found.name));
        }
        kernel.check_permission(&found.name, found.index)?;
        let lock = store.lock(&found)?;
        // The process that had the lock before may have changed it.
        let found = kernel.interface_at(found.index, &found.name)?;
        let process = terms.hold.then(std::process::id);
        let held = store.held();
        // The changes of a process that was killed before it could undo them also stay from now on.
        let stays = if terms.hold { None } else { held.load(&found)? };
        let (saved, file) = match held.load(&found)? {
            Some(left) if terms.hold => (Some(left), held.clone()),
            _ => match store.load(&found)? {
                // It stays, and so does its state; this session goes back to it.
                Some(stays) if terms.hold && stays.process.is_none() => (None, held.clone()),
                saved => (saved, store.clone()),
            },
        };
        let (mut base, file, is_unused) = match saved {
            None => {
                let base = Saved::before_changes(&found, process);
                // One of an earlier start of the host may be in the way.
                file.remove(&found)?;
                file.write(&found, &base, true)?;
                (base, file, true)
            }
            // Its process has died, or it would have the lock: what it found is what there was.
            Some(saved) if saved.process.is_some() => {
                let mut base = saved;
                base.process = process;
                file.write(&found, &base, false)?;
                (base, file, false)
            }
            Some(saved) => (saved, file, false),
        };
        if let Some(stays) = stays {
            if base.note_all_of(&stays) {
                file.write(&found, &base, false)?;
            }
            held.remove(&found)?;
        }
        Ok(Self { kernel, found, base, file, is_unused, hold: terms.hold, _lock: lock })
    }

    /// The interface as it was when the session began.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.found
    }

    /// Reads the interface anew, to plan from. It is the same one if it has been given another
    /// name.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`], [`Error::Detached`], [`Error::Kernel`].
    pub fn now(&mut self) -> Result<Interface, Error> {
        now(self.kernel, &self.found.name, &self.base)
    }

    /// Does what is planned. What is refused is in the report; the rest is done.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`], [`Error::Detached`], [`Error::Kernel`]: the interface cannot be read any more.
    /// [`Error::State`]: what is changed cannot be noted.
    pub fn apply(&mut self, plan: &Plan) -> Result<Report, Error> {
        let before = self.now()?;
        if plan.is_idle() {
            return change::apply(self.kernel, &before, plan);
        }
        self.is_unused = false;
        let asked = plan.items.iter().filter(|item| item.fate == Fate::Change);
        let along = plan.along.iter().map(|along| (&along.key, false));
        self.note(asked.map(|item| (&item.key, true)).chain(along))?;
        let report = change::apply(self.kernel, &before, plan)?;
        // A driver changes what nobody can foresee.
        self.note(report.along.iter().map(|along| (&along.key, false)))?;
        Ok(report)
    }

    /// The disk has the keys before the kernel is asked to change them.
    fn note<'k>(&mut self, keys: impl IntoIterator<Item = (&'k Key, bool)>) -> Result<(), Error> {
        if self.base.note(keys) { self.file.write(&self.found, &self.base, false) } else { Ok(()) }
    }

    /// Ends the session: one that holds puts back what it found, any other leaves the interface as
    /// it is.
    ///
    /// # Errors
    ///
    /// As [`Session::apply`]; [`Error::State`]: the interface is restored, but the saved state
    /// cannot be removed.
    pub fn end(mut self) -> Result<Option<Report>, Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<Option<Report>, Error> {
        // There is nothing to go back from.
        if std::mem::take(&mut self.is_unused) {
            self.hold = false;
            self.forget()?;
        }
        if !std::mem::take(&mut self.hold) {
            return Ok(None);
        }
        let report = back(self.kernel, &self.found.name, &self.base)?;
        if report.is_complete() {
            self.forget()?;
        }
        Ok(Some(report))
    }

    fn forget(&self) -> Result<(), Error> {
        self.file.remove(&self.found)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // Nobody is left to be told; the saved state stays if it fails.
        let _ = self.finish();
    }
}

/// Puts an interface back into the state before it was first changed, except for what somebody else
/// has changed since, and forgets that state if all of it came back. Where a session was killed that held it on top of what stays, into what stays;
/// another call goes on from there.
///
/// # Errors
///
/// [`Error::NothingSaved`]; [`Error::Busy`]: a process that holds the settings restores them when it ends; others as
/// [`Session::begin`].
pub fn restore(kernel: &mut Kernel, store: &Store, name: &str) -> Result<Report, Error> {
    let found = kernel.interface(name)?;
    // Without one there is nothing to lock, and perhaps no right to.
    let held = store.held();
    match held.load(&found).and_then(|top| Ok(top.or(store.load(&found)?))) {
        Ok(None) => return Err(Error::NothingSaved(found.name)),
        // What is missing is said below.
        Ok(Some(_)) | Err(Error::Closed(_)) => {}
        Err(error) => return Err(error),
    }
    kernel.check_permission(&found.name, found.index)?;
    let _lock = store.lock(&found)?;
    let (saved, file) = match held.load(&found)? {
        Some(saved) => (saved, &held),
        None => {
            (store.load(&found)?.ok_or_else(|| Error::NothingSaved(found.name.clone()))?, store)
        }
    };
    let report = back(kernel, &found.name, &saved)?;
    if report.is_complete() {
        file.remove(&found)?;
    }
    Ok(report)
}

/// Another interface may have been given the name since, and this one another.
fn now(kernel: &mut Kernel, name: &str, saved: &Saved) -> Result<Interface, Error> {
    match kernel.interface_back_at(saved.index, name) {
        Ok(now) if saved.is_of(&now) => Ok(now),
        Ok(_) | Err(Error::NoSuchInterface(_)) => Err(Error::Gone(name.to_owned())),
        Err(error) => Err(error),
    }
}

/// What does not come back at once is tried a second time: one setting may have detached the
/// device, which then refuses the next.
fn back(kernel: &mut Kernel, name: &str, saved: &Saved) -> Result<Report, Error> {
    let mut once = || {
        let now = now(kernel, name, saved)?;
        change::apply(kernel, &now, &Plan::back_to(&now, saved))
    };
    let first = once()?;
    let again = if first.is_complete() { None } else { Some(once()?) };
    let report = match again {
        // Else what the first one has changed is the better account.
        Some(again) if again.missing().count() < first.missing().count() => again,
        _ => first,
    };
    let others = saved.others(&now(kernel, name, saved)?);
    Ok(Report { others, ..report })
}

/// The process that was to restore the interface and has died without, if there is one.
///
/// # Errors
///
/// [`Error::Closed`], [`Error::Damaged`], [`Error::State`].
pub fn left_behind(store: &Store, interface: &Interface) -> Result<Option<u32>, Error> {
    let saved = store.held().load(interface)?.or(store.load(interface)?);
    let Some(process) = saved.and_then(|saved| saved.process) else { return Ok(None) };
    match store.try_lock(interface) {
        Ok(_) => Ok(Some(process)),
        Err(Error::Busy { .. }) => Ok(None),
        // Somebody who may not lock may still be told, if the process is not there.
        Err(_) => Ok(Some(process)
            .filter(|process| !std::path::Path::new(&format!("/proc/{process}")).exists())),
    }
}
